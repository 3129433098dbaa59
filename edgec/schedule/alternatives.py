"""The kernel variants that may compute a call on a core, and which one does (docs/kernels.md).

It answers the question why a call runs as it does: `edgec explain --schedule`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from edgec.ir import Graph, KernelCall, Op
from edgec.schedule.cores import Core
from edgec.schedule.rates import is_known, rates, work
from edgec.schedule.steps import plan_plain_steps
from edgec.schedule.variant import Schedule, choice, legal, tuned


@dataclass(frozen=True)
class Alternative:
    """One kernel that may compute a call.

    Attributes:
        kernel: the name of the variant, or of the plain kernel
        schedule: its parameters: the first of the legal ones, by analysis, or for the
            chosen variant those that it runs with
        legal: the number of its legal parameters
        cycles: the cycles by the core's table, for one thread; None where the kernel
            was not measured
        reason: why this one computes the call; "" for the others
    """

    kernel: str
    schedule: Schedule
    legal: int
    cycles: float | None
    reason: str = ""


@dataclass(frozen=True)
class ScheduledCall:
    """A call of a graph and the kernels that may compute it.

    Attributes:
        op: the name of the op's first output
        plain: the name of the plain kernel
        then: the names of the plain kernels of the calls that are fused with it
        core: the name of the core
        alternatives: the kernels, those that analysis prefers first
    """

    op: str
    plain: str
    then: tuple[str, ...]
    core: str
    alternatives: tuple[Alternative, ...]


def scheduled_calls(graph: Graph, core: Core, pattern: str) -> Iterator[ScheduledCall]:
    """Yield the calls of the ops whose name, or whose node in the file, matches.

    pattern: as of fnmatch. The graph is scheduled as if the core ran all of it. Raises
    the errors of an op that cannot be written as C.
    """
    plan = plan_plain_steps(graph, core)
    for step, step_core in zip(plan.plain_steps, plan.cores, strict=True):
        op = graph.ops[step.ops[0]]
        names = (op.outputs[0].name, op.source)
        if any(fnmatchcase(name, pattern) for name in names if name):
            for call in step.calls:
                yield ScheduledCall(
                    op.outputs[0].name,
                    call.kernel.name,
                    tuple(fused.kernel.name for fused in call.then),
                    core.name,
                    tuple(_alternatives(op, call, step_core)),
                )


def _alternatives(op: Op, call: KernelCall, core: Core) -> Sequence[Alternative]:
    """Return the kernels that may compute a call, the plain one last."""
    winner = choice(call, core)
    reason = "chosen by analysis"
    if tuned(call, core) is not None:
        reason = "chosen by a search (edgec tune)"

    by_kernel: dict[str, list[Schedule]] = {}
    for variant, schedule in legal(call, core):
        by_kernel.setdefault(variant.name, []).append(schedule)
    rows = []
    for kernel, schedules in by_kernel.items():
        cycles = _cycles(op, kernel, core)
        if winner is not None and winner[0].name == kernel:
            row = Alternative(kernel, winner[1], len(schedules), cycles, reason)
        else:
            row = Alternative(kernel, schedules[0], len(schedules), cycles)
        rows.append(row)
    # No variant has another function for what follows a call.
    if not call.then:
        plain = call.kernel.name
        why = "" if winner is not None else "chosen: no variant takes the call"
        rows.append(Alternative(plain, {}, 1, _cycles(op, plain, core), why))
    return rows


def _cycles(op: Op, kernel: str, core: Core) -> float | None:
    """Return the cycles of an op by a kernel, by the core's table."""
    if not is_known(core.name) or kernel not in rates(core.name):
        return None
    return float(rates(core.name)[kernel] @ work(op))
