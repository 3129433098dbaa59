"""Estimated time of an operation on one CPU core.

The back-end estimates cycles (edgec_partitioner.cpu_cost); a board has the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from edgec_devices.boards import Board
from edgec_devices.intervals import UNCHECKED

from edgec.ir import Graph, Op
from edgec.schedule.cores import Core, core
from edgec.schedule.rates import (
    NOT_IN_C,
    OTHER,
    calls_in_c,
    chosen_names,
    has_scales,
    is_known,
    rate,
    rates,
    step_cycles,
    work,
)
from edgec.schedule.steps import plan_plain_steps
from edgec.schedule.views import copy_of

_SLOWEST = "pi3"
"""The board whose core stands for cores that were not measured."""
CYCLES_PER_MS_AND_GHZ = 1e6


@dataclass(frozen=True)
class CpuCost:
    """One core at a clock frequency. The default is a Raspberry Pi 4.

    An op's time is computed once: nothing may change the op afterwards.

    Attributes:
        ghz: the clock frequency.
        core: the name of the core, as the compiler's option -mcpu.
        error: the relative error of its times (edgec_devices.intervals).
    """

    ghz: float = 1.8
    core: str = "cortex_a72"
    error: float = UNCHECKED
    _known: dict[Op, float] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, board: Board) -> CpuCost:
        """Return the core of a board's best target.

        A core that was not measured counts as a Pi 3's with a clock adjusted by the
        ratio of the instructions per cycle.
        """
        # The first target is the best one of a board.
        name = board.targets[0].mcpu
        if is_known(name):
            return cls(board.clock_ghz, name, board.error.one)
        slowest = Board.load(_SLOWEST)
        ghz = board.clock_ghz * board.ipc / slowest.ipc
        return cls(ghz, slowest.targets[0].mcpu)

    def within(self, graph: Graph) -> CpuCost:
        """Return the same core, with times for the ops of a graph as computed in it.

        Fusion and views make them less than the time of each op alone.
        """
        known = dict(self._known)
        for op, op_cycles in in_graph(graph, core(self.core)).items():
            known[op] = self._ms(op_cycles)
        return replace(self, _known=known)

    def op_ms(self, op: Op) -> float:
        """Return the time of one op, in ms; alone, unless its graph is known.

        A view costs nothing.
        """
        if op not in self._known:
            self._known[op] = self._ms(cycles(op, core(self.core)))
        return self._known[op]

    def _ms(self, op_cycles: float) -> float:
        return op_cycles / (CYCLES_PER_MS_AND_GHZ * self.ghz)


def cycles(op: Op, on: Core) -> float:
    """Return the cycles of an op by itself, for one thread of a measured core.

    Ops that only give bytes another shape take none.
    """
    names = kernels(op, on)
    if not names:
        return 0.0

    return float(rate(rates(on.name), names) @ work(op))


def in_graph(graph: Graph, on: Core) -> dict[Op, float]:
    """Return the cycles of each op of a graph, as if all of it were one segment.

    Fusion and views are taken into account, unless an op cannot be written as C.
    """
    if not all(map(has_scales, graph.ops)):
        return {op: cycles(op, on) for op in graph.ops}

    try:
        plan = plan_plain_steps(graph, on)
    except NOT_IN_C:
        return {op: cycles(op, on) for op in graph.ops}

    total = dict.fromkeys(graph.ops, 0.0)
    for step, step_core in zip(plan.plain_steps, plan.cores, strict=True):
        ops = [graph.ops[i] for i in step.ops]
        for op, spent in zip(ops, step_cycles(ops, step.calls, step_core), strict=True):
            total[op] += spent

    return total


def kernels(op: Op, on: Core) -> tuple[str, ...]:
    """Return the names of the kernels that compute an op on a core, in order.

    None for an op that has nothing to do, and `OTHER` for one without a kernel.
    """
    if op.spec.view:
        return ()

    calls = calls_in_c(op)
    if calls is None:
        return (OTHER,)

    # A copy of a whole value becomes a view.
    copy = copy_of(calls[0]) if len(calls) == 1 else None
    if copy is not None and copy.nbytes == copy.source.value.type.nbytes:
        return ()

    return chosen_names(calls, on)
