"""Makes ONNX files of detectors whose times with TensorFlow Lite are published, from their
published structure, with random weights.

EfficientDet-Lite: Tan, Pang and Le (2020), and google/automl (efficientdet/hparams_config.py,
backbone/efficientnet_lite_builder.py, tf2/efficientdet_keras.py): no squeeze and excitation,
ReLU6, features added without weights.  SSDLite: Sandler et al. (2018), and the object
detection API's zoo.  Outputs are the boxes and the scores of all anchors, [1, anchors, 4]
and [1, anchors, classes], before boxes are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from tests.networks import Net
from tests.networks.layers import shaped, turned, vector, weights
from tests.networks.stages import EFFICIENTDET_LITE, MOBILENET_V2, Lite, Stage

CLASSES = 90
ANCHORS = 9
LEVELS = 5


def _conv(
    net: Net, x: str, out: int, k: int = 1, stride: int = 1, act: str | None = None
) -> str:
    """A convolution, padded as TensorFlow's SAME is."""
    return _filtered(net, x, (out, net.channels[x], k, k), stride, act)


def _depthwise(
    net: Net, x: str, k: int = 3, stride: int = 1, act: str | None = None
) -> str:
    return _filtered(net, x, (net.channels[x], 1, k, k), stride, act)


def _filtered(
    net: Net, x: str, shape: tuple[int, int, int, int], stride: int, act: str | None
) -> str:
    out, inputs, k, _ = shape
    fan_in = inputs * k * k
    w, bias = weights(net, *shape, fan_in=fan_in), vector(net, out)
    group = net.channels[x] // inputs
    return net.activation(_conv_of(net, x, (w, bias), (k, stride, group, out)), act)


def _conv_of(
    net: Net, x: str, w: tuple[str, ...], numbers: tuple[int, int, int, int]
) -> str:
    """A convolution with these weights, and a bias if there is one.

    numbers: kernel, stride, groups and channels
    """
    k, stride, group, out = numbers
    return net.op(
        "Conv",
        x,
        *w,
        channels=out,
        kernel_shape=[k, k],
        strides=[stride, stride],
        auto_pad="SAME_UPPER",
        group=group,
    )


def _spatial(net: Net, x: str, w: str) -> str:
    """The first half of a separable convolution, which has no bias."""
    channels = net.channels[x]
    return _conv_of(net, x, (w,), (3, 1, channels, channels))


def _backbone(net: Net, stages: Sequence[Stage], act: str) -> list[str]:
    """The values at the end of each stage, after a first convolution of 32 channels."""
    x = _conv(net, "images", 32, 3, 2, act)
    ends = []
    for expand, out, times, stride, k in stages:
        for i in range(times):
            x = _inverted(net, x, (expand, out, stride if i == 0 else 1, k))
        ends.append(x)
    return ends


def _inverted(net: Net, x: str, block: tuple[int, int, int, int]) -> str:
    expand, out, stride, k = block
    y = x if expand == 1 else _conv(net, x, net.channels[x] * expand, act="relu6")
    y = _conv(net, _depthwise(net, y, k, stride, "relu6"), out)
    return net.op("Add", x, y) if stride == 1 and net.channels[x] == out else y


