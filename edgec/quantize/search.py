"""The candidates of a recipe tried on a model, and the best kept: judged on samples held back from all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgec.errors import InputError
from edgec.ir import Array, Graph
from edgec.quantize.accuracy import Agreement, compare
from edgec.quantize.calibration import Kept, Sample, chosen
from edgec.quantize.observers import Run
from edgec.quantize.recipe import Candidate, Recipe
from edgec.quantize.steps import Step
from edgec.quantize.work import InterpRunners, Runners, Work
from edgec.steps import Progress

LEAST = 4
"""Samples: of fewer, none is held back, and the first candidate is taken."""
_PART = 4
_MOST = 16
_SHUFFLE = 1
_TOP_DB = 100.0
"""What equal outputs count as."""


@dataclass(frozen=True)
class Tried:
    """A candidate: its outputs on held-back samples, and whether it is below the first by more than is allowed."""

    name: str
    outputs: Mapping[str, Agreement]
    refused: str = ""

    @property
    def db(self) -> float:
        """The mean over the outputs of signal to noise, about the mean of those that are nearly constant."""
        return float(np.mean([_db(a) for a in self.outputs.values()]))

    def to_json(self) -> dict[str, Any]:
        """A row of the bundle's report."""
        rows = {name: a.as_dict() for name, a in self.outputs.items()}
        return {"name": self.name, "db": round(self.db, 3), "refused": self.refused, "outputs": rows}


@dataclass(frozen=True)
class Found:
    """What a recipe made of a model. graph: int8. floats: the float graph that it is of, which `run` runs.

    tried: all candidates, on `held` samples; none where there was nothing to choose.
    """

    graph: Graph
    floats: Graph
    run: Run
    recipe: Recipe
    candidate: Candidate
    samples: int
    held: int = 0
    tried: Sequence[Tried] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """For the bundle: the recipe as it was given, the candidate that was kept, and what was tried."""
        return {
            "recipe": self.recipe.to_json(),
            "kept": self.candidate.name,
            "samples": self.samples,
            "held_back": self.held,
            "tried": [t.to_json() for t in self.tried],
        }


def search(
    recipe: Recipe,
    graph: Graph,
    samples: Sequence[Sample],
    runners: Runners | None = None,
    say: Progress = lambda text: None,
) -> Found:
    """Quantize a float graph by a recipe. Raises InputError when there is no sample.

    Several candidates are compared on a quarter of the samples, at most 16; the best is then made anew of all.
    """
    if not len(samples):
        raise InputError("there is no calibration sample", hint="give a folder of photos or an .npz file")
    runners, samples = runners or InterpRunners(), Kept(samples)
    passes = sum(len(c.steps) for c in recipe.candidates) - 1
    whole = _Line(Work(graph, samples, runners, say, recipe.seed, passes))
    best, tried, held = recipe.candidates[0], tuple[Tried, ...](), 0
    if len(recipe.candidates) > 1 and len(samples) >= LEAST:
        order = np.random.default_rng((recipe.seed, _SHUFFLE)).permutation(len(samples)).tolist()
        held = min(len(samples) // _PART, _MOST)
        fit, back = (chosen(samples, sorted(part)) for part in (order[held:], order[:held]))
        tried = tuple(_try(recipe, _Line(Work(graph, fit, runners, say, recipe.seed, passes)), back, say))
        kept = max((t for t in tried if not t.refused), key=lambda t: t.db)
        best = next(c for c in recipe.candidates if c.name == kept.name)
    work = whole.of(best)
    say("quantize")
    return Found(work.int8().graph, work.graph, work.run(), recipe, best, len(samples), held, tried)


class _Line:
    """A model through steps; candidates that begin with the same steps share them."""

    def __init__(self, work: Work) -> None:
        self._done: dict[tuple[Step, ...], Work] = {(): work}

    def of(self, candidate: Candidate) -> Work:
        """After all its steps."""
        for i in range(1, len(candidate.steps) + 1):
            steps = candidate.steps[:i]
            if steps not in self._done:
                self._done[steps] = self._done[steps[:-1]].do(steps[-1])
        return self._done[candidate.steps]


def _try(recipe: Recipe, line: _Line, held: Sequence[Sample], say: Progress) -> Iterator[Tried]:
    base: Mapping[str, Agreement] = {}
    want: list[dict[str, Array]] = []
    for i, candidate in enumerate(recipe.candidates, 1):
        work = line.of(candidate)
        if not want:
            run = work.run()
            want = [run(s, None) for s in held]
        say(f"try {i}/{len(recipe.candidates)}")
        got = work.runners.int8(work.int8().graph, work.passes * len(held))
        outputs = compare((w, got(s, None)) for w, s in zip(want, held, strict=True))
        base = base or outputs
        yield Tried(candidate.name, outputs, _worse(outputs, base, recipe.within_db))


def _worse(outputs: Mapping[str, Agreement], base: Mapping[str, Agreement], within: float) -> str:
    """By which output the first candidate is better by more than that."""
    for name, agreement in outputs.items():
        if (loss := _db(base[name]) - _db(agreement)) > within:
            return f"{name} is {loss:.1f} dB below the first"
    return ""


def _db(a: Agreement) -> float:
    ratio = a.sqnr_db if a.centred_sqnr_db is None else a.centred_sqnr_db
    return float(np.clip(ratio, -_TOP_DB, _TOP_DB))
