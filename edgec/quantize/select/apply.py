"""Quantizes a float model by a recipe, guarded by a plain way on held-back samples.

Choosing among several ways by held-back samples was measured: over 34 runs (17 networks,
two halves of their samples each) it gained 0.03 dB in the mean on test samples over
always taking the last way. So a recipe has one way, and a guard: min/max alone, which is
kept for the few networks that the other way harms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edgec.errors import InputError
from edgec.ir import Graph, Run
from edgec.measure.agreement import Agreement, Tally
from edgec.quantize.change.channel_groups import Parts
from edgec.quantize.change.pipeline import StepPipeline
from edgec.quantize.change.recipe import Candidate, Recipe
from edgec.quantize.change.state import InterpRunners, QuantizationState, Runners
from edgec.quantize.float_ops.limits import Price, Pricer
from edgec.quantize.float_ops.plan import Names, PrecisionPlan, leave_in_float
from edgec.quantize.float_ops.planner import FloatPlanner, ModelToPlan
from edgec.quantize.float_ops.quick_search import MeasuredCandidate, ScoredModel
from edgec.quantize.observe.calibration import CachedSamples, Sample, chosen, label
from edgec.quantize.observe.judgement import Judge, Judgement
from edgec.quantize.observe.score import Score
from edgec.quantize.observe.survey import SampleReport
from edgec.quantize.select.holdout import MIN_SAMPLES, Holdout, folds
from edgec.steps import Progress


@dataclass(frozen=True)
class Tried:
    """A candidate on held-back samples.

    Attributes:
        name: the candidate's name.
        outputs: the agreement of each output over all samples.
        means: the signal-to-noise ratio of each output, in dB (`Score.db`).
        refused: by how much it is below the other, where that is too much.
        judged: the candidate on labelled pictures, where there are some.
    """

    name: str
    outputs: Mapping[str, Agreement]
    means: Mapping[str, float]
    refused: str = ""
    judged: Judgement | None = None

    @classmethod
    def of(
        cls, candidate: Candidate, score: Score, judged: Judgement | None = None
    ) -> Tried:
        """Return the figures of a candidate's score."""
        # The states of all folds make one tally of each output.
        tallies = score.tallies.items()
        outputs = {name: Tally.of(states).result() for name, states in tallies}
        return cls(candidate.name, outputs, score.db(), judged=judged)

    @property
    def db(self) -> float:
        """The mean over the outputs."""
        return float(np.mean([*self.means.values()]))

    def measured(self) -> MeasuredCandidate:
        """Return the figures that a plan compares."""
        return MeasuredCandidate(self.db, self.outputs, self.judged)

    def to_json(self) -> dict[str, Any]:
        """Return a row of the bundle's report."""
        rows = {
            name: {**a.as_dict(), "mean_db": round(self.means[name], 3)}
            for name, a in self.outputs.items()
        }
        db = round(self.db, 3)

        return {
            "name": self.name,
            "db": db,
            "refused": self.refused,
            "outputs": rows,
            "judged": None if self.judged is None else self.judged.to_json(),
        }


@dataclass(frozen=True)
class QuantizedModel:
    """A model that a recipe made int8.

    Attributes:
        graph: the int8 graph.
        floats: the float graph that it was made of, which `run` runs.
        recipe: the recipe, with the operations that it left in float.
        candidate: the way that was kept.
        samples: the number of calibration samples.
        held: the number of samples held back from the candidates.
        tried: the guard and the way, on the held-back samples; the guard alone where it
            is so accurate that nothing else was tried; empty without a guard.
        sample_report: the comparison of the samples with each other.
        plan: the operations that were left in float for a goal or a budget; None where
            there were neither.
        floating: the names of the first results of all operations in float.
        prices: the cost of the guard and of the way, where their operations differ.
        parts: the channel groups of `floats`, see `QuantizationState`.
        judged: the int8 graph on labelled pictures, where there are some.
        pictures: the number of labelled pictures.
    """

    graph: Graph
    floats: Graph
    run: Run
    recipe: Recipe
    candidate: Candidate
    samples: int
    held: int = 0
    tried: Sequence[Tried] = field(default=())
    sample_report: SampleReport = field(default=SampleReport())
    plan: PrecisionPlan | None = None
    floating: tuple[str, ...] = ()
    prices: tuple[Price, Price] | None = None
    parts: Mapping[str, Parts] = field(default_factory=dict)
    judged: Judgement | None = None
    pictures: int = 0

    @property
    def remedy(self) -> str:
        """The options that help where int8 loses too much."""
        if self.recipe.guard is not None:
            return (
                "--calibrate more photos like those of its use, "
                "prepared as in training (--preprocess)"
            )
        return "--quantize best"

    def to_json(self) -> dict[str, Any]:
        """Return the bundle's report on how the model became int8."""
        return {
            "recipe": self.recipe.to_json(),
            "kept": self.candidate.name,
            "samples": self.samples,
            "held_back": self.held,
            "tried": [t.to_json() for t in self.tried],
            "calibration": self.sample_report.to_json(),
            "plan": None if self.plan is None else self.plan.to_json(),
            "judged": None if self.judged is None else self.judged.to_json(),
            "pictures": self.pictures,
        }


