"""How long one core takes for an operation: the back-end's estimates (edgec.schedule.estimate) at a board's clock."""

from __future__ import annotations

from dataclasses import dataclass

from edgec_devices.boards import Board

from edgec.ir import Op
from edgec.schedule.cores import core
from edgec.schedule.estimate import cycles, is_known

_SLOWEST, _SLOWEST_IPC = "cortex_a53", 0.72
"""The core whose figures stand for cores that were not measured, and its mean instructions per cycle."""


@dataclass(frozen=True)
class CpuCost:
    """One core of a clock. The default is a Raspberry Pi 4."""

    ghz: float = 1.8
    core: str = "cortex_a72"

    @classmethod
    def of(cls, board: Board) -> CpuCost:
        """The core of a board's best target. One that was not measured is to a Cortex-A53 as its instructions per
        cycle are to those."""
        name = board.targets[0].mcpu
        if is_known(name):
            return cls(board.clock_ghz, name)
        return cls(board.clock_ghz * board.ipc / _SLOWEST_IPC, _SLOWEST)

    def op_ms(self, op: Op) -> float:
        """One op. A view costs nothing."""
        return cycles(op, core(self.core)) / (1e6 * self.ghz)
