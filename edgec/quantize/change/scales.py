"""The scale of every int8 activation: from its op, from calibration, or shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from edgec.ir import Graph, Op, Quant, QuantRule, Value
from edgec.quantize.change.domains import activations
from edgec.quantize.change.params import activation_quant, holds
from edgec.quantize.observe.ranges import Range, constant_range

FINEST_SCALE_RATIO = 2.0**-17
"""An output scale below this part of the smallest input scale adds nothing, and
TFLite's ADD refuses it from 2^-19.
"""


@dataclass(eq=False)
class _Group:
    """Values that share one scale.

    Attributes:
        range: the union of their ranges.
        fixed: the scale that an op prescribes for them; None: that of the range.
        floor: the least scale.
        members: the values.
    """

    range: Range
    fixed: Quant | None = None
    floor: float = 0.0
    members: list[Value] = field(default_factory=list)

    def quant(self) -> Quant:
        return self.fixed or activation_quant(self.range, self.floor)

    def widen(self, r: Range) -> None:
        self.range = (min(self.range[0], r[0]), max(self.range[1], r[1]))


def activation_scales(
    graph: Graph, chosen: set[Op], ranges: Mapping[Value, Range]
) -> dict[Value, Quant]:
    """Return the int8 quantization of the computed values of the chosen ops.

    A SAME op joins its computed inputs and its outputs in one group; an input whose
    scale is prescribed elsewhere stays out of it (the rewriter requantizes it), unless
    all inputs have that same scale and the constants fit it.
    """
    ops = [op for op in graph.ops if op in chosen]
    grouping = _Grouping(ranges)
    for op in ops:
        grouping.add(op)
    grouping.raise_floors(ops)
    return {v: g.quant() for v, g in grouping.of.items()}


def _have_one_prescribed_scale(
    groups: Sequence[_Group], constants: Sequence[Range]
) -> bool:
    """Return whether one prescribed scale is that of all groups and fits all constants."""
    prescribed = {g.fixed for g in groups}
    if len(prescribed) != 1:
        return False

    (only,) = prescribed

    return only is not None and all(holds(only, r) for r in constants)


class _Grouping:
    """The group of every value, built in the order of the ops."""

    def __init__(self, ranges: Mapping[Value, Range]) -> None:
        self.ranges = ranges
        self.of: dict[Value, _Group] = {}

    def group(self, v: Value) -> _Group:
        """Return the group of a value, by default one of its own."""
        if v not in self.of:
            self.put([v], _Group(self.ranges[v]))
        return self.of[v]

    def put(self, values: Sequence[Value], group: _Group) -> None:
        """Let values have the scale of a group."""
        self.of.update(dict.fromkeys(values, group))
        group.members += values

    def add(self, op: Op) -> None:
        """Let the op's rule act on its values."""
        # Other results, such as the indices of an argmax, have no scale.
        results = [v for v in op.outputs if v.type.dtype == "float32"]
        if op.spec.quant is QuantRule.FIXED:
            for v in results:
                self.put([v], _Group(self.ranges[v], op.spec.fixed_quant()))
        elif op.spec.quant is QuantRule.SAME:
            self._share(op, results)

        # Every other value gets a group of its own, with the scale of its range.
        for v in (*activations(op), *results):
            if v.const is None:
                self.group(v)

    def _share(self, op: Op, results: list[Value]) -> None:
        """Give the results of a SAME op the scale of its inputs."""
        acts = activations(op)
        sources = [self.group(v) for v in acts if v.const is None]
        constants = [constant_range(v.const) for v in acts if v.const is not None]

        # Where one prescribed scale serves all inputs, nothing has to be requantized.
        if _have_one_prescribed_scale(sources, constants):
            self.put(results, sources[0])
            return

        home = self._merged([g for g in sources if g.fixed is None])
        # Inputs with a prescribed scale are requantized to this one, and must fit. An
        # output can exceed the inputs: by the value of a border, by the overshoot of a
        # cubic resize.
        ranges = [*(g.range for g in sources), *constants]
        ranges += [self.ranges[v] for v in results]
        for r in ranges:
            home.widen(r)

        self.put(results, home)

    def _merged(self, groups: Sequence[_Group]) -> _Group:
        """Merge groups, and return the merged one.

        Its range is not widened yet; without any group it is a new one.
        """
        distinct = [*dict.fromkeys(groups)]
        # The largest group takes in the others, so that no value moves often.
        home = max(distinct, key=lambda g: len(g.members), default=_Group((0.0, 0.0)))
        for group in distinct:
            if group is not home:
                self.put(group.members, home)

        return home

    def raise_floors(self, ops: Sequence[Op]) -> None:
        """Apply `raise_floor` to all ops until nothing changes.

        After a change, the ops that read the group are looked at again.
        """
        consumers = self._consumers(ops)

        # A heap, since the first op in the graph's order is next: a floor that rises
        # early settles the ops behind it in one round.
        waiting = list(range(len(ops)))
        queued = set(waiting)
        while waiting:
            i = heappop(waiting)
            queued.discard(i)
            if not self.raise_floor(ops[i]):
                continue
            changed = {self.of[v] for v in ops[i].outputs if v in self.of}
            affected = {k for group in changed for k in consumers.get(group, [])}
            for k in sorted(affected - queued):
                queued.add(k)
                heappush(waiting, k)

    def _consumers(self, ops: Sequence[Op]) -> dict[_Group, list[int]]:
        """Return the numbers of the ops that read each group."""
        consumers: dict[_Group, list[int]] = {}
        for i, op in enumerate(ops):
            for v in activations(op):
                if v.const is None:
                    consumers.setdefault(self.of[v], []).append(i)

        return consumers

    def raise_floor(self, op: Op) -> bool:
        """Keep an output of almost no range from a scale far below its inputs' scales.

        Return whether that changed a scale.
        """
        if op.spec.quant is not QuantRule.FREE:
            return False

        least = min(self._scale(v) for v in activations(op))
        changed = False
        for v in op.outputs:
            if v not in self.of:
                continue
            group = self.of[v]
            is_zero = group.range[0] == group.range[1] == 0
            floor = least if is_zero else least * FINEST_SCALE_RATIO
            # Scales are float32: a difference in the last bits is none.
            if group.fixed is None and group.quant().scale[0] < floor * (1 - 1e-6):
                group.floor = floor
                changed = True

        return changed

    def _scale(self, v: Value) -> float:
        """Return the scale of an activation, constants among them."""
        if v.const is not None:
            return activation_quant(constant_range(v.const)).scale[0]
        return self.of[v].quant().scale[0]
