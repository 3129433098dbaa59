"""Layers of the networks of 2025 and 2026, each as torch exports it to ONNX opset 17:
GELU by Erf, LayerNormalization as one operator, a linear layer as MatMul and Add, a
rolled tensor as two slices and a concatenation.

Weights are random, scaled so that activations keep their size from layer to layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.networks import Net


def weights(net: Net, *shape: int, fan_in: int) -> str:
    """Normal values whose products with fan_in values keep their scale."""
    values = net.rng.normal(0, 1 / math.sqrt(fan_in), shape)
    return net.const(values.astype(np.float32))


def vector(net: Net, size: int, mean: float = 0.0) -> str:
    """A bias or a scale."""
    return net.const(net.rng.normal(mean, 0.05, size).astype(np.float32))


def scalar(net: Net, value: float) -> str:
    """A constant of no dimensions."""
    return net.const(np.float32(value))


def ints(net: Net, *values: int) -> str:
    """A shape, axes, or sizes."""
    return net.const(np.array(values, np.int64))


def gelu(net: Net, x: str) -> str:
    """x * (1 + erf(x / sqrt 2)) / 2."""
    e = net.op("Erf", net.op("Div", x, scalar(net, math.sqrt(2))))
    y = net.op("Mul", x, net.op("Add", e, scalar(net, 1)))
    return net.op("Mul", y, scalar(net, 0.5))


def act(net: Net, x: str, name: str | None) -> str:
    """Also gelu, hswish and sigmoid beside what Net.activation has."""
    if name == "gelu":
        return gelu(net, x)
    if name == "hswish":
        return net.op("HardSwish", x)
    if name == "sigmoid":
        return net.op("Sigmoid", x)
    return net.activation(x, name)


def conv(
    net: Net,
    x: str,
    out: int,
    k: int = 1,
    stride: int = 1,
    group: int = 1,
    name: str | None = None,
) -> str:
    """A convolution with its normalisation folded, and an activation.

    An activation halves the power of what it is given, which the weights before it make
    up for: so sums of many residuals stay far below the largest float16.
    """
    inputs = net.channels[x] // group
    fan_in = inputs * k * k // (1 if name is None else 2)
    y = net.op(
        "Conv",
        x,
        weights(net, out, inputs, k, k, fan_in=max(1, fan_in)),
        vector(net, out),
        channels=out,
        kernel_shape=[k, k],
        strides=[stride, stride],
        pads=[k // 2] * 4,
        group=group,
        dilations=[1, 1],
    )
    return act(net, y, name)


def branch(net: Net, x: str, out: int) -> str:
    """The last convolution of a residual branch, with a layer scale of 0.3: sums of many
    branches keep their size.
    """
    y = conv(net, x, out)
    return net.op("Mul", y, net.const(np.full((1, out, 1, 1), 0.3, np.float32)))


def patches(net: Net, x: str, out: int, side: int) -> str:
    """A convolution whose windows do not overlap."""
    inputs = net.channels[x]
    return net.op(
        "Conv",
        x,
        weights(net, out, inputs, side, side, fan_in=inputs * side * side),
        vector(net, out),
        channels=out,
        kernel_shape=[side, side],
        strides=[side, side],
        pads=[0, 0, 0, 0],
    )


def depthwise(
    net: Net, x: str, k: int = 3, stride: int = 1, name: str | None = None
) -> str:
    return conv(net, x, net.channels[x], k, stride, net.channels[x], name)


def linear(net: Net, x: str, inputs: int, outputs: int, bias: bool = True) -> str:
    """Of the last axis."""
    y = net.op("MatMul", x, weights(net, inputs, outputs, fan_in=inputs))
    return net.op("Add", vector(net, outputs), y) if bias else y


def layer_norm(net: Net, x: str, size: int) -> str:
    return net.op(
        "LayerNormalization",
        x,
        vector(net, size, 1.0),
        vector(net, size),
        axis=-1,
        epsilon=1e-5,
    )


def shaped(net: Net, x: str, *shape: int) -> str:
    return net.op("Reshape", x, ints(net, *shape))


def turned(net: Net, x: str, *perm: int) -> str:
    return net.op("Transpose", x, perm=list(perm))


def split(net: Net, x: str, sizes: Sequence[int], axis: int) -> list[str]:
    """The parts of an axis; of axis 1 their sizes are their channels."""
    first = net.op(
        "Split", x, ints(net, *sizes), axis=axis, outputs=len(sizes), channels=0
    )
    names = [f"{first[:-1]}{i}" for i in range(len(sizes))]
    for name, size in zip(names, sizes, strict=True):
        net.channels[name] = size if axis == 1 else net.channels[x]
    return names


def take(net: Net, x: str, index: int, axis: int = 0) -> str:
    """One element of an axis, which goes."""
    return net.op("Gather", x, net.const(np.int64(index)), axis=axis)


def part(net: Net, x: str, start: int, end: int, axis: int) -> str:
    return net.op(
        "Slice", x, ints(net, start), ints(net, end), ints(net, axis), ints(net, 1)
    )


def rolled(net: Net, x: str, by: int, size: int, axis: int) -> str:
    """As torch.roll by -by."""
    head = part(net, x, by, size, axis)
    tail = part(net, x, 0, by, axis)
    return net.op("Concat", head, tail, axis=axis)


def attention(
    net: Net, q: str, k: str, v: str, width: int, bias: str | None = None
) -> str:
    """softmax(q k^T / sqrt width + bias) v, of [..., heads, tokens, width]; k is
    [..., heads, width, tokens].
    """
    q = net.op("Mul", q, scalar(net, 1 / math.sqrt(width)))
    scores = net.op("MatMul", q, k)
    if bias is not None:
        scores = net.op("Add", scores, bias)
    return net.op("MatMul", net.op("Softmax", scores, axis=-1), v)


def self_attention(
    net: Net, x: str, shape: tuple[int, int], heads: int, bias: str | None = None
) -> str:
    """Of tokens [batch, tokens, dim], as timm writes it; shape: batch and tokens."""
    batch, tokens = shape
    dim = net.channels[x]
    width = dim // heads
    qkv = shaped(net, linear(net, x, dim, 3 * dim), batch, tokens, 3, heads, width)
    qkv = turned(net, qkv, 2, 0, 3, 1, 4)
    q, k, v = (take(net, qkv, i) for i in range(3))
    y = attention(net, q, turned(net, k, 0, 1, 3, 2), v, width, bias)
    y = shaped(net, turned(net, y, 0, 2, 1, 3), batch, tokens, dim)
    net.channels[y] = dim
    return kept(net, linear(net, y, dim, dim), dim)


def kept(net: Net, x: str, channels: int) -> str:
    """The same value, whose channels are these."""
    net.channels[x] = channels
    return x


def mlp(net: Net, x: str, times: int, name: str = "gelu") -> str:
    """Two linear layers."""
    dim = net.channels[x]
    y = act(net, linear(net, x, dim, times * dim), name)
    return kept(net, linear(net, y, times * dim, dim), dim)


def transformer_block(net: Net, x: str, shape: tuple[int, int], heads: int) -> str:
    """Pre-norm: x + attention(norm x), then x + mlp(norm x)."""
    dim = net.channels[x]
    y = kept(net, layer_norm(net, x, dim), dim)
    x = net.op("Add", x, self_attention(net, y, shape, heads))
    y = kept(net, layer_norm(net, x, dim), dim)
    return net.op("Add", x, mlp(net, y, 4))


def squeeze_excite(net: Net, x: str, part_of: int, name: str = "relu") -> str:
    """x * sigmoid(conv(act(conv(mean x))))."""
    channels = net.channels[x]
    y = net.op("ReduceMean", x, axes=[2, 3], keepdims=1)
    y = conv(net, y, channels // part_of, name=name)
    y = conv(net, y, channels, name="sigmoid")
    return net.op("Mul", x, y)


def upsampled(net: Net, x: str, by: int = 2, mode: str = "nearest") -> str:
    scales = net.const(np.array([1, 1, by, by], np.float32))
    how: dict[str, Any] = {
        "mode": "nearest",
        "nearest_mode": "floor",
        "coordinate_transformation_mode": "asymmetric",
    }
    if mode == "linear":
        how = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    return net.op("Resize", x, "", scales, **how)


def max_pool(net: Net, x: str, k: int) -> str:
    return net.op("MaxPool", x, kernel_shape=[k, k], strides=[1, 1], pads=[k // 2] * 4)


def classifier(net: Net, x: str, classes: int = 1000) -> str:
    """Of an image: the mean of its pixels, and a linear layer."""
    flat = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    return gemm(net, flat, net.channels[x], classes)


def gemm(net: Net, x: str, inputs: int, outputs: int) -> str:
    """A linear layer of a matrix."""
    return net.op(
        "Gemm",
        x,
        weights(net, outputs, inputs, fan_in=inputs),
        vector(net, outputs),
        transB=1,
    )
