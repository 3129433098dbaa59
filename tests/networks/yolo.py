"""YOLO11n and YOLO26n as ultralytics exports them, with random weights.

Depth 0.5 and width 0.25 of https://docs.ultralytics.com/models/yolo11 and yolo26: C3k2
blocks, SPPF, C2PSA with attention; YOLO26 has no distribution over distances and no
suppression of boxes: its best 300 are chosen in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.networks import Net
from tests.networks import layers as nn

STRIDES = (8, 16, 32)
BOXES = 300


def silu(
    net: Net, x: str, out: int, k: int = 1, stride: int = 1, group: int = 1
) -> str:
    return nn.conv(net, x, out, k, stride, group, "silu")


def yolo11n(path: Path, size: int = 640, classes: int = 80) -> Path:
    net = Net("yolo11n", (1, 3, size, size), seed=11)
    levels = _features(net, size, deep=False)
    # 16 bins for each of four distances
    joined = _predictions(net, levels, (64, 64, classes), size)
    total, anchors, strides = _cells(size)
    box, scores = nn.split(net, joined, (64, classes), 1)
    bins = nn.turned(net, nn.shaped(net, box, 1, 4, 16, total), 0, 2, 1, 3)
    bins = nn.kept(net, net.op("Softmax", bins, axis=1), 16)
    expected = net.const(np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1))
    distances = net.op("Conv", bins, expected, kernel_shape=[1, 1], channels=1)
    distances = nn.shaped(net, distances, 1, 4, total)
    boxes = _boxes(net, distances, anchors, strides, corners=False)
    result = net.op("Concat", boxes, net.op("Sigmoid", scores), axis=1)
    return net.save(path, result)


def yolo26n(path: Path, size: int = 640, classes: int = 80) -> Path:
    net = Net("yolo26n", (1, 3, size, size), seed=26)
    levels = _features(net, size, deep=True)
    joined = _predictions(net, levels, (16, 4, classes), size)
    _, anchors, strides = _cells(size)
    distances, scores = nn.split(net, joined, (4, classes), 1)
    boxes = _boxes(net, distances, anchors, strides, corners=True)
    both = net.op("Concat", boxes, net.op("Sigmoid", scores), axis=1)
    return net.save(path, _best(net, nn.turned(net, both, 0, 2, 1), classes))


def _features(net: Net, size: int, deep: bool) -> list[str]:
    """The three levels that the head reads; deep: the blocks of YOLO26."""
    x = silu(net, silu(net, "images", 16, 3, 2), 32, 3, 2)
    x = _c3k2(net, x, 64, 16, deep=False)
    p3 = _c3k2(net, silu(net, x, 64, 3, 2), 128, 32, deep=False)
    p4 = _c3k2(net, silu(net, p3, 128, 3, 2), 128, 64, deep=True)
    x = _c3k2(net, silu(net, p4, 256, 3, 2), 256, 128, deep=True)
    p5 = _c2psa(net, _sppf(net, x, shortcut=deep), size // 32)
    up4 = _c3k2(net, net.concat(nn.upsampled(net, p5), p4), 128, 64, deep)
    n3 = _c3k2(net, net.concat(nn.upsampled(net, up4), p3), 64, 32, deep)
    n4 = _c3k2(net, net.concat(silu(net, n3, 64, 3, 2), up4), 128, 64, deep)
    joined = net.concat(silu(net, n4, 128, 3, 2), p5)
    if not deep:
        return [n3, n4, _c3k2(net, joined, 256, 128, deep=True)]
    return [n3, n4, _c3k2_attention(net, joined, 256, size // 32)]


def _bottleneck(net: Net, x: str, middle: int) -> str:
    y = silu(net, silu(net, x, middle, 3), net.channels[x], 3)
    return net.op("Add", x, y)


def _c3k(net: Net, x: str) -> str:
    """Two bottlenecks beside a short cut, at half the channels."""
    out = net.channels[x]
    y = silu(net, x, out // 2)
    for _ in range(2):
        y = _bottleneck(net, y, out // 2)
    return silu(net, net.concat(y, silu(net, x, out // 2)), out)


def _c3k2(net: Net, x: str, out: int, hidden: int, deep: bool) -> str:
    first, y = net.halves(silu(net, x, 2 * hidden))
    z = _c3k(net, y) if deep else _bottleneck(net, y, hidden // 2)
    return silu(net, net.concat(first, y, z), out)


def _c3k2_attention(net: Net, x: str, out: int, side: int) -> str:
    """The last block of YOLO26: a bottleneck and an attention block."""
    first, y = net.halves(silu(net, x, out))
    z = _psa_block(net, _bottleneck(net, y, out // 4), side)
    return silu(net, net.concat(first, y, z), out)


def _sppf(net: Net, x: str, shortcut: bool) -> str:
    out = net.channels[x]
    parts = [silu(net, x, out // 2)]
    for _ in range(3):
        parts.append(nn.max_pool(net, parts[-1], 5))
    y = silu(net, net.concat(*parts), out)
    return net.op("Add", x, y) if shortcut else y


def _c2psa(net: Net, x: str, side: int) -> str:
    out = net.channels[x]
    first, y = net.halves(silu(net, x, out))
    return silu(net, net.concat(first, _psa_block(net, y, side)), out)


def _psa_block(net: Net, x: str, side: int) -> str:
    """x + attention x, then two convolutions; heads of 64 channels, keys of 32."""
    dim = net.channels[x]
    heads = dim // 64
    tokens = side * side
    qkv = nn.conv(net, x, 2 * dim)
    qkv = nn.shaped(net, qkv, 1, heads, 128, tokens)
    q, k, v = nn.split(net, qkv, (32, 32, 64), 2)
    scores = net.op("MatMul", nn.turned(net, q, 0, 1, 3, 2), k)
    scores = net.op("Mul", scores, nn.scalar(net, 32**-0.5))
    shares = nn.turned(net, net.op("Softmax", scores, axis=-1), 0, 1, 3, 2)
    y = nn.shaped(net, net.op("MatMul", v, shares), 1, dim, side, side)
    near = nn.shaped(net, v, 1, dim, side, side)
    place = nn.depthwise(net, nn.kept(net, near, dim))
    y = nn.kept(net, net.op("Add", y, place), dim)
    x = net.op("Add", x, nn.conv(net, y, dim))
    y = nn.conv(net, silu(net, x, 2 * dim), dim)
    return net.op("Add", x, y)


def _class_scores(net: Net, x: str, classes: int) -> str:
    for _ in range(2):
        x = nn.depthwise(net, x, 3, name="silu")
        x = silu(net, x, max(64, min(classes, 100)))
    return nn.conv(net, x, classes)


def _predictions(
    net: Net, levels: Sequence[str], channels: tuple[int, int, int], size: int
) -> str:
    """Boxes and scores of all levels [1, boxes + classes, cells]; channels: of the box
    branch inside, of boxes, of classes.
    """
    hidden, boxes, classes = channels
    flat = []
    for level, stride in zip(levels, STRIDES, strict=True):
        box = silu(net, silu(net, level, hidden, 3), hidden, 3)
        scores = _class_scores(net, level, classes)
        both = net.concat(nn.conv(net, box, boxes), scores)
        flat.append(nn.shaped(net, both, 1, boxes + classes, (size // stride) ** 2))
    return net.op("Concat", *flat, axis=2)


def _cells(size: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Their number, centres [2, cells] and strides [cells]."""
    centres = []
    strides = []
    for stride in STRIDES:
        side = size // stride
        y, x = np.divmod(np.arange(side * side), side)
        centres.append(np.stack([x + 0.5, y + 0.5]))
        strides.append(np.full(side * side, stride))
    joined = np.concatenate(strides).astype(np.float32)
    return len(joined), np.concatenate(centres, 1).astype(np.float32), joined


