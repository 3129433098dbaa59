"""A graph on one core: the functions that its C consists of, in order, the calls that
each makes, where values lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgec.ir import PART, PARTS, Graph, KernelCall, Op
from edgec.schedule.bands import join_cascades
from edgec.schedule.chains import in_chains
from edgec.schedule.cores import Core
from edgec.schedule.fuse import FusedStep, fuse, outer
from edgec.schedule.in_place import in_place
from edgec.schedule.liveness import (
    ALIGNMENT,
    PlacementPeak,
    lifetimes,
    live_bytes,
    peak,
)
from edgec.schedule.variant import Choose, Rules, choice
from edgec.schedule.views import Calls, Places, apart, is_done, places

_WORTH_SHARING = 4
"""Barriers that a step takes at least for threads to share it: two then still save a
third of its time.
"""
_BYTES_A_CYCLE = 4

DEFAULT = Rules()
"""All that pays, as analysis says."""


@dataclass(frozen=True)
class Scheduled:
    """places: of all values. ops: by their position in the graph, those that compute
    something, the same on every core; the others are copies of what lies where it
    should. steps: in the order in which they run. asked: the same with the calls of
    plain kernels, those that follow others with them. cores: the core as each of those
    finds it.
    """

    places: Places
    ops: tuple[int, ...]
    steps: tuple[FusedStep, ...]
    plain_steps: tuple[FusedStep, ...]
    cores: tuple[Core, ...]


def schedule(graph: Graph, core: Core, rules: Rules = DEFAULT) -> Scheduled:
    """Choose where values lie, which calls are done at once, for every call what
    computes it on this core, and whether its threads share it.
    """
    found = plan_plain_steps(graph, core, rules)
    steps = [
        replace(s, calls=tuple(apply_variant(c, on, rules.choose) for c in s.calls))
        for s, on in zip(found.plain_steps, found.cores, strict=True)
    ]
    if rules.chains:
        steps = in_chains(graph, found.plain_steps, steps, core, found.places)
    if rules.bands:
        steps = join_cascades(graph, steps, core, found.places)
    if rules.views:
        where = in_place(graph, found.plain_steps, steps, found.places)
    else:
        where = found.places
    shared = (
        replace(s, shared=_worth_sharing([graph.ops[i] for i in s.ops], core))
        for s in steps
    )
    return replace(found, places=where, steps=tuple(shared))


def plan_plain_steps(graph: Graph, core: Core, rules: Rules = DEFAULT) -> Scheduled:
    """The same as far as it goes without packing anything: its steps are those that are
    asked for.
    """
    calls = [op.calls() for op in graph.ops]
    where = _places(graph, calls) if rules.views else apart(graph)
    plain = [
        FusedStep((i,), left, i)
        for i, some in enumerate(calls)
        if (left := tuple(call for call in some if not is_done(call, where)))
    ]
    steps = tuple(
        fuse(graph, plain, core, where, rules.choose) if rules.fusion else plain
    )
    if rules.spare:
        cores = _with_room(graph, steps, core, where)
    else:
        cores = [core] * len(steps)
    return Scheduled(where, tuple(s.at for s in plain), steps, steps, tuple(cores))


def _with_room(
    graph: Graph, steps: Sequence[FusedStep], core: Core, where: Places
) -> list[Core]:
    """The core as each step finds it: with the room in the arena that tensors leave
    then, for each of its threads.
    """
    lives = lifetimes(
        (outer(s.calls) for s in steps), where, {*graph.inputs, *graph.outputs}
    )
    most = peak(lives)
    rooms = (
        (most - n) // core.threads // ALIGNMENT * ALIGNMENT
        for n in live_bytes(lives, len(steps))
    )
    return [replace(core, room=room) for room in rooms]


def apply_variant(call: KernelCall, core: Core, choose: Choose = choice) -> KernelCall:
    """The call of the variant that is chosen, divisible; the call itself where there is
    none.
    """
    best = choose(call, core)
    if best is None:
        return call
    found = best[0].apply(call, core, best[1])
    if found.operands[-2:] == (0, 1):
        return replace(found, operands=(*found.operands[:-2], PART, PARTS))
    return found


def _worth_sharing(ops: Sequence[Op], core: Core) -> bool:
    """Whether it pays for the core's threads: a small step is over before the others
    have begun.
    """
    if core.threads == 1:
        return False
    cycles = sum(
        op.spec.macs(op) / (core.macs_f32 if _is_float(op) else core.macs_s8)
        for op in ops
    )
    moved = sum(v.type.nbytes for op in ops for v in (*op.inputs, *op.outputs))
    return cycles + moved / _BYTES_A_CYCLE >= _WORTH_SHARING * core.barrier


def _is_float(op: Op) -> bool:
    return op.outputs[0].type.dtype == "float32"


def _places(graph: Graph, calls: Calls) -> Places:
    return places(graph, calls, PlacementPeak(calls, {*graph.inputs, *graph.outputs}))
