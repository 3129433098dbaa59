"""The candidates of a recipe tried on a model, and the best kept: judged on samples
held back from all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any

import numpy as np

from edgec.errors import InputError
from edgec.ir import Graph, Run
from edgec.quantize.accuracy import Agreement, Tally
from edgec.quantize.calibration import CachedSamples, Sample, chosen, label
from edgec.quantize.hands import CandidateExecutor
from edgec.quantize.limits import Limits, Price
from edgec.quantize.line import StepPipeline
from edgec.quantize.plan import Bought, PrecisionPlan, Pricer, leaving, within
from edgec.quantize.recipe import Candidate, Recipe
from edgec.quantize.spending import spend
from edgec.quantize.strands import Parts
from edgec.quantize.survey import SampleReport
from edgec.quantize.trials import (
    CandidateTrial,
    Score,
    SearchSetting,
    errors,
    fingerprint,
    going_on,
)
from edgec.quantize.units import OpGroup
from edgec.quantize.work import InterpRunners, QuantizationState, Runners
from edgec.steps import Progress

LEAST = 4
"""Samples: of fewer, none is held back, and the first candidate is taken."""
_PART = 4
_MOST = 16
_ENOUGH = 12
"""Held-back samples that one choice may hang on; where there are fewer, every sample is
held back once.
"""
_FOLDS = 3
_CLEARLY = 2.0
"""Standard errors: by chance one output of forty is so much worse."""
_SHUFFLE = 1


@dataclass(frozen=True)
class Tried:
    """A candidate on held-back samples. outputs: over all of them; means: what each
    output is judged by, in dB (`Score.db`; about the mean of outputs that are nearly
    constant). refused: by how much it is below the first, where that is too much.
    error: the standard error of its difference from the best of them, in dB.
    """

    name: str
    outputs: Mapping[str, Agreement]
    means: Mapping[str, float]
    refused: str = ""
    error: float = 0.0

    @property
    def db(self) -> float:
        """The mean over the outputs."""
        return float(np.mean([*self.means.values()]))

    def to_json(self) -> dict[str, Any]:
        """A row of the bundle's report."""
        rows = {
            name: {**a.as_dict(), "mean_db": round(self.means[name], 3)}
            for name, a in self.outputs.items()
        }
        figures = {"db": round(self.db, 3), "error_db": round(self.error, 3)}
        return {"name": self.name, **figures, "refused": self.refused, "outputs": rows}


@dataclass(frozen=True)
class QuantizedModel:
    """What a recipe made of a model. graph: int8. floats: the float graph that it is
    of, which `run` runs.

    tried: all candidates, on `held` samples; none where there was nothing to choose.
    suited: whether the samples are what they should be. plan: what was left in float to
    keep within limits; None where there were none. floating: the first results of all
    ops that were left in float. prices: of the first candidate and of the one that was
    kept, where these are not the same operations. parts: of channels of `floats`, see
    `QuantizationState`.
    """

    graph: Graph
    floats: Graph
    run: Run
    recipe: Recipe
    candidate: Candidate
    samples: int
    held: int = 0
    tried: Sequence[Tried] = field(default=())
    suited: SampleReport = field(default=SampleReport())
    plan: PrecisionPlan | None = None
    floating: tuple[str, ...] = ()
    prices: tuple[Price, Price] | None = None
    parts: Mapping[str, Parts] = field(default_factory=dict)

    @property
    def remedy(self) -> str:
        """What a compile may be given where int8 loses too much."""
        if self.recipe.chooses:
            return (
                "--calibrate more photos like those of its use, "
                "prepared as in "
                "training (--preprocess)"
            )
        return "--quantize best"

    def to_json(self) -> dict[str, Any]:
        """For the bundle: the recipe as it was given, the candidate that was kept, and
        what was tried.
        """
        return {
            "recipe": self.recipe.to_json(),
            "kept": self.candidate.name,
            "samples": self.samples,
            "held_back": self.held,
            "tried": [t.to_json() for t in self.tried],
            "calibration": self.suited.to_json(),
            "plan": None if self.plan is None else self.plan.to_json(),
        }


