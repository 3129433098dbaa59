"""Shows the gain of float32 in place of int8, for a plan of mixed precision.

The table has a row for each group of operations that the plan left in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from edgec.measure.agreement import Agreement
from edgec.quantize.float_ops.plan import Plan, PlanRow
from edgec.report.tables import table
from edgec.report.wording import percent


def bought(plan: Plan, verified: Mapping[str, Agreement]) -> Iterator[str]:
    """Yield the table, and a warning for each goal that verification missed.

    `verified` has the agreement of each output on the samples of the verification.
    """
    plural = "s" if plan.samples != 1 else ""
    samples = f"{plan.samples} sample{plural} held back from all"
    if len(plan.rows) == 1:
        yield f"nothing is left in float32: {_why(plan)}; on {samples}"
    else:
        count = len(plan.floats)
        plural = "s" if count != 1 else ""
        yield (
            f"{count} operation{plural} left in float32; what that buys, on {samples} "
            "(times estimated; dB: the samples' mean; SQNR: all samples as one):"
        )
        yield _steps_table(plan)
    # Samples to verify with have no labels, and say nothing of a judged drop.
    judged = plan.rows[-1].judged
    goal = plan.goal if judged is None else plan.goal.without_drop()
    for miss in goal.misses(verified):
        yield f"warning: on the samples that it was verified on, {miss}"


def _steps_table(plan: Plan) -> str:
    """Return the table of the plan's steps; columns without any figure are left out."""
    columns = []
    for name, cell in _COLUMNS.items():
        if any(cell((row, row)) for row in plan.rows):
            columns.append(name)

    # The first row is the plain int8 model: it is compared with itself.
    previous = [plan.rows[0], *plan.rows[:-1]]
    rows = []
    for step in zip(plan.rows, previous, strict=True):
        cells = [_COLUMNS[name](step) for name in columns]
        rows.append([*cells, _operations(step[0])])
    alignment = "r" * len(columns) + "l"
    return table([*columns, "in float32"], rows, alignment)


def _why(plan: Plan) -> str:
    """Return the reason why a plan left nothing in float32."""
    if plan.goal:
        return "int8 alone is as accurate as was asked for"
    if plan.rows[-1].judged is not None:
        return "labelled pictures show no gain for what it may cost"
    if plan.worth_db:
        return f"no {plan.worth_db:g} dB for what it may cost"
    return "within the limits, none of it buys anything"


def _ms(row: PlanRow) -> str:
    return "" if row.price is None else f"{row.price.ms:.2f}"


def _more_ms(row: PlanRow, previous: PlanRow) -> str:
    """Return the estimated time that a row adds to the row before, ms."""
    if row.price is None or previous.price is None:
        return ""
    difference = round(row.price.ms - previous.price.ms, 2)
    return f"{difference + 0.0:+.2f}"  # + 0.0: not "-0.00"


def _top1(row: PlanRow) -> str:
    """Return the least agreement of the top class among the outputs."""
    shares = [a.top1 for a in row.outputs.values() if a.top1 is not None]
    return percent(min(shares)) if shares else ""


def _on_labels(row: PlanRow) -> str:
    """Return the figure on labelled pictures."""
    return "" if row.judged is None else f"{row.judged.value:.2f}"


def _tpu_share(row: PlanRow) -> str:
    """Return the share of the MACs that runs on the Edge TPU."""
    if row.price is None or row.price.tpu_share is None:
        return ""
    return percent(row.price.tpu_share)


def _sqnr(row: PlanRow) -> str:
    """Return the least signal-to-noise ratio among the outputs, dB."""
    least = min(output.judged_db for output in row.outputs.values())
    return f"{least:.1f}"


_COLUMNS: Mapping[str, Callable[[tuple[PlanRow, PlanRow]], str]] = {
    "ms more": lambda step: _more_ms(*step),
    "ms": lambda step: _ms(step[0]),
    "dB more": lambda step: f"{step[0].db - step[1].db:+.1f}",
    "dB": lambda step: f"{step[0].db:.1f}",
    "SQNR": lambda step: _sqnr(step[0]),
    "top-1": lambda step: _top1(step[0]),
    "on labels": lambda step: _on_labels(step[0]),
    "MACs on the TPU": lambda step: _tpu_share(step[0]),
}
"""The cell of each column, from a row and the row before.

dB is the mean over samples and outputs; SQNR is of the worst output, over all samples.
"""


def _operations(row: PlanRow) -> str:
    """Return the operations that a row moved to float32, or back to int8."""
    if not row.ops:
        return "none"
    if len(row.ops) == 1:
        names = row.ops[0]
    else:
        names = f"{len(row.ops)} from {row.ops[0]} to {row.ops[-1]}"
    if row.back:
        return f"int8 after all: {names}"

    kinds = ", ".join(dict.fromkeys(row.group.kinds))
    return f"{names} ({kinds})"
