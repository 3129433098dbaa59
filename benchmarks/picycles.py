"""The data folder's armlab: `picycles`, which estimates the cycles of a program on a
board, and LiteRT under it.

picycles has llvm-mca's cycles of every block, with simulated caches and branches, and
was itself compared with published latencies (its README).  It needs qemu-user, llvm-mca
and gcc.
"""

from __future__ import annotations

import fcntl
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgec_devices.pipeline import Counts

from benchmarks.data_folder import SHARED

LAB = SHARED / "armlab"


def missing() -> str:
    """Return what picycles lacks here; "" if it can run."""
    if not (LAB / "picycles").is_file():
        return f"no data folder at {SHARED} (set EDGEC_SHARED)"
    for names in (("qemu-aarch64",), ("gcc", "cc")):
        if not any(map(shutil.which, names)):
            return f"no {names[0]}: {LAB / 'setup.sh'} count"
    return "" if _skips() else f"no llvm-mca of LLVM 19: {LAB / 'setup.sh'} count"


def _skips() -> bool:
    """Return whether llvm-mca can skip instructions that it does not know.

    Older ones, such as Debian 12's, cannot.
    """
    found = next(
        filter(
            None,
            (
                shutil.which(f"llvm-mca{v}")
                for v in ("-19", "-20", "-21", "-18", "-17", "")
            ),
        ),
        None,
    )
    if not found:
        return False
    done = subprocess.run(
        [found, "--help-hidden"], capture_output=True, text=True, check=False
    )
    return "skip-unsupported-instructions" in done.stdout


@dataclass(frozen=True)
class Run:
    """One inference of a program.

    Attributes:
        cycles: the estimate.
        text: what the program printed.
    """

    cycles: float
    text: str


class Picycles:
    """The command picycles, and its cycles for the blocks that edgec's plugin counted.

    Args:
        cache: the folder of its results, which processes may share
    """

    def __init__(self, cache: Path) -> None:
        # our programs are static: an empty one will do
        (cache / "rootfs-arm64").mkdir(parents=True, exist_ok=True)
        self._home = os.environ.get("ARMLAB_CACHE")
        os.environ["ARMLAB_CACHE"] = str(cache)
        sys.path.insert(0, str(LAB))
        sys.dont_write_bytecode = True  # the data folder may be read-only
        loader = importlib.machinery.SourceFileLoader("picycles", str(LAB / "picycles"))
        spec = importlib.util.spec_from_loader("picycles", loader)
        assert spec
        self._tool: Any = importlib.util.module_from_spec(spec)
        loader.exec_module(self._tool)
        lab: Any = importlib.import_module("armlab")
        with (cache / "lock").open("w") as lock:
            # two that make a board's folder at once would be in each other's way
            fcntl.flock(lock, fcntl.LOCK_EX)
            for board in self._tool.BOARDS.values():
                lab.sysroot(board)

    @property
    def boards(self) -> Collection[str]:
        """The names of the boards that it knows."""
        return set(self._tool.BOARDS)

    def program(self, board: str, command: Sequence[str | Path]) -> float:
        """Return the cycles of one inference of a static program."""
        return self._run(board, [], command, os.environ).cycles

    def litert(self, board: str, model: Path) -> float | None:
        """Return LiteRT's cycles of one inference of a .tflite file by one thread.

        None if LiteRT is not installed or fails.
        """
        if model.suffix != ".tflite":
            return None
        run = self.guest(board, "litert", [LAB / "guest_tflite.py", model])
        return None if run is None else run.cycles

    def guest(self, board: str, site: str, command: Sequence[str | Path]) -> Run | None:
        """Run one inference of a Python program with the wheels of a site.

        None if the wheels are not installed, or the program fails.
        """
        if not self.has(site):
            return None
        try:
            return self._run(
                board,
                ["--site", site],
                ["python3", *command],
                {**os.environ, "ARMLAB_CACHE": str(self._sites.parent)},
            )
        except subprocess.CalledProcessError:
            return None

    def has(self, site: str) -> bool:
        """Return whether the wheels of a site are installed (armlab/setup.sh user peers)."""
        return (self._sites / site).exists()

    def version(self, site: str, package: str) -> str:
        """Return the version of a package of a site, for example "3.6.1"."""
        (folder,) = (self._sites / site).glob(f"{package}-*.dist-info")
        return folder.name.removeprefix(f"{package}-").removesuffix(".dist-info")

    @property
    def _sites(self) -> Path:
        home = Path(self._home or Path.home() / ".cache" / "armlab")
        return home / "site"

    def places(self, counts: Counts, board: str) -> dict[tuple[int, int], float]:
        """Return the cycles in each place of the last inference."""
        facts = self._tool.BOARDS[board]
        buckets = counts.inferences[-1]
        codes = {
            n: counts.blocks[n].code.hex() for b in buckets.values() for n in b.ran
        }
        each = self._tool.mca(facts.mca_cpu, sorted(set(codes.values())))
        slow = {
            c: facts.sadalp * self._tool.sadalps(c) if facts.sadalp else 0 for c in each
        }
        found = {}
        for place, bucket in buckets.items():
            core = sum(
                n * (each[codes[b]] + slow[codes[b]]) for b, n in bucket.ran.items()
            )
            costs = zip(bucket.lines, facts.stream_cost, facts.miss_cost, strict=True)
            memory = sum(f * near + m * far for (f, m, _), near, far in costs)
            found[place] = core + memory + bucket.mispredicted * facts.mispredict
        return found

    def _run(
        self,
        board: str,
        options: Sequence[str],
        command: Sequence[str | Path],
        env: Any,
    ) -> Run:
        words = [
            sys.executable,
            str(LAB / "picycles"),
            "run",
            "--board",
            board,
            *options,
            "--json",
            "-",
            "--",
        ]
        done = subprocess.run(
            [*words, *map(str, command)],
            check=True,
            capture_output=True,
            text=True,
            env=env,
        )
        text, _, facts = done.stdout.rpartition("{\n")
        return Run(float(json.loads("{" + facts)["cycles"]), text)