@dataclass(frozen=True)
class _Selected:
    """What held-back samples decided.

    Attributes:
        candidate: the way that is kept.
        sample_report: the comparison of the samples with each other.
        pipeline: the model with the samples to calibrate with.
        held: the number of samples that were held back.
        tried: the figures of the guard and the way.
    """

    candidate: Candidate
    sample_report: SampleReport
    pipeline: StepPipeline
    held: int = 0
    tried: tuple[Tried, ...] = ()


def apply_recipe(
    recipe: Recipe,
    graph: Graph,
    samples: Sequence[Sample],
    runners: Runners | None = None,
    say: Progress = lambda text: None,
    planner: FloatPlanner | None = None,
) -> QuantizedModel:
    """Quantize a float graph by a recipe.

    The way of a recipe with a guard is compared with it on a quarter of the samples, at
    most 16, or, where that is too few to tell, on thirds in turn. The model is then made
    of all samples.

    planner: leaves operations in float, by default for the recipe's slowdown; None: no
        operation but those that the recipe names. With a judge, labelled pictures decide
        where they can tell two models apart, and noise where they cannot.

    Raises InputError when there is no sample, EdgecError where the budget does not reach
    the goal.
    """
    if not len(samples):
        raise InputError(
            "there is no calibration sample",
            hint="give a folder of photos or an .npz file",
        )
    planner = (planner or FloatPlanner()).with_default(recipe)
    cached = CachedSamples(samples)
    passes = sum(len(c.steps) for c in recipe.candidates)
    state = QuantizationState(
        graph, cached, runners or InterpRunners(), say, recipe.seed, passes
    )

    # Candidates are compared first, then operations are left in float, then the model
    # is made of all samples.
    selected, scored = _select(recipe, StepPipeline(state), planner)
    pipeline = selected.pipeline
    candidate = selected.candidate
    parts = [*held_out_parts(pipeline.state)]
    plan = planner.plan(ModelToPlan(candidate, parts, scored))

    # The folds of the scores take hundreds of MB.
    del scored
    guard = recipe.guard
    if plan is not None:
        kept = candidate
        candidate = leave_in_float(kept, plan.floats)
        guard = None if guard is None else leave_in_float(guard, plan.floats)
        # The recipe in the report makes the same model again, without a plan.
        recipe = _replaced(recipe, kept, candidate)

    say("quantize")
    quantized = pipeline.of(candidate)
    int8 = quantized.int8().graph
    judged = _judged(quantized, planner.judge)
    return QuantizedModel(
        graph=int8,
        floats=quantized.graph,
        run=quantized.float_run(),
        recipe=recipe,
        candidate=candidate,
        samples=len(quantized.samples),
        held=selected.held,
        tried=() if recipe.guard is None else selected.tried,
        sample_report=selected.sample_report,
        plan=plan,
        floating=tuple(op.outputs[0].name for op in quantized.precision),
        prices=_prices(pipeline, guard, int8, planner.price),
        parts=quantized.parts,
        judged=judged,
        pictures=0 if planner.judge is None else planner.judge.pictures,
    )


def _judged(state: QuantizationState, judge: Judge | None) -> Judgement | None:
    """Return a quantized model on labelled pictures; None without them."""
    if judge is None:
        return None
    runs = state.passes * judge.pictures
    run = state.runners.int8(state.int8().graph, runs)
    return judge(run)


def _select(
    recipe: Recipe, pipeline: StepPipeline, planner: FloatPlanner
) -> tuple[_Selected, ScoredModel | None]:
    """Decide on held-back samples between guard and way.

    Also return the kept model with its figures, if the planner needs them.
    """
    state = pipeline.state
    plainest = recipe.candidates[0]
    names = [label(state.samples, i) for i in range(len(state.samples))]
    report = pipeline.after(plainest.rewrites).survey().report(names)
    judge = planner.judge
    needs_holdout = recipe.guard is not None or planner.needs_scores
    if not needs_holdout or len(state.samples) < MIN_SAMPLES:
        # Nothing can be held back: the plain way is the safe one.
        return _Selected(plainest, report, pipeline), None

    report, used = _without_outliers(recipe, state, report)
    if report.left_out:
        pipeline = StepPipeline(state.with_samples(chosen(state.samples, used)))
    parts = folds(used, recipe.seed)
    if recipe.guard is not None and judge is None:
        # One part tells whether there is anything to gain, at a third of the work.
        first = Holdout(state, plainest, parts[:1])
        (score,) = first.scores([plainest])
        if min(score.db().values()) >= recipe.ample_db:
            alone = (Tried.of(plainest, score),)
            return _Selected(plainest, report, pipeline, first.count, alone), None

    holdout = Holdout(state, plainest, parts)
    scores = holdout.scores(recipe.candidates)
    # Labelled pictures are held back from calibration: the whole of it makes the models.
    judgements = [_judged(pipeline.of(c), judge) for c in recipe.candidates]
    tried = compared(recipe, scores, judgements)
    number = len(tried) - 1 if not tried[-1].refused else 0
    candidate = recipe.candidates[number]
    selected = _Selected(candidate, report, pipeline, holdout.count, tried)

    # A model that is accurate enough needs nothing in float.
    judged = tried[number].judged
    if judged is not None:
        is_enough = judged.is_as_float
    else:
        is_enough = tried[number].db >= recipe.enough_db
    if not planner.needs_scores or is_enough:
        return selected, None

    def measure(floats: Names) -> MeasuredCandidate:
        """Score the candidate with operations of these names in float."""
        partly_float = leave_in_float(candidate, floats)
        (score,) = holdout.scores([partly_float])
        judged = _judged(pipeline.of(partly_float), judge)
        return Tried.of(partly_float, score, judged).measured()

    scored = ScoredModel(
        state=pipeline.of(candidate),
        before=tried[number].measured(),
        measure=measure,
        samples=holdout.count,
        worth_db=recipe.worth_db,
    )
    return selected, scored


