"""Small random float networks for the tests of quantization and partition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgec.ir import Array, Builder, Graph, OpDef, TensorType, Value, interp, verify
from edgec.measure.agreement import tally
from edgec.ops.binary import Add, Mul
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.reduce import Mean
from edgec.ops.resize import ResizeNearest
from edgec.ops.shape import Reshape
from edgec.ops.slice import Slice
from edgec.ops.unary import HardSwish, Logistic, Relu
from edgec.quantize.change.state import QuantizationState, RecipeStep


class Net:
    """A Builder with seeded random weights."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.build = Builder(name)
        self.rng = np.random.default_rng(seed)

    def input(self, *shape: int, name: str = "x") -> Value:
        return self.build.input(name, TensorType(shape))

    def const(self, *shape: int, scale: float = 1.0) -> Value:
        return self.build.const(
            (self.rng.normal(size=shape) * scale).astype(np.float32)
        )

    def op(self, spec: OpDef, *inputs: Value, name: str = "") -> Value:
        return self.build.add(spec, inputs, name)

    def conv(self, x: Value, channels: int, kernel: int = 3, **fields: object) -> Value:
        """Same-sized unless `fields` say otherwise, with weights that keep the
        variance.
        """
        depth = x.type.shape[3]
        half = kernel // 2
        w = self.const(
            channels, kernel, kernel, depth, scale=(kernel * kernel * depth) ** -0.5
        )
        spec = Conv2D(**{"pads": (half,) * 4, "act": "relu6", **fields})  # type: ignore[arg-type]
        return self.op(spec, x, w, self.const(channels, scale=0.3))

    def depthwise(self, x: Value, **fields: object) -> Value:
        channels = x.type.shape[3]
        w = self.const(1, 3, 3, channels, scale=1 / 3)
        spec = DepthwiseConv2D(**{"pads": (1,) * 4, "act": "relu", **fields})  # type: ignore[arg-type]
        return self.op(spec, x, w, self.const(channels, scale=0.3))

    def done(self, *outputs: Value) -> Graph:
        self.build.graph.outputs = list(outputs)
        return self.build.graph


def chain() -> Graph:
    net = Net("chain", 1)
    y = net.conv(net.input(1, 12, 10, 3), 8, stride=(2, 2))
    y = net.depthwise(y)
    return net.done(net.conv(y, 6, 1, act="none"))


def residual() -> Graph:
    net = Net("residual", 2)
    y = net.conv(net.input(1, 9, 9, 3), 8)
    z = net.op(Add("relu"), y, net.conv(y, 8, act="none"))
    return net.done(net.op(Mul(), z, net.const(8)))


def joined() -> Graph:
    """Branches of unlike ranges meet in a concatenation, one of them with a prescribed
    scale.
    """
    net = Net("joined", 3)
    y = net.conv(net.input(1, 8, 8, 3), 4)
    gate = net.op(Logistic(), net.conv(y, 4, act="none"))
    wide = net.op(Mul(), y, net.const(4, scale=3.0))
    z = net.op(Concat(3), gate, wide, y)
    return net.done(net.conv(z, 5, act="none"), gate)


def head() -> Graph:
    """Reshape and Logistic at the end; the middle value is an output too."""
    net = Net("head", 4)
    y = net.conv(net.input(1, 6, 6, 3), 4)
    flat = net.op(Reshape((1, 144)), net.op(Relu(), net.conv(y, 4, act="none")))
    return net.done(net.op(Logistic(), flat), y)


def odd_pads() -> Graph:
    """Pads as PyTorch has them for stride 2: neither TFLite's SAME nor VALID."""
    net = Net("odd_pads", 5)
    y = net.conv(net.input(1, 12, 12, 3), 8, stride=(2, 2), pads=(1, 1, 1, 1))
    y = net.depthwise(y, stride=(2, 2), pads=(1, 1, 1, 1))
    return net.done(net.conv(y, 4, act="none"))


