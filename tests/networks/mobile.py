"""Convolutional networks for phones of 2023 to 2025, with random weights:
MobileNetV4-Conv-S (arXiv 2404.10518), FastViT-T8 (2303.14189), RepViT-M0.9
(2307.09283), ConvNeXtV2-atto (2301.00808), PP-LiteSeg-T (2204.02681).

Branches that inference folds into one convolution are folded.
"""

from __future__ import annotations

from pathlib import Path

from tests.networks import Net
from tests.networks import layers as nn


def mobilenet_v4_s(path: Path, size: int = 224) -> Path:
    net = Net("mobilenet_v4_s", (1, 3, size, size), seed=4)
    x = nn.conv(net, "images", 32, 3, 2, name="relu")
    for k, stride, out in ((3, 2, 32), (1, 1, 32), (3, 2, 96), (1, 1, 64)):
        x = nn.conv(net, x, out, k, stride, name="relu")
    # channels, kernel of the first depthwise, of the middle one, stride, expansion
    blocks = [
        (96, 5, 5, 2, 3),
        *[(96, 0, 3, 1, 2)] * 4,
        (96, 3, 0, 1, 4),
        (128, 3, 3, 2, 6),
        (128, 5, 5, 1, 4),
        (128, 0, 5, 1, 4),
        (128, 0, 5, 1, 3),
        (128, 0, 3, 1, 4),
        (128, 0, 3, 1, 4),
    ]
    for out, first, middle, stride, times in blocks:
        x = _universal(net, x, out, (first, middle), stride, times)
    x = nn.conv(net, x, 960, name="relu")
    x = nn.conv(net, net.op("GlobalAveragePool", x), 1280, name="relu")
    flat = net.op("Flatten", x, axis=1)
    return net.save(path, nn.gemm(net, flat, 1280, 1000))


def _universal(
    net: Net, x: str, out: int, kernels: tuple[int, int], stride: int, times: int
) -> str:
    """The universal inverted bottleneck: two depthwise convolutions that may be left
    out (kernel 0).
    """
    first, middle = kernels
    y = x
    if first:
        y = nn.depthwise(net, y, first, 1 if middle else stride)
    y = nn.conv(net, y, net.channels[x] * times, name="relu")
    if middle:
        y = nn.depthwise(net, y, middle, stride, "relu")
    y = nn.conv(net, y, out)
    same = stride == 1 and net.channels[x] == out
    return net.op("Add", x, y) if same else y


def fastvit_t8(path: Path, size: int = 256) -> Path:
    net = Net("fastvit_t8", (1, 3, size, size), seed=8)
    x = nn.conv(net, "images", 48, 3, 2, name="gelu")
    x = nn.depthwise(net, x, 3, 2, "gelu")
    x = nn.conv(net, x, 48, name="gelu")
    for stage, (dim, depth) in enumerate(((48, 2), (96, 2), (192, 4), (384, 2))):
        if stage:
            # A large kernel of groups, and 1 x 1.
            x = nn.conv(net, x, dim, 7, 2, group=net.channels[x])
            x = nn.conv(net, x, dim, name="gelu")
        for _ in range(depth):
            x = nn.depthwise(net, x, 3)
            y = nn.depthwise(net, x, 7)
            y = nn.conv(net, nn.conv(net, y, 3 * dim, name="gelu"), dim)
            x = net.op("Add", x, y)
    x = nn.conv(net, x, 768, 3, group=384)
    x = nn.gelu(net, nn.squeeze_excite(net, x, 16))
    return net.save(path, nn.classifier(net, x))


def repvit_m0_9(path: Path, size: int = 224) -> Path:
    net = Net("repvit_m0_9", (1, 3, size, size), seed=9)
    x = nn.conv(net, "images", 24, 3, 2, name="gelu")
    x = nn.conv(net, x, 48, 3, 2)
    for stage, (dim, depth) in enumerate(((48, 3), (96, 4), (192, 16), (384, 3))):
        if stage:
            x = nn.depthwise(net, x, 3, 2)
            x = nn.conv(net, x, dim)
            x = _two_convolutions(net, x)
        for i in range(depth):
            y = nn.depthwise(net, x, 3)
            if i % 2 == 0:
                y = nn.squeeze_excite(net, y, 4)
            x = _two_convolutions(net, y)
    return net.save(path, nn.classifier(net, x))


def _two_convolutions(net: Net, x: str) -> str:
    """x + a mixer of channels, twice as wide in the middle."""
    dim = net.channels[x]
    y = nn.conv(net, nn.conv(net, x, 2 * dim, name="gelu"), dim)
    return net.op("Add", x, y)


