"""Which operations of a float graph become int8, and which stay float32."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from edgec.ir import Graph, Op, Quant, QuantRule, Value
from edgec.quantize.change.params import int8_type
from edgec.quantize.observe.ranges import Range

_ANY_SCALE = Quant.per_tensor(1.0)
MAX_SHARED_RANGE_RATIO = 4.0
"""Ranges that differ by more than this factor lose two bits in one scale."""


def role(op: Op, i: int) -> str:
    """Return what input `i` is: act, weight, bias or index."""
    return op.spec.role(i)


def activations(op: Op) -> list[Value]:
    """Return the inputs whose role is act, constants among them."""
    return [v for i, v in enumerate(op.inputs) if role(op, i) == "act"]


def int8_ops(
    graph: Graph, ranges: Mapping[Value, Range], in_float: Collection[Op] = ()
) -> set[Op]:
    """Return the operations that compute in int8.

    An operation with a scale rule of its own does when its weights are constant. One
    that keeps its input's scale follows its neighbours: it is int8 where a producer or
    all consumers are. At the end of the graph, where nothing else is computed from it,
    it does not force unlike ranges (boxes and scores) into one scale.

    in_float: the operations that must stay float.
    """
    # Rules about neighbours come after the ops that have rules of their own, and islands
    # are dropped once all are known.
    able = [op for op in graph.ops if op not in in_float and _has_int8_form(op)]
    chosen = {op for op in able if op.spec.quant is not QuantRule.SAME}
    neutral = [op for op in able if op.spec.quant is QuantRule.SAME]
    _follow(graph, _without_mixing(graph, neutral, ranges), chosen)
    _drop_idle_islands(graph, chosen)
    _drop_functions_of_floats(graph, chosen)

    return chosen


def _without_mixing(
    graph: Graph, neutral: list[Op], ranges: Mapping[Value, Range]
) -> list[Op]:
    """Return the neutral operations without those that would mix unlike ranges."""
    # Only at the end of the graph, where no int8 operation reads the result.
    tail = _tail(graph, neutral)
    mixing = {op for op in tail if _has_unlike_ranges(op, ranges)}

    return [op for op in neutral if op not in mixing]


def _drop_idle_islands(graph: Graph, chosen: set[Op]) -> None:
    """Leave islands of int8 operations in float that are not worth their conversions.

    Such an island multiplies nothing by weights and lies beside float operations.
    """
    for island in _islands(graph, chosen):
        multiplies = any(op.spec.macs(op) for op in island)
        if not multiplies and _touches_float(graph, island, chosen):
            chosen -= island


def _drop_functions_of_floats(graph: Graph, chosen: set[Op]) -> None:
    """Leave a function of each element in float where it reads a float anyway.

    The int8 of a relu's result is finer than the int8 of its input.
    """
    producer = graph.producers()
    for op in graph.ops:
        if op not in chosen or not _is_function_of_one_element(op):
            continue
        before = producer.get(op.inputs[0])
        if before is not None and before not in chosen:
            chosen.remove(op)


def _is_function_of_one_element(op: Op) -> bool:
    """Return whether each element of the result depends on one element and constants."""
    x, *others = op.inputs
    # A product with weights gains from int8 in any case.
    if op.spec.quant is not QuantRule.FREE or "weight" in op.spec.roles:
        return False

    all_constant = all(v.const is not None for v in others)

    return all_constant and x.type.shape == op.output.type.shape


def _has_int8_form(op: Op) -> bool:
    """Return whether the operation can compute in int8 on inputs of these types."""
    if op.spec.quant is QuantRule.FLOAT or not _computes_floats(op):
        return False

    types = []
    for i, v in enumerate(op.inputs):
        # Weights that are computed at run time have no integers.
        if role(op, i) in ("weight", "bias") and v.const is None:
            return False
        if role(op, i) in ("act", "weight"):
            types.append(int8_type(v.type, _ANY_SCALE))
        else:
            types.append(v.type)

    # The op itself knows which types it computes on.
    try:
        op.spec.infer(*types)
    except ValueError:
        return False

    return True


def _computes_floats(op: Op) -> bool:
    """Return whether an operation computes float32 activations at run time."""
    acts = activations(op)
    if all(v.const is not None for v in acts):
        return False
    if any(v.type.dtype != "float32" for v in acts):
        return False
    return not any(v.type.is_quantized for v in op.outputs)


def _tail(graph: Graph, neutral: list[Op]) -> set[Op]:
    """Return the neutral operations that only neutral ones follow up to the outputs."""
    users = graph.users()
    tail: set[Op] = set()
    # Backwards: the consumers of an operation are decided before it.
    for op in reversed(neutral):
        consumers = [u for v in op.outputs for u in users.get(v, [])]
        if all(u in tail for u in consumers):
            tail.add(op)

    return tail


def _has_unlike_ranges(op: Op, ranges: Mapping[Value, Range]) -> bool:
    """Return whether one scale for all inputs would cost some of them two bits.

    ranges: of the computed values.
    """
    spans = []
    for v in activations(op):
        if v.const is None:
            low, high = ranges[v]
            # A scale always holds zero.
            spans.append(max(high, 0.0) - min(low, 0.0))

    return max(spans) > MAX_SHARED_RANGE_RATIO * min(spans)


def _follow(graph: Graph, neutral: list[Op], chosen: set[Op]) -> None:
    """Add neutral operations with a chosen producer, or with chosen consumers alone.

    It goes on until nothing changes.
    """
    producer = graph.producers()
    users = graph.users()

    def has_chosen_producer(op: Op) -> bool:
        computed = [v for v in activations(op) if v.const is None]
        return any(producer.get(v) in chosen for v in computed)

    def has_chosen_consumers(op: Op) -> bool:
        # Outputs of the model are float: they count as a float consumer.
        if any(v in graph.outputs for v in op.outputs):
            return False

        consumers = [u for v in op.outputs for u in users.get(v, [])]
        return bool(consumers) and all(u in chosen for u in consumers)

    # Forwards with the producers and backwards with the consumers: chains of any length
    # are settled in a few rounds.
    before = -1
    while len(chosen) != before:
        before = len(chosen)
        chosen.update(op for op in neutral if has_chosen_producer(op))
        chosen.update(op for op in reversed(neutral) if has_chosen_consumers(op))


class _Neighbours:
    """The producers and the consumers of operations."""

    def __init__(self, graph: Graph) -> None:
        self._producer = graph.producers()
        self._users = graph.users()

    def of(self, op: Op) -> list[Op]:
        """Return the operations that write an input or read an output of `op`."""
        # Inputs of the graph and constants have no producer.
        above = [self._producer[v] for v in op.inputs if v in self._producer]
        below = [u for v in op.outputs for u in self._users.get(v, [])]
        return [*above, *below]


def _islands(graph: Graph, chosen: set[Op]) -> Iterator[set[Op]]:
    """Yield the connected components of the chosen operations."""
    neighbours = _Neighbours(graph)
    starts = [op for op in graph.ops if op in chosen]
    seen: set[Op] = set()
    for start in starts:
        if start in seen:
            continue

        # A depth-first search from the first operation that is in no island yet.
        island = {start}
        stack = [start]
        while stack:
            near = neighbours.of(stack.pop())
            fresh = {op for op in near if op in chosen} - island
            island |= fresh
            stack += fresh
        seen |= island
        yield island


def _touches_float(graph: Graph, island: set[Op], chosen: set[Op]) -> bool:
    """Return whether an island lies beside an operation that stays float."""
    neighbours = _Neighbours(graph)
    return any(other not in chosen for op in island for other in neighbours.of(op))
