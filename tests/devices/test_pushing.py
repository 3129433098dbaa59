"""flash --with-runtime: wheels on the device, hashed, tried together, used by run; and
wheels that are refused.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.flash import flash
from edgec_devices.measurement import MeasuringPlan
from edgec_devices.options import FlashOptions
from edgec_devices.package_index import download
from edgec_devices.protocol import Connection
from edgec_devices.remote import Remote
from edgec_devices.signing import new_key
from edgec_devices.stream import stream_for
from edgec_devices.transfer import PIECE
from edgec_devices.wheel import Wheel, wheels_or_names
from edgec_devices.wheel_transfer import PYTHON, REQUIRES, push, runtime_wheel
from edgec_runtime import (
    Bundle,
    DeviceError,
    EdgecError,
    InputError,
    ToolError,
    write_bundle,
)
from edgec_runtime.device_end.bundles import machine_target
from edgec_runtime.device_end.wire import pack

from tests.conftest import ROOT
from tests.devices.test_flash import bundle, cli, failed, ok
from tests.runtime import tiny_model

pytestmark = pytest.mark.cc


def wheel(files: dict[str, bytes], name: str = "extra-1.0-py3-none-any.whl") -> Wheel:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as z:
        for path, data in files.items():
            z.writestr(path, data)
    return Wheel(name, made.getvalue())


@pytest.mark.parametrize(
    "method",
    [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA],
)
def test_a_wheel_whose_files_cannot_be_unpacked(tmp_path: Path, method: int) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as z:
        z.writestr("a.py", b"a = 1\n" * 50)
    path = tmp_path / "extra-1.0-py3-none-any.whl"
    data = made.getvalue()
    taken = []
    # in what is packed, behind its header of 30 bytes and the name
    for at in range(34, 48):
        path.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
        with contextlib.suppress(InputError):
            Wheel.of(path)
            taken.append(at)
    assert len(taken) < 9  # some bytes mean nothing


def test_the_runtime_wheel() -> None:
    made = runtime_wheel()
    assert made == runtime_wheel()
    # Of these seconds, one is for scripts of tflite_runtime and pycoral, five for faces,
    # three for the stick.
    starts = range(0, len(made.data), PIECE)
    wire = sum(len(pack({}, made.data[at : at + PIECE])) for at in starts)
    assert wire * 10 / 115_200 < 24, "seconds at 115200 baud, ten bits a byte"
    project = tomllib.loads((ROOT / "runtime" / "pyproject.toml").read_text())[
        "project"
    ]
    assert (project["requires-python"], project["dependencies"]) == (PYTHON, [REQUIRES])


def test_pip_takes_the_runtime_wheel(tmp_path: Path) -> None:
    made = runtime_wheel()
    (tmp_path / made.name).write_bytes(made.data)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "-q",
        "--target",
        str(tmp_path / "t"),
    ]
    subprocess.run([*command, str(tmp_path / made.name)], check=True, timeout=120)
    assert (tmp_path / "t" / "edgec_runtime" / "session" / "session.py").exists()


@pytest.mark.slow
def test_flash_with_runtime_and_run(tmp_path: Path, root: Path, program: Path) -> None:
    library = tiny_model.build_library(tmp_path)
    path = tmp_path / "1.edgec"
    write_bundle(path, *tiny_model.parts(library, {machine_target(): program}))
    extra = tmp_path / "extra-1.0-py3-none-any.whl"
    extra.write_bytes(
        wheel({"extra/__init__.py": b"x = 1\n", "extra/.hidden": b""}).data
    )
    done = cli("flash", path, "--on", "local:", "--with-runtime", "--wheel", extra)
    assert done.exit_code == 0, done.output
    assert "flashed, slot a, runtime 0.1.0" in done.output
    site = root / "tiny" / "site"
    assert len(json.loads((site / "active.json").read_text())) == 2
    assert "runtime 0.1.0 was there already" in ok(
        flash(path, ["local:"], FlashOptions(wheels=[extra]))
    )
    device = Remote(lambda: stream_for("local:"))
    with Bundle.open(path) as b:
        image = tiny_model.image(3)
        for name, array in tiny_model.reference(image).items():
            np.testing.assert_array_equal(device.run(b, {"image": image})[name], array)
        found = device.measure(b, MeasuringPlan(rounds=2, runs=3))
        assert found.runner == "session"
        assert [len(one.total) - one.warmup for one in found.timed] == [3, 3]
        assert len(found.profiles) == 1, "the ops of C segments are the program's"
    next(site.glob("*/edgec_runtime/session/session.py")).write_text(
        "raise SystemExit('changed')"
    )
    with (
        Bundle.open(path) as b,
        pytest.raises(DeviceError, match="a wheel of tiny is damaged"),
    ):
        device.measure(b, MeasuringPlan(rounds=2, runs=3))
    assert "runtime 0.1.0" in ok(
        flash(path, ["local:"], FlashOptions(with_runtime=True))
    )
    assert len([p for p in site.iterdir() if p.is_dir()]) == 1, (
        "wheels that are not used any more go"
    )


def test_wheels_that_are_refused(tmp_path: Path, root: Path, program: Path) -> None:
    one = bundle(tmp_path / "1.edgec", program)
    two = bundle(tmp_path / "2.edgec", program, b"2")
    ok(flash(one, ["local:"], FlashOptions(with_runtime=True)))
    before = (root / "tiny" / "site" / "active.json").read_text()
    for files, what in (
        ({"../evil.py": b""}, "unsafe file"),
        ({"/tmp/evil.py": b""}, "unsafe file"),
        ({"a/../../evil.py": b""}, "unsafe file"),
        ({f"d/{i}": b"" for i in range(17_000)}, "more than a wheel should"),
        (
            {"edgec_runtime/__init__.py": b"", "numpy/__init__.py": b"1/0"},
            "cannot be imported",
        ),
    ):
        made = wheel(files)
        (tmp_path / made.name).write_bytes(made.data)
        options = FlashOptions(wheels=[tmp_path / made.name])
        error = failed(flash(two, ["local:"], options))
        assert what in error.what
        assert error.hint
        assert os.readlink(root / "tiny" / "current") == "a"
        assert (root / "tiny" / "site" / "active.json").read_text() == before
        assert len([p for p in (root / "tiny" / "site").iterdir() if p.is_dir()]) == 1
        assert not list(tmp_path.rglob("evil*"))
    ok(flash(one, ["local:"], FlashOptions(with_runtime=True)))


def test_a_link_in_a_wheel(root: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as z:
        info = zipfile.ZipInfo("link")
        info.create_system = 3
        info.external_attr = 0o120777 << 16
        z.writestr(info, "/etc/passwd")
    with (
        Connection(stream_for("local:")) as c,
        pytest.raises(InputError, match="unsafe file"),
    ):
        push(c, "tiny", [Wheel("extra-1.0-py3-none-any.whl", made.getvalue())])


@pytest.mark.parametrize(
    ("name", "target", "python", "good"),
    [
        (
            "ai_edge_litert-2.0.2-cp311-cp311-manylinux_2_17_aarch64.whl",
            "linux-aarch64",
            "3.11.2",
            True,
        ),
        (
            "ai_edge_litert-2.0.2-cp311-cp311-manylinux_2_17_aarch64.whl",
            "linux-aarch64",
            "3.13.1",
            False,
        ),
        (
            "ai_edge_litert-2.0.2-cp311-cp311-manylinux_2_17_x86_64.whl",
            "linux-aarch64",
            "3.11.2",
            False,
        ),
        (
            "x-1-cp38-abi3-manylinux2014_armv7l.manylinux_2_17_armv7l.whl",
            "linux-armv7",
            "3.12.0",
            True,
        ),
        ("x-1-py2.py3-none-any.whl", "linux-armv7", "3.9.0", True),
    ],
)
def test_wheels_of_other_machines(
    name: str, target: str, python: str, good: bool
) -> None:
    check: Callable[[], None] = lambda: Wheel(name, b"").fits(target, python)  # noqa: E731
    if good:
        check()
        return
    with pytest.raises(InputError, match="is not for this device") as e:
        check()
    assert str(e.value.hint).startswith("--wheel ")


def indexed(folder: Path, name: str, tags: str, requires: str = "") -> None:
    """A wheel in a folder that pip takes for an index."""
    project = name.partition("-")[0]
    info = f"{name}.dist-info"
    needed = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{project}.py": tags.encode(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: "
        f"1.0\n{needed}".encode(),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: "
        f"{tags}\n".encode(),
        f"{info}/RECORD": b"",
    }
    (folder / f"{name}-{tags}.whl").write_bytes(wheel(files).data)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip's only one."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.parametrize(
    ("target", "python", "tags"),
    [
        ("linux-aarch64", "3.11.2", "cp311-cp311-manylinux_2_27_aarch64"),
        ("linux-aarch64", "3.13.5", "cp313-cp313-manylinux_2_27_aarch64"),
        ("linux-x86_64", "3.13.1", "cp313-cp313-manylinux_2_17_x86_64"),
    ],
)
def test_a_wheel_is_downloaded_for_the_device_by_its_name(
    index: Path, target: str, python: str, tags: str
) -> None:
    for minor in ("311", "312", "313"):
        for system in (
            "manylinux_2_27_aarch64",
            "manylinux_2_39_aarch64",
            "manylinux_2_17_x86_64",
        ):
            indexed(index, "extra-1.0", f"cp{minor}-cp{minor}-{system}", "needed")
    indexed(index, "needed-1.0", "py3-none-any")
    indexed(index, "unneeded-1.0", "py3-none-any")
    found = download(["extra"], target, python)
    assert [w.name for w in found] == [
        f"extra-1.0-{tags}.whl",
        "needed-1.0-py3-none-any.whl",
    ]
    for one in found:
        one.fits(target, python)
    assert download([], target, python) == []


def test_a_device_for_which_there_is_no_wheel_is_named(index: Path) -> None:
    indexed(index, "extra-1.0", "cp311-cp311-manylinux_2_27_aarch64")
    with pytest.raises(InputError, match=r"no extra for armv7l with Python 3\.11"):
        download(["extra"], "linux-armv7", "3.11.2")


def test_an_index_that_cannot_be_reached_is_no_lack_of_a_wheel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(
        ToolError, match="pip cannot download extra: no connection"
    ) as e:
        download(["extra"], "linux-aarch64", "3.13.5")
    assert "network" in str(e.value.hint)


def test_what_wheel_takes(tmp_path: Path) -> None:
    (tmp_path / "extra-1.0-py3-none-any.whl").write_bytes(wheel({"x.py": b""}).data)
    one, two, three = wheels_or_names(
        ["ai-edge-litert", "numpy==2.2.0", tmp_path / "extra-1.0-py3-none-any.whl"]
    )
    assert (one, two) == ("ai-edge-litert", "numpy==2.2.0")
    assert isinstance(three, Wheel)
    for wrong in ("-r x", "--index-url=x", "a b", "", "x;y"):
        with pytest.raises(InputError, match="is not a wheel"):
            wheels_or_names([wrong])


def test_files_that_are_no_wheels(tmp_path: Path) -> None:
    for name, data in (
        ("x.zip", b""),
        ("x-1-py3-none-any.whl", b"junk"),
        ("missing-1-py3-none-any.whl", None),
    ):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError) as e:
            Wheel.of(tmp_path / name)
        assert e.value.hint


def test_a_device_that_trusts_a_key_takes_no_unsigned_wheels(root: Path) -> None:
    key = new_key(root.parent / "key")
    with Connection(stream_for("local:")) as c:
        c.request("trust", {}, key.line.encode())
        with pytest.raises(EdgecError, match="the wheel is not signed"):
            push(c, "tiny", [])
