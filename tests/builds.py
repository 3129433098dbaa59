"""What several tests build alike is built once a run, in a folder that the workers of the run share."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

_folder: Path | None = None


def use(basetemp: Path) -> None:
    """pytest's folder of this run; that of one worker of several lies in it."""
    global _folder
    run = basetemp.parent if "PYTEST_XDIST_WORKER" in os.environ else basetemp
    _folder = run / "builds"
    _folder.mkdir(exist_ok=True)


def once(key: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` filled for this key, which says all that the result depends on.

    It is read by others: nothing may be changed in it. A worker that comes second waits for the first. What `make`
    raises is raised, and the next that asks tries again.
    """
    assert _folder is not None, "builds.use was not called"
    folder = _folder / hashlib.sha256(key.encode()).hexdigest()[:32]
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            (folder / "done").touch()
    return folder