def search(
    recipe: Recipe,
    graph: Graph,
    samples: Sequence[Sample],
    runners: Runners | None = None,
    say: Progress = lambda text: None,
    hands: CandidateExecutor | None = None,
    limits: Limits | None = None,
    price: Pricer | None = None,
) -> QuantizedModel:
    """Quantize a float graph by a recipe.

    Raises InputError when there is no sample, EdgecError where a goal of `limits` is
    out of reach.

    Several candidates are compared on a quarter of the samples, at most 16, or, where
    that is too few to tell, on thirds in turn; the best is then made anew of all.
    hands: who tries them; the result is the same. limits: what is left of it in float
    is chosen on such samples too; price: what a quantized graph costs.
    """
    if not len(samples):
        raise InputError(
            "there is no calibration sample",
            hint="give a folder of photos or an .npz file",
        )
    runners = runners or InterpRunners()
    samples = CachedSamples(samples)
    hands = hands or CandidateExecutor()
    passes = sum(len(c.steps) for c in recipe.candidates)
    line = StepPipeline(
        QuantizationState(graph, samples, runners, say, recipe.seed, passes)
    )
    first = recipe.candidates[0]
    best = recipe.candidates[0]
    judged = _Judged()
    plan = None
    spends = price if recipe.slowdown and not limits else None
    survey = line.after(first.rewrites).survey()
    suited = survey.suited([label(samples, i) for i in range(len(samples))])
    if (recipe.chooses or spends is not None) and len(samples) >= LEAST:
        key = fingerprint(graph, samples) if hands.memory is not None else token_hex()
        with going_on(
            SearchSetting(key, graph, samples, runners, first, recipe.seed, passes, say)
        ) as setting:
            judges = _Judges(hands, recipe, setting)
            suited, used = judges.without_strangers(suited, len(samples))
            judged = judges.judged(used)
            best = recipe.candidates[choice(judged.tried, recipe.within_errors)]
            if suited.left_out:
                line = StepPipeline(line.work.on(samples.some(used)))
            if spends is not None and judged.db(best) < recipe.enough_db:
                plan = judges.spent(judged, best, line.of(best), spends)
    if limits:
        plan = within(limits, best, [*parts(line.work)], price)
    if plan is not None:
        kept = best
        best = leaving(best, plan.floats)
        first = leaving(first, plan.floats)
        recipe = replace(
            recipe,
            candidates=tuple(best if c is kept else c for c in recipe.candidates),
        )
    work = line.of(best)
    say("quantize")
    left = tuple(op.outputs[0].name for op in work.precision)
    int8 = work.int8().graph
    if price is not None and judged.tried:
        plainest = line.of(first).int8().graph
    else:
        plainest = int8
    if price is None or _alike(plainest, int8):
        prices = None
    else:
        prices = (price(plainest), price(int8))
    tried = judged.tried if len(judged.tried) > 1 else ()
    count = judged.count
    found = QuantizedModel(
        int8,
        work.graph,
        work.run(),
        recipe,
        best,
        len(work.samples),
        count,
        tried,
        suited,
        plan,
        left,
        prices,
    )
    return replace(found, parts=work.parts)


def _alike(a: Graph, b: Graph) -> bool:
    """Whether they are the same operations on values of the same kinds: then they run
    in the same places.
    """
    one, other = (
        [(op.kind, [v.type.dtype for v in (*op.inputs, *op.outputs)]) for op in g.ops]
        for g in (a, b)
    )
    return one == other


def parts(
    work: QuantizationState,
) -> Iterator[tuple[QuantizationState, Sequence[Sample]]]:
    """The model with samples to make it of, and others to judge it on; with the same
    where there are few.
    """
    if len(work.samples) < LEAST:
        yield work, work.samples
        return
    for fit, back in _folds(range(len(work.samples)), work.seed):
        yield work.on(chosen(work.samples, fit)), chosen(work.samples, back)


@dataclass(frozen=True)
class _Judged:
    """All candidates of a recipe, on parts of the samples: those that they are made of
    and those held back.
    """

    folds: Sequence[tuple[tuple[int, ...], tuple[int, ...]]] = ()
    scores: Sequence[Score] = ()
    tried: tuple[Tried, ...] = ()

    def db(self, candidate: Candidate) -> float:
        """Of one."""
        return next(t.db for t in self.tried if t.name == candidate.name)

    @property
    def count(self) -> int:
        """Of samples held back from one or another."""
        return sum(len(back) for _, back in self.folds)