def convnext_v2_atto(path: Path, size: int = 224) -> Path:
    net = Net("convnext_v2_atto", (1, 3, size, size), seed=2)
    x = nn.patches(net, "images", 40, 4)
    x = _norm_of_channels(net, x)
    for stage, (dim, depth) in enumerate(((40, 2), (80, 2), (160, 6), (320, 2))):
        if stage:
            x = nn.patches(net, _norm_of_channels(net, x), dim, 2)
        for _ in range(depth):
            y = nn.turned(net, nn.depthwise(net, x, 7), 0, 2, 3, 1)
            y = nn.layer_norm(net, y, dim)
            y = nn.gelu(net, nn.linear(net, y, dim, 4 * dim))
            y = _response_norm(net, y, 4 * dim)
            y = nn.turned(net, nn.linear(net, y, 4 * dim, dim), 0, 3, 1, 2)
            x = nn.kept(net, net.op("Add", x, y), dim)
    flat = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    return net.save(path, nn.gemm(net, nn.layer_norm(net, flat, 320), 320, 1000))


def _norm_of_channels(net: Net, x: str) -> str:
    dim = net.channels[x]
    y = nn.layer_norm(net, nn.turned(net, x, 0, 2, 3, 1), dim)
    return nn.kept(net, nn.turned(net, y, 0, 3, 1, 2), dim)


def _response_norm(net: Net, x: str, dim: int) -> str:
    """Global response normalisation (ConvNeXt V2, equation 1 to 3): x + gamma x n +
    beta, n the norm of each channel by the mean of all channels' norms.
    """
    norms = net.op("ReduceL2", x, axes=[1, 2], keepdims=1)
    mean = net.op("ReduceMean", norms, axes=[-1], keepdims=1)
    shares = net.op("Div", norms, net.op("Add", mean, nn.scalar(net, 1e-6)))
    y = net.op("Mul", nn.vector(net, dim), net.op("Mul", x, shares))
    y = net.op("Add", y, nn.vector(net, dim))
    return net.op("Add", x, y)


def pp_liteseg(path: Path, size: int = 512, classes: int = 19) -> Path:
    """STDC1 as its encoder, a pyramid of pooled contexts, and attention by places."""
    net = Net("pp_liteseg", (1, 3, size, size), seed=5)
    x = nn.conv(
        net, nn.conv(net, "images", 32, 3, 2, name="relu"), 64, 3, 2, name="relu"
    )
    levels = []
    for dim in (256, 512, 1024):
        x = _stdc(net, x, dim, 2)
        x = _stdc(net, x, dim, 1)
        levels.append(x)
    y = _pooled_context(net, levels[2], size // 32)
    y = nn.conv(net, y, 128, 3, name="relu")
    for level, out in ((levels[1], 96), (levels[0], 64)):
        y = _fused(net, nn.conv(net, level, net.channels[y], 3, name="relu"), y, out)
    y = nn.conv(net, nn.conv(net, y, 32, 3, name="relu"), classes)
    return net.save(path, nn.upsampled(net, y, 8, "linear"))


def _stdc(net: Net, x: str, out: int, stride: int) -> str:
    """Short-term dense concatenation: halves, quarters, eighths of the channels."""
    first = nn.conv(net, x, out // 2, name="relu")
    parts = [first]
    if stride == 2:
        parts[0] = net.op(
            "AveragePool",
            first,
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 1, 1, 1],
            count_include_pad=1,
        )
        first = nn.depthwise(net, first, 3, 2)
    y = first
    for share in (4, 8, 8):
        y = nn.conv(net, y, out // share, 3, name="relu")
        parts.append(y)
    return net.concat(*parts)


def _pooled_context(net: Net, x: str, side: int) -> str:
    """The sum of three pooled pictures (1, 2 and 4 cells on a side)."""
    whole = ""
    for cells in (1, 2, 4):
        k = side // cells
        y = net.op("AveragePool", x, kernel_shape=[k, k], strides=[k, k])
        y = nn.upsampled(net, nn.conv(net, y, 128, name="relu"), k, "linear")
        whole = net.op("Add", whole, y) if whole else y
    return nn.conv(net, whole, 128, 3, name="relu")


def _fused(net: Net, low: str, high: str, out: int) -> str:
    """Spatial attention: the share of each level at a place, from means and maxima."""
    high = nn.upsampled(net, high, 2, "linear")
    facts = []
    for x in (low, high):
        for kind in ("ReduceMean", "ReduceMax"):
            facts.append(net.op(kind, x, axes=[1], keepdims=1, channels=1))
    y = nn.conv(net, net.concat(*facts), 2, 3, name="relu")
    share = nn.conv(net, y, 1, 3, name="sigmoid")
    rest = net.op("Sub", nn.scalar(net, 1), share)
    both = net.op("Add", net.op("Mul", low, share), net.op("Mul", high, rest))
    return nn.conv(net, nn.kept(net, both, net.channels[low]), out, 3, name="relu")