def _replaced(recipe: Recipe, old: Candidate, new: Candidate) -> Recipe:
    """Return a recipe with another candidate in place of one."""
    candidates = tuple(new if c is old else c for c in recipe.candidates)
    return replace(recipe, candidates=candidates)


def _prices(
    pipeline: StepPipeline, guard: Candidate | None, int8: Graph, price: Pricer | None
) -> tuple[Price, Price] | None:
    """Return the costs of guard and way, if a guard was compared and they differ."""
    if price is None or guard is None or len(pipeline.state.samples) < MIN_SAMPLES:
        return None

    # The same operations in the same types cost the same.
    plain = pipeline.of(guard).int8().graph

    return None if _have_same_ops(plain, int8) else (price(plain), price(int8))


def _have_same_ops(a: Graph, b: Graph) -> bool:
    """Return whether two graphs are the same operations on values of the same types.

    They run in the same places then, and cost the same.
    """

    def kinds(graph: Graph) -> list[tuple[str, list[str]]]:
        """Return the kind of each operation, and the types that it computes on."""
        rows = []
        for op in graph.ops:
            dtypes = [v.type.dtype for v in (*op.inputs, *op.outputs)]
            rows.append((op.kind, dtypes))
        return rows

    return kinds(a) == kinds(b)


def held_out_parts(
    state: QuantizationState,
) -> Iterator[tuple[QuantizationState, Sequence[Sample]]]:
    """Yield the model with samples to make it of, and the samples to score it on.

    Where there are few samples, it is scored on those that it is made of.
    """
    if len(state.samples) < MIN_SAMPLES:
        yield state, state.samples
        return

    for fit, held in folds(range(len(state.samples)), state.seed):
        fit_state = state.with_samples(chosen(state.samples, fit))
        yield fit_state, chosen(state.samples, held)


def _without_outliers(
    recipe: Recipe, state: QuantizationState, report: SampleReport
) -> tuple[SampleReport, Sequence[int]]:
    """Leave outliers out of the samples unless they help the plain way on the others.

    Return the report on the samples, and the numbers of those to go on with.
    """
    every = range(len(state.samples))
    outliers = {outlier.sample for outlier in report.outliers}
    usual = [i for i in every if i not in outliers]
    if not outliers or len(usual) < MIN_SAMPLES:
        return report, every

    # Both are scored on usual samples: those are what the model will see.
    plainest = recipe.candidates[0]
    holdout = Holdout(state, plainest, folds(usual, recipe.seed))
    without_db = _mean_db(holdout.scores([plainest])[0])
    with_db = _mean_db(holdout.scores([plainest], more=outliers)[0])
    left_out = without_db > with_db
    report = replace(
        report,
        without_db=round(without_db, 3),
        with_db=round(with_db, 3),
        left_out=left_out,
    )

    return report, usual if left_out else every


def _mean_db(score: Score) -> float:
    return float(np.mean([*score.db().values()]))


def compared(
    recipe: Recipe,
    scores: Sequence[Score],
    judgements: Sequence[Judgement | None] | None = None,
) -> tuple[Tried, ...]:
    """Return the figures of a recipe's candidates; the way may be refused.

    Labelled pictures decide where they can tell the candidates apart, noise else.

    recipe: the recipe whose limit of losses counts.
    scores: the score of each candidate, on the same samples.
    judgements: of each candidate, where there are labelled pictures.
    """
    if judgements is None:
        judgements = [None] * len(scores)
    rows = zip(recipe.candidates, scores, judgements, strict=True)
    tried = [Tried.of(*row) for row in rows]

    # A recipe of one candidate is compared with itself.
    below = tried[0].db - tried[-1].db
    refused = f"{below:.1f} dB below the first" if below > recipe.within_db else ""
    first = tried[0].judged
    last = tried[-1].judged
    if first is not None and last is not None:
        if last.is_better_than(first):
            refused = ""
        elif first.is_better_than(last):
            refused = f"{last.title} {last.value:.2f}, the first {first.value:.2f}"
    tried[-1] = replace(tried[-1], refused=refused)

    return tuple(tried)
