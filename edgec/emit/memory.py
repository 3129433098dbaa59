"""The arena planner: where in one arena each intermediate tensor lives.

Views share the bytes of what they view. The peak of live bytes is the bound that no
plan can beat, and the plan says how far above it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from edgec.schedule.liveness import Lifetime, aligned, peak

_TRIES = 64


@dataclass
class ArenaPlan:
    """Offsets in bytes of the named buffers, the arena's size, and the peak of live
    bytes (the lower bound).
    """

    offsets: dict[str, int] = field(default_factory=dict)
    size: int = 0
    lower_bound: int = 0


def plan_offsets(lives: list[Lifetime]) -> ArenaPlan:
    """Place every buffer so that no two that live at the same time overlap.

    Greedy from several orders; while above the bound, the buffers at the top of the
    best plan are placed first.
    """
    bound = peak(lives)
    keys: list[Callable[[Lifetime], tuple[int, ...]]] = [
        lambda b: (-b.nbytes, b.first),
        lambda b: (b.first - b.last, -b.nbytes),
        lambda b: (b.first, -b.nbytes),
        lambda b: (-b.nbytes * (b.last - b.first + 1), b.first),
    ]
    orders = [sorted(lives, key=key) for key in keys]
    best = min((_place(order, bound) for order in orders), key=lambda plan: plan.size)
    order = orders[0]
    for _ in range(_TRIES):
        plan = _place(order, bound)
        best = plan if plan.size < best.size else best
        if best.size == bound:
            break
        top = [
            b for b in order if plan.offsets[b.name] + aligned(b.nbytes) == plan.size
        ]
        order = top + [b for b in order if b not in top]
    return best


def _place(order: list[Lifetime], bound: int) -> ArenaPlan:
    """Each buffer in turn at the lowest offset that is free during its life."""
    plan = ArenaPlan(lower_bound=bound)
    placed = list[tuple[int, int]]()
    # which live at each step
    at: list[list[int]] = [
        [] for _ in range(max((b.last + 1 for b in order), default=0))
    ]
    for life in order:
        size = aligned(life.nbytes)
        offset = 0
        steps = range(life.first, life.last + 1)
        for start, end in sorted(
            placed[i] for i in {i for step in steps for i in at[step]}
        ):
            if offset + size <= start:
                break
            offset = max(offset, end)
        for step in steps:
            at[step].append(len(placed))
        placed.append((offset, offset + size))
        plan.offsets[life.name] = offset
        plan.size = max(plan.size, offset + size)
    return plan
