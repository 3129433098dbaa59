"""What float32 in place of int8 buys: a row for each run of operations that a plan left
in float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from edgec.quantize.accuracy import Agreement
from edgec.quantize.limits import decibels
from edgec.quantize.plan import Bought, PrecisionPlan
from edgec.report.tables import table
from edgec.report.wording import percent


def bought(plan: PrecisionPlan, verified: Mapping[str, Agreement]) -> Iterator[str]:
    """The table, and where the goals are missed on the samples that the bundle was
    verified on.
    """
    samples = f"{plan.samples} sample{'s' * (plan.samples != 1)} held back from all"
    if len(plan.rows) == 1:
        yield f"nothing is left in float32: {_why(plan)}; on {samples}"
    else:
        count = len(plan.floats)
        yield (
            f"{count} operation{'s' * (count != 1)} left in float32; "
            "what that buys, "
            f"on {samples}, times estimated:"
        )
        columns = [
            c
            for c in _COLUMNS
            if any(map(_COLUMNS[c], zip(plan.rows, plan.rows, strict=True)))
        ]
        steps = list(zip(plan.rows, [plan.rows[0], *plan.rows[:-1]], strict=True))
        rows = [
            [*(_COLUMNS[c](step) for c in columns), _named(step[0])] for step in steps
        ]
        yield table([*columns, "in float32"], rows, f"{'r' * len(columns)}l")
    for miss in plan.limits.misses(verified):
        yield f"warning: on the samples that it was verified on, {miss}"


def _why(plan: PrecisionPlan) -> str:
    if plan.limits.goals:
        return "int8 alone is as accurate as was asked for"
    if plan.worth_db:
        return f"no {plan.worth_db:g} dB for what it may cost"
    return "within the limits, none of it buys anything"


def _ms(row: Bought) -> str:
    return "" if row.price is None else f"{row.price.ms:.2f}"


def _more_ms(row: Bought, old: Bought) -> str:
    if row.price is None or old.price is None:
        return ""
    return f"{round(row.price.ms - old.price.ms, 2) + 0.0:+.2f}"  # + 0.0: not "-0.00"


def _top1(row: Bought) -> str:
    shares = [a.top1 for a in row.outputs.values() if a.top1 is not None]
    return percent(min(shares)) if shares else ""


def _share(row: Bought) -> str:
    if row.price is None or row.price.tpu_share is None:
        return ""
    return percent(row.price.tpu_share)


_COLUMNS: Mapping[str, Callable[[tuple[Bought, Bought]], str]] = {
    "ms more": lambda step: _more_ms(*step),
    "ms": lambda step: _ms(step[0]),
    "dB more": lambda step: f"{step[0].db - step[1].db:+.1f}",
    "dB": lambda step: f"{step[0].db:.1f}",
    "SQNR": lambda step: f"{min(map(decibels, step[0].outputs.values())):.1f}",
    "top-1": lambda step: _top1(step[0]),
    "MACs on the TPU": lambda step: _share(step[0]),
}
"""Of a row and the one before. dB: the mean over samples and outputs; SQNR: of the
output that has least, over all samples.
"""


def _named(row: Bought) -> str:
    if not row.ops:
        return "none"
    if len(row.ops) == 1:
        text = row.ops[0]
    else:
        text = f"{len(row.ops)} from {row.ops[0]} to {row.ops[-1]}"
    kinds = ", ".join(dict.fromkeys(row.unit.kinds))
    return f"int8 after all: {text}" if row.back else f"{text} ({kinds})"
