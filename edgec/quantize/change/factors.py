"""Which channels may be multiplied by a factor so that the model computes what it did,
and which must share one.

What a convolution with constant weights writes may have any positive factor for each
channel, since its weights make up for it; what reads it divides. Between the two lie
ops that keep a factor (relu, pools, resizes), that move elements (concatenations,
slices, shuffles of channels), and sums, whose terms must share it. All others, and
outputs of the model, must see what they saw: factor 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from edgec.ir import Array, Graph, Op, Value
from edgec.ir.interp import run_op
from edgec.ops.activation import LeakyRelu
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.fixed_point import ACTIVATIONS
from edgec.ops.gather import Gather
from edgec.ops.matmul import FullyConnected
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.prelu import PRelu
from edgec.ops.reduce import Mean
from edgec.ops.resize import ResizeBilinear, ResizeNearest
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.slice import Slice, Split
from edgec.ops.space_depth import DepthToSpace, SpaceToDepth
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.unary import Relu, Relu6

_PRODUCTS = (Conv2D, DepthwiseConv2D, TransposeConv2D, FullyConnected)
_MOVES = (Reshape, Transpose, Concat, Slice, Split, Gather, SpaceToDepth, DepthToSpace)
_BY_CHANNEL = (MaxPool2D, AveragePool2D, ResizeBilinear, ResizeNearest, Pad, Mean)
_BY_ELEMENT = (Relu, Relu6, LeakyRelu, PRelu)
_CLIPS = ("relu6",)
NONE = 0
"""The number of the factor 1."""


class Factors:
    """The factors of a float graph.

    Numbers of factors stand for those of elements; `same` brings them to classes.

    made: of each output channel of an op whose weights can make up for it. read: of
    each input channel of such an op. limits: values that are clipped, which no channel
    may reach beyond what it did.
    """

    def __init__(self, graph: Graph) -> None:
        self.made: dict[Op, Array] = {}
        self.read: dict[Op, Array] = {}
        self.limits: list[tuple[Value, float]] = []
        self._of: dict[Value, Array] = {}
        self._parent = [NONE]
        for v in graph.inputs:
            self._of[v] = self._none(v)
        for op in graph.ops:
            self._op(op)
        for v in graph.outputs:
            self._pin(v)

    def channels(self, v: Value) -> Array | None:
        """The class of each channel of a value; None where not all elements of one have
        the same.
        """
        ids = self._of.get(v)
        if ids is None or not ids.ndim:
            return None
        rows = ids.reshape(-1, ids.shape[-1])
        same = rows[0] if len(rows) == 1 or bool((rows == rows[0]).all()) else None
        return None if same is None else self.same(same)

    def same(self, ids: Array) -> Array:
        """The classes of these numbers."""
        distinct, where = np.unique(ids, return_inverse=True)
        return np.array([self._root(int(i)) for i in distinct])[where].reshape(
            ids.shape
        )

    @property
    def count(self) -> int:
        """Numbers that there are."""
        return len(self._parent)

    def _op(self, op: Op) -> None:
        acts = [v for v in op.inputs if v.const is None]
        spec = op.spec
        x = op.inputs[0]
        if (
            isinstance(spec, _PRODUCTS)
            and all(v.const is not None for v in op.inputs[1:])
            and x.const is None
        ):
            self._product(op)
        elif isinstance(spec, _MOVES) and all(v.type.dtype == "float32" for v in acts):
            self._moved(op)
        elif isinstance(spec, _BY_CHANNEL) and self._keeps(op):
            ids = self.channels(x)
            assert ids is not None
            self._of[op.output] = ids.reshape((1,) * (op.output.type.rank - 1) + (-1,))
        elif (
            isinstance(spec, _BY_ELEMENT)
            and x.const is None
            and all(v.const is not None for v in op.inputs[1:])
        ):
            if isinstance(spec, Relu6):
                self.limits.append((op.output, 6.0))
            self._of[op.output] = self._of[x]
        elif isinstance(spec, (Add, Sub)) and spec.act in ("none", "relu"):
            self._sum(op)
        elif isinstance(spec, Mul) and spec.act in ("none", "relu"):
            self._gated(op)
        else:
            for v in acts:
                self._pin(v)
            for v in op.outputs:
                self._of[v] = self._none(v)

    def _product(self, op: Op) -> None:
        assert isinstance(op.spec, _PRODUCTS)
        ids = self.channels(op.inputs[0])
        if ids is None or (
            isinstance(op.spec, FullyConnected)
            and len(ids) != op.inputs[1].type.shape[1]
        ):
            self._pin(op.inputs[0])
        else:
            self.read[op] = ids
        act = op.spec.act
        y = op.output
        if act not in ("none", "relu", *_CLIPS):
            self._of[y] = self._none(y)
            return
        channels = op.inputs[1].type.shape[op.spec.weight_axis]
        self.made[op] = np.arange(self.count, self.count + channels)
        self._parent += self.made[op].tolist()
        self._of[y] = self.made[op].reshape((1,) * (y.type.rank - 1) + (-1,))
        if act in _CLIPS:
            self.limits.append((y, ACTIVATIONS[act][1]))

    def _moved(self, op: Op) -> None:
        """What moves elements moves their numbers too."""
        env = {
            v: np.broadcast_to(self._of[v], v.type.shape).astype(np.float32)
            for v in op.inputs
            if v.const is None
        }
        # joined with constants
        if any(v.const is not None and v.type.dtype == "float32" for v in op.inputs):
            for v in env:
                self._pin(v)
            self._of.update({v: self._none(v) for v in op.outputs})
            return
        for v, ids in zip(op.outputs, run_op(op, env), strict=True):
            self._of[v] = ids.astype(np.int64)

    def _keeps(self, op: Op) -> bool:
        """Whether an op that computes each channel from itself keeps its factor."""
        x = op.inputs[0]
        spec = op.spec
        if x.const is not None or self.channels(x) is None:
            return False
        if isinstance(spec, Mean):
            return x.type.rank > 1 and not {a % x.type.rank for a in spec.axes} & {
                x.type.rank - 1
            }
        if isinstance(spec, Pad):
            return spec.pads[-1] == (0, 0) and (
                spec.mode != "constant" or spec.value == 0
            )
        return getattr(spec, "act", "none") in ("none", "relu")

    def _sum(self, op: Op) -> None:
        """Computed terms share their factors; a constant one takes them on
        (`Equalize`).
        """
        y = op.output
        terms = [v for v in op.inputs if v.const is None]
        like = [v for v in terms if v.type.shape == y.type.shape]
        if len(like) < len(terms) or (
            len(terms) == 1 and self.channels(like[0]) is None
        ):
            for v in terms:
                self._pin(v)
            self._of[y] = self._none(y)
            return
        first = self._of[like[0]]
        for v in like[1:]:
            pairs = np.stack(
                [p.reshape(-1) for p in np.broadcast_arrays(first, self._of[v])]
            )
            for a, b in np.unique(pairs, axis=1).T.tolist():
                self._join(a, b)
        self._of[y] = first
        if len(terms) == 1:
            ids = self.channels(like[0])
            assert ids is not None
            self.made[op] = ids

    def _gated(self, op: Op) -> None:
        """One factor keeps what the product has; the others, which are smaller, must be
        as they were.
        """
        y = op.output
        terms = [v for v in op.inputs if v.const is None]
        first = next((v for v in terms if v.type.shape == y.type.shape), None)
        for v in terms:
            if v is not first or (len(terms) == 2 and terms[0] is terms[1]):
                self._pin(v)
        self._of[y] = self._none(y) if first is None else self._of[first]

    def _none(self, v: Value) -> Array:
        if not v.type.rank:
            return np.zeros((1,) * v.type.rank, np.int64)
        return np.zeros((1,) * (v.type.rank - 1) + (v.type.shape[-1],), np.int64)

    def _pin(self, v: Value) -> None:
        for i in np.unique(self._of[v]).tolist() if v in self._of else ():
            self._join(NONE, i)

    def _join(self, a: int, b: int) -> None:
        a, b = sorted((self._root(a), self._root(b)))
        self._parent[b] = a

    def _root(self, i: int) -> int:
        while self._parent[i] != i:
            self._parent[i] = i = self._parent[self._parent[i]]
        return i


def scale_groups(graph: Graph, same: Iterable[Op]) -> Mapping[Value, int]:
    """Values that ops of one scale bring to one scale have the same number."""
    parent: dict[Value, Value] = {}

    def root(v: Value) -> Value:
        while parent.setdefault(v, v) is not v:
            v = parent[v]
        return v

    for op in same:
        values = [
            v
            for v in (*op.inputs, *op.outputs)
            if v.const is None and v.type.dtype == "float32"
        ]
        for v in values[1:]:
            parent[root(v)] = root(values[0])
    numbers: dict[Value, int] = {}
    return {
        v: numbers.setdefault(root(v), len(numbers))
        for v in graph.values()
        if v.const is None
    }
