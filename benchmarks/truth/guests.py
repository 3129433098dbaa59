"""Counts what a Python program does on an emulated board, with wheels for its core.

The emulated system is armlab's of the data folder (armlab/setup.sh count user peers): a
Debian for arm64 whose /proc and /sys are those of the board, by which runtimes choose
their kernels.  edgec's plugin counts.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from edgec_devices import pipeline
from edgec_devices.boards import Board
from edgec_devices.cores import core_file
from edgec_devices.pipeline import Counts, Work, plugin_option, work
from edgec_devices.plugin import SOURCE, block_count_plugin

from benchmarks.arm_results import file_digest, recall, remember
from benchmarks.data_folder import SHARED

LAB = SHARED / "armlab"
GUESTS = Path(__file__).parent / "guests"

ALIKE = {
    "cortex_a53": ("pi3", (0, 0xD03, 4)),
    "cortex_a55": ("pi5", (2, 0xD05, 0)),
    "cortex_a72": ("pi4", (0, 0xD08, 3)),
    "cortex_a76": ("pi5", (4, 0xD0B, 1)),
}
"""armlab's board that runs a core's instructions, and the core's variant, part and
revision, as its MIDR has them.
"""

SYSTEM = threading.Lock()
"""Held by the thread that makes the emulated system of a board."""

Words = Sequence[str | Path]
"""A program of GUESTS and its arguments."""

Step = tuple[Work, ...]
"""What runs between two points at which all threads meet: the work of each thread; one
alone where the others wait.
"""


@cache
def _armlab() -> Any:
    """Return armlab's module; exit where the data folder has none."""
    if not (LAB / "armlab.py").is_file():
        sys.exit(f"no armlab in the data folder at {SHARED} (set EDGEC_SHARED)")
    sys.path.insert(0, str(LAB))
    sys.dont_write_bytecode = True  # the data folder may be read-only
    return importlib.import_module("armlab")


def _wheels(site: str) -> list[str]:
    """Return the names and versions of a site's wheels; exit where there are none."""
    folder = _armlab().CACHE / "site" / site
    if not (folder / ".complete").exists():
        sys.exit(f"no wheels in {folder}: {LAB / 'setup.sh'} count user peers")
    return sorted(path.name for path in folder.glob("*.dist-info"))


def steps(
    board: Board,
    site: str,
    command: Words,
    files: Sequence[Path] = (),
    every: int = 0,
) -> list[Step]:
    """Return the steps of one inference of a guest, kept from earlier runs.

    Args:
        board: the board
        site: the wheels
        command: the guest's program and its arguments
        files: what the guest reads besides its program, or what that is made of
        every: instructions of a step, for a guest that marks its inference alone
    """
    words = [w.name if isinstance(w, Path) else w for w in command]
    sizes = [(level.kib, level.ways, level.shared) for level in board.caches]
    digests = [file_digest(path) for path in (SOURCE, *files)]
    guests = [file_digest(path) for path in sorted(GUESTS.iterdir()) if path.is_file()]
    key = (
        f"steps {_wheels(site)} {words} {every} {board.core} {sizes} {digests} {guests} "
        f"{_model(board)}"
    )
    rows = recall(key)
    if rows is None:
        rows = [
            [dataclasses.astuple(part) for part in step]
            for step in _counted(board, site, command, every)
        ]
        remember(key, rows)
    return [tuple(_work(fields) for fields in step) for step in rows]


def _work(fields: Sequence[Any]) -> Work:
    """Return the work that was written as JSON, which has no tuples."""
    *numbers, lines, times = fields
    return Work(*numbers, tuple(tuple(level) for level in lines), times)


def _model(board: Board) -> str:
    """Return a hash of the pipeline model of a board's core."""
    sources = sorted(Path(pipeline.__file__).parent.glob("*.py"))
    content = [path.read_bytes() for path in (*sources, core_file(board.core))]
    return hashlib.sha256(b"\0".join(content)).hexdigest()


def _counted(board: Board, site: str, command: Words, every: int) -> list[Step]:
    """Return the steps of one inference, which is run."""
    lab = _armlab()
    alike, part = ALIKE[board.core]
    lab.BOARDS[board.name] = dataclasses.replace(
        lab.BOARDS[alike],
        name=board.name,
        model=board.model,
        ghz=board.clock_ghz,
        part=part,
        caches=tuple((level.kib, level.ways) for level in board.caches),
    )
    guest = argparse.Namespace(
        board=board.name,
        root=None,
        site=[site],
        env=[],
        command=["python3", *map(str, command)],
    )
    with tempfile.TemporaryDirectory(prefix="edgec-") as name:
        out = Path(name, "counts")
        option = plugin_option(block_count_plugin(), out, board.caches, every)
        guest.env.append(f"LD_PRELOAD={_openmp(Path(name))}")
        # It makes the board's system where there is none yet.
        with SYSTEM:
            words, env = lab.qemu_command(guest, option)
        subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL)
        counts = Counts.read(out)
    return in_steps(counts, board)


def in_steps(counts: Counts, board: Board) -> list[Step]:
    """Return the steps of the last inference that was counted."""
    alone, shared = work(counts, board.core)
    return [*((w,) for w in alone.values()), *map(tuple, shared.values())]


def _openmp(folder: Path) -> Path:
    """Return openmp_in_turn.c as a library for the emulated system, in a folder."""
    library = folder / "openmp_in_turn.so"
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.28"]
    source = GUESTS / "openmp_in_turn.c"
    subprocess.run([*zig, "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    return library
