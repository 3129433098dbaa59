"""Finds the channels of a float graph that belong together.

A channel is an index of the last axis of a value. Two relations are of use:

- `ChannelGroups`: channels that can only be removed or reordered together;
- `ChannelFactors`: channels that can only be multiplied by one common factor.

Both are equivalence relations. Each op joins the classes of the channels that it ties,
as its `ChannelFlow` says (disjoint sets, Tarjan 1975, doi:10.1145/321879.321884).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from edgec.analysis.value_groups import ValueGroups
from edgec.ir import Array, ChannelFlow, Graph, Op, Value
from edgec.ir.interp import run_op
from edgec.ops.fixed_point import ACTIVATIONS

FIXED = 0
"""The class of channels that must stay as they are."""
_CLIPPING = "relu6"
"""The activation, fused or an op of its own, whose upper bound a factor may reach."""


class ChannelClasses:
    """Disjoint classes of the channels of a graph, numbered from `FIXED` on.

    Inputs and outputs of the graph are the model's interface, and so fixed.

    Attributes:
        graph: the graph
    """

    def __init__(self, graph: Graph) -> None:
        """Join the classes that each op of the graph ties."""
        self.graph = graph
        self._parent = [FIXED]
        self._numbers: dict[Value, Array] = {}
        """Arrays of numbers that broadcast to the values; `_root` gives a number's class."""
        for v in graph.inputs:
            self._numbers[v] = _all_fixed(v)
        for op in graph.ops:
            self._visit(op)
        for v in graph.outputs:
            # A constant output has channels that nothing computes.
            if v.const is None:
                self._fix(v)

    @property
    def count(self) -> int:
        """How many numbers there are; a class is one of its numbers."""
        return len(self._parent)

    def same(self, numbers: Array) -> Array:
        """Return the classes of these numbers, in their shape."""
        # Each distinct number is looked up once, as large values repeat few numbers.
        distinct, where = np.unique(numbers, return_inverse=True)
        roots: list[int] = []
        for number in distinct:
            roots.append(self._root(int(number)))

        classes = np.array(roots, np.int64)[where]
        return classes.reshape(numbers.shape)

    def _visit(self, op: Op) -> None:
        """Number the output channels of an op, and join the classes that it ties."""
        raise NotImplementedError

    def _new(self, count: int) -> Array:
        """Return so many new numbers, each a class of its own."""
        first = self.count
        numbers = np.arange(first, first + count)
        self._parent.extend(numbers.tolist())
        return numbers

    def _root(self, number: int) -> int:
        """Return the class of a number: the smallest number of the class."""
        parent = self._parent
        while parent[number] != number:
            # Shortened paths keep later walks short.
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    def _join(self, one: int, two: int) -> None:
        """Make one class of the classes of two numbers."""
        # The smallest number stands for its class, so that FIXED stays FIXED.
        first = self._root(one)
        second = self._root(two)
        low = min(first, second)
        high = max(first, second)
        self._parent[high] = low

    def _tie(self, one: Array, two: Array) -> None:
        """Join the classes at equal places of two arrays that broadcast."""
        first, second = np.broadcast_arrays(one, two)
        left = first.reshape(-1)
        right = second.reshape(-1)
        pairs = np.stack([left, right])

        # Maps have thousands of pixels with the same pairs.
        distinct = np.unique(pairs, axis=1)
        for a, b in distinct.T.tolist():
            self._join(a, b)

    def _fix(self, v: Value) -> None:
        """Let the channels of a value stay as they are."""
        numbers = np.unique(self._numbers[v])
        for number in numbers.tolist():
            self._join(FIXED, number)

    def _fix_all(self, op: Op) -> None:
        """Fix the channels of all values that an op reads or writes."""
        for v in op.inputs:
            if v.const is None:
                self._fix(v)
        for v in op.outputs:
            self._numbers[v] = _all_fixed(v)


