"""Networks with attention, with random weights: ViT-Tiny (arXiv 2010.11929, 2012.12877),
a small Swin (2103.14030), EfficientViT-B0 (2205.14756), EfficientFormerV2-S0
(2212.08059), a Conformer for keywords (2005.08100).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.networks import Net
from tests.networks import layers as nn


def vit_tiny(path: Path, size: int = 224) -> Path:
    net = Net("vit_tiny", (1, 3, size, size), seed=16)
    side = size // 16
    x = nn.patches(net, "images", 192, 16)
    x = nn.turned(net, nn.shaped(net, x, 1, 192, side * side), 0, 2, 1)
    token = net.const(net.rng.normal(0, 1, (1, 1, 192)).astype(np.float32))
    x = net.op("Concat", token, x, axis=1)
    tokens = side * side + 1
    places = net.rng.normal(0, 0.5, (1, tokens, 192)).astype(np.float32)
    x = nn.kept(net, net.op("Add", x, net.const(places)), 192)
    for _ in range(12):
        x = nn.transformer_block(net, x, (1, tokens), 3)
    x = nn.take(net, nn.layer_norm(net, x, 192), 0, axis=1)
    return net.save(path, nn.gemm(net, x, 192, 1000))


WINDOW = 7


def swin_nano(path: Path, size: int = 224) -> Path:
    """Embedding 48, depths 2, 2, 6, 2; every second block has shifted windows."""
    net = Net("swin_nano", (1, 3, size, size), seed=7)
    side = size // 4
    x = nn.turned(net, nn.patches(net, "images", 48, 4), 0, 2, 3, 1)
    x = nn.kept(net, nn.layer_norm(net, x, 48), 48)
    for stage, (depth, heads) in enumerate(((2, 3), (2, 6), (6, 12), (2, 24))):
        if stage:
            x = _merged(net, x, side)
            side //= 2
        for i in range(depth):
            shift = WINDOW // 2 if i % 2 and side > WINDOW else 0
            x = _swin_block(net, x, side, heads, shift)
    dim = net.channels[x]
    x = net.op("ReduceMean", nn.layer_norm(net, x, dim), axes=[1, 2], keepdims=0)
    return net.save(path, nn.gemm(net, x, dim, 1000))


def _swin_block(net: Net, x: str, side: int, heads: int, shift: int) -> str:
    dim = net.channels[x]
    y = nn.layer_norm(net, x, dim)
    for axis in (1, 2) if shift else ():
        y = nn.rolled(net, y, shift, side, axis)
    count = side // WINDOW
    tokens = WINDOW * WINDOW
    y = nn.shaped(net, y, 1, count, WINDOW, count, WINDOW, dim)
    y = nn.shaped(net, nn.turned(net, y, 0, 1, 3, 2, 4, 5), -1, tokens, dim)
    windows = count * count
    bias: Any = net.rng.normal(0, 0.2, (1, heads, tokens, tokens))
    if shift:
        bias = bias + _mask(side, shift)[:, None]
    places = net.const(bias.astype(np.float32))
    y = nn.self_attention(net, nn.kept(net, y, dim), (windows, tokens), heads, places)
    y = nn.shaped(net, y, 1, count, count, WINDOW, WINDOW, dim)
    y = nn.shaped(net, nn.turned(net, y, 0, 1, 3, 2, 4, 5), 1, side, side, dim)
    for axis in (1, 2) if shift else ():
        y = nn.rolled(net, y, side - shift, side, axis)
    x = nn.kept(net, net.op("Add", x, y), dim)
    y = nn.kept(net, nn.layer_norm(net, x, dim), dim)
    return net.op("Add", x, nn.mlp(net, y, 4))


def _mask(side: int, shift: int) -> np.ndarray:
    """[windows, tokens, tokens]: -100 between places that are no neighbours."""
    regions = np.zeros((side, side))
    cuts = (slice(0, -WINDOW), slice(-WINDOW, -shift), slice(-shift, None))
    for i, above in enumerate(cuts):
        for j, beside in enumerate(cuts):
            regions[above, beside] = 3 * i + j
    count = side // WINDOW
    cells = regions.reshape(count, WINDOW, count, WINDOW).transpose(0, 2, 1, 3)
    rows = cells.reshape(-1, WINDOW * WINDOW)
    return np.where(rows[:, None] != rows[:, :, None], -100.0, 0.0)


def _merged(net: Net, x: str, side: int) -> str:
    """Four neighbours become one of twice the channels."""
    dim = net.channels[x]
    half = side // 2
    y = nn.shaped(net, x, 1, half, 2, half, 2, dim)
    y = nn.shaped(net, nn.turned(net, y, 0, 1, 3, 4, 2, 5), 1, half, half, 4 * dim)
    y = nn.layer_norm(net, y, 4 * dim)
    return nn.kept(net, nn.linear(net, y, 4 * dim, 2 * dim, bias=False), 2 * dim)


def efficientvit_b0(path: Path, size: int = 224) -> Path:
    net = Net("efficientvit_b0", (1, 3, size, size), seed=10)
    x = nn.conv(net, "images", 8, 3, 2, name="hswish")
    y = nn.conv(net, nn.depthwise(net, x, 3, name="hswish"), 8)
    x = net.op("Add", x, y)
    side = size // 2
    for stage, dim in enumerate((16, 32, 64, 128)):
        side //= 2
        if stage < 2:
            x = _inverted(net, x, dim, 2)
            x = net.op("Add", x, _inverted(net, x, dim, 1))
            continue
        x = _inverted(net, x, dim, 2)
        for _ in range(2):
            x = net.op("Add", x, _linear_attention(net, x, side))
            x = net.op("Add", x, _inverted(net, x, dim, 1))
    x = net.op("GlobalAveragePool", nn.conv(net, x, 1024, name="hswish"))
    x = nn.gemm(net, net.op("Flatten", x, axis=1), 1024, 1280)
    x = net.op("HardSwish", nn.layer_norm(net, x, 1280))
    return net.save(path, nn.gemm(net, x, 1280, 1000))


def _inverted(net: Net, x: str, out: int, stride: int) -> str:
    y = nn.conv(net, x, 4 * net.channels[x], name="hswish")
    return nn.conv(net, nn.depthwise(net, y, 3, stride, "hswish"), out)


def _linear_attention(net: Net, x: str, side: int) -> str:
    """relu(q) (relu(k)^T v) / relu(q) (relu(k)^T 1), of two scales; heads of 16."""
    dim = net.channels[x]
    heads = dim // 16
    qkv = nn.conv(net, x, 3 * dim)
    far = nn.conv(net, nn.depthwise(net, qkv, 5), 3 * dim, group=3 * heads)
    both = nn.shaped(net, net.concat(qkv, far), 1, 2 * heads, 48, side * side)
    q, k, v = nn.split(net, both, (16, 16, 16), 2)
    q = net.op("Relu", q)
    k = nn.turned(net, net.op("Relu", k), 0, 1, 3, 2)
    pads = nn.ints(net, 0, 0, 0, 0, 0, 0, 1, 0)
    v = net.op("Pad", v, pads, nn.scalar(net, 1), mode="constant")
    y = net.op("MatMul", net.op("MatMul", v, k), q)
    sums = nn.part(net, y, 16, 17, 2)
    y = nn.part(net, y, 0, 16, 2)
    y = net.op("Div", y, net.op("Add", sums, nn.scalar(net, 1e-6)))
    y = nn.kept(net, nn.shaped(net, y, 1, 2 * dim, side, side), 2 * dim)
    return nn.conv(net, y, dim)


def efficientformer_v2_s0(path: Path, size: int = 224) -> Path:
    net = Net("efficientformer_v2_s0", (1, 3, size, size), seed=12)
    x = nn.conv(
        net, nn.conv(net, "images", 16, 3, 2, name="gelu"), 32, 3, 2, name="gelu"
    )
    side = size // 4
    for stage, (dim, depth) in enumerate(((32, 2), (48, 2), (96, 6), (176, 4))):
        if stage:
            side //= 2
            x = nn.conv(net, x, dim, 3, 2)
        for i in range(depth):
            if stage >= 2 and i >= depth - 2:
                x = net.op("Add", x, _talking_attention(net, x, side, stage == 2))
            x = net.op("Add", x, _feed_forward(net, x))
    flat = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    return net.save(path, nn.gemm(net, flat, 176, 1000))


def _feed_forward(net: Net, x: str) -> str:
    dim = net.channels[x]
    y = nn.conv(net, x, 4 * dim, name="gelu")
    return nn.branch(net, nn.depthwise(net, y, 3, name="gelu"), dim)


def _talking_attention(net: Net, x: str, side: int, strided: bool) -> str:
    """Eight heads, keys of 32 and values of 128 channels, which talk before and after
    the softmax; strided: at half the side, and back.
    """
    dim = net.channels[x]
    heads = 8
    y = x
    if strided:
        y = nn.conv(net, nn.depthwise(net, x, 3, 2), dim)
        side //= 2
    tokens = side * side
    q, k = (nn.conv(net, y, 32 * heads) for _ in range(2))
    v = nn.conv(net, y, 128 * heads)
    near = nn.depthwise(net, v, 3)
    q = nn.turned(net, nn.shaped(net, q, 1, heads, 32, tokens), 0, 1, 3, 2)
    k = nn.shaped(net, k, 1, heads, 32, tokens)
    v = nn.turned(net, nn.shaped(net, v, 1, heads, 128, tokens), 0, 1, 3, 2)
    scores = net.op("Mul", net.op("MatMul", q, k), nn.scalar(net, 32**-0.5))
    bias = net.rng.normal(0, 0.2, (1, heads, tokens, tokens)).astype(np.float32)
    scores = nn.kept(net, net.op("Add", scores, net.const(bias)), heads)
    shares = net.op("Softmax", nn.conv(net, scores, heads), axis=-1)
    shares = nn.conv(net, nn.kept(net, shares, heads), heads)
    y = nn.turned(net, net.op("MatMul", shares, v), 0, 1, 3, 2)
    y = nn.shaped(net, y, 1, 128 * heads, side, side)
    y = nn.kept(net, net.op("Add", y, near), 128 * heads)
    if strided:
        y = nn.upsampled(net, y, 2, "linear")
    return nn.branch(net, nn.gelu(net, y), dim)


def conformer(path: Path, frames: int = 100, mel: int = 80) -> Path:
    """Four blocks of 144 channels and four heads, for 35 keywords."""
    net = Net("conformer", (1, 1, frames, mel), seed=20)
    x = nn.conv(
        net, nn.conv(net, "images", 32, 3, 2, name="relu"), 32, 3, 2, name="relu"
    )
    steps = frames // 4
    wide = 32 * mel // 4
    x = nn.shaped(net, nn.turned(net, x, 0, 2, 1, 3), 1, steps, wide)
    x = nn.kept(net, nn.linear(net, x, wide, 144), 144)
    for _ in range(4):
        x = net.op("Add", x, _half_feed_forward(net, x))
        y = nn.kept(net, nn.layer_norm(net, x, 144), 144)
        x = net.op("Add", x, nn.self_attention(net, y, (1, steps), 4))
        x = net.op("Add", x, _convolution_module(net, x))
        x = net.op("Add", x, _half_feed_forward(net, x))
        x = nn.kept(net, nn.layer_norm(net, x, 144), 144)
    mean = net.op("ReduceMean", x, axes=[1], keepdims=0)
    return net.save(path, nn.gemm(net, mean, 144, 35))


def _half_feed_forward(net: Net, x: str) -> str:
    y = nn.kept(net, nn.layer_norm(net, x, 144), 144)
    return net.op("Mul", nn.mlp(net, y, 4, "silu"), nn.scalar(net, 0.5))


def _convolution_module(net: Net, x: str) -> str:
    """A gated linear unit, a depthwise convolution over time of 31 steps, SiLU."""
    y = nn.turned(net, nn.layer_norm(net, x, 144), 0, 2, 1)
    value, gate = nn.split(net, _conv1d(net, y, 144, 288, 1), (144, 144), 1)
    y = net.op("Mul", value, net.op("Sigmoid", gate))
    y = nn.act(net, _conv1d(net, y, 144, 144, 31, 144), "silu")
    return nn.turned(net, _conv1d(net, y, 144, 144, 1), 0, 2, 1)


def _conv1d(net: Net, x: str, inputs: int, out: int, k: int, group: int = 1) -> str:
    fan_in = inputs // group * k
    return net.op(
        "Conv",
        x,
        nn.weights(net, out, inputs // group, k, fan_in=fan_in),
        nn.vector(net, out),
        channels=out,
        kernel_shape=[k],
        pads=[k // 2] * 2,
        group=group,
    )
