"""Plans the arena: the offset of each intermediate tensor in one block of memory.

Views share the bytes of the value that they view. The peak of live bytes is the lower
bound that no plan can beat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from edgec.schedule.liveness import Lifetime, aligned, peak

MAX_PLANS = 64
"""Plans that are tried before one above the bound is accepted."""


@dataclass
class ArenaPlan:
    """A memory plan.

    Attributes:
        offsets: the offset in bytes of each buffer, by name
        size: bytes of the arena
        lower_bound: the peak of live bytes
    """

    offsets: dict[str, int] = field(default_factory=dict)
    size: int = 0
    lower_bound: int = 0


ORDERS: tuple[Callable[[Lifetime], tuple[int, ...]], ...] = (
    lambda b: (-b.nbytes, b.first),
    lambda b: (b.first - b.last, -b.nbytes),
    lambda b: (b.first, -b.nbytes),
    lambda b: (-b.nbytes * (b.last - b.first + 1), b.first),
)
"""Orders in which to place buffers: by size, by length of life, by first step, by the
product of size and length.
"""


def plan_offsets(lives: list[Lifetime]) -> ArenaPlan:
    """Place every buffer so that no two that live at the same time overlap.

    Buffers are placed greedily in several orders. While the best plan is above the
    bound, those at the top of the last plan are moved to the front of the order.
    """
    bound = peak(lives)

    # No order is best for all graphs, and each plan takes little time.
    orders = [sorted(lives, key=key) for key in ORDERS]
    plans = [_place(order, bound) for order in orders]
    best = min(plans, key=lambda plan: plan.size)

    order = orders[0]
    for _ in range(MAX_PLANS):
        plan = _place(order, bound)
        if plan.size < best.size:
            best = plan
        if best.size == bound:
            break

        # Moving the topmost buffers lets them have the low offsets.
        top = [b for b in order if _end(b, plan) == plan.size]
        order = top + [b for b in order if b not in top]
    return best


def _end(life: Lifetime, plan: ArenaPlan) -> int:
    """Return the offset behind a buffer."""
    return plan.offsets[life.name] + aligned(life.nbytes)


def _place(order: list[Lifetime], bound: int) -> ArenaPlan:
    """Place each buffer in turn at the lowest offset that is free during its life."""
    plan = ArenaPlan(lower_bound=bound)
    spans: list[tuple[int, int]] = []

    # Looking only at buffers of the same steps keeps large graphs fast.
    steps = max((b.last + 1 for b in order), default=0)
    living: list[list[int]] = [[] for _ in range(steps)]
    for life in order:
        size = aligned(life.nbytes)
        span = range(life.first, life.last + 1)
        neighbours: set[int] = set()
        for step in span:
            neighbours.update(living[step])

        # The first gap between neighbours that is large enough.
        offset = 0
        occupied = sorted(spans[i] for i in neighbours)
        for start, end in occupied:
            if offset + size <= start:
                break
            offset = max(offset, end)

        for step in span:
            living[step].append(len(spans))
        spans.append((offset, offset + size))
        plan.offsets[life.name] = offset
        plan.size = max(plan.size, offset + size)
    return plan
