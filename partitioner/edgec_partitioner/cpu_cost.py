"""How long one core takes for an operation: the back-end's estimates
(edgec.schedule.estimate) at a board's clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from edgec_devices.boards import Board

from edgec.ir import Graph, Op
from edgec.schedule.cores import core
from edgec.schedule.estimate import cycles, in_graph, is_known

_SLOWEST = "pi3"
"""The board whose core stands for cores that were not measured."""


@dataclass(frozen=True)
class CpuCost:
    """One core of a clock. The default is a Raspberry Pi 4.

    An op's time is found out once: nothing may change the op meanwhile.
    """

    ghz: float = 1.8
    core: str = "cortex_a72"
    _known: dict[Op, float] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, board: Board) -> CpuCost:
        """The core of a board's best target.

        One that was not measured is to a Pi 3's as its instructions per cycle are to
        those.
        """
        name = board.targets[0].mcpu
        if is_known(name):
            return cls(board.clock_ghz, name)
        slowest = Board.load(_SLOWEST)
        return cls(board.clock_ghz * board.ipc / slowest.ipc, slowest.targets[0].mcpu)

    def within(self, graph: Graph) -> CpuCost:
        """The same for the ops of a graph as they are computed in it: with what fusion
        and views save.
        """
        ms = {
            op: n / (1e6 * self.ghz)
            for op, n in in_graph(graph, core(self.core)).items()
        }
        return replace(self, _known={**self._known, **ms})

    def op_ms(self, op: Op) -> float:
        """One op; alone, unless it is of a graph that is known.

        A view costs nothing.
        """
        if op not in self._known:
            self._known[op] = cycles(op, core(self.core)) / (1e6 * self.ghz)
        return self._known[op]