def efficientdet(path: Path, lite: Lite) -> Path:
    """Write an EfficientDet-Lite."""
    net = Net(path.stem, (1, 3, lite.size, lite.size))
    ends = _backbone(net, lite.stages(), "relu6")
    features = [ends[2], ends[4], ends[6]]
    features.append(_halved(net, _conv(net, features[-1], lite.channels)))
    features.append(_halved(net, features[-1]))
    sizes = [-(-lite.size // 2 ** (3 + i)) for i in range(LEVELS)]
    for _ in range(lite.cells):
        features = _cell(net, features, sizes, lite.channels)
    scores = _head(net, features, lite.repeats, CLASSES)
    boxes = _head(net, features, lite.repeats, 4)
    return net.save(path, boxes, net.op("Sigmoid", scores))


def _halved(net: Net, x: str) -> str:
    return net.op(
        "MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"
    )


def _enlarged(net: Net, x: str, size: int) -> str:
    shape = net.const(np.array([1, net.channels[x], size, size], np.int64))
    return net.op(
        "Resize",
        x,
        "",
        "",
        shape,
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )


def _cell(
    net: Net, features: Sequence[str], sizes: Sequence[int], channels: int
) -> list[str]:
    """A layer of the pyramid, BiFPN: down to the finest level, and up again."""

    def level(i: int) -> str:
        """A level as one node takes it: each node has a convolution of its own."""
        x = features[i]
        return x if net.channels[x] == channels else _conv(net, x, channels)

    def node(*inputs: str) -> str:
        total = inputs[0]
        for x in inputs[1:]:
            total = net.op("Add", total, x)
        w = weights(net, channels, 1, 3, 3, fan_in=9)
        total = net.activation(total, "relu6")
        return _conv(net, _spatial(net, total, w), channels)

    down = {LEVELS - 1: features[-1]}
    for i in range(LEVELS - 2, -1, -1):
        down[i] = node(level(i), _enlarged(net, down[i + 1], sizes[i]))
    up = [down[0]]
    for i in range(1, LEVELS - 1):
        up.append(node(level(i), down[i], _halved(net, up[-1])))
    up.append(node(features[-1], _halved(net, up[-1])))
    return up


def _head(net: Net, features: Sequence[str], repeats: int, values: int) -> str:
    """What a head says of the anchors of all levels, [1, anchors, values].

    All levels have the same weights but for the normalisation, which is folded into the
    1x1 convolutions.
    """
    out = ANCHORS * values
    channels = net.channels[features[0]]
    spatial = [weights(net, channels, 1, 3, 3, fan_in=9) for _ in range(repeats + 1)]
    last = (weights(net, out, channels, 1, 1, fan_in=channels), vector(net, out))
    outputs = []
    for x in features:
        for w in spatial[:-1]:
            x = _conv(net, _spatial(net, x, w), channels, act="relu6")
        x = _spatial(net, x, spatial[-1])
        x = _conv_of(net, x, last, (1, 1, 1, out))
        outputs.append(shaped(net, turned(net, x, 0, 2, 3, 1), 1, -1, values))
    return net.op("Concat", *outputs, axis=1)


def ssdlite(path: Path) -> Path:
    """Write SSDLite of MobileNet v2, for images of 300 x 300, with 91 classes."""
    net = Net(path.stem, (1, 3, 300, 300))
    ends = _backbone(net, MOBILENET_V2[:5], "relu6")
    # The first level is inside the block that follows.
    wide = _conv(net, ends[-1], 576, act="relu6")
    x = _conv(net, _depthwise(net, wide, 3, 2, "relu6"), 160)
    for out in (160, 160, 320):
        x = _inverted(net, x, (6, out, 1, 3))
    levels = [wide, _conv(net, x, 1280, act="relu6")]
    for middle, out in ((256, 512), (128, 256), (128, 256), (64, 128)):
        x = _conv(net, levels[-1], middle, act="relu6")
        x = _depthwise(net, x, 3, 2, "relu6")
        levels.append(_conv(net, x, out, act="relu6"))
    outputs = []
    for values in (4, 91):
        parts = []
        for i, x in enumerate(levels):
            y = _depthwise(net, x, act="relu6")
            y = turned(net, _conv(net, y, (3 if i == 0 else 6) * values), 0, 2, 3, 1)
            parts.append(shaped(net, y, 1, -1, values))
        outputs.append(net.op("Concat", *parts, axis=1))
    return net.save(path, outputs[0], net.op("Sigmoid", outputs[1]))


WRITERS: Mapping[str, Callable[[Path], Path]] = {
    **{
        f"efficientdet-lite{name}": partial(efficientdet, lite=lite)
        for name, lite in EFFICIENTDET_LITE.items()
    },
    "ssdlite_mobilenet_v2": ssdlite,
}
