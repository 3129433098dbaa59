"""Estimates the times of a board that is not there.

The C is timed by counted instructions through the pipeline model, segments on the Edge
TPU by its cost model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from edgec_runtime import Bundle, SegmentInfo

from edgec_devices.boards import Board
from edgec_devices.intervals import (
    CPU,
    EDGETPU,
    EDGETPU_ERROR,
    UNCHECKED,
    EstimatedPart,
    error_of_sum,
)
from edgec_devices.measurement import OpEstimate, SegmentEstimate
from edgec_devices.multicore import cycles_alone, cycles_together
from edgec_devices.pipeline import Counts, Estimate, Place, estimate, estimate_parts

COST_MODEL = "cost model"
"""The backend of a segment that is estimated as if it ran on an Edge TPU."""

MAX_UNKNOWN = 0.01
"""Share of instructions without a time in the model that is not mentioned."""

Timed = Callable[[list[Place]], OpEstimate]


def backend(s: SegmentInfo) -> str:
    """Return the backend that an estimate of a segment is for."""
    return COST_MODEL if s.place == "edgetpu" and s.est_ms is not None else "c"


@dataclass(frozen=True)
class InferenceEstimate:
    """The estimate of an inference.

    Attributes:
        segments: the estimate of each segment
        between_ms: time between segments, ms
        error: relative error of the whole
    """

    segments: tuple[SegmentEstimate, ...]
    between_ms: float
    error: float

    @property
    def ms(self) -> float:
        """Return the time of all segments that have an estimate, ms."""
        return sum((s.ms or 0.0 for s in self.segments), self.between_ms)


def estimated(
    bundle: Bundle, board: Board, counts: Counts | None, threads: int = 1
) -> InferenceEstimate:
    """Return the estimate of an inference.

    `counts` has the instructions of a profiled inference on so many threads; None if
    none were counted.
    """
    # Without counts there are still estimates for segments on the Edge TPU.
    timed = _timer(board, counts) if counts else None
    cpu_error = _cpu_error(board, counts, threads)
    segments = []
    parts = []
    for i, info in enumerate(bundle.manifest.segments):
        model, error = CPU, cpu_error
        if backend(info) == COST_MODEL:
            model, error = EDGETPU, EDGETPU_ERROR
        segment = replace(_segment(i, info, counts, timed), error=error)
        parts.append(EstimatedPart(segment.ms or 0.0, error, model))
        segments.append(segment)

    # Code outside of all segments has this place.
    between_ms = timed([(-1, -1)]).ms if timed else 0.0
    parts.append(EstimatedPart(between_ms, cpu_error, CPU))
    return InferenceEstimate(tuple(segments), between_ms, error_of_sum(parts))


def _cpu_error(board: Board, counts: Counts | None, threads: int) -> float:
    """Return the relative error of the times of C on so many threads."""
    if counts is None or not _modelled(board, counts):
        return UNCHECKED
    return board.error.one if threads == 1 else board.error.more


def _segment(
    index: int, s: SegmentInfo, counts: Counts | None, timed: Timed | None
) -> SegmentEstimate:
    """Return the estimate of a segment and its ops."""
    if backend(s) == COST_MODEL:
        return SegmentEstimate(s.est_ms, "est. by the cost model of the Edge TPU")
    if counts is None or timed is None:
        return SegmentEstimate(None, "not counted")
    shared = counts.parts[-1] if counts.parts else {}
    ops = set()
    for segment, op in (*counts.inferences[-1], *shared):
        if segment == index:
            ops.add(op)
    segment_cycles = timed([(index, op) for op in sorted(ops)])

    # The place after the last op is the segment's own code again.
    op_estimates = []
    for op in range(max(ops, default=0)):
        op_estimates.append(timed([(index, op)]))
    twin = " of its C twin" if s.place == "edgetpu" else ""
    how = f"est. from {segment_cycles.how}{twin}"
    return SegmentEstimate(segment_cycles.ms, how, tuple(op_estimates))


def _modelled(board: Board, counts: Counts) -> bool:
    """Return whether there is a pipeline model for this code."""
    return counts.target == "aarch64" and board.core != ""


def _timer(board: Board, counts: Counts) -> Timed:
    """Return a function that estimates the time of some places of the program.

    It uses the pipeline model, or the board's instructions per cycle if there is no
    model for this code.
    """
    if _modelled(board, counts):
        return _timer_by_model(board, board.core, counts)

    def by_rate(places: list[Place]) -> OpEstimate:
        # 32-bit code and boards without a pipeline model: an average for each board.
        instructions = sum(map(counts.instructions, places))
        per_ms = board.ipc * board.clock_ghz * 1e6
        how = f"{instructions:,} instructions at {board.ipc:g} a cycle"
        return OpEstimate(instructions / per_ms, how)

    return by_rate


def _timer_by_model(board: Board, core: str, counts: Counts) -> Timed:
    """Return a function that estimates times by the pipeline model of a core."""
    estimates = estimate(counts, core, board.caches)
    shared = estimate_parts(counts, core, board.caches)

    def by_model(places: list[Place]) -> OpEstimate:
        parts = [estimates[place] for place in places if place in estimates]
        cycles = sum(cycles_alone(part, board) for part in parts)
        for place in places:
            if place in shared:
                parts += shared[place]
                cycles += cycles_together(shared[place], board)

        total = sum(parts, Estimate(0, 0.0, 0.0, 0.0, 0))
        # Arm writes the name with a hyphen, as people read it.
        cpu = core.replace("_", "-")
        how = f"{total.instructions:,} instructions, {cycles:,.0f} cycles of a {cpu}"
        if total.unknown > MAX_UNKNOWN * total.instructions:
            share = total.unknown / total.instructions
            how += f", {share:.0%} of them unknown to its model"
        return OpEstimate(cycles / (board.clock_ghz * 1e6), how)

    return by_model
