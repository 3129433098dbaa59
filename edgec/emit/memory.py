"""The arena planner: where in one arena each intermediate tensor lives.

Views share the bytes of what they view. The peak of live bytes is the bound that no plan can beat, and the plan says
how far above it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgec.emit.weights import aligned
from edgec.ir import Graph, Value
from edgec.schedule.steps import Step, is_view

_TRIES = 64


@dataclass(frozen=True)
class Lifetime:
    """Bytes that must stay untouched while steps first..last (inclusive) run."""

    name: str
    nbytes: int
    first: int
    last: int


@dataclass
class Plan:
    """Offsets in bytes of the named buffers, the arena's size, and the peak of live bytes (the lower bound)."""

    offsets: dict[str, int] = field(default_factory=dict)
    size: int = 0
    lower_bound: int = 0


def plan_offsets(lives: list[Lifetime]) -> Plan:
    """Place every buffer so that no two that live at the same time overlap.

    Greedy from several orders; while above the bound, the buffers at the top of the best plan are placed first.
    """
    moments = {b.first for b in lives}
    live = (sum(aligned(b.nbytes) for b in lives if b.first <= t <= b.last) for t in moments)
    bound = max(live, default=0)
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
        top = [b for b in order if plan.offsets[b.name] + aligned(b.nbytes) == plan.size]
        order = top + [b for b in order if b not in top]
    return best


def _place(order: list[Lifetime], bound: int) -> Plan:
    """Each buffer in turn at the lowest offset that is free during its life."""
    plan, placed = Plan(lower_bound=bound), list[tuple[int, int, Lifetime]]()
    for life in order:
        size, offset = aligned(life.nbytes), 0
        busy = sorted((s, e) for s, e, other in placed if other.first <= life.last and life.first <= other.last)
        for start, end in busy:
            if offset + size <= start:
                break
            offset = max(offset, end)
        placed.append((offset, offset + size, life))
        plan.offsets[life.name] = offset
        plan.size = max(plan.size, offset + size)
    return plan


def roots(graph: Graph) -> dict[Value, Value]:
    """For every computed value, the value whose bytes it shares (itself when it views nothing).

    A graph output keeps bytes of its own, because the caller owns them: there a view becomes a copy.
    """
    root: dict[Value, Value] = {v: v for v in graph.inputs}
    for op in graph.ops:
        for v in op.outputs:
            shared = is_view(op) and v not in graph.outputs
            root[v] = root[op.inputs[0]] if shared else v
    return root


def lifetimes(graph: Graph, steps: Sequence[Step], root: dict[Value, Value]) -> list[Lifetime]:
    """From the step that writes a buffer to the last one that reads it or a view of it."""
    span: dict[Value, tuple[int, int]] = {}
    for i, step in enumerate(steps):
        for p in (p for call in step.calls for p in call.pointers()):
            if p.value.const is None:
                first, _ = span.setdefault(root[p.value], (i, i))
                span[root[p.value]] = (first, i)
    border = {*graph.inputs, *graph.outputs}
    return [Lifetime(v.name, v.type.nbytes, *at) for v, at in span.items() if v not in border]
