"""Plans which operations stay in float32, for a goal of accuracy within a budget of cost.

The error of a quantized model is distributed: the worst few operations alone gain
little. So the planner looks at whole runs of neighbours, and leaves one after the other
in float until the goal is reached or the budget is spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from edgec.quantize.change.pipeline import StepPipeline
from edgec.quantize.change.recipe import Candidate, Recipe
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.change.steps.bias import BiasCorrection
from edgec.quantize.float_ops.limits import AccuracyGoal, CostBudget, Pricer
from edgec.quantize.float_ops.plan import Plan, leave_in_float
from edgec.quantize.float_ops.thorough_search import HeldOutFold, ThoroughSearch
from edgec.quantize.observe.calibration import Sample
from edgec.quantize.observe.judgement import Judge


@dataclass(frozen=True)
class FloatPlanner:
    """Leaves operations in float for a goal of accuracy within a budget of cost.

    With a goal it leaves as little as the goal needs. Without one it spends the budget.

    Attributes:
        goal: the accuracy that is wanted.
        budget: the cost that is allowed.
        price: estimates the cost of a quantized graph on the target; None: unknown.
        judge: judges on labelled pictures, by which models are chosen instead of by the
            noise of their outputs; None: there are none.
    """

    goal: AccuracyGoal = field(default=AccuracyGoal())
    budget: CostBudget = field(default=CostBudget())
    price: Pricer | None = None
    judge: Judge | None = None

    def with_default(self, recipe: Recipe) -> FloatPlanner:
        """Return the planner with the recipe's slowdown where it has no limits at all."""
        if self.goal or self.budget or not recipe.slowdown:
            return self
        return replace(self, budget=CostBudget(max_slowdown=recipe.slowdown))

    @property
    def is_quick(self) -> bool:
        """Whether only a slowdown is limited, so that the quick search is enough."""
        return not self.goal and self.budget.is_relative

    @property
    def needs_trials(self) -> bool:
        """Whether the quick search decides, which wants the trial of the candidate."""
        # A slowdown without prices buys nothing.
        return self.is_quick and self.price is not None

    def thorough_plan(
        self,
        candidate: Candidate,
        parts: Sequence[tuple[QuantizationState, Sequence[Sample]]],
    ) -> Plan | None:
        """Return the plan of the thorough search, None where nobody asked for any.

        candidate: the steps that quantize the model.
        parts: for each fold, the model before any step with the samples to make it of,
            and the samples to measure it on.

        Raises EdgecError where the budget does not reach the goal.
        """
        if self.is_quick or not (self.goal or self.budget):
            return None

        def fold(state: QuantizationState, held: Sequence[Sample]) -> HeldOutFold:
            """Return a fold whose steps before the precision run once."""
            pipeline = StepPipeline(state)
            return HeldOutFold(
                lambda names: pipeline.of(leave_in_float(candidate, names)), held
            )

        folds = [fold(*part) for part in parts]

        # The rough model only ranks runs: corrections in order take long.
        rough = StepPipeline(parts[0][0]).of(_without_lockstep(candidate))
        search = ThoroughSearch(
            folds, rough, self.goal, self.budget, self.price, self.judge
        )

        return search.plan()


def _without_lockstep(candidate: Candidate) -> Candidate:
    """Return the candidate with biases that are corrected each for itself."""
    steps = tuple(
        replace(s, inherited=False) if isinstance(s, BiasCorrection) else s
        for s in candidate.steps
    )
    return replace(candidate, steps=steps)
