"""flash --service with a stand-in systemctl: what it is told, in which order, and what
a device without it says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from edgec_devices.flash import FlashOutcome, flash, rollback
from edgec_devices.options import FlashOptions
from edgec_runtime import write_bundle
from edgec_runtime.device_end.bundles import machine_target
from edgec_runtime.device_end.disk import Disk, Refused
from edgec_runtime.device_end.units import Units, unit_name, unit_text

from edgec.cli import devices as cli_devices
from tests.runtime import tiny_model

UNIT = "edgec-tiny.service"
WORDS = [] if os.geteuid() == 0 else ["--user"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEC_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("EDGEC_UNITS", str(tmp_path / "units"))
    return tmp_path / "root"


def stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str = "nothing"
) -> Path:
    """A systemctl and a loginctl that write down what they are told, and fail when told
    `fails`.
    """
    folder = tmp_path / "bin"
    log = tmp_path / "log"
    folder.mkdir(exist_ok=True)
    for name in ("systemctl", "loginctl", "sudo"):
        (folder / name).write_text(
            f'#!/bin/sh\necho "{name} $*" >> {log}\n'
            f'case "{name} $*" in *"{fails}"*) echo "it did not: $*" >&2; exit 1;; esac\n'
        )
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return log


def told(log: Path) -> list[str]:
    lines = [line.replace("--user ", "") for line in log.read_text().splitlines()]
    log.write_text("")
    return [line for line in lines if line.startswith("systemctl")]


def bundle(path: Path, program: Path, extra: bytes = b"x") -> Path:
    manifest, files = tiny_model.parts(None, {machine_target(): program})
    write_bundle(path, manifest, {**files, "report/extra.bin": extra})
    return path


def one(outcomes: tuple[FlashOutcome, ...]) -> str:
    assert outcomes[0].ok, outcomes
    return outcomes[0].what


@pytest.mark.cc
def test_the_active_slot_is_run(
    tmp_path: Path, root: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = stand_in(tmp_path, monkeypatch)
    first, second = (bundle(tmp_path / f"{n}.edgec", program, n.encode()) for n in "12")
    assert (
        one(flash(first, ["local:"], FlashOptions(service=True)))
        == f"flashed, slot a, {UNIT} runs"
    )
    show, *rest = told(log)
    assert show == "systemctl show --property=Version"
    assert rest[-3:] == [
        "systemctl daemon-reload",
        f"systemctl enable {UNIT}",
        f"systemctl restart {UNIT}",
    ]
    text = (tmp_path / "units" / UNIT).read_text()
    assert f"WorkingDirectory={root}/tiny/current\n" in text
    assert f"EnvironmentFile=-{root}/tiny/service.conf\n" in text
    assert "Restart=on-failure" in text
    assert os.listdir(tmp_path / "units") == [UNIT]

    assert one(flash(second, ["local:"])) == "flashed, slot b"
    assert told(log) == [f"systemctl try-restart {UNIT}"], (
        "the earlier version would go on"
    )
    assert one(rollback(["local:"])) == "tiny is back on slot a"
    assert told(log) == [f"systemctl try-restart {UNIT}"]
    assert (
        one(flash(first, ["local:"], FlashOptions(service=True)))
        == f"was there already, slot a, {UNIT} runs"
    )


@pytest.mark.cc
def test_what_the_unit_starts(
    tmp_path: Path, root: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch)
    one(
        flash(
            bundle(tmp_path / "1.edgec", program),
            ["local:"],
            FlashOptions(service=True),
        )
    )
    assert '"total"' in start(tmp_path / "units" / UNIT)
    settings = root / "tiny" / "service.conf"
    settings.write_text(
        """COMMAND="printf '%%s|' 'a b' $EDGEC_BUNDLE"\n""".replace("%%", "%")
    )
    assert start(tmp_path / "units" / UNIT) == f"a b|{root}/tiny/current/model.edgec|"


def start(unit: Path) -> str:
    """What systemd would: the environment, the file that may change it, then ExecStart
    with its quotes and $$.
    """
    fields: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        key, _, value = line.partition("=")
        fields.setdefault(key, []).append(value)
    env = {}
    for assignment in fields["Environment"]:
        name, _, value = assignment.strip('"').partition("=")
        env[name] = value
    settings = Path(fields["EnvironmentFile"][0].removeprefix("-"))
    if settings.exists():
        name, _, value = settings.read_text().strip().partition("=")
        env[name] = value.strip('"')
    script = (
        fields["ExecStart"][0]
        .removeprefix("/bin/sh -c '")
        .removesuffix("'")
        .replace("$$", "$")
    )
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env=env,
        cwd=fields["WorkingDirectory"][0],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.cc
def test_a_device_without_systemd_stays_as_it_was(
    tmp_path: Path, root: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_bundle = bundle(tmp_path / "1.edgec", program)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    error = flash(one_bundle, ["local:"], FlashOptions(service=True))[0].error
    assert error is not None
    assert "no systemd on the device" in error.what
    assert "without --service" in str(error.hint)
    stand_in(tmp_path, monkeypatch, fails="show --property")
    error = flash(one_bundle, ["local:"], FlashOptions(service=True))[0].error
    assert error is not None
    assert error.what.endswith(
        "it did not: " + " ".join([*WORDS, "show", "--property=Version"])
    )
    is_root = os.geteuid() == 0
    assert ("without --service" if is_root else "edgec package") in str(error.hint)
    assert not (root / "tiny").exists()
    assert not (tmp_path / "units").exists()
    assert one(flash(one_bundle, ["local:"])) == "flashed, slot a"


@pytest.mark.cc
def test_a_service_that_does_not_start(
    tmp_path: Path, root: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, fails="restart")
    first, second = (bundle(tmp_path / f"{n}.edgec", program, n.encode()) for n in "12")
    verb = cli_devices.flash
    done = CliRunner().invoke(verb, [str(first), "--on", "local:", "--service"])
    assert done.exit_code == 1
    assert "hint: look at it on the device: journalctl" in done.output
    assert os.readlink(root / "tiny" / "current") == "a", "the bundle itself is good"
    assert "its service still runs the other version: systemctl" in one(
        flash(second, ["local:"])
    )


def test_a_users_service_has_to_outlive_the_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("EDGEC_UNITS", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    calls: list[list[str]] = []
    refuses = {"loginctl"}

    def execute(
        command: list[str], **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        calls.append(command)
        assert options["env"]["XDG_RUNTIME_DIR"].startswith("/run/user/")
        return subprocess.CompletedProcess(
            command, int(command[0] in refuses), b"", b"no"
        )

    monkeypatch.setattr(shutil, "which", lambda name: name)
    units = Units(str(tmp_path / "root"), Disk(), execute)
    assert units.install("tiny").lingers is True
    assert calls[-1][:4] == ["sudo", "-n", "loginctl", "enable-linger"]
    assert all(c[:2] == ["systemctl", "--user"] for c in calls if c[0] == "systemctl")
    assert (
        "WantedBy=default.target"
        in (tmp_path / "config/systemd/user" / UNIT).read_text()
    )
    refuses.add("sudo")
    assert units.install("tiny").lingers is False


@pytest.mark.parametrize("app", ["a@b", "a+b", "../x", "", "a b", "x%n", "a\nb", "é"])
def test_names_that_mean_something_to_systemd(app: str) -> None:
    with pytest.raises(Refused):
        unit_name(app)
    assert Units("/nowhere", Disk()).refresh(app) is None, (
        "it has none, and that is no trouble"
    )


@pytest.mark.parametrize(
    "path", ["relative", "/a b", "/a%b", '/a"b', "/a\nExecStart=/bin/false", "/a$b"]
)
def test_paths_that_would_have_to_be_quoted(path: str) -> None:
    with pytest.raises(Refused, match="cannot be written"):
        unit_text("x", path, ["/p"], "/s")


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="no systemd-analyze: install systemd",
)
def test_systemd_reads_it(tmp_path: Path) -> None:
    path = tmp_path / UNIT
    path.write_text(unit_text("tiny", "/tmp", ["/bin/true"], "/etc/default/edgec-tiny"))
    done = subprocess.run(
        ["systemd-analyze", "verify", path], capture_output=True, text=True
    )
    said = [
        line for line in done.stderr.splitlines() if UNIT in line or str(path) in line
    ]
    assert not said, said
