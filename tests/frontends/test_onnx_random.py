"""Random ONNX models, read and optimised, compute what onnxruntime computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto

from edgec.ir import Array
from edgec.passes.pipeline import available
from tests.frontends.onnx_files import agree, node, write

Shape = tuple[int, ...]


@dataclass
class Net:
    """A model under construction: image tensors in NCHW, their shapes known."""

    random: Random
    opset: int
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.random.randrange(1 << 30))

    def const(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def floats(self, *shape: int, low: float = -1, high: float = 1) -> str:
        return self.const(self.rng.uniform(low, high, shape).astype(np.float32))

    def ints(self, *values: int) -> str:
        return self.const(np.array(values, np.int64))

    def add(self, op_type: str, inputs: list[str], shape: Shape, **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op_type, inputs, name, **attrs))
        self.shapes[name] = shape
        return name

    def image(self) -> str:
        """Any image so far."""
        return self.random.choice([n for n, s in self.shapes.items() if len(s) == 4])


def conv(net: Net, x: str) -> str:
    n, c, h, w = net.shapes[x]
    depthwise = net.random.random() < 0.3
    k = net.random.choice([1, 3])
    stride = net.random.choice([1, 1, 2])
    o, group = (c, c) if depthwise else (net.random.choice([2, 4, 8]), 1)
    pad = k // 2
    size = tuple((d + 2 * pad - k) // stride + 1 for d in (h, w))
    inputs = [
        x,
        net.floats(o, c // group, k, k),
        *([net.floats(o)] if net.random.random() < 0.6 else []),
    ]
    return net.add(
        "Conv",
        inputs,
        (n, o, *size),
        strides=[stride] * 2,
        pads=[pad] * 4,
        group=group,
        kernel_shape=[k, k],
    )


def batch_norm(net: Net, x: str) -> str:
    c = net.shapes[x][1]
    constants = [net.floats(c) for _ in range(3)]
    return net.add(
        "BatchNormalization", [x, *constants, net.floats(c, low=0.1)], net.shapes[x]
    )


def activation(net: Net, x: str) -> str:
    kind = net.random.choice(
        [
            "Relu",
            "Sigmoid",
            "Tanh",
            "LeakyRelu",
            "HardSigmoid",
            "clip",
            "hard_swish",
            "silu",
            "prelu",
        ]
    )
    shape = net.shapes[x]
    if kind == "clip":
        zero, six = (net.const(np.array(v, np.float32)) for v in (0, 6))
        if net.opset >= 11:
            return net.add("Clip", [x, zero, six], shape)
        return net.add("Clip", [x], shape, min=0.0, max=6.0)
    if kind == "prelu":
        return net.add("PRelu", [x, net.floats(shape[1], 1, 1)], shape)
    if kind == "silu":
        return net.add("Mul", [x, net.add("Sigmoid", [x], shape)], shape)
    if kind == "hard_swish":
        y = net.add("Add", [x, net.const(np.array([3], np.float32))], shape)
        return net.add(
            "Mul",
            [
                x,
                net.add(
                    "Mul",
                    [_clip6(net, y), net.const(np.array(1 / 6, np.float32))],
                    shape,
                ),
            ],
            shape,
        )
    return net.add(kind, [x], shape)


def _clip6(net: Net, x: str) -> str:
    if net.opset < 11:
        return net.add("Clip", [x], net.shapes[x], min=0.0, max=6.0)
    bounds = [net.const(np.array(v, np.float32)) for v in (0, 6)]
    return net.add("Clip", [x, *bounds], net.shapes[x])


def scale(net: Net, x: str) -> str:
    n, c, h, w = net.shapes[x]
    other = net.random.choice([(c, 1, 1), (1, c, 1, 1), (), (1, 1, h, w)])
    kind = net.random.choice(["Mul", "Add", "Sub", "Div"])
    return net.add(
        kind, [x, net.floats(*other, low=0.5 if kind == "Div" else -1)], (n, c, h, w)
    )


def merge(net: Net, x: str) -> str:
    same = [n for n, s in net.shapes.items() if s == net.shapes[x]]
    return net.add(
        net.random.choice(["Add", "Mul"]), [x, net.random.choice(same)], net.shapes[x]
    )


def join(net: Net, x: str) -> str:
    n, c, h, w = net.shapes[x]
    fits = [
        v for v, s in net.shapes.items() if len(s) == 4 and (s[0], *s[2:]) == (n, h, w)
    ]
    other = net.random.choice(fits)
    return net.add("Concat", [x, other], (n, c + net.shapes[other][1], h, w), axis=1)


def pool(net: Net, x: str) -> str:
    n, c, h, w = net.shapes[x]
    if min(h, w) < 2:
        return x
    kind = net.random.choice(["MaxPool", "AveragePool"])
    return net.add(
        kind, [x], (n, c, h // 2, w // 2), kernel_shape=[2, 2], strides=[2, 2]
    )


def gate(net: Net, x: str) -> str:
    """Squeeze and excite, with and without flattening on the way."""
    n, c, h, w = net.shapes[x]
    y = net.add("GlobalAveragePool", [x], (n, c, 1, 1))
    if net.random.random() < 0.5:
        y = net.add("Flatten", [y], (n, c))
        y = net.add("Gemm", [y, net.floats(c, c), net.floats(c)], (n, c), transB=1)
        y = net.add("Reshape", [y, net.ints(n, c, 1, 1)], (n, c, 1, 1))
    else:
        y = net.add("Conv", [y, net.floats(c, c, 1, 1)], (n, c, 1, 1))
    return net.add("Mul", [x, net.add("Sigmoid", [y], (n, c, 1, 1))], (n, c, h, w))


def shuffle(net: Net, x: str) -> str:
    n, c, h, w = net.shapes[x]
    if c % 2:
        return x
    y = net.add("Reshape", [x, net.ints(n, 2, c // 2, h, w)], (n, 2, c // 2, h, w))
    y = net.add("Transpose", [y], (n, c // 2, 2, h, w), perm=[0, 2, 1, 3, 4])
    return net.add("Reshape", [y, net.ints(n, c, h, w)], (n, c, h, w))


def pad(net: Net, x: str) -> str:
    n, c, h, w = net.shapes[x]
    pads = [0, 0, 1, 0, 0, 0, 0, 1]
    shape = (n, c, h + 1, w + 1)
    if net.opset >= 11:
        return net.add("Pad", [x, net.ints(*pads)], shape)
    return net.add("Pad", [x], shape, pads=pads)


def cut(net: Net, x: str) -> str:
    n, c, h, w = net.shapes[x]
    if c < 2:
        return x
    if net.opset < 10:
        return net.add(
            "Slice", [x], (n, c - 1, h, w), starts=[1], ends=[9999], axes=[1]
        )
    return net.add(
        "Slice", [x, net.ints(1), net.ints(9999), net.ints(1)], (n, c - 1, h, w)
    )


def mean(net: Net, x: str) -> str:
    n, _, h, w = net.shapes[x]
    if net.opset >= 18:
        return net.add("ReduceMean", [x, net.ints(1)], (n, 1, h, w), keepdims=1)
    return net.add("ReduceMean", [x], (n, 1, h, w), axes=[1], keepdims=1)


def upsample(net: Net, x: str) -> str:
    n, c, h, w = net.shapes[x]
    if net.opset < 13 or h > 8:
        return x
    inputs = [x, "", net.const(np.array([1, 1, 2, 2], np.float32))]
    nearest = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    mode = net.random.choice(
        [nearest, {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}]
    )
    return net.add("Resize", inputs, (n, c, 2 * h, 2 * w), **mode)


BLOCKS: list[Callable[[Net, str], str]] = [
    conv,
    conv,
    conv,
    conv,
    batch_norm,
    batch_norm,
    activation,
    activation,
    activation,
    scale,
    merge,
    merge,
    join,
    pool,
    gate,
    shuffle,
    pad,
    cut,
    mean,
    upsample,
]


def head(net: Net, x: str) -> str:
    """One of the usual ends of a network."""
    n, c, h, w = net.shapes[x]
    kind = net.random.randrange(4)
    if kind == 0:
        y = net.add("Flatten", [x], (n, c * h * w))
        return net.add("Gemm", [y, net.floats(c * h * w, 5), net.floats(5)], (n, 5))
    if kind == 1:
        y = net.add("Transpose", [x], (n, h, w, c), perm=[0, 2, 3, 1])
        y = net.add("Reshape", [y, net.ints(n, h * w, c)], (n, h * w, c))
        return net.add("Softmax", [y], (n, h * w, c), axis=2)
    if kind == 2:
        y = net.add("Reshape", [x, net.ints(n, c, -1)], (n, c, h * w))
        return net.add("Transpose", [y], (n, h * w, c), perm=[0, 2, 1])
    return net.add("Sigmoid", [x], net.shapes[x])


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 18])
@pytest.mark.parametrize("seed", range(12))
def test_random_models_agree_with_onnxruntime(
    tmp_path: Path, seed: int, opset: int
) -> None:
    net = Net(Random(100 * seed + opset), opset)
    net.shapes["x"] = (net.random.choice([1, 1, 2]), 3, 9, 8)
    for _ in range(net.random.randrange(3, 14)):
        net.random.choice(BLOCKS)(net, net.image())
    outputs = list(
        dict.fromkeys([head(net, net.image()), list(net.shapes)[-1], net.image()])
    )
    path = write(
        tmp_path / "m.onnx",
        net.nodes,
        {"x": net.shapes["x"]},
        outputs,
        net.constants,
        opset,
    )
    disabled = net.random.sample(list(available()), net.random.choice([0, 0, 1, 3]))
    optimized = agree(path, disabled, tolerance=2e-5)
    if disabled:
        return
    body = [op for op in optimized.ops if op.kind == "conv2d"]
    for op in optimized.ops:
        if op.kind == "transpose" and op.inputs[0] in [c.output for c in body]:
            readers = [r for r in body if op.output in r.inputs]
            assert not readers, "a transpose stands between two convolutions"
