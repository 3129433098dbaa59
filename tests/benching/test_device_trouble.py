"""`edgec bench` on a device that throttles, and on one that vanishes while it is
measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
from edgec_runtime import write_bundle
from edgec_runtime.device_end.bundles import machine_target

from edgec.cli.main import main
from tests.conftest import ROOT
from tests.runtime import tiny_model

pytestmark = pytest.mark.cc

HOST = "ssh://pi@attic"
QUICK = ("--runs", "40", "--seconds", "0.2")


@dataclass(frozen=True)
class Result:
    """How edgec ended and what it said."""

    code: int
    out: str
    err: str


# The firmware of a Raspberry Pi: from the fourth time it is asked it says that the
# clock was lowered since the boot.
VCGENCMD = """#!/bin/sh
[ "$1" = get_throttled ] || exit 1
echo asked >> {base}/asked
[ $(wc -l < {base}/asked) -gt 3 ] && echo throttled={late} || echo throttled=0x0
"""
SSH = """#!/bin/sh
for command; do :; done
echo $$ > {base}/pid
exec /bin/sh -c "$command"
"""
LOST = """#!/bin/sh
for command; do :; done
exec 3<&0
sh -c "$command" <&3 &
while [ ! -e {base}/lost ]; do sleep 0.05; done
kill -9 $!
echo 'Timeout, server attic not responding.' >&2
exit 255
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a program for this machine."""
    program = tiny_model.build_program(tmp_path_factory.mktemp("program"))
    path = tmp_path_factory.mktemp("bundle") / "tiny.edgec"
    write_bundle(path, *tiny_model.parts(programs={machine_target(): program}))
    return path


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stand-ins for programs, first in PATH; ssh is one that stays on this
    machine.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    stand_in(folder, "ssh", SSH.format(base=folder))
    monkeypatch.setenv(
        "PATH", f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    )
    monkeypatch.setenv("EDGEC_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return folder


def stand_in(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


Edgec = Callable[..., Result]


@pytest.fixture
def edgec(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Edgec:
    """The command line in this process."""

    def run(*args: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", ["edgec", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Result(ended.value.code, *capsys.readouterr())

    return run


# ---- it throttles


@pytest.mark.parametrize("url", ["local:", HOST])
def test_a_device_that_throttles_during_the_run(
    edgec: Edgec, base: Path, bundle: Path, tmp_path: Path, url: str
) -> None:
    stand_in(base, "vcgencmd", VCGENCMD.format(base=base, late="0x40000"))
    files = ("--json", tmp_path / "r.json", "--junit", tmp_path / "r.xml")
    done = edgec("bench", bundle, "--on", url, *QUICK, "--budget", "p50<=10s", *files)
    assert done.code == 1, done
    assert "the firmware throttled the CPU" in done.out
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["vitals"]["throttled"] is True
    assert report["vitals"]["reasons"] == ["the firmware throttled the CPU"]
    assert [b["holds"] for b in report["budgets"]] == [True], (
        "the budget is not what fails"
    )
    failures = [
        f.get("message", "")
        for f in ElementTree.parse(tmp_path / "r.xml").iter("failure")
    ]
    assert len(failures) == 1
    assert "throttled" in failures[0]


def test_throttling_that_is_accepted_is_still_said(
    edgec: Edgec, base: Path, bundle: Path, tmp_path: Path
) -> None:
    stand_in(base, "vcgencmd", VCGENCMD.format(base=base, late="0x50005"))
    files = ("--json", tmp_path / "r.json", "--junit", tmp_path / "r.xml")
    done = edgec(
        "bench", bundle, "--on", "local:", *QUICK, "--accept-throttling", *files
    )
    assert done.code == 0, done
    assert "under-voltage" in done.out
    assert json.loads((tmp_path / "r.json").read_text())["vitals"]["throttled"] is True
    xml = (tmp_path / "r.xml").read_text()
    assert "<failure" not in xml
    assert "under-voltage" in xml


def test_what_happened_before_the_run_is_no_failure(
    edgec: Edgec, base: Path, bundle: Path, tmp_path: Path
) -> None:
    stand_in(
        base,
        "vcgencmd",
        "#!/bin/sh\n[ $1 = get_throttled ] && echo throttled=0x50000\n",
    )
    done = edgec(
        "bench", bundle, "--on", "local:", *QUICK, "--json", tmp_path / "r.json"
    )
    assert done.code == 0, done
    assert "has happened before this run" in done.out
    assert json.loads((tmp_path / "r.json").read_text())["vitals"]["throttled"] is False


# ---- it vanishes


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where reports go; an earlier one is there."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "r.json").write_text("an earlier one")
    return folder


def outputs(folder: Path) -> list[str]:
    return [
        w
        for k in ("json", "junit", "trace", "html", "markdown")
        for w in (f"--{k}", str(folder / f"r.{k}"))
    ]


def untouched(folder: Path) -> bool:
    return {p.name: p.read_text() for p in folder.iterdir()} == {
        "r.json": "an earlier one"
    }


def program_below(folder: Path, alive: Callable[[], bool]) -> int:
    """The bundle's program, as soon as it runs in this folder."""
    until = time.monotonic() + 60
    while time.monotonic() < until and alive():
        for words in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if words.read_bytes().startswith(os.fsencode(folder)):
                    return int(words.parent.name)
        time.sleep(0.01)
    raise AssertionError("the program was not started")


