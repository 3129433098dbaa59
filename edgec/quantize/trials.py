"""Candidates made of some samples and judged on others: pieces of work for any
executor, and what comes of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Protocol
from weakref import WeakValueDictionary

import edgec_runtime
import numpy as np

from edgec.executors import Shared, cores, in_order
from edgec.ir import Array, Graph, Run, print_graph
from edgec.quantize.accuracy import Tally, tally
from edgec.quantize.calibration import KEPT_BYTES, Sample, chosen
from edgec.quantize.line import StepPipeline
from edgec.quantize.recipe import Candidate
from edgec.quantize.views import views
from edgec.quantize.work import QuantizationState, Runners
from edgec.steps import Progress

_TOP_DB = 100.0
"""What equal outputs count as."""
_FLOOR = 0.01
"""Of the samples' mean power: what is below it counts as so much.

Where a mask is empty, no ratio says anything.
"""
Pair = tuple[Mapping[str, Array], Mapping[str, Array]]


class ScoreCache(Protocol):
    """What was judged before: bytes by key, 64 hexadecimal digits."""

    def get(self, key: str) -> bytes | None:
        """The bytes, or None."""

    def put(self, key: str, data: bytes) -> None:
        """Keep them, if that can be."""


@dataclass
class Score:
    """What is known of a candidate on some samples: sums over them by output
    (`Tally.state`), and the samples' own powers of signal and noise (`Tally.powers`),
    with those of other views of them.
    """

    tallies: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    rows: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @classmethod
    def of(cls, samples: Iterable[Iterable[Pair]]) -> Score:
        """Of outputs that are wanted, and those that there are: of each sample and then
        of its other views, whose powers are added to its own.
        """
        found = cls()
        sums = dict[str, Tally]()
        for sample in samples:
            powers = dict[str, Array]()
            for want, got in sample:
                own = not powers
                for name, y in want.items():
                    if own:
                        sums.setdefault(name, Tally()).add(y, got[name])
                    powers[name] = powers.get(name, 0.0) + np.array(
                        tally(y, got[name]).powers()
                    )
            for name, (signal, noise) in powers.items():
                found.rows.setdefault(name, []).append((float(signal), float(noise)))
        found.tallies = {name: [t.state()] for name, t in sums.items()}
        return found

    def add(self, other: Score) -> None:
        """Another on other samples."""
        for name in other.rows:
            self.rows.setdefault(name, []).extend(other.rows[name])
            self.tallies.setdefault(name, []).extend(other.tallies[name])

    def db(self) -> dict[str, float]:
        """By output, the mean of two figures: of the signal to noise of all samples
        together, which those with the most noise decide, and of the mean of their own.
        """
        found: dict[str, float] = {}
        for name in self.rows:
            signal, noise, own = self._output(name)
            found[name] = float((own.mean() + _ratio(signal.sum(), noise.sum())) / 2)
        return found

    def without(self) -> dict[str, Array]:
        """`db` without one of the samples: [samples]."""
        found: dict[str, Array] = {}
        for name, rows in self.rows.items():
            signal, noise, own = self._output(name)
            others = (own.sum() - own) / max(1, len(rows) - 1)
            found[name] = (
                others + _ratio(signal.sum() - signal, noise.sum() - noise)
            ) / 2
        return found

    def _output(self, name: str) -> tuple[Array, Array, Array]:
        """The samples' signal, noise, and what the one is to the other."""
        signal, noise = np.array(self.rows[name], np.float64).T
        return signal, noise, _ratio(np.maximum(signal, _FLOOR * signal.mean()), noise)

    def to_json(self) -> dict[str, Any]:
        """`Score(**…)` takes it back."""
        return {"tallies": self.tallies, "rows": self.rows}


def errors(a: Score, b: Score) -> tuple[float, dict[str, float]]:
    """Of the difference between two candidates on the same samples, its standard error
    as the jackknife tells it, in dB: of the mean over outputs, and of each.
    """
    one = a.without()
    other = b.without()
    differences = {name: one[name] - other[name] for name in one}
    mean = np.mean([*differences.values()], axis=0)
    return _jackknife(mean), {name: _jackknife(d) for name, d in differences.items()}


def _jackknife(without: Array) -> float:
    n = len(without)
    return float(np.sqrt((n - 1) / n * np.square(without - without.mean()).sum()))


