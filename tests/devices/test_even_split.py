"""A work that threads share evenly, as benchmarks.truth takes XNNPACK's."""

from __future__ import annotations

import pytest
from edgec_devices.boards import Board
from edgec_devices.multicore import cycles_together
from edgec_devices.pipeline import Work, behind_caches

from benchmarks.truth.litert import evenly

WORK = Work(
    1_000_003, 800_000.0, 9_000.0, 5, ((7001, 302, 53), (4003, 101, 27)), times=1
)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_parts_sum_up_to_the_work(threads: int) -> None:
    parts = evenly(WORK, threads)
    assert len(parts) == threads
    assert sum(p.instructions for p in parts) == WORK.instructions
    assert sum(p.unknown for p in parts) == WORK.unknown
    assert sum(p.core for p in parts) == pytest.approx(WORK.core)
    assert sum(p.branches for p in parts) == pytest.approx(WORK.branches)
    for level, total in enumerate(WORK.lines):
        for kind in range(3):
            counts = [p.lines[level][kind] for p in parts]
            assert sum(counts) == total[kind]
            assert max(counts) - min(counts) <= 1


def test_what_is_shared_does_not_get_faster() -> None:
    """Work that waits for the memory takes as long with four threads as its lines do, and
    other work a fourth: windows have no barriers.
    """
    board = Board.load("pi4")
    alone = [behind_caches(p, board.caches) for p in evenly(WORK, 1)]
    four = [behind_caches(p, board.caches) for p in evenly(WORK, 4)]
    assert cycles_together(four, board) == pytest.approx(alone[0].cycles / 4, rel=1e-3)

    copy = Work(1000, 1000.0, 0.0, 0, ((9000, 0, 0), (9000, 0, 9000)))
    parts = [behind_caches(p, board.caches) for p in evenly(copy, 4)]
    line = 64 / (board.memory_gbs / board.clock_ghz)
    assert cycles_together(parts, board) == pytest.approx(18000 * line)
