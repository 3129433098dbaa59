"""How long an op takes on several cores that share a cache and the memory.

Part k runs on core k, with the caches that the core has for itself; the counts are made
so (csrc/block_count.c). With the lines of 64 bytes that part p misses in cache i,

    own(p)  = core(p) + branches(p) + sum over i of foreseen(p, i) * cost(i)
                                                  + other(p, i) * higher cost(i)
    shared  = sum over p of lines that p looks for in the shared cache, or writes to it
                                                                  * its time of one
    memory  = sum over p of lines that p brings from memory, or that go there
                                                             * 64 B / bytes a cycle
    op      = max(own(1), own(2), ..., shared, memory) + barriers * their time

which is the roofline of Williams, Waterman and Patterson (2009) with two roofs. Cores
run at once, so the slowest counts; the shared cache gives one line after the other, in
the time of a line that a prefetcher has foreseen; and so does the memory, which also
takes changed lines that make room, at a rate (`memory_gbs` of the board's profile) with
which the threads of another runtime, ncnn, take their published times: benchmarks/truth
counts them part by part as edgec's own, and docs/measured.md has the errors that are
left.  One thread has the memory's roof too.

Not modelled: cores that run at different clocks, or are taken away by other programs; a
clock that falls with heat; what a core waits for lines that another core has in its own
cache beyond the shared cache's time of a line.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgec_devices.boards import Board
from edgec_devices.pipeline import Estimate

LINE_BYTES = 64

BARRIER_US = 4.0
"""Cost of sharing an op among threads: the time from its end on one core until the next
op can begin on all cores, us.  The threads of ncnn take their published times best with
5 to 8 us on Pi 3 and Pi 4, and 3 on Pi 5; edgec's pool of threads, which turns in a loop
while it waits, as GCC's OpenMP does, is given the same.
"""


def cycles_alone(part: Estimate, board: Board) -> float:
    """Return the cycles of what one core does while the others wait."""
    return max(part.cycles, _memory(part.memory_lines, board))


def cycles_together(parts: Sequence[Estimate], board: Board) -> float:
    """Return the cycles until all parts of an op are done, each on a core of its own.

    They include the barriers, one for each time that the parts were begun.
    """
    longest = max(part.cycles for part in parts)
    shared_lines = sum(part.shared_lines for part in parts)
    memory_lines = sum(part.memory_lines for part in parts)
    runs = max(part.times for part in parts)

    slowest = max(longest, _shared(shared_lines, board), _memory(memory_lines, board))
    return slowest + runs * barrier_cycles(board)


def barrier_cycles(board: Board) -> float:
    """Return the cycles of a barrier."""
    return BARRIER_US * 1e3 * board.clock_ghz


def _shared(lines: int, board: Board) -> float:
    """Return the cycles in which the shared cache gives lines."""
    for nearer, level in zip(board.caches, board.caches[1:], strict=False):
        if level.shared:
            return lines * nearer.foreseen
    return 0.0


def _memory(lines: int, board: Board) -> float:
    """Return the cycles in which lines come from memory; 0 for an unknown rate."""
    if not board.memory_gbs:
        return 0.0
    bytes_a_cycle = board.memory_gbs / board.clock_ghz
    return lines * LINE_BYTES / bytes_a_cycle
