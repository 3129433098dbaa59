"""Estimates the times of a board that is not there.

The C is timed by counted instructions through the pipeline model, segments on the Edge
TPU by its cost model.
"""

from __future__ import annotations

from collections.abc import Callable

from edgec_runtime import Bundle, SegmentInfo

from edgec_devices.boards import Board
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


def estimated(
    bundle: Bundle, board: Board, counts: Counts | None
) -> tuple[tuple[SegmentEstimate, ...], float]:
    """Return the estimate of each segment, and the time between segments, ms.

    `counts` has the instructions of a profiled inference; None if none were counted.
    """
    # Without counts there are still estimates for segments on the Edge TPU.
    timed = _timer(board, counts) if counts else None
    segments = []
    for i, segment in enumerate(bundle.manifest.segments):
        segments.append(_segment(i, segment, counts, timed))

    # Code outside of all segments has this place.
    between_ms = timed([(-1, -1)]).ms if timed else 0.0
    return tuple(segments), between_ms


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


def _timer(board: Board, counts: Counts) -> Timed:
    """Return a function that estimates the time of some places of the program.

    It uses the pipeline model, or the board's instructions per cycle if there is no
    model for this code.
    """
    if counts.target == "aarch64" and board.core:
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
