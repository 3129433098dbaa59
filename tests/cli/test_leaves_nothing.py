"""What stays on the machine: of temporary files a bug report alone, which is named; and
a cache that is only ours.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from edgec_devices import doctor
from edgec_runtime import EdgecError
from edgec_runtime.bundle.cache import cache_dir

from edgec.cli import main
from edgec.cli.main import run_verb
from tests.signals import heed_signals
from tests.waiting import LIMIT_S

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits"


def _edgec(tmp: Path, *args: str | Path) -> subprocess.Popen[str]:
    environ = {
        **os.environ,
        "TMPDIR": str(tmp),
        "EDGEC_CACHE": str(tmp.parent / "cache"),
    }
    command = [sys.executable, "-m", "edgec", *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command,
        env=environ,
        text=True,
        preexec_fn=heed_signals,
        stdout=pipe,
        stderr=pipe,
    )


@pytest.mark.cc
@pytest.mark.slow
@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_temporary_folder_is_empty(
    number: signal.Signals | None, tmp_path: Path
) -> None:
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    process = _edgec(
        tmp,
        "compile",
        DIGITS / "digits.onnx",
        "-o",
        tmp_path / "d.edgec",
        "--cc",
        "gcc",
    )
    if number is not None:
        # Before its folder, Python's tempfile tries whether it can write there at all,
        # with a file that a signal at that moment leaves.
        until = time.monotonic() + 60
        while not list(tmp.glob("edgec-*")) and time.monotonic() < until:
            time.sleep(0.01)
        process.send_signal(number)
    said = process.communicate(timeout=120)
    codes = {None: 0, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
    assert process.returncode == codes[number], said
    assert list(tmp.iterdir()) == []


DYING = """
import os, signal, sys, time
import edgec.cli.main

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.1)

def verb():
    Dying()
    time.sleep(600)
    return 0

module = sys.modules["edgec.cli.main"]
module.run_verb = verb
module.main()
"""


@pytest.mark.parametrize(
    ("name", "code"), [("SIGTERM", 143), ("SIGINT", -signal.SIGINT)]
)
def test_a_signal_in_a_destructor_ends_the_program_too(name: str, code: int) -> None:
    """Python ignores the exceptions of destructors."""
    done = subprocess.run(
        [sys.executable, "-c", DYING.format(name=name)],
        preexec_fn=heed_signals,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == code


def test_a_bug_report_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(main.cli, "main", lambda *_, **__: [][0])
    assert run_verb(["devices"]) == 70
    (report,) = tmp_path.iterdir()
    assert f"at: {report}" in capsys.readouterr().err
    assert stat.S_IMODE(report.stat().st_mode) == 0o600


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_cache_is_ours_alone(
    mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "a" / "cache"))
    before = os.umask(mask)
    try:
        folder = cache_dir("files", "x")
    finally:
        os.umask(before)
    for one in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
    folder.parent.chmod(0o755)
    assert stat.S_IMODE(cache_dir("files", "x").parent.stat().st_mode) == 0o700
    folder.parent.chmod(0o777)
    with pytest.raises(EdgecError, match="can be changed by others") as e:
        cache_dir("files", "x")
    assert str(e.value.hint).startswith("chmod go-w ")


def test_no_hint_removes_a_folder_that_the_cache_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "my photos"
    theirs.mkdir()
    theirs.chmod(0o777)
    (tmp_path / "cache").symlink_to(theirs)
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))
    with pytest.raises(EdgecError, match="can be changed by others") as e:
        cache_dir("files")
    assert e.value.hint == f"chmod go-w '{theirs}'"
    theirs.chmod(0o700)
    cache_dir("files", "0" * 64)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    (finding,) = doctor._cache()
    assert finding.fix == f"rm -r {tmp_path / 'cache' / 'files'}"


def test_a_folder_that_is_there_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EDGEC_CACHE may name a folder that others read, or one like /tmp."""
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path))
    tmp_path.chmod(0o755)
    files = cache_dir("files")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert stat.S_IMODE(files.stat().st_mode) == 0o700

    (files / "thesis.odt").touch()
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    (finding,) = doctor._cache()
    assert finding.fix == f"df -h {tmp_path}"

    tmp_path.chmod(0o1777)
    with pytest.raises(EdgecError, match="can be changed by others") as e:
        cache_dir("files")
    assert e.value.hint == "set EDGEC_CACHE to a folder of your own"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_cache_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))
    os.chown(cache_dir("files"), 12345, 12345)
    with pytest.raises(EdgecError, match="can be changed by others"):
        cache_dir("files", "x")