class ChannelGroups(ChannelClasses):
    """Channels that must be removed or reordered together.

    The terms of a sum share their groups, for example, and a concatenation passes the
    groups of its inputs on.

    Attributes:
        consumers: the convolutions and matrix products; they sum over the channels of
            their first input, so that input and output channels stay apart
    """

    def __init__(self, graph: Graph) -> None:
        """Join the groups that each op of the graph ties."""
        # The base class visits the ops, which need the list.
        self.consumers: list[Op] = []
        super().__init__(graph)

    def groups(self, v: Value) -> Array:
        """Return the group of each channel of a computed value, [C].

        A scalar has one channel.
        """
        return self.same(self._of_channels(v))

    def _visit(self, op: Op) -> None:
        """Tie the channels of an op by its flow; fix the channels that it mixes."""
        if not _is_float_map(op):
            self._fix_all(op)
            return

        y = op.output
        x = op.inputs[0]
        computed = [v for v in op.inputs if v.const is None]
        if sums_all_channels(op):
            self.consumers.append(op)
            self._numbers[y] = self._new(y.type.shape[-1])
        elif op.spec.channel_flow is ChannelFlow.MOVES:
            self._move(op)
        elif is_pointwise(op) or (computed == [x] and maps_channels(op)):
            self._numbers[y] = self._of_channels(x)
            # The terms of a sum can only be removed together.
            for v in computed:
                self._tie(self._numbers[y], self._of_channels(v))
        else:
            self._fix_all(op)

    def _of_channels(self, v: Value) -> Array:
        """Return the numbers of a value, [C]."""
        # One number for each channel comes as [1, …, 1, C].
        numbers = self._numbers[v]
        return numbers.reshape(-1)

    def _move(self, op: Op) -> None:
        """Let the numbers of channels go where their channels go."""
        numbers: list[Array | None] = []
        for v in op.inputs:
            numbers.append(self._of_channels(v) if v.const is None else None)

        moved = op.spec.move_channels(op, numbers)
        if moved is None:
            self._fix_all(op)
        else:
            self._numbers[op.output] = moved


