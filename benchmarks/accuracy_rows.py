"""Rows of benchmarks/accuracy_table.py: their figures, the photos they are of, and
keeping them between runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from edgec_runtime import Bundle, Session

from benchmarks.accuracy_tasks import figures
from edgec.frontends import read_model
from edgec.ir import Array
from edgec.measure.agreement import Tally, tally
from edgec.quantize import choose, load_calibration

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared")
WORK = ROOT / "build" / "accuracy"
COMPILE = (sys.executable, "-m", "edgec", "compile")
LIMIT_S = 7200  # of one command
TOP_DB = 100.0
"""What equal outputs count as."""


@dataclass
class Row:
    """One way to quantize one model. tpu: the share of MACs on the Edge TPU; seconds:
    to make it; memory: at most, MB; note: what was kept, or why not.
    """

    model: str
    way: str
    sqnr: float | None = None
    centred: float | None = None
    median: float | None = None
    task: Mapping[str, float] = field(default_factory=dict)
    tpu: float | None = None
    seconds: float = 0.0
    memory: int = 0
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Outputs = Sequence[Sequence[Array]]
"""Of each photo, in the model's order."""


def judge(row: Row, task: str, want: Outputs, got: Outputs) -> None:
    """Fill in the figures."""
    tallies = [Tally() for _ in want[0]]
    each = list[float]()
    for photo, other in zip(want, got, strict=True):
        for t, w, g in zip(tallies, photo, other, strict=True):
            t.add(w, g)
        each.append(
            _mean([tally(w, g).sqnr_db() for w, g in zip(photo, other, strict=True)])
        )
    row.sqnr = round(_mean([t.sqnr_db() for t in tallies]), 2)
    row.centred = round(_mean([t.centred_sqnr_db() for t in tallies]), 2)
    row.median = round(float(np.median(each)), 2)
    row.task = figures(row.model, task, [*zip(want, got, strict=True)])


def _mean(ratios: Sequence[float]) -> float:
    return float(np.mean(np.clip(np.nan_to_num(ratios, nan=-TOP_DB), -TOP_DB, TOP_DB)))


def child(*command: str | Path, log: Path | None = None) -> tuple[float, int, str]:
    """Run a command; seconds, the most memory, MB, and its last line.

    RuntimeError with its last word when it fails.
    """
    started = time.monotonic()
    said_to = log or WORK / "child.log"
    said_to.parent.mkdir(parents=True, exist_ok=True)
    with (
        said_to.open("w+") as errors,
        subprocess.Popen(
            [str(c) for c in command], stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        lines = process.stdout.read().strip().splitlines()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = [*lines, *errors.read().strip().splitlines()]
    if process.returncode:
        why = next(
            (s for s in said if s.startswith("error")),
            said[-1] if said else f"exit {process.returncode}",
        )
        raise RuntimeError(" ".join(why.split())[:300])
    return time.monotonic() - started, usage.ru_maxrss >> 10, lines[-1] if lines else ""


class Case:
    """A model with its photos: arrays x [sample, …] to calibrate with and to test with,
    no photo in both.
    """

    def __init__(
        self, entry: Mapping[str, Any], spec: str, limit: int, seed: int
    ) -> None:
        self.entry = entry
        self.spec = spec
        self._limit = limit
        self._seed = seed
        self.name = str(entry["name"])
        self.file = SHARED / "models" / entry["file"]
        self.folder = WORK / f"{self.name}-{seed}-{limit}"
        self.folder.mkdir(parents=True, exist_ok=True)

    @cached_property
    def photos(self) -> tuple[Path, Path]:
        """To calibrate with, to test with."""
        inputs = read_model(self.file, {}).inputs
        chosen = choose(inputs, self.spec, {})[inputs[0].name]
        photos = load_calibration(SHARED / "data" / "photos", inputs, chosen)
        order = np.random.default_rng(self._seed).permutation(len(photos))[
            : self._limit
        ]
        halves = self.folder / "calibrate.npz", self.folder / "test.npz"
        for path, part in zip(
            halves, (order[: len(order) // 2], order[len(order) // 2 :]), strict=True
        ):
            np.savez(
                path, x=np.stack([photos[i][inputs[0].name] for i in sorted(part)])
            )
        return halves

    @cached_property
    def test(self) -> Array:
        with np.load(self.photos[1]) as data:
            x: Array = data["x"]
        return x

    @cached_property
    def digest(self) -> str:
        """Of the model and its photos."""
        return digest([self.file, *self.photos])

    @cached_property
    def floats(self) -> Outputs:
        """As edgec runs the float model on the test photos."""
        whole = self.folder / "float.edgec"
        child(
            *COMPILE,
            self.file,
            "--preprocess",
            self.spec,
            "-q",
            "--allow-float",
            "-o",
            whole,
        )
        return bundle_outputs(whole, self.test)

    def kept(self, way: str, key: str) -> Row | None:
        """The row as it was made before, if all it hangs on is the same."""
        path = self._kept(way)
        found = json.loads(path.read_text()) if path.exists() else {}
        return Row(**found["row"]) if found.get("key") == key else None

    def keep(self, row: Row, key: str) -> None:
        self._kept(row.way).write_text(
            json.dumps({"key": key, "row": row.to_json()}, indent=1) + "\n"
        )

    def _kept(self, way: str) -> Path:
        return self.folder / f"{Path(way).stem}.json"


def digest(files: Sequence[Path], *words: str) -> str:
    found = sha256("\n".join(words).encode())
    for path in files:
        found.update(sha256(path.read_bytes()).digest())
    return found.hexdigest()


def bundle_outputs(path: Path, samples: Array) -> list[list[Array]]:
    """What a bundle makes of each."""
    with Bundle.open(path) as bundle, Session(bundle) as session:
        (name,) = bundle.manifest.inputs
        return [[y.copy() for y in session.run({name: s}).values()] for s in samples]
