"""Budgets on the figures of an evaluation: `drop.top1<=1%`, `map50>=40%`.

The grammar is that of all requirements (`edgec_devices.requirement`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from edgec_devices.requirement import Figure, Kind, Requirement, Vocabulary, amount

from edgec.benching.verdicts import BudgetVerdict, State
from edgec.evaluation.bootstrap import FigureEstimate
from edgec.evaluation.measure import MeasuredFigure
from edgec.evaluation.report import DEVICE, DROP, FLOAT, EvaluationReport

WHERE = "--budget"


def parse_budgets(
    texts: Iterable[str], measured: Sequence[MeasuredFigure], sides: Sequence[str]
) -> list[Requirement]:
    """Parse budgets before anything runs.

    Raises InputError for a figure that the evaluation will not have.

    Args:
        texts: budgets; each text may hold several, separated by commas
        measured: the figures of the measure
        sides: the keys of the sides, in order; the last one needs no name
    """
    kinds: dict[str, Kind] = {}
    short: dict[str, str] = {}
    for figure in measured:
        # 0.01 may be meant as a share where percents are wanted.
        kind = Kind(figure.unit, share=figure.unit == "%")
        for name in _names(sides):
            kinds[f"{name}.{figure.name}"] = kind
        short[figure.name] = f"{sides[-1]}.{figure.name}"

    listed = ", ".join((*short, *kinds))
    example = f"{measured[0].name}>=90{measured[0].unit}"
    if FLOAT in sides:
        example = f"{DROP}.{measured[0].name}<=1{measured[0].unit}"
    else:
        listed += f"; {DROP} and {FLOAT} need --model"
    if DEVICE not in sides:
        listed += f"; {DEVICE} needs --on"
    vocabulary = Vocabulary(kinds, WHERE, example, short, listed)
    return vocabulary.parse_all(texts)


def _names(sides: Sequence[str]) -> list[str]:
    """Return what figures can be of: the sides, and the drop between two of them."""
    return [*sides, DROP] if FLOAT in sides else [*sides]


def check_budgets(
    budgets: Iterable[Requirement], report: EvaluationReport
) -> tuple[BudgetVerdict, ...]:
    """Return the verdict on each budget."""
    estimates: dict[str, Mapping[str, FigureEstimate]] = {DROP: report.drops}
    for side in report.sides:
        estimates[side.key] = side.figures
    units = {figure.name: figure.unit for figure in report.measured}

    verdicts = []
    # Short names were completed when the budgets were read.
    for budget in budgets:
        # Names of figures may have dots, those of sides have none.
        key, _, name = budget.figure.partition(".")
        if key not in estimates:
            # A bundle for a board alone does not run here.
            verdict = BudgetVerdict(budget.text, "fail", "none", why=f"no {key} ran")
        else:
            verdict = _verdict(budget, estimates[key][name], units[name])
        verdicts.append(verdict)
    return tuple(verdicts)


def _verdict(budget: Requirement, estimate: FigureEstimate, unit: str) -> BudgetVerdict:
    """Return the verdict on a budget; a figure without a value never holds."""
    if not math.isfinite(estimate.value):
        why = "the data set has nothing to measure it on"
        return BudgetVerdict(budget.text, "fail", "none", why=why)

    outcome = budget.check(Figure(estimate.value, unit))
    state: State = "pass" if outcome.holds else "fail"
    return BudgetVerdict(
        outcome.text,
        state,
        amount(outcome.measured, outcome.unit),
        amount(outcome.margin, outcome.unit),
        _interval(estimate, unit),
    )


def _interval(estimate: FigureEstimate, unit: str) -> str:
    """Return the interval in words."""
    low = amount(round(estimate.low, 3), unit)
    high = amount(round(estimate.high, 3), unit)
    return f"95 % interval {low} to {high}"