def _boxes(
    net: Net, distances: str, anchors: np.ndarray, strides: np.ndarray, corners: bool
) -> str:
    """Corners, or middles and sizes, from the distances to the four sides."""
    low, high = nn.split(net, distances, (2, 2), 1)
    at = net.const(anchors[None])
    low = net.op("Sub", at, low)
    high = net.op("Add", at, high)
    if corners:
        boxes = net.op("Concat", low, high, axis=1)
    else:
        middle = net.op("Div", net.op("Add", low, high), nn.scalar(net, 2))
        boxes = net.op("Concat", middle, net.op("Sub", high, low), axis=1)
    return net.op("Mul", boxes, net.const(strides[None]))


def _best(net: Net, rows: str, classes: int) -> str:
    """The best boxes of [1, cells, 4 + classes]: corners, score and class."""
    boxes, scores = nn.split(net, rows, (4, classes), 2)
    best = net.op("ReduceMax", scores, axes=[-1], keepdims=0)
    count = nn.ints(net, BOXES)
    first = net.op("TopK", best, count, axis=-1, outputs=2)
    cells = net.op("Unsqueeze", f"{first[:-1]}1", nn.ints(net, -1))
    wide = net.op("Expand", cells, nn.ints(net, 1, BOXES, 4))
    boxes = net.op("GatherElements", boxes, wide, axis=1)
    wide = net.op("Expand", cells, nn.ints(net, 1, BOXES, classes))
    scores = nn.shaped(net, net.op("GatherElements", scores, wide, axis=1), 1, -1)
    first = net.op("TopK", scores, count, axis=-1, outputs=2)
    place = f"{first[:-1]}1"
    number = net.op("Mod", place, net.const(np.int64(classes)))
    row = net.op("Div", place, net.const(np.int64(classes)))
    wide = net.op("Unsqueeze", row, nn.ints(net, -1))
    wide = net.op("Expand", wide, nn.ints(net, 1, BOXES, 4))
    boxes = net.op("GatherElements", boxes, wide, axis=1)
    score = net.op("Unsqueeze", first, nn.ints(net, -1))
    kind = net.op("Cast", net.op("Unsqueeze", number, nn.ints(net, -1)), to=1)
    return net.op("Concat", boxes, score, kind, axis=-1)
