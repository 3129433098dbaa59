"""The quick search for operations to leave in float32.

It trusts the noise that each group of operations adds alone: noises are taken to add up,
and no model is made until the end. It is for budgets relative to int8 alone without a
goal, which recipes have by default, and must take little time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edgec.ir import Graph, Op
from edgec.measure.decibels import decibels_of_parts
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.float_ops.limits import CostBudget, Price, Pricer
from edgec.quantize.float_ops.noise import (
    LEAST_TIME_SHARE,
    SENSITIVITY_SAMPLES,
    TINY_NOISE,
    Sensitivity,
)
from edgec.quantize.float_ops.op_groups import OpGroup, neighbour_runs

MAX_RUNS = 6
"""The most runs that are left in float."""
MAX_PRICED_RUNS = 12
"""The runs that are priced to find one of them."""
MIN_GAIN_DB = 0.3
"""The least gain of a run."""
MAX_MACS_SHARE = 1 / 3
"""The most multiply-accumulates that are left in float, as a share: a model that is to
be int8 stays int8.
"""


@dataclass
class QuickSearch:
    """A greedy choice of runs by the noise that each group adds alone.

    Attributes:
        sensitivity: the groups and their noise.
        budget: the cost that is allowed, in milliseconds.
        price: estimates the cost of a quantized graph.
        int8_price: the cost of int8 alone.
        now: the cost with the runs so far in float.
        floats: the runs in float.
    """

    sensitivity: Sensitivity
    budget: CostBudget
    price: Pricer
    int8_price: Price
    now: Price
    floats: list[OpGroup] = field(default_factory=list)

    @classmethod
    def of(
        cls, state: QuantizationState, budget: CostBudget, price: Pricer
    ) -> QuickSearch:
        """Search the runs with the largest gains for a slowdown of int8 alone.

        state: the model after all steps, all int8.
        """
        sensitivity = Sensitivity.of(state, state.samples[:SENSITIVITY_SAMPLES])
        int8_price = price(sensitivity.simulation.graph(sensitivity.simulation.ops))
        limit = budget.relative_to(int8_price)
        search = cls(sensitivity, limit, price, int8_price, int8_price)
        for _ in range(MAX_RUNS):
            if not search._leave_one():
                break
        return search

    def group(self, graph: Graph) -> OpGroup:
        """Return all operations of the runs in float, in the order of the model."""
        ops = self.float_ops
        return OpGroup(tuple(op for op in graph.ops if op in ops))

    @property
    def float_ops(self) -> set[Op]:
        """All operations of the runs in float."""
        return {op for run in self.floats for op in run.ops}

    def _leave_one(self) -> bool:
        """Leave the run with the largest gain for its time in float.

        Return whether there is one within the budget.
        """
        gains = self._gains()
        best = None
        best_price = self.now
        best_value = 0.0
        for run in self._likely(gains):
            price = self._price(run)
            time_share = max(price.ms / self.now.ms - 1, LEAST_TIME_SHARE)
            value = gains[run] / time_share
            if self.budget.affords(price) and value > best_value:
                best = run
                best_price = price
                best_value = value
        if best is None:
            return False
        self.floats.append(best)
        self.now = best_price
        return True

    def _likely(self, gains: Mapping[OpGroup, float]) -> list[OpGroup]:
        """Return the runs with the largest gains for their work; these are priced.

        gains: of every run, in dB.
        """
        # Work stands for time: a price takes as long as a compile's placement.
        least_work = self.sensitivity.work * LEAST_TIME_SHARE

        def key(run: OpGroup) -> float:
            return -gains[run] / (run.work + least_work)

        return sorted(gains, key=key)[:MAX_PRICED_RUNS]

    def _gains(self) -> dict[OpGroup, float]:
        """Return the gain of every run that may stay in float, in dB."""
        sensitivity = self.sensitivity
        float_ops = self.float_ops
        present = [g for g in sensitivity.groups if not float_ops & {*g.ops}]
        allowed_macs = MAX_MACS_SHARE * sum(g.macs for g in sensitivity.groups)
        room = allowed_macs - sum(run.macs for run in self.floats)

        # As in the thorough search, noises are taken to add up.
        whole = np.maximum(sensitivity.alone_sum(present), TINY_NOISE)
        before = decibels_of_parts(whole)
        gains: dict[OpGroup, float] = {}
        for groups in neighbour_runs(sensitivity.groups, present):
            run = OpGroup.of(groups)
            if run in gains or run.macs > room:
                continue
            rest = np.maximum(whole - sensitivity.alone_sum(groups), 0.0)
            gain = float(np.mean(decibels_of_parts(rest) - before))
            if gain >= MIN_GAIN_DB:
                gains[run] = gain

        return gains

    def _price(self, run: OpGroup) -> Price:
        """Return the cost with one more run in float."""
        simulation = self.sensitivity.simulation
        gone = self.float_ops | {*run.ops}

        return self.price(
            simulation.graph({op for op in simulation.ops if op not in gone})
        )
