"""A graph on one core: the functions that its C consists of, in order, the calls that each makes, where values lie."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgec.ir import Graph, KernelCall
from edgec.schedule.cores import Core
from edgec.schedule.fuse import Step, fuse
from edgec.schedule.liveness import lifetimes, peak, tensors
from edgec.schedule.variant import preferred
from edgec.schedule.views import Calls, Places, is_done, places


@dataclass(frozen=True)
class Scheduled:
    """places: of all values. ops: by their position in the graph, those that compute something, the same on every core;
    the others are copies of what lies where it should. steps: in the order in which they run."""

    places: Places
    ops: tuple[int, ...]
    steps: tuple[Step, ...]


def schedule(graph: Graph, core: Core) -> Scheduled:
    """Choose where values lie, which calls are done at once, and for every call what computes it on this core."""
    calls = [op.spec.calls(op) for op in graph.ops]
    where = _places(graph, calls)
    plain = [
        Step((i,), left, i)
        for i, some in enumerate(calls)
        if (left := tuple(call for call in some if not is_done(call, where)))
    ]
    steps = (replace(s, calls=tuple(chosen(c, core) for c in s.calls)) for s in fuse(graph, plain, core, where))
    return Scheduled(where, tuple(s.at for s in plain), tuple(steps))


def chosen(call: KernelCall, core: Core) -> KernelCall:
    """The call of the variant that analysis prefers; the call itself where there is none."""
    best = preferred(call, core)
    return call if best is None else best[0].apply(call, core, best[1])


def _places(graph: Graph, calls: Calls) -> Places:
    border = {*graph.inputs, *graph.outputs}

    def most(where: Places) -> int:
        """Bytes that live at any time, scratch left out."""
        steps = (tensors(c for c in some if not is_done(c, where)) for some in calls)
        return peak(lifetimes(steps, where, border))

    return places(graph, calls, most)
