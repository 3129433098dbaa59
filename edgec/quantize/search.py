"""The candidates of a recipe tried on a model, and the best kept: judged on samples held back from all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

import numpy as np

from edgec.errors import InputError
from edgec.ir import Graph
from edgec.quantize.accuracy import Agreement, Tally
from edgec.quantize.calibration import Kept, Sample
from edgec.quantize.hands import Hands
from edgec.quantize.line import Line
from edgec.quantize.observers import Run
from edgec.quantize.recipe import Candidate, Recipe
from edgec.quantize.trials import Score, Setting, Trial, fingerprint
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


@dataclass(frozen=True)
class Tried:
    """A candidate on held-back samples. outputs: over all of them; means: what each output is judged by, in dB
    (`Score.db`; about the mean of outputs that are nearly constant). refused: by how much it is below the first, where
    that is too much.
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
    hands: Hands | None = None,
) -> Found:
    """Quantize a float graph by a recipe. Raises InputError when there is no sample.

    Several candidates are compared on a quarter of the samples, at most 16, or, where that is too few to tell, on
    thirds in turn; the best is then made anew of all. hands: who tries them; the result is the same.
    """
    if not len(samples):
        raise InputError("there is no calibration sample", hint="give a folder of photos or an .npz file")
    runners, samples, hands = runners or InterpRunners(), Kept(samples), hands or Hands()
    passes = sum(len(c.steps) for c in recipe.candidates) - 1
    work = Work(graph, samples, runners, say, recipe.seed, passes)
    best, tried, held = recipe.candidates[0], tuple[Tried, ...](), 0
    if len(recipe.candidates) > 1 and len(samples) >= LEAST:
        folds = list(_folds(len(samples), recipe.seed))
        trials = [Trial(c, fit, back) for fit, back in folds for c in recipe.candidates]
        key = fingerprint(graph, samples) if hands.memory is not None else token_hex()
        setting = Setting(key, graph, samples, runners, recipe.candidates[0], recipe.seed, passes, say)
        scores = hands.judge(trials, setting)
        held = sum(len(back) for _, back in folds)
        tried = tuple(
            _tried(recipe, [_over_folds(scores[i :: len(recipe.candidates)]) for i in range(len(recipe.candidates))])
        )
        best = recipe.candidates[int(np.argmax([-np.inf if t.refused else t.db for t in tried]))]
    work = Line(work).of(best)
    say("quantize")
    return Found(work.int8().graph, work.graph, work.run(), recipe, best, len(samples), held, tried)


def _over_folds(scores: Sequence[Score]) -> Score:
    """Of one candidate."""
    found = Score()
    for score in scores:
        found.add(score)
    return found


def _folds(count: int, seed: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Numbers of samples to make candidates of, and of others to judge them on."""
    order = np.random.default_rng((seed, _SHUFFLE)).permutation(count).tolist()
    held = min(count // _PART, _MOST)
    parts = [order[:held]] if held >= _ENOUGH else [order[i::_FOLDS] for i in range(_FOLDS)]
    for part in parts:
        yield tuple(sorted({*order} - {*part})), tuple(sorted(part))


def _tried(recipe: Recipe, scores: Sequence[Score]) -> Iterator[Tried]:
    base: Mapping[str, float] = {}
    for candidate, score in zip(recipe.candidates, scores, strict=True):
        means = score.db()
        base = base or means
        worse = [(n, base[n] - db) for n, db in means.items() if base[n] - db > recipe.within_db]
        refused = f"{worse[0][0]} is {worse[0][1]:.1f} dB below the first" if worse else ""
        outputs = {n: Tally.of(states).result() for n, states in score.tallies.items()}
        yield Tried(candidate.name, outputs, means, refused)