class ChannelFactors(ChannelClasses):
    """Channels that may be multiplied by a factor, in classes of one common factor.

    The model computes what it did when a convolution multiplies the weights of an
    output channel by a positive factor, and all consumers of the channel divide by it
    (cross-layer equalization, Nagel et al. 2019, arXiv:1906.04721). Between the two lie
    ops that keep a factor (relu, pools, resizes), ops that move elements, and sums,
    whose terms must share their factors. The inputs of all other ops must stay as they
    are: their factor is 1, the class `FIXED`.

    Attributes:
        produced: numbers of the output channels, by op whose weights hold their factors
        consumed: numbers of the input channels, by op whose weights hold their factors
        limits: clipped values, each with the bound that no channel may newly reach
    """

    def __init__(self, graph: Graph) -> None:
        """Join the factors that each op of the graph ties."""
        self.produced: dict[Op, Array] = {}
        self.consumed: dict[Op, Array] = {}
        self.limits: list[tuple[Value, float]] = []
        super().__init__(graph)

    def channels(self, v: Value) -> Array | None:
        """Return the class of each channel of a value, [C].

        None for a constant or a scalar, and where the elements of a channel have
        several factors, as in a transposed image.
        """
        numbers = self._numbers.get(v)
        if numbers is None or not numbers.ndim:
            return None

        rows = numbers.reshape(-1, numbers.shape[-1])
        first = rows[0]
        is_uniform = len(rows) == 1 or bool((rows == first).all())
        return self.same(first) if is_uniform else None

    def _visit(self, op: Op) -> None:
        """Pass factors through an op by its flow, or fix its values."""
        flow = op.spec.channel_flow
        acts = [v for v in op.inputs if v.const is None]
        takes_input = acts == op.inputs[:1]

        if flow.has_weights and takes_input:
            self._weighted_sum(op)
        elif flow is ChannelFlow.MOVES:
            self._move(op, acts)
        elif op.spec.keeps_factor():
            self._pass_on(op, acts)
        else:
            # Curved functions such as hard_swish keep no factor.
            self._fix_all(op)

    def _pass_on(self, op: Op, acts: Sequence[Value]) -> None:
        """Give the output of an op that keeps factors those of its inputs.

        acts: the computed inputs.
        """
        flow = op.spec.channel_flow
        takes_input = acts == op.inputs[:1]
        if flow is ChannelFlow.ADDS:
            self._add(op, acts)
        elif flow is ChannelFlow.MULTIPLIES:
            self._multiply(op, acts)
        elif flow is ChannelFlow.KEEPS and takes_input:
            self._keep(op)
        elif flow is ChannelFlow.POINTWISE and takes_input:
            self._numbers[op.output] = self._numbers[op.inputs[0]]
            self._limit(op)
        else:
            self._fix_all(op)

    def _weighted_sum(self, op: Op) -> None:
        """Give a product new factors for its output channels, and note its inputs'."""
        x = op.inputs[0]
        y = op.output
        weights = op.inputs[1].type
        numbers = self.channels(x)

        # A fully connected layer may read several pixels as one row.
        depth = weights.shape[1] if weights.rank == 2 else None
        if numbers is None or depth not in (None, len(numbers)):
            self._fix(x)
        else:
            self.consumed[op] = numbers

        act = getattr(op.spec, "act", "none")
        if act not in ("none", "relu", _CLIPPING):
            self._numbers[y] = _all_fixed(y)
            return

        channels = weights.shape[op.spec.weight_axis]
        self.produced[op] = self._new(channels)
        self._numbers[y] = _along_channels(self.produced[op], y)
        self._limit(op)

    def _limit(self, op: Op) -> None:
        """Note the upper bound of an op that clips."""
        # An activation that is an op of its own has its name as the kind.
        act = getattr(op.spec, "act", op.kind)
        if act == _CLIPPING:
            _, bound = ACTIVATIONS[act]
            self.limits.append((op.output, bound))

    def _move(self, op: Op, acts: Sequence[Value]) -> None:
        """Let the numbers of elements go where their elements go.

        acts: the computed inputs.
        """
        reals = [v for v in op.inputs if v.type.dtype == "float32"]
        # Among the moved elements a constant cannot take a factor, and an integer
        # would choose the elements while the model runs.
        if set(reals) != set(acts):
            self._fix_all(op)
            return

        # The op's own reference moves them; float32 holds integers up to 2^24.
        env: dict[Value, Array] = {}
        for v in acts:
            numbers = np.broadcast_to(self._numbers[v], v.type.shape)
            env[v] = numbers.astype(np.float32)

        moved = run_op(op, env)
        for v, numbers in zip(op.outputs, moved, strict=True):
            self._numbers[v] = numbers.astype(np.int64)

    def _keep(self, op: Op) -> None:
        """Pass the factors of channels on where each is computed from itself."""
        x = op.inputs[0]
        y = op.output
        numbers = self.channels(x)
        if numbers is None or not op.spec.keeps_channels(op):
            self._fix_all(op)
            return

        self._numbers[y] = _along_channels(numbers, y)

    def _add(self, op: Op, terms: Sequence[Value]) -> None:
        """Let computed terms share their factors; a constant term can take them on."""
        y = op.output
        first = terms[0]
        shape = y.type.shape
        # A smaller term is added to many elements, whose factors may differ.
        is_whole = all(v.type.shape == shape for v in terms)
        has_constant = len(terms) == 1
        numbers = self.channels(first)
        if not is_whole or (has_constant and numbers is None):
            self._fix_all(op)
            return

        self._numbers[y] = self._numbers[first]
        for v in terms[1:]:
            self._tie(self._numbers[y], self._numbers[v])

        if has_constant and numbers is not None:
            self.produced[op] = numbers

    def _multiply(self, op: Op, terms: Sequence[Value]) -> None:
        """Pass on the factors of one operand; the others must stay as they are.

        The operand is the first that is as large as the product: the smaller ones are
        gates.
        """
        y = op.output
        whole: Value | None = None
        for v in terms:
            if whole is None and v.type.shape == y.type.shape:
                whole = v
            else:
                self._fix(v)

        # The square of a factor would be another factor.
        is_square = len(terms) == 2 and terms[0] is terms[1]
        if whole is None or is_square:
            self._fix_all(op)
        else:
            self._numbers[y] = self._numbers[whole]


