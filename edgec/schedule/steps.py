"""A graph on one core: the functions that its C consists of, in order, and the calls that each makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgec.ir import Graph, KernelCall, Op, Value
from edgec.schedule.cores import Core
from edgec.schedule.variant import legal


@dataclass(frozen=True)
class Step:
    """One function: the ops that it computes, by their position in the graph, and the calls that do it."""

    ops: tuple[int, ...]
    calls: tuple[KernelCall, ...]


def schedule(graph: Graph, core: Core, root: dict[Value, Value]) -> list[Step]:
    """Choose for every call what computes it on this core. A view of other bytes (`root`) takes no step."""
    return [Step((i,), tuple(chosen(call, core) for call in op.spec.calls(op))) for i, op in _computed(graph, root)]


def chosen(call: KernelCall, core: Core) -> KernelCall:
    """The call of the variant that analysis prefers; the call itself where there is none."""
    for variant, parameters in legal(call, core):
        return variant.apply(call, core, parameters)
    return call


def _computed(graph: Graph, root: dict[Value, Value]) -> Iterator[tuple[int, Op]]:
    return ((i, op) for i, op in enumerate(graph.ops) if not is_view(op) or root[op.output] is op.output)


def is_view(op: Op) -> bool:
    """Whether the op's output may be its first input's bytes."""
    return op.spec.view and op.inputs[0].const is None
