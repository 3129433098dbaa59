"""The candidates of a recipe tried on a model, and the best kept: judged on samples held back from all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edgec.errors import InputError
from edgec.ir import Array, Graph
from edgec.quantize.accuracy import Agreement, Tally, tally
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
_ENOUGH = 12
"""Held-back samples that one choice may hang on; where there are fewer, every sample is held back once."""
_FOLDS = 3
_SHUFFLE = 1
_TOP_DB = 100.0
"""What equal outputs count as."""


@dataclass(frozen=True)
class Tried:
    """A candidate on held-back samples. outputs: over all of them; means: by output, the mean of the samples' own
    signal to noise in dB, which no single sample decides (about the mean of outputs that are nearly constant).
    refused: by how much it is below the first, where that is too much.
    """

    name: str
    outputs: Mapping[str, Agreement]
    means: Mapping[str, float]
    refused: str = ""

    @property
    def db(self) -> float:
        """The mean over the outputs."""
        return float(np.mean([*self.means.values()]))

    def to_json(self) -> dict[str, Any]:
        """A row of the bundle's report."""
        rows = {name: {**a.as_dict(), "mean_db": round(self.means[name], 3)} for name, a in self.outputs.items()}
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

    Several candidates are compared on a quarter of the samples, at most 16, or, where that is too few to tell, on
    thirds in turn; the best is then made anew of all.
    """
    if not len(samples):
        raise InputError("there is no calibration sample", hint="give a folder of photos or an .npz file")
    runners, samples = runners or InterpRunners(), Kept(samples)
    work = Work(graph, samples, runners, say, recipe.seed, sum(len(c.steps) for c in recipe.candidates) - 1)
    best, tried, held = recipe.candidates[0], tuple[Tried, ...](), 0
    if len(recipe.candidates) > 1 and len(samples) >= LEAST:
        scores = [_Score() for _ in recipe.candidates]
        for fit, back in _folds(len(samples), recipe.seed):
            _judge(recipe, replace(work, samples=chosen(samples, fit), _kept={}), chosen(samples, back), scores)
            held += len(back)
        tried = tuple(_tried(recipe, scores))
        best = recipe.candidates[int(np.argmax([-np.inf if t.refused else t.db for t in tried]))]
    work = _Line(work).of(best)
    say("quantize")
    return Found(work.int8().graph, work.graph, work.run(), recipe, best, len(samples), held, tried)


def _folds(count: int, seed: int) -> Iterator[tuple[list[int], list[int]]]:
    """Numbers of samples to make candidates of, and of others to judge them on."""
    order = np.random.default_rng((seed, _SHUFFLE)).permutation(count).tolist()
    held = min(count // _PART, _MOST)
    parts = [order[:held]] if held >= _ENOUGH else [order[i::_FOLDS] for i in range(_FOLDS)]
    for part in parts:
        yield sorted({*order} - {*part}), sorted(part)


@dataclass
class _Score:
    """What is known of a candidate so far: over all samples, and of each."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    rows: dict[str, list[float]] = field(default_factory=dict)

    def add(self, want: Mapping[str, Array], got: Mapping[str, Array]) -> None:
        for name, y in want.items():
            self.tallies.setdefault(name, Tally()).add(y, got[name])
            alone = tally(y, got[name]).result()
            ratio = alone.sqnr_db if alone.centred_sqnr_db is None else alone.centred_sqnr_db
            self.rows.setdefault(name, []).append(float(np.clip(ratio, -_TOP_DB, _TOP_DB)))


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


def _judge(recipe: Recipe, work: Work, held: Sequence[Sample], scores: Sequence[_Score]) -> None:
    """Make all candidates of some samples, and let others judge them."""
    line = _Line(work)
    want: list[dict[str, Array]] = []
    for i, (candidate, score) in enumerate(zip(recipe.candidates, scores, strict=True), 1):
        made = line.of(candidate)
        run = made.run()
        want = want or [run(s, None) for s in held]
        work.say(f"try {i}/{len(recipe.candidates)}")
        got = work.runners.int8(made.int8().graph, made.passes * len(held))
        for w, s in zip(want, held, strict=True):
            score.add(w, got(s, None))


def _tried(recipe: Recipe, scores: Sequence[_Score]) -> Iterator[Tried]:
    base: Mapping[str, float] = {}
    for candidate, score in zip(recipe.candidates, scores, strict=True):
        means = {name: float(np.mean(row)) for name, row in score.rows.items()}
        base = base or means
        worse = [(n, base[n] - db) for n, db in means.items() if base[n] - db > recipe.within_db]
        refused = f"{worse[0][0]} is {worse[0][1]:.1f} dB below the first" if worse else ""
        yield Tried(candidate.name, {n: t.result() for n, t in score.tallies.items()}, means, refused)
