"""The rows of accuracy_table.py: one model made int8 in one way, and how far its outputs
on photos are from the float model's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from edgec_runtime import Bundle, Session

from benchmarks.data_folder import BUILD, PREPROCESS, index, model_file, photo_samples
from edgec.ir import Array
from edgec.measure.agreement import Tally, sqnr_db

WORK = BUILD / "accuracy"
COMPILE = (sys.executable, "-m", "edgec", "compile", "-q")
Outputs = Sequence[Array]
"""The outputs for one photo, in the model's order."""
TOP_DB = 100.0
"""The SQNR that equal outputs count as."""


@dataclass
class Row:
    """One model, made int8 in one way.

    Attributes:
        model: its name in the data folder
        way: how it was quantized: a recipe of edgec, a peer, or a published file
        sqnr: signal to quantization noise over all photos, dB
        centred: the same about the mean of the output, dB
        median: the SQNR of the median photo, dB
        edgetpu: the share of MACs on the Edge TPU
        seconds: the time of quantizing
        memory: the most memory of the process, MB
        note: the settings, or why there are no figures
    """

    model: str
    way: str
    sqnr: float | None = None
    centred: float | None = None
    median: float | None = None
    edgetpu: float | None = None
    seconds: float = 0.0
    memory: int = 0
    note: str = ""


def fill(row: Row, floats: Sequence[Outputs], int8: Sequence[Outputs]) -> None:
    """Fill in a row's figures from the outputs of both models for each photo."""
    tallies = [Tally() for _ in floats[0]]
    photo_db: list[float] = []
    for a, b in zip(floats, int8, strict=True):
        pairs = list(zip(a, b, strict=True))
        for tally, (x, y) in zip(tallies, pairs, strict=True):
            tally.add(x, y)
        photo_db.append(_mean_db([sqnr_db(x, y) for x, y in pairs]))
    row.sqnr = round(_mean_db([tally.sqnr_db() for tally in tallies]), 2)
    row.centred = round(_mean_db([tally.centred_sqnr_db() for tally in tallies]), 2)
    row.median = round(float(np.median(photo_db)), 2)


def _mean_db(ratios: Sequence[float]) -> float:
    return float(np.mean(np.clip(np.nan_to_num(ratios, nan=-TOP_DB), -TOP_DB, TOP_DB)))


@dataclass(frozen=True)
class Process:
    """A process that has ended.

    Attributes:
        seconds: how long it ran
        memory: the most memory that it had, MB
        last_line: the last line of its standard output
    """

    seconds: float
    memory: int
    last_line: str


def run(*command: str | Path) -> Process:
    """Run a command; raise RuntimeError with its error message if it fails."""
    started = time.monotonic()
    WORK.mkdir(parents=True, exist_ok=True)
    with (
        (WORK / "errors.log").open("w+") as errors,
        subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        lines = process.stdout.read().strip().splitlines()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        messages = [*lines, *errors.read().strip().splitlines()]
    if process.returncode:
        last = messages[-1] if messages else f"exit code {process.returncode}"
        message = next((m for m in messages if m.startswith("error")), last)
        raise RuntimeError(message[:300])
    seconds = time.monotonic() - started
    return Process(seconds, usage.ru_maxrss >> 10, lines[-1] if lines else "")


class Case:
    """A float model with photos: half of them to calibrate with, the others to test.

    Attributes:
        name: the model's name in the data folder
        file: its file
        spec: the preprocessing of photos
        folder: where its bundles and photos are written
    """

    def __init__(self, name: str, limit: int, seed: int) -> None:
        self.name = name
        self.file = model_file(name)
        self.spec = PREPROCESS[index()[name]["preproc"]]
        self.folder = WORK / f"{name}-{seed}-{limit}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._limit = limit
        self._seed = seed

    @cached_property
    def photos(self) -> tuple[Path, Path]:
        """The .npz files of both halves, drawn by the seed: an array x [N, ...] each."""
        samples = photo_samples(self.name)
        order = np.random.default_rng(self._seed).permutation(len(samples))
        order = order[: self._limit]
        half = len(order) // 2
        files = self.folder / "calibrate.npz", self.folder / "test.npz"
        for file, numbers in zip(files, (order[:half], order[half:]), strict=True):
            np.savez(file, x=np.stack([samples[i] for i in sorted(numbers)]))
        return files

    @cached_property
    def test(self) -> Array:
        """The photos to test with [N, ...]."""
        with np.load(self.photos[1]) as data:
            x: Array = data["x"]
        return x

    @cached_property
    def floats(self) -> list[list[Array]]:
        """The outputs of the float model for each test photo, by edgec."""
        bundle = self.folder / "float.edgec"
        words = ("--preprocess", self.spec, "--allow-float", "-o", bundle)
        run(*COMPILE, self.file, *words)
        return bundle_outputs(bundle, self.test)


def bundle_outputs(path: Path, samples: Array) -> list[list[Array]]:
    """Return a bundle's outputs for each sample."""
    with Bundle.open(path) as bundle, Session(bundle) as session:
        (name,) = bundle.manifest.inputs
        return [[y.copy() for y in session.run({name: x}).values()] for x in samples]
