"""Which ops to leave in float32 for a small part of the time, quickly: by the noise
that each adds alone.

No goal is to be reached here, and nothing is made anew for each step, as in a
`Planner`: what is found is one more candidate, which has to show on samples held back
from it that it is worth its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.float_ops.limits import Limits, Price
from edgec.quantize.float_ops.op_groups import OpGroup, neighbour_runs
from edgec.quantize.float_ops.plan import SENSED, FloatCandidates, Pricer, decibels_of

_PRICED = 12
"""Runs of neighbours that are priced to find one of them."""
_MOST = 6
"""Runs that are left in float."""
_LEAST_DB = 0.3
_LEAST_MS = 0.005
"""As a part of the model's time: what costs less costs as much."""
_MACS = 1 / 3
"""Of all multiply-accumulates: a model that is to be int8 stays so."""


@dataclass(frozen=True)
class SpentBudget:
    """What is to be left in float, and what the model costs with it; first: without it."""

    unit: OpGroup
    price: Price
    first: Price
    limits: Limits


def spend(work: QuantizationState, price: Pricer, slowdown: float) -> SpentBudget:
    """The ops that buy most for at most `slowdown` (0.1) of the estimated time of the
    int8 model more, where the Edge TPU loses nothing. work: after all steps.
    """
    market = FloatCandidates.of(work, work.samples[:SENSED])
    now = price(market.simulation.graph(market.simulation.ops))
    first = now
    limits = Limits(max_ms=first.ms * (1 + slowdown), min_tpu_share=first.tpu_share)
    left: list[OpGroup] = []
    for _ in range(_MOST):
        found = _best(market, left, now, limits, price)
        if found is None:
            break
        left = [*left, found[0]]
        now = found[1]
    gone = {op for u in left for op in u.ops}
    return SpentBudget(
        OpGroup(tuple(op for op in work.graph.ops if op in gone)), now, first, limits
    )


def _best(
    market: FloatCandidates,
    left: Sequence[OpGroup],
    now: Price,
    limits: Limits,
    price: Pricer,
) -> tuple[OpGroup, Price] | None:
    """The run that buys most for its time, of those that there is room for."""
    gone = {op for u in left for op in u.ops}
    there = [u for u in market.groups if not gone & {*u.ops}]
    room = _MACS * sum(_macs(u) for u in market.groups) - sum(map(_macs, left))
    whole = np.maximum(sum(market.alone[u] for u in there), 1e-30)
    gains: dict[OpGroup, float] = {}
    for run in neighbour_runs(market.groups, there):
        unit = OpGroup.of(run)
        if unit not in gains and _macs(unit) <= room:
            gain = float(
                np.mean(decibels_of(_less(whole, run, market)) - decibels_of(whole))
            )
            gains |= {unit: gain} if gain >= _LEAST_DB else {}
    likely = sorted(
        gains, key=lambda u: -gains[u] / (u.work + market.work * _LEAST_MS)
    )[:_PRICED]
    best = None
    most = 0.0
    int8 = {op for op in market.simulation.ops if op not in gone}
    for unit in likely:
        cost = price(market.simulation.graph(int8 - {*unit.ops}))
        worth = gains[unit] / max(cost.ms / now.ms - 1, _LEAST_MS)
        if limits.affords(cost) and worth > most:
            best = (unit, cost)
            most = worth
    return best


def _less(whole: Array, run: Sequence[OpGroup], market: FloatCandidates) -> Array:
    return np.maximum(whole - sum(market.alone[u] for u in run), 0.0)


def _macs(unit: OpGroup) -> int:
    return sum(op.spec.macs(op) for op in unit.ops)