def random_net(seed: int) -> Graph:
    """A dozen random image ops, each reading any earlier value; what nothing reads is
    an output.
    """
    net = Net(f"random{seed}", seed)
    draw = net.rng
    values = [net.input(1, 8, 8, 3)]

    def like(x: Value) -> list[Value]:
        return [v for v in values if v.type.shape[1:3] == x.type.shape[1:3]]

    def unary(x: Value) -> Value:
        size = (x.type.shape[1], x.type.shape[2])
        makers: list[Callable[[], Value]] = [
            lambda: net.conv(
                x,
                int(draw.integers(1, 9)),
                int(draw.choice([1, 3])),
                act=str(draw.choice(["none", "relu6"])),
            ),
            lambda: net.depthwise(x),
            lambda: net.op(Relu(), x),
            lambda: net.op(Logistic(), x),
            lambda: net.op(MaxPool2D((3, 3), (1, 1), (1, 1, 1, 1)), x),
            lambda: net.op(AveragePool2D((3, 3), (1, 1), (1, 1, 1, 1)), x),
            lambda: (
                net.op(ResizeNearest((size[0] * 2, size[1] * 2)), x)
                if size[0] <= 8
                else net.op(Relu(), x)
            ),
            lambda: net.op(
                Slice((0, 1, 0, 0), (1, size[0] - 1, *x.type.shape[2:]), (1, 1, 1, 1)),
                x,
            ),
            lambda: net.op(Pad(((0, 0), (1, 0), (0, 1), (0, 0))), x),
            lambda: net.op(Mul(), x, net.const(x.type.shape[3])),
        ]
        return makers[draw.integers(len(makers))]()

    for _ in range(12):
        x = values[draw.integers(len(values))]
        others = like(x)
        y = others[draw.integers(len(others))]
        if draw.random() < 0.3:
            values.append(net.op(Concat(3), x, y))
        elif draw.random() < 0.3:
            values.append(
                net.op(
                    Add(),
                    x,
                    y if x.type.shape == y.type.shape else net.const(x.type.shape[3]),
                )
            )
        else:
            values.append(unary(x))
    read = {v for op in net.build.graph.ops for v in op.inputs}
    return net.done(*(v for v in values if v not in read))


def swish(
    channels: int = 16, sizes: tuple[float, float] = (0.3, 5.0), *, gate: bool = True
) -> Graph:
    """Channels of unlike sizes through a hard-swish, which keeps no factor, to a
    depthwise convolution and a gate.
    """
    net = Net("swish", 8)
    y = net.op(HardSwish(), net.conv(net.input(1, 16, 16, 3), channels, act="none"))
    w, b = net.build.graph.ops[0].inputs[1:]
    assert w.const is not None
    assert b.const is not None
    size = net.rng.permutation(np.geomspace(*sizes, channels)).astype(np.float32)
    w.const, b.const = w.const * size.reshape(-1, 1, 1, 1), b.const * size
    y = net.depthwise(y)
    w = net.build.graph.ops[-1].inputs[1]
    assert w.const is not None
    w.const = w.const / size
    if gate:
        mean = net.op(Mean((1, 2), True), y)
        y = net.op(
            Mul(),
            y,
            net.op(Logistic(), net.conv(net.conv(mean, 4, 1), channels, 1, act="none")),
        )
    return net.done(net.conv(y, 6, 1, act="none"))


NETS: dict[str, Callable[[], Graph]] = {
    f.__name__: f for f in (chain, residual, joined, head, odd_pads)
}


def samples(graph: Graph, count: int = 4, seed: int = 0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    return [
        {v.name: rng.normal(size=v.type.shape).astype(np.float32) for v in graph.inputs}
        for _ in range(count)
    ]


def worked(graph: Graph, *todo: RecipeStep, count: int = 6) -> QuantizationState:
    work = QuantizationState(graph, samples(graph, count))
    for step in todo:
        work = work.after(step)
    return work


def db(work: QuantizationState, graph: Graph, seed: int = 9) -> float:
    """Signal to noise of the int8 form on samples of its own."""
    int8 = work.int8().graph
    verify(int8, "quantized")
    tries = samples(graph, 4, seed)
    want, got = ([interp(g, s) for s in tries] for g in (graph, int8))
    return float(
        np.mean(
            [
                tally(w[k], y[k]).sqnr_db()
                for w, y in zip(want, got, strict=True)
                for k in w
            ]
        )
    )
