"""The schedule of a graph on one core: its C functions, their calls, and its memory.

The phases, in order: values get their places, copies that are done then disappear,
elementwise calls are fused with their producers, each call gets a kernel variant,
chains and cascades are joined, and results overwrite operands where that is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgec.ir import PART, PARTS, Graph, KernelCall
from edgec.schedule.attention import join_attention
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
from edgec.schedule.threads import Sharing
from edgec.schedule.variant import Choose, Rules, choice
from edgec.schedule.views import Places, apart, is_done, places

DEFAULT = Rules()
"""All optimizations, and the variants that the estimates prefer."""


@dataclass(frozen=True)
class Scheduled:
    """A schedule.

    Attributes:
        places: the places of all values
        ops: the positions of the ops that compute something, the same on every core;
            the others copy bytes to where they already are
        steps: the steps in the order in which they run
        plain_steps: the same with calls of plain kernels, which include the calls
            fused with them
        cores: for each of these the core with the scratch that it may use
    """

    places: Places
    ops: tuple[int, ...]
    steps: tuple[FusedStep, ...]
    plain_steps: tuple[FusedStep, ...]
    cores: tuple[Core, ...]


def schedule(graph: Graph, core: Core, rules: Rules = DEFAULT) -> Scheduled:
    """Schedule a graph: places, fused calls, kernel variants and sharing by threads."""
    plan = plan_plain_steps(graph, core, rules)

    # Each step has its own core, since the room for scratch differs.
    steps: list[FusedStep] = []
    for step, step_core in zip(plan.plain_steps, plan.cores, strict=True):
        calls: list[KernelCall] = []
        for call in step.calls:
            calls.append(apply_variant(call, step_core, rules.choose))
        steps.append(replace(step, calls=tuple(calls)))

    # All join calls of particular variants, and so follow the choice.
    if rules.attention:
        steps = join_attention(graph, plan.plain_steps, steps, core, plan.places)
    if rules.chains:
        left = {step.ops for step in steps}
        plain = [step for step in plan.plain_steps if step.ops in left]
        steps = in_chains(graph, plain, steps, core, plan.places)
    if rules.bands:
        steps = join_cascades(graph, steps, core, plan.places)

    # Which operand may be overwritten depends on the final order of steps.
    final_places = plan.places
    if rules.views:
        final_places = in_place(graph, plan.plain_steps, steps, plan.places)

    sharing = Sharing(graph, plan.plain_steps, plan.cores, core)
    shared = [replace(step, shared=sharing.is_worth(step)) for step in steps]
    return replace(plan, places=final_places, steps=tuple(shared))


def plan_plain_steps(graph: Graph, core: Core, rules: Rules = DEFAULT) -> Scheduled:
    """Schedule a graph up to the choice of variants, without packing weights.

    The steps of the result are its plain steps.
    """
    calls = [op.calls() for op in graph.ops]
    if rules.views:
        border = {*graph.inputs, *graph.outputs}
        where = places(graph, calls, PlacementPeak(calls, border))
    else:
        where = apart(graph)

    plain: list[FusedStep] = []
    for i, op_calls in enumerate(calls):
        needed = [call for call in op_calls if not is_done(call, where)]
        if needed:
            plain.append(FusedStep((i,), tuple(needed), i))

    steps = plain
    if rules.fusion:
        steps = fuse(graph, plain, core, where, rules.choose)

    cores = [core] * len(steps)
    if rules.spare:
        cores = _with_room(graph, steps, core, where)

    ops = tuple(s.at for s in plain)
    return Scheduled(where, ops, tuple(steps), tuple(steps), tuple(cores))


def _with_room(
    graph: Graph, steps: Sequence[FusedStep], core: Core, where: Places
) -> list[Core]:
    """Return the core for each step, with the room for the scratch of one thread.

    That is what tensors leave at the step of the arena that their peak needs anyway.
    """
    border = {*graph.inputs, *graph.outputs}
    lives = lifetimes((outer(s.calls) for s in steps), where, border)

    # Scratch is not part of the peak, which stays a bound for any choice of variants.
    arena = peak(lives)
    cores: list[Core] = []
    for used in live_bytes(lives, len(steps)):
        # Rounded down, since the scratch of each thread is aligned.
        thread_bytes = (arena - used) // core.threads
        room = thread_bytes // ALIGNMENT * ALIGNMENT
        cores.append(replace(core, room=room))

    return cores


def apply_variant(call: KernelCall, core: Core, choose: Choose = choice) -> KernelCall:
    """Return the call of the chosen variant, divisible among threads.

    Where there is none, the call itself.
    """
    best = choose(call, core)
    if best is None:
        return call
    variant, parameters = best
    applied = variant.applied(call, core, parameters)

    # Variants that can compute a part end in its number and the number of parts.
    if applied.operands[-2:] == (0, 1):
        operands = (*applied.operands[:-2], PART, PARTS)
        return replace(applied, operands=operands)
    return applied