@dataclass(frozen=True)
class _Judges:
    """Candidates on samples that are held back from them."""

    hands: CandidateExecutor
    recipe: Recipe
    setting: SearchSetting

    def without_strangers(
        self, suited: SampleReport, count: int
    ) -> tuple[SampleReport, list[int]]:
        """Whether samples that do not belong help the first candidate on others, and
        the samples to go on with.
        """
        every = [*range(count)]
        strange = {s.sample for s in suited.strangers}
        usual = [i for i in every if i not in strange]
        if not strange or len(usual) < LEAST:
            return suited, every
        folds = [*_folds(usual, self.recipe.seed)]
        first = self.recipe.candidates[0]
        ways = (
            [fit for fit, _ in folds],
            [tuple(sorted({*fit, *strange})) for fit, _ in folds],
        )
        trials = [
            CandidateTrial(first, fit, back)
            for way in ways
            for fit, (_, back) in zip(way, folds, strict=True)
        ]
        scores = self.hands.judge(trials, self.setting)
        without, having = (
            _mean_db(_over_folds(s))
            for s in (scores[: len(folds)], scores[len(folds) :])
        )
        left_out = without > having
        suited = replace(
            suited,
            without_db=round(without, 3),
            with_db=round(having, 3),
            left_out=left_out,
        )
        return suited, usual if left_out else every

    def judged(self, used: Sequence[int]) -> _Judged:
        """All candidates, on some of the samples."""
        folds = [*_folds(used, self.recipe.seed)]
        candidates = self.recipe.candidates
        scores = self.hands.judge(
            [CandidateTrial(c, fit, back) for fit, back in folds for c in candidates],
            self.setting,
        )
        each = [
            _over_folds(scores[i :: len(candidates)]) for i in range(len(candidates))
        ]
        return _Judged(folds, each, compared(self.recipe, each))

    def spent(
        self, judged: _Judged, best: Candidate, work: QuantizationState, price: Pricer
    ) -> PrecisionPlan:
        """What the recipe's `slowdown` buys: what is left in float, if that is worth it
        on samples held back, or nothing. work: the best after its steps.
        """
        bought = spend(work, price, self.recipe.slowdown)
        number = self.recipe.candidates.index(best)
        before = judged.tried[number]
        score = judged.scores[number]
        rows = [Bought(OpGroup(()), before.db, bought.first, before.outputs)]
        if bought.unit.ops:
            more = leaving(best, bought.unit.names)
            other = _over_folds(
                self.hands.judge(
                    [CandidateTrial(more, fit, back) for fit, back in judged.folds],
                    self.setting,
                )
            )
            after = compared(
                replace(self.recipe, candidates=(best, more)), [score, other]
            )[1]
            if (
                after.db - before.db
                >= max(self.recipe.worth_db, errors(other, score)[0])
                and not after.refused
            ):
                rows.append(Bought(bought.unit, after.db, bought.price, after.outputs))
        return PrecisionPlan(
            bought.limits, tuple(rows), judged.count, self.recipe.worth_db
        )


def _over_folds(scores: Sequence[Score]) -> Score:
    """Of one candidate."""
    found = Score()
    for score in scores:
        found.add(score)
    return found


def _mean_db(score: Score) -> float:
    return float(np.mean([*score.db().values()]))


def _folds(
    numbers: Sequence[int], seed: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Samples to make candidates of, and others to judge them on."""
    order = [
        numbers[i]
        for i in np.random.default_rng((seed, _SHUFFLE))
        .permutation(len(numbers))
        .tolist()
    ]
    held = min(len(order) // _PART, _MOST)
    if held >= _ENOUGH:
        parts = [order[:held]]
    else:
        parts = [order[i::_FOLDS] for i in range(_FOLDS)]
    for part in parts:
        yield tuple(sorted({*order} - {*part})), tuple(sorted(part))


def compared(recipe: Recipe, scores: Sequence[Score]) -> tuple[Tried, ...]:
    """What the candidates of a recipe are beside each other. scores: of each, on the
    same samples.
    """
    found = list[Tried]()
    for candidate, score in zip(recipe.candidates, scores, strict=True):
        outputs = {n: Tally.of(states).result() for n, states in score.tallies.items()}
        one = Tried(candidate.name, outputs, score.db())
        found.append(
            replace(
                one,
                refused=_refused(one, found[0], errors(score, scores[0])[1], recipe)
                if found
                else "",
            )
        )
    best = _best(found)
    return tuple(
        replace(t, error=errors(s, scores[best])[0])
        for t, s in zip(found, scores, strict=True)
    )


def _refused(t: Tried, first: Tried, error: Mapping[str, float], recipe: Recipe) -> str:
    """Why a candidate is not kept. error: standard errors of its outputs' differences
    from the first.
    """
    if first.db - t.db > recipe.within_db:
        return f"{first.db - t.db:.1f} dB below the first"
    below = {n: first.means[n] - db for n, db in t.means.items()}
    worse = (
        n for n, db in below.items() if db > recipe.within_db + _CLEARLY * error[n]
    )
    return next((f"{n} is {below[n]:.1f} dB below the first" for n in worse), "")


def _best(tried: Sequence[Tried]) -> int:
    return max(
        (i for i, t in enumerate(tried) if not t.refused), key=lambda i: tried[i].db
    )


def choice(tried: Sequence[Tried], within: float) -> int:
    """The number of the last candidate that is as good as the best: so many standard
    errors below it at most.
    """
    best = tried[_best(tried)].db
    return max(
        i
        for i, t in enumerate(tried)
        if not t.refused and best - t.db <= within * t.error
    )
