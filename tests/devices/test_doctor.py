"""The doctor finds what is there, and says one command about what is not."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from edgec_devices import doctor
from edgec_devices.doctor import Finding, Report, examine, usb_ids


def by_name() -> dict[str, Finding]:
    return {f.name: f for f in examine().findings}


def test_this_machine() -> None:
    found = by_name()
    assert found["Python"].status == "ok"
    assert found["numpy"].status == "ok"
    assert "litert" in found["TFLite interpreter"].seen
    assert found["disk"].status in ("ok", "warn")
    assert {f.status for f in found.values()} <= {"ok", "warn", "bad"}
    for f in found.values():
        assert f.name in Report(tuple(found.values())).table()
        assert "\n" not in f.fix


def test_an_empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_: None)
    monkeypatch.setattr(doctor, "_version", lambda _: None)
    monkeypatch.setattr(doctor, "_importable", lambda _: False)
    monkeypatch.setattr(doctor, "find_library", lambda _: None)
    monkeypatch.setattr(doctor, "USB_DEVICES", tmp_path)
    monkeypatch.setattr(doctor, "CORAL_PCIE", tmp_path / "apex_0")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    found = by_name()
    assert found["numpy"].fix == "pip install numpy"
    assert found["TFLite interpreter"].fix == "pip install ai-edge-litert"
    assert found["emulated boards"].fix == "sudo apt-get install qemu-user"
    assert found["edgetpu_compiler"].fix == "sudo apt-get install edgetpu-compiler"
    assert found["libedgetpu"].fix == "sudo apt-get install libedgetpu1-std"
    assert found["Coral Edge TPU"].status == "warn"


def plug(root: Path, name: str, vendor: str, product: str) -> None:
    (root / name).mkdir(parents=True)
    (root / name / "idVendor").write_text(vendor + "\n")
    (root / name / "idProduct").write_text(product + "\n")


@pytest.mark.parametrize(
    ("vendor", "product", "seen"), [("1a6e", "089a", "before its first"), ("18d1", "9302", "Google")]
)
def test_a_stick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vendor: str, product: str, seen: str) -> None:
    plug(tmp_path, "1-1", "046d", "c077")
    plug(tmp_path, "1-2", vendor, product)
    assert usb_ids(tmp_path) == ["046d:c077", f"{vendor}:{product}"]
    monkeypatch.setattr(doctor, "usb_ids", lambda: usb_ids(tmp_path))
    coral = by_name()["Coral Edge TPU"]
    assert coral.status == "ok"
    assert seen in coral.seen


@pytest.mark.parametrize("genuine", [True, False])
def test_pycoral(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, genuine: bool) -> None:
    (tmp_path / "pycoral" / "utils").mkdir(parents=True)
    (tmp_path / "pycoral" / "__init__.py").write_text("raise SystemExit('the doctor must not run this')")
    if genuine:
        (tmp_path / "pycoral" / "utils" / "edgetpu.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = by_name()["pycoral"]
    assert found.status == ("ok" if genuine else "bad")
    assert found.fix == ("" if genuine else "pip uninstall pycoral")


def test_a_check_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def _broken() -> Iterator[Finding]:
        raise PermissionError("no")
        yield

    monkeypatch.setattr(doctor, "CHECKS", (_broken,))
    report = examine()
    assert report.findings == (Finding("broken", "warn", "could not look: no"),)
    assert report.ok
    assert report.to_json()["ok"] is True
    assert not Report((Finding("x", "bad", "y"),)).ok
