"""Random networks of images, as real files have them: layers behind layers on small and
large maps, with dead channels, in floats or quantized, with a border of int8, uint8 or
floats.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgec.ir import Graph, Op, OpDef, Quant, TensorType, Value
from edgec.ir.graph import Names
from edgec.ops.activation import LeakyRelu
from edgec.ops.binary import Add, Mul
from edgec.ops.concat import Concat
from edgec.ops.matmul import FullyConnected
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.reduce import Mean
from edgec.ops.resize import ResizeBilinear, ResizeNearest
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.slice import slice_axes
from edgec.ops.softmax import Softmax
from edgec.ops.unary import HardSwish, Logistic, Relu, Relu6, Tanh
from edgec.quantize import quantize
from tests.quantize.nets import Net, samples

_SIZES = (1, 7, 8, 12, 33, 48, 64, 96, 128, 161)
"""Rows and columns of an image."""
_LARGEST = 150_000
"""The most elements of a tensor."""
_MOST_LAYERS = 12
_KERNELS: tuple[tuple[int, int], ...] = ((1, 1), (2, 2), (3, 3))
_UNARY: tuple[OpDef, ...] = (
    Relu(),
    Relu6(),
    Logistic(),
    Tanh(),
    HardSwish(),
    LeakyRelu(0.1),
)


class _Maker:
    """A network under construction; its values are what a layer may read."""

    def __init__(self, name: str, rng: np.random.Generator) -> None:
        self.net = Net(name, int(rng.integers(1 << 31)))
        self.rng = rng
        height, width = (int(rng.choice(_SIZES)) for _ in range(2))
        channels = int(rng.choice([1, 3, 4, 8]))
        self.values = [self.net.input(1, height, width, channels)]
        if rng.random() < 0.15:
            again = self.net.input(1, height, width, channels, name="x2")
            self.values.append(again)

    def add(self) -> None:
        """Add one layer behind a value, mostly one of the last."""
        recent = self.values[-2:] if self.rng.random() < 0.7 else self.values
        x = recent[self.rng.integers(len(recent))]
        makers = self.layers(x)
        make = makers[self.rng.integers(len(makers))]
        ops = len(self.net.build.graph.ops)
        try:
            y = make()
        except ValueError:  # a window larger than its image
            y = None
        if y is None or not 0 < y.type.size <= _LARGEST:
            del self.net.build.graph.ops[ops:]
        else:
            self.values.append(y)

    def layers(self, x: Value) -> list[Callable[[], Value]]:
        """Return the layers that can read a value."""
        if x.type.rank != 4:
            return [
                lambda: self.net.op(self.activation(), x),
                lambda: self.net.op(Softmax(), x),
                lambda: self.net.op(Transpose((0, 2, 1)), x),
            ]
        return [
            *[lambda: self.conv(x)] * 5,
            *[lambda: self.depthwise(x)] * 2,
            *[lambda: self.joined(x)] * 3,
            lambda: self.net.op(self.activation(), x),
            lambda: self.pool(x),
            lambda: self.resized(x),
            lambda: self.moved(x),
            lambda: self.net.op(Mul(), x, self.net.const(x.type.shape[3])),
            lambda: self.head(x),
        ]

    def activation(self) -> OpDef:
        """Add an activation that is an op."""
        return _UNARY[self.rng.integers(len(_UNARY))]

    def conv(self, x: Value) -> Value:
        """Add a convolution."""
        channels = int(self.rng.choice([1, 2, 3, 5, 8, 12, 16, 21]))
        stride = int(self.rng.choice([1, 1, 2]))
        act = str(self.rng.choice(["none", "relu", "relu6"]))
        size = int(self.rng.choice([1, 3]))
        y = self.net.conv(x, channels, size, stride=(stride, stride), act=act)
        return self.perhaps_dead(y, 0)

    def depthwise(self, x: Value) -> Value:
        """Add a depthwise convolution."""
        stride = int(self.rng.choice([1, 1, 2]))
        return self.perhaps_dead(self.net.depthwise(x, stride=(stride, stride)), 3)

    def perhaps_dead(self, y: Value, axis: int) -> Value:
        """Make some or all channels of the layer's weights zero."""
        if self.rng.random() < 0.25:
            w = self.net.build.graph.ops[-1].inputs[1].const
            assert w is not None
            dead = self.rng.random(w.shape[axis]) < self.rng.choice([0.3, 0.3, 1.0])
            w[(slice(None),) * axis + (dead,)] = 0
        return y

    def pool(self, x: Value) -> Value:
        """Add a maximum or a mean of windows."""
        kernel = _KERNELS[self.rng.integers(len(_KERNELS))]
        stride = _KERNELS[self.rng.integers(len(_KERNELS))]
        pool = MaxPool2D if self.rng.random() < 0.5 else AveragePool2D
        return self.net.op(pool(kernel, stride), x)

    def resized(self, x: Value) -> Value:
        """Add a resize."""
        _, height, width, _ = x.type.shape
        by = int(self.rng.integers(1, 4))
        size = (height * by, width * by) if self.rng.random() < 0.7 else (5, 9)
        resize = ResizeNearest if self.rng.random() < 0.5 else ResizeBilinear
        return self.net.op(resize(size), x)

    def moved(self, x: Value) -> Value:
        """Add an op that moves elements, pads them or takes some."""
        shape = x.type.shape
        axis = int(self.rng.integers(1, 4))
        length = int(self.rng.integers(1, shape[axis] + 1))
        first = int(self.rng.integers(shape[axis] - length + 1))
        border = [(0, 0)] * 4
        border[axis] = (int(self.rng.integers(3)), 1)
        specs: list[OpDef] = [
            Transpose((0, 2, 1, 3)),
            Transpose((0, 3, 1, 2)),
            Pad(tuple(border)),
            Reshape((shape[0], shape[1], 1, shape[2] * shape[3])),
            slice_axes(x.type, {axis: (first, length, 1)}),
        ]
        return self.net.op(specs[self.rng.integers(len(specs))], x)

    def joined(self, x: Value) -> Value:
        """Add a sum or a join with another value of that size, or with itself."""
        if self.rng.random() < 0.5:
            others = [v for v in self.values if v.type.shape == x.type.shape]
            return self.net.op(Add(), x, others[self.rng.integers(len(others))])
        others = [v for v in self.values if v.type.shape[:3] == x.type.shape[:3]]
        others = [v for v in others if v.type.rank == 4]
        return self.net.op(Concat(3), x, others[self.rng.integers(len(others))])

    def head(self, x: Value) -> Value:
        """Add the end of a classifier, or rows of a detector."""
        n, height, width, channels = x.type.shape
        if self.rng.random() < 0.5:
            return self.net.op(Reshape((n, height * width, channels)), x)
        mean = self.net.op(Mean((1, 2), True), x)
        row = self.net.op(Reshape((n, channels)), mean)
        weights = self.net.const(6, channels, scale=channels**-0.5)
        y = self.net.op(FullyConnected(), row, weights, self.net.const(6))
        return self.net.op(Reshape((n, 1, 6)), y)

    def done(self, most_ends: int) -> Graph:
        """Return the network, whose outputs are the values that no layer reads."""
        read = {v for op in self.net.build.graph.ops for v in op.inputs}
        ends = [v for v in self.values[::-1] if v not in read]
        graph = self.net.done(*ends[:most_ends])
        graph.drop_unused()
        used = {*graph.users(), *graph.outputs}
        graph.inputs = [v for v in graph.inputs if v in used]
        return graph


