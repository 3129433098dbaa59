"""What several tests build alike is built once a run, in a folder that the workers of
the run share.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from edgec.toolchain.cc import Compiler

ZIG = (sys.executable, "-m", "ziglang", "cc")
_LINKED = "x86_64_v3"
"""What programs for x86-64 are linked for; those for ARM as edgec links its own."""

_folder: Path | None = None


def use(basetemp: Path) -> None:
    """pytest's folder of this run; that of one worker of several lies in it."""
    global _folder
    run = basetemp.parent if "PYTEST_XDIST_WORKER" in os.environ else basetemp
    _folder = run / "builds"
    _folder.mkdir(exist_ok=True)


@contextmanager
def apart() -> Iterator[Path]:
    """A folder that goes again, with what is built meanwhile."""
    global _folder
    before = _folder
    with tempfile.TemporaryDirectory(prefix="edgec-") as name:
        _folder = Path(name) / "builds"
        _folder.mkdir()
        try:
            yield Path(name)
        finally:
            _folder = before


def once(key: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` filled for this key, which says all that the result
    depends on.

    It is read by others: nothing may be changed in it. A worker that comes second waits
    for the first. What `make` raises is raised, and the next that asks tries again.
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


def program(command: Sequence[str], sources: Sequence[Path], output: Path) -> None:
    """An executable of C files (with -shared, a library) by a compiler with its flags.

    For a -target zig builds a C library for each CPU and way of linking, which takes a
    minute: all are linked with those that edgec's own programs have.
    """
    if "-target" not in command:
        _call([*command, *map(str, sources), "-lm", "-o", str(output)])
        return
    objects = [output.with_name(f"{output.name}-{source.stem}.o") for source in sources]
    for source, made in zip(sources, objects, strict=True):
        _call([*command, "-c", str(source), "-o", str(made)])
    Compiler.zig("", command[command.index("-target") + 1], _LINKED).link_program(
        objects, output
    )


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-4000:]}"
