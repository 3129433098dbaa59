"""Plans of the operations that stay in float32, and what each row of a plan gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from edgec.measure.agreement import Agreement
from edgec.quantize.change.recipe import Candidate
from edgec.quantize.change.steps.precision import Precision
from edgec.quantize.float_ops.limits import AccuracyGoal, CostBudget, Price
from edgec.quantize.float_ops.op_groups import OpGroup
from edgec.quantize.observe.judgement import Judgement
from edgec.quantize.observe.trial import Trial

Names = tuple[str, ...]
"""The names of operations: of their first results."""


@dataclass(frozen=True)
class PlanRow:
    """The model after one change of precision.

    Attributes:
        group: the operations that became float.
        db: the signal-to-noise ratio, the mean over samples and outputs.
        price: the cost of the model; None where it was not estimated.
        outputs: the agreement of each output over all samples.
        back: whether the operations became int8 again instead.
        judged: the model on labelled pictures, where there are some.
    """

    group: OpGroup
    db: float
    price: Price | None
    outputs: Mapping[str, Agreement]
    back: bool = False
    judged: Judgement | None = None

    @classmethod
    def of(cls, trial: Trial, group: OpGroup, price: Price) -> PlanRow:
        """Return the row of a model with these figures and this cost."""
        return cls(group, trial.db, price, trial.outputs, judged=trial.judged)

    @property
    def ops(self) -> Names:
        """The names of the operations."""
        return self.group.names

    def to_json(self) -> dict[str, Any]:
        """Return the row for the bundle's report."""
        return {
            "ops": [*self.ops],
            "kinds": [*self.group.kinds],
            "back": self.back,
            "db": self.db,
            "price": None if self.price is None else asdict(self.price),
            "outputs": {name: a.as_dict() for name, a in self.outputs.items()},
            "judged": None if self.judged is None else self.judged.to_json(),
        }


@dataclass(frozen=True)
class Plan:
    """The operations that stay in float for a goal within a budget.

    Attributes:
        goal: the accuracy that was wanted, if any.
        budget: the cost that was allowed.
        rows: the model after each change; the first row is int8 alone.
        samples: the number of held-back samples that it was measured on.
        worth_db: the ratio that all changes together had to gain, where there was no
            goal (`Recipe.worth_db`).
    """

    goal: AccuracyGoal
    budget: CostBudget
    rows: tuple[PlanRow, ...]
    samples: int
    worth_db: float = 0.0

    @property
    def floats(self) -> Names:
        """The names of all operations that stay float."""
        return float_names(self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return the plan for the bundle's report."""
        return {
            "limits": {**self.goal.to_json(), **self.budget.to_json()},
            "samples": self.samples,
            "rows": [r.to_json() for r in self.rows],
            "floats": [*self.floats],
        }


def float_names(rows: Sequence[PlanRow]) -> Names:
    """Return the names of the operations in float after all rows."""
    # A dict keeps the order in which they became float.
    names: dict[str, None] = {}
    for row in rows[1:]:
        if row.back:
            names = {name: None for name in names if name not in row.ops}
        else:
            names |= dict.fromkeys(row.ops)

    return tuple(names)


def leave_in_float(candidate: Candidate, names: Names) -> Candidate:
    """Return the candidate with these operations in float too."""
    if not names:
        return candidate

    steps = [*candidate.steps]
    for i, step in enumerate(steps):
        if isinstance(step, Precision):
            # A second step would replace what the first one left in float.
            both = dict.fromkeys((*step.floats, *names))
            steps[i] = Precision(tuple(both))
            return replace(candidate, steps=tuple(steps))

    return candidate.with_step(Precision(names))
