"""Folders for a task go with it, whatever comes in between."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from edgec_devices.temporary import temporary_folder

AT_MKDIR = """
whole = Path.mkdir
def mkdir(self, *args):
    whole(self, *args)
    raise KeyboardInterrupt
Path.mkdir = mkdir
"""
AT_REMOVAL = """
import shutil
whole = shutil.rmtree
def rmtree(path, *args, **options):
    shutil.rmtree = whole
    raise KeyboardInterrupt
shutil.rmtree = rmtree
"""


def test_it_is_ours_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with contextlib.suppress(ZeroDivisionError), temporary_folder("try") as folder:
        assert folder.name.startswith("edgec-try-")
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "x").mkdir()
        _ = 1 / 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "between", [AT_MKDIR, AT_REMOVAL], ids=["as it is made", "as it goes"]
)
def test_a_signal_leaves_nothing(tmp_path: Path, between: str) -> None:
    script = f"""
from pathlib import Path
from edgec_devices.temporary import temporary_folder
{between}
with temporary_folder("try"):
    print("inside")
"""
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True
    )
    assert "KeyboardInterrupt" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_fork_leaves_it_alone(tmp_path: Path) -> None:
    script = """
import os, sys
from edgec_devices.temporary import temporary_folder
with temporary_folder("try") as folder:
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    assert folder.exists()
"""
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    child_too = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True
    )
    assert child_too.returncode == 0, child_too.stderr
