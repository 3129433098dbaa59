"""Times of an absent board: counted instructions through the pipeline model, and the
cost model of the Edge TPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgec_runtime import Bundle, SegmentInfo

from edgec_devices.boards import Board
from edgec_devices.measurement import OpEstimate, SegmentEstimate
from edgec_devices.pipeline import Counts, Estimate, Place, estimate, estimate_parts

COST_MODEL = "cost model"
"""The backend of a segment that is estimated as if it ran on an Edge TPU."""

BARRIER_US = 2.0
"""What sharing an op among threads costs: from its end on one core until the next op
can begin on all.
"""

STRANGE = 0.01
"""Share of instructions without a time of their own in the model that goes without
saying.
"""

Timed = Callable[[list[Place]], OpEstimate]


def backend(s: SegmentInfo) -> str:
    """What an estimate of a segment is of: the Edge TPU, or its C."""
    return COST_MODEL if s.place == "edgetpu" and s.est_ms is not None else "c"


def estimated(
    bundle: Bundle, board: Board, counts: Counts | None
) -> tuple[tuple[SegmentEstimate, ...], float]:
    """Each segment, and the ms between them. counts: of one profiled inference, None
    where nothing was counted.
    """
    timed = _timer(board, counts) if counts else None
    segments = tuple(
        _segment(i, s, counts, timed) for i, s in enumerate(bundle.manifest.segments)
    )
    return segments, timed([(-1, -1)]).ms if timed else 0.0


def _segment(
    index: int, s: SegmentInfo, counts: Counts | None, timed: Timed | None
) -> SegmentEstimate:
    if backend(s) == COST_MODEL:
        return SegmentEstimate(s.est_ms, "est. by the cost model of the Edge TPU")
    if counts is None or timed is None:
        return SegmentEstimate(None, "not counted")
    shared = counts.parts[-1] if counts.parts else {}
    ops = sorted(
        {op for segment, op in (*counts.inferences[-1], *shared) if segment == index}
    )
    whole = timed([(index, op) for op in ops])
    # The place after the last op is the segment's own code again.
    each = tuple(timed([(index, op)]) for op in range(max(ops, default=0)))
    twin = " of its C twin" if s.place == "edgetpu" else ""
    return SegmentEstimate(whole.ms, f"est. from {whole.how}{twin}", each)


def _timer(board: Board, counts: Counts) -> Timed:
    """By the pipeline model, or where there is none for this code by the board's
    instructions per cycle.
    """
    if counts.target != "aarch64" or not board.core:

        def by_rate(places: list[Place]) -> OpEstimate:
            n = sum(map(counts.instructions, places))
            return OpEstimate(
                n / (board.ipc * board.clock_ghz * 1e6),
                f"{n:,} instructions at {board.ipc:g} a cycle",
            )

        return by_rate
    found = estimate(counts, board.core, board.caches)
    shared = estimate_parts(counts, board.core, board.caches)
    barrier = BARRIER_US * 1e3 * board.clock_ghz

    def by_model(places: list[Place]) -> OpEstimate:
        every = [
            *(found[p] for p in places if p in found),
            *(e for p in places for e in shared.get(p, ())),
        ]
        e = sum(every, Estimate(0, 0.0, 0.0, 0.0, 0))
        cycles = sum(found[p].cycles for p in places if p in found)
        cycles += sum(slowest(shared[p]) + barrier for p in places if p in shared)
        how = f"{e.instructions:,} instructions, {cycles:,.0f} cycles of a {board.core}"
        if e.unknown > STRANGE * e.instructions:
            how += f", {e.unknown / e.instructions:.0%} of them unknown to its model"
        return OpEstimate(cycles / (board.clock_ghz * 1e6), how)

    return by_model


def slowest(parts: Sequence[Estimate]) -> float:
    """Cycles until all parts of an op are done, each on a core of its own: those of the
    slowest, or those in which the memory brings what they all want, one line after the
    other.
    """
    return max(max(e.cycles for e in parts), sum(e.bus for e in parts))