def end(pid: int) -> None:
    """A program that outlived its device end."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_a_device_end_that_is_killed_while_the_program_runs(
    base: Path, bundle: Path, out: Path, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "edgec",
        "bench",
        str(bundle),
        "--on",
        HOST,
        "--seconds",
        "100",
        *outputs(out),
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            program = program_below(tmp_path / "root", lambda: running.poll() is None)
            os.kill(int((base / "pid").read_text()), signal.SIGKILL)
            said, errors = running.communicate(timeout=60)
        finally:
            running.kill()
    end(program)
    assert running.returncode == 1, said + errors
    assert "error: the device end stopped" in errors
    assert f"at: {HOST}" in errors
    assert "hint: " in errors
    assert "Traceback" not in said + errors
    assert untouched(out)


def test_a_host_that_the_network_loses(
    edgec: Edgec, base: Path, bundle: Path, out: Path, tmp_path: Path
) -> None:
    """As OpenSSH ends when ServerAliveCountMax answers are missing."""
    stand_in(base, "ssh", LOST.format(base=base))
    found = []

    def lose() -> None:
        found.append(program_below(tmp_path / "root", lambda: True))
        (base / "lost").touch()

    lost = threading.Thread(target=lose)
    lost.start()
    done = edgec("bench", bundle, "--on", HOST, "--seconds", "100", *outputs(out))
    lost.join()
    end(found[0])
    assert done.code == 1, done
    assert "Timeout, server attic not responding" in done.err
    assert "hint: " in done.err
    assert untouched(out)


@pytest.mark.slow
def test_a_serial_line_that_falls_silent(
    edgec: Edgec,
    base: Path,
    bundle: Path,
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What carries the line is stopped, so the port stays open and nothing comes any
    more.
    """
    monkeypatch.setenv("EDGEC_SERIAL_USER", "pi")
    monkeypatch.setenv("EDGEC_SERIAL_PASSWORD", "raspberry")
    # Signs of life are missing then; the console itself needs seconds on a busy machine.
    options = ("--timeout", "10")
    command = [sys.executable, "-m", "tests.devices.fake_console", "921600"]
    env = {"EDGEC_ROOT": str(tmp_path / "root"), "PATH": os.environ["PATH"]}
    found = []
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True
    ) as console:
        assert console.stdout
        url = f"serial://{console.stdout.readline().strip()}?baud=921600"

        def silence() -> None:
            found.append(program_below(tmp_path / "root", lambda: True))
            console.send_signal(signal.SIGSTOP)

        silencer = threading.Thread(target=silence)
        silencer.start()
        try:
            done = edgec(
                "bench",
                bundle,
                "--on",
                url,
                "--seconds",
                "100",
                *options,
                *outputs(out),
            )
            silencer.join()
        finally:
            console.kill()
    end(found[0])
    assert done.code == 1, done
    # either while it runs, or before its acknowledgement of the request came through
    silent = (
        "the device has said nothing for 10 s while it ran a program",
        "the device has not answered for 10 s",
    )
    assert any(f"error: {text}" in done.err for text in silent), done.err
    assert f"at: {url}" in done.err
    assert "hint: check cable and power" in done.err
    assert untouched(out)