def _ratio(signal: Array, noise: Array) -> Array:
    """In dB, within what counts."""
    with np.errstate(divide="ignore", invalid="ignore"):
        db = 10 * np.log10(signal / noise)
    return np.where(
        noise > 0, np.nan_to_num(db, nan=-_TOP_DB).clip(-_TOP_DB, _TOP_DB), _TOP_DB
    )


def _silent(text: str) -> None:
    pass


@dataclass(frozen=True)
class SearchSetting:
    """What all trials of a search share. key: another for each, or, where trials are to
    be remembered, `fingerprint`.

    first: the candidate whose float graph says what outputs are wanted. seed, passes:
    see `QuantizationState`.
    """

    key: str
    graph: Graph
    samples: Sequence[Sample]
    runners: Runners
    first: Candidate
    seed: int
    passes: int
    say: Progress = _silent

    def apart(self) -> SearchSetting:
        """The same for other threads, processes or machines: nobody is told of the
        steps there.
        """
        return replace(self, runners=copy(self.runners), say=_silent)

    def work(self, numbers: Sequence[int]) -> QuantizationState:
        """On some of the samples."""
        return QuantizationState(
            self.graph,
            chosen(self.samples, numbers),
            self.runners,
            self.say,
            self.seed,
            self.passes,
        )


@dataclass(frozen=True)
class CandidateTrial:
    """One candidate, made of the samples `fit` and judged on the samples `back`, by
    their numbers.
    """

    candidate: Candidate
    fit: tuple[int, ...]
    back: tuple[int, ...]

    def key(self, setting: SearchSetting) -> str:
        """What it is remembered by."""
        steps = self.candidate.to_json()["steps"], setting.first.to_json()["steps"]
        return _hash(
            setting.key, json.dumps([steps, setting.seed, self.fit, self.back])
        )


def judged(trial: CandidateTrial, shared: Shared[SearchSetting]) -> Score:
    """Do it: on a worker, which keeps what the next candidates need too."""
    setting = shared.value
    line = _line(setting, trial.fit)
    base = line.after(setting.first.rewrites)
    back = chosen(setting.samples, trial.back)
    most = (
        KEPT_BYTES // (len(back) * sum(4 * v.type.size for v in base.graph.outputs)) - 1
    )
    want = base.keep(
        ("outputs", trial.back), lambda: [*_of_views(base.run(), back, most)]
    )
    made = line.of(trial.candidate)
    run = setting.runners.int8(
        made.int8().graph, made.passes * len(back) * len(want[0])
    )
    return Score.of(
        zip(w, g, strict=True)
        for w, g in zip(want, _of_views(run, back, most), strict=True)
    )


def _of_views(
    run: Run, samples: Sequence[Sample], most: int
) -> Iterator[list[Mapping[str, Array]]]:
    """The outputs of each sample, and of its other views."""
    return in_order(lambda s: [run(v, None) for v in views(s, most)], samples, cores())


_Key = tuple[str, tuple[int, ...]]
_lines: WeakValueDictionary[_Key, StepPipeline] = WeakValueDictionary()
_latest: dict[_Key, StepPipeline] = {}
"""One at most: it takes hundreds of MB.

Others live as long as a trial works on them.
"""
_lock = Lock()


def _line(setting: SearchSetting, fit: tuple[int, ...]) -> StepPipeline:
    """The one of this process for a setting and some of its samples."""
    with _lock:
        key = setting.key, fit
        found = _lines.get(key) or StepPipeline(setting.work(fit))
        _lines[key] = found
        _latest.clear()
        _latest[key] = found
        return found


@contextmanager
def going_on(setting: SearchSetting) -> Iterator[SearchSetting]:
    """What this process keeps for the trials of a setting is wanted until the end."""
    try:
        yield setting
    finally:
        with _lock:
            for key in [key for key in _latest if key[0] == setting.key]:
                del _latest[key]


def fingerprint(graph: Graph, samples: Sequence[Sample]) -> str:
    """Of a model, of what is calibrated with, and of the program that does it."""
    rows = (
        f"{name} {x.dtype} {x.shape}".encode() + x.tobytes()
        for s in samples
        for name, x in sorted(s.items())
    )
    return _hash(program(), print_graph(graph), *rows)


@cache
def program() -> str:
    """Of all that this program is, so that another goes on with nothing that this one
    found.
    """
    packages = (Path(__file__).parents[1], Path(edgec_runtime.__file__).parent)
    files = sorted(
        p
        for package in packages
        for p in package.rglob("*")
        if p.suffix in (".py", ".h", ".toml", ".json")
    )
    return _hash(np.__version__, *(p.read_bytes() for p in files))


def _hash(*parts: str | bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()