def network(name: str, rng: np.random.Generator, most_ends: int) -> Graph:
    """Return a random network, without an op if no layer fits."""
    maker = _Maker(name, rng)
    for _ in range(int(rng.integers(2, _MOST_LAYERS + 1))):
        maker.add()
    graph = maker.done(most_ends)
    if rng.random() < 0.5 or not graph.ops:
        return graph
    graph = quantize(graph, samples(graph, 2, int(rng.integers(1 << 31))))
    if rng.random() < 0.3:
        _as_in_uint8_files(graph, rng)
    return _with_border(graph, rng)


def _as_in_uint8_files(graph: Graph, rng: np.random.Generator) -> None:
    """Give all weights of a layer one scale and a zero point."""
    for op in graph.ops:
        if "weight" not in op.spec.roles or not op.inputs[1].type.is_quantized:
            continue
        x, w, *bias = op.inputs
        assert w.type.quant is not None
        scale = w.type.quant.scale[0]
        quant = Quant.per_tensor(scale, int(rng.integers(-20, 20)))
        op.inputs[1] = Value(w.name, w.type.with_quant(quant), w.const)
        product = float(np.float32(x.type.scale) * np.float32(scale))
        for b in bias:
            summed = b.type.with_quant(Quant.per_tensor(product, 0))
            op.inputs[2] = Value(b.name, summed, b.const)


def _with_border(graph: Graph, rng: np.random.Generator) -> Graph:
    """Let some inputs and outputs be of int8 or uint8 instead of floats."""
    names = Names(v.name for v in graph.values())
    for op in list(graph.ops):
        kind = str(rng.choice(["float32", "int8", "uint8"]))
        x = op.inputs[0]
        y = op.outputs[0]
        is_begin = isinstance(op.spec, Quantize) and x in graph.inputs
        is_end = isinstance(op.spec, Dequantize) and y in graph.outputs
        if kind == "float32" or not (is_begin or is_end):
            continue
        inner = y if is_begin else x
        if inner.type.dtype != "int8" or len(graph.users().get(x, [])) > 1:
            continue
        outer = inner
        if kind == "uint8":
            outer = Value(names.new(f"{inner.name}_uint8"), _as_uint8(inner.type))
        at = graph.ops.index(op)
        graph.ops.remove(op)
        if is_begin:
            graph.inputs = [outer if v is x else v for v in graph.inputs]
            if outer is not inner:
                graph.ops.insert(at, Op(Quantize(), [outer], [inner]))
        else:
            graph.replace(y, outer)
            if outer is not inner:
                graph.ops.insert(at, Op(Quantize("uint8"), [inner], [outer]))
    return graph


def _as_uint8(t: TensorType) -> TensorType:
    """Return the uint8 type of the same reals."""
    assert t.quant is not None
    zero_points = tuple(z + 128 for z in t.quant.zero_point)
    return t.with_quant(Quant(t.quant.scale, zero_points, t.quant.axis), "uint8")
