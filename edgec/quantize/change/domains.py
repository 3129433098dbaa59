"""Which ops of a float graph become int8, and which stay float32."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from edgec.ir import Graph, Op, Quant, QuantRule, Value
from edgec.quantize.change.params import int8_type
from edgec.quantize.observe.ranges import Range

_ANY_SCALE = Quant.per_tensor(1.0)


def role(op: Op, i: int) -> str:
    """What input `i` is: act, weight, bias or index."""
    return op.spec.role(i)


def activations(op: Op) -> list[Value]:
    """The inputs whose role is act, constants among them."""
    return [v for i, v in enumerate(op.inputs) if role(op, i) == "act"]


_UNLIKE = 4.0
"""Ranges that differ by more than this factor lose two bits in one scale."""


def int8_ops(
    graph: Graph, ranges: Mapping[Value, Range], left: Collection[Op] = ()
) -> set[Op]:
    """The ops that compute in int8; left: those that must not.

    An op with a scale rule of its own does when its weights are constant. One that
    keeps its input's scale follows its neighbours: int8 where a producer or all readers
    are; but at the end of the graph, where nothing else is computed from it, it does
    not force unlike ranges (boxes and scores) into one scale. An island of int8 ops
    that multiplies nothing by weights and lies beside float ops is not worth its
    conversions, and stays float. So does a function of each element that reads what is
    float anyway: the int8 of a relu's result is finer than that of its input.
    """
    able = [op for op in graph.ops if op not in left and _able(op)]
    chosen = {op for op in able if op.spec.quant is not QuantRule.SAME}
    neutral = [op for op in able if op.spec.quant is QuantRule.SAME]
    mixing = {op for op in _tail(graph, neutral) if _unlike(op, ranges)}
    _follow(graph, [op for op in neutral if op not in mixing], chosen)
    for island in _islands(graph, chosen):
        if not any(op.spec.macs(op) for op in island) and _touches_float(
            graph, island, chosen
        ):
            chosen -= island
    producer = graph.producers()
    for op in graph.ops:
        before = producer.get(op.inputs[0]) if op in chosen and _function(op) else None
        if before is not None and before not in chosen:
            chosen.remove(op)
    return chosen


def _function(op: Op) -> bool:
    """Whether each element of the result is computed from one element, and from
    constants.
    """
    x, *others = op.inputs
    free = op.spec.quant is QuantRule.FREE and "weight" not in op.spec.roles
    return (
        free
        and all(v.const is not None for v in others)
        and x.type.shape == op.output.type.shape
    )


def _able(op: Op) -> bool:
    """Whether the op has an int8 form for inputs of these kinds."""
    acts = activations(op)
    if op.spec.quant is QuantRule.FLOAT or all(v.const is not None for v in acts):
        return False
    if any(v.type.dtype != "float32" for v in acts) or any(
        v.type.is_quantized for v in op.outputs
    ):
        return False
    if any(
        v.const is None
        for i, v in enumerate(op.inputs)
        if role(op, i) in ("weight", "bias")
    ):
        return False
    types = [
        int8_type(v.type, _ANY_SCALE) if role(op, i) in ("act", "weight") else v.type
        for i, v in enumerate(op.inputs)
    ]
    try:
        op.spec.infer(*types)
    except ValueError:
        return False
    return True


def _tail(graph: Graph, neutral: list[Op]) -> set[Op]:
    """The neutral ops from which only neutral ops lead to the outputs."""
    users = graph.users()
    tail = set[Op]()
    for op in reversed(neutral):
        if all(u in tail for v in op.outputs for u in users.get(v, [])):
            tail.add(op)
    return tail


def _unlike(op: Op, ranges: Mapping[Value, Range]) -> bool:
    spans = [
        max(high, 0.0) - min(low, 0.0)
        for low, high in (ranges[v] for v in activations(op) if v.const is None)
    ]
    return max(spans) > _UNLIKE * min(spans)


def _follow(graph: Graph, neutral: list[Op], chosen: set[Op]) -> None:
    """Add the neutral ops whose producer is chosen, or whose readers all are, until
    nothing changes.
    """
    producer = graph.producers()
    users = graph.users()

    def fed(op: Op) -> bool:
        return any(
            producer.get(v) in chosen for v in activations(op) if v.const is None
        )

    def read(op: Op) -> bool:
        if any(v in graph.outputs for v in op.outputs):
            return False
        readers = [u for v in op.outputs for u in users.get(v, [])]
        return bool(readers) and all(u in chosen for u in readers)

    before = -1
    while len(chosen) != before:
        before = len(chosen)
        chosen.update(op for op in neutral if fed(op))
        chosen.update(op for op in reversed(neutral) if read(op))


def _islands(graph: Graph, chosen: set[Op]) -> Iterator[set[Op]]:
    """The connected components of the chosen ops."""
    producer = graph.producers()
    users = graph.users()
    left = [op for op in graph.ops if op in chosen]
    seen: set[Op] = set()
    for start in left:
        if start in seen:
            continue
        island = {start}
        stack = [start]
        while stack:
            op = stack.pop()
            near = [producer[v] for v in op.inputs if v in producer]
            near += [u for v in op.outputs for u in users.get(v, [])]
            fresh = {n for n in near if n in chosen} - island
            island |= fresh
            stack += fresh
        seen |= island
        yield island


def _touches_float(graph: Graph, island: set[Op], chosen: set[Op]) -> bool:
    producer = graph.producers()
    users = graph.users()
    for op in island:
        above = [producer[v] for v in op.inputs if v in producer]
        below = [u for v in op.outputs for u in users.get(v, [])]
        if any(other not in chosen for other in (*above, *below)):
            return True
    return False