def scale_groups(graph: Graph, same: Iterable[Op]) -> Mapping[Value, int]:
    """Return a number for each computed value, the same for values of one scale.

    same: the ops that bring all their float inputs and outputs to one scale.
    """
    sharing = ValueGroups()
    for op in same:
        values: list[Value] = []
        for v in (*op.inputs, *op.outputs):
            if v.const is None and v.type.dtype == "float32":
                values.append(v)
        for v in values[1:]:
            sharing.join(values[0], v)

    # Numbers follow the order of the graph.
    numbers: dict[Value, int] = {}
    groups: dict[Value, int] = {}
    for v in graph.values():
        if v.const is None:
            representative = sharing.find(v)
            groups[v] = numbers.setdefault(representative, len(numbers))
    return groups


def sums_all_channels(op: Op) -> bool:
    """Return whether each output channel is a weighted sum over all input channels.

    The weights must be constant. A grouped convolution sums over some channels only,
    and a fully connected layer may read several pixels at once.
    """
    flow = op.spec.channel_flow
    if flow is not ChannelFlow.SUMS or not has_constant_weights(op):
        return False

    # Weights have the input channels of one window, or of its group, last.
    channels = op.inputs[0].type.shape[-1]
    depth = op.inputs[1].type.shape[-1]
    return depth == channels


def maps_channels(op: Op) -> bool:
    """Return whether output channel i depends on channel i of the only computed input.

    Weights and other operands must be constant, and be one number or one for each
    channel where they are not weights.
    """
    if is_pointwise(op):
        return True

    keeps = op.spec.keeps_channels(op)
    return keeps and has_constant_weights(op)


def is_pointwise(op: Op) -> bool:
    """Return whether each element depends on elements at the same place alone.

    A constant operand may have one element, or one for each channel.
    """
    if not op.spec.channel_flow.is_pointwise:
        return False

    channels = op.output.type.shape[-1:]
    for v in op.inputs:
        is_constant = v.const is not None
        if is_constant and v.type.size == 1:
            continue
        if v.type.shape[-1:] != channels:
            return False
        # A constant with a number for each pixel would tie pixels to channels.
        if is_constant and v.type.size != channels[0]:
            return False
    return True


def has_constant_weights(op: Op) -> bool:
    """Return whether all inputs but the first are constant."""
    others = op.inputs[1:]
    return all(v.const is not None for v in others)


def _is_float_map(op: Op) -> bool:
    """Return whether an op computes one float tensor from float tensors.

    Scalars, which have no channels, do not count, nor does a constant first input.
    """
    if len(op.outputs) != 1 or not op.inputs or op.inputs[0].const is not None:
        return False

    tensors = [v for v in op.inputs if v.const is None]
    tensors.append(op.output)
    for v in tensors:
        is_float = v.type.dtype == "float32"
        if not is_float or v.type.rank == 0:
            return False
    return True


def _all_fixed(v: Value) -> Array:
    """Return `FIXED` for each channel of a value; the array broadcasts to the value."""
    if not v.type.rank:
        return np.full((), FIXED, np.int64)

    channels = v.type.shape[-1]
    numbers = np.full(channels, FIXED, np.int64)
    return _along_channels(numbers, v)


def _along_channels(numbers: Array, v: Value) -> Array:
    """Return one number for each channel, [C], as an array that broadcasts to `v`."""
    shape = [1] * v.type.rank
    shape[-1] = len(numbers)
    return numbers.reshape(shape)
