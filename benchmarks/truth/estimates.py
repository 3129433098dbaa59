"""Estimates of other runtimes on the boards, by the model that estimates edgec's code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgec_devices.boards import Board
from edgec_devices.multicore import cycles_alone, cycles_together
from edgec_devices.pipeline import behind_caches
from msgspec import structs

from benchmarks.data_folder import SHARED
from benchmarks.truth import litert
from benchmarks.truth.guests import GUESTS, Step, Words, steps
from benchmarks.truth.published import LITERT, Measured, Series

NETWORKS = SHARED / "latencies" / "ncnn"


@dataclass(frozen=True)
class Row:
    """One published time, and the estimate of it.

    Attributes:
        series: the runtime and its board
        measured: the published time
        ms: the estimate
    """

    series: Series
    measured: Measured
    ms: float

    @property
    def ratio(self) -> float:
        """The estimate divided by the published time."""
        return self.ms / self.measured.ms


def milliseconds(board: Board, inference: Sequence[Step]) -> float:
    """Return the model's time of an inference, by one thread or several."""
    cycles = 0.0
    for step in inference:
        parts = [behind_caches(work, board.caches) for work in step]
        if len(parts) == 1:
            cycles += cycles_alone(parts[0], board)
        else:
            cycles += cycles_together(parts, board)
    return cycles / (board.clock_ghz * 1e6)


def at_clock(board: Board, ghz: float) -> Board:
    """Return a board whose cores run at another clock, and its memory as before."""
    *nearer, last = board.caches
    ratio = ghz / board.clock_ghz
    last = structs.replace(
        last, foreseen=last.foreseen * ratio, missed=last.missed * ratio
    )
    return structs.replace(board, clock_ghz=ghz, caches=(*nearer, last))


def estimate(series: Series, measured: Measured) -> Row:
    """Count a network as a series has it, and return it with its estimate."""
    board = at_clock(Board.load(series.board), series.clock_ghz)
    if series in LITERT:
        name = litert.file_name(measured.network)
        assert name is not None  # by `selected`
        ms = litert.milliseconds(board, name, measured.threads)
        return Row(series, measured, ms)
    network = NETWORKS / f"{measured.network}.param"
    guest: Words = [
        GUESTS / "run_ncnn_param.py",
        network,
        measured.shape,
        str(measured.threads),
    ]
    inference = steps(board, "ncnn", guest, [network])
    return Row(series, measured, milliseconds(board, inference))
