"""Estimated time of an operation on one CPU core.

The back-end estimates cycles (edgec.schedule.estimate); a board has the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from edgec_devices.boards import Board

from edgec.ir import Graph, Op
from edgec.schedule.cores import core
from edgec.schedule.estimate import cycles, in_graph
from edgec.schedule.rates import is_known

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
    """

    ghz: float = 1.8
    core: str = "cortex_a72"
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
            return cls(board.clock_ghz, name)
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
