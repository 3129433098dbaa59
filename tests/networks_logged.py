"""Networks of which a public log of edgetpu_compiler exists, as ONNX with random
weights: what counts is layers.

LOGGED says which entry of logs.json each one is to be compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.networks import (
    Net,
    _c2f,
    _classifier,
    _inverted,
    _sppf,
    _upsample,
    yolov8n_like,
)
from tests.networks.stages import MOBILENET_V2


def mobilenet_v1(path: Path) -> Path:
    """MobileNet v1 of 224 pixels, with its 1x1 convolution as classifier."""
    net = Net("mobilenet_v1", (1, 3, 224, 224))
    x = net.conv("images", 32, 3, 2, act="relu6")
    for out, stride in [
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *[(512, 1)] * 5,
        (1024, 2),
        (1024, 1),
    ]:
        x = net.conv(
            net.conv(x, net.channels[x], 3, stride, net.channels[x], "relu6"),
            out,
            act="relu6",
        )
    x = net.conv(net.op("AveragePool", x, kernel_shape=[7, 7]), 1001)
    return net.save(path, net.op("Softmax", net.op("Flatten", x, axis=1), axis=1))


def mobilenet_v2(path: Path) -> Path:
    """MobileNet v2 of 224 pixels with softmax."""
    net = Net("mobilenet_v2", (1, 3, 224, 224))
    x = net.conv("images", 32, 3, 2, act="relu6")
    for expand, out, times, stride, k in MOBILENET_V2:
        for i in range(times):
            x = _inverted(net, x, out, expand, k, stride if i == 0 else 1, "relu6")
    x = _classifier(net, net.conv(x, 1280, act="relu6"), 1000)
    return net.save(path, net.op("Softmax", x, axis=1))


def yolov8n_classifier(path: Path) -> Path:
    """YOLOv8n-cls of 224 pixels."""
    net = Net("yolov8n_cls", (1, 3, 224, 224))
    x = net.conv("images", 16, 3, 2, act="silu")
    for out, times in [(32, 1), (64, 2), (128, 2), (256, 1)]:
        x = _c2f(net, net.conv(x, out, 3, 2, act="silu"), out, times, True)
    return net.save(
        path,
        net.op(
            "Softmax", _classifier(net, net.conv(x, 1280, act="silu"), 1000), axis=1
        ),
    )


def yolov3_tiny(path: Path, act: str = "leaky") -> Path:
    """YOLOv3-tiny of 416 pixels, its two heads as the convolutions leave them; act:
    leaky or relu.
    """
    net = Net("yolov3_tiny", (1, 3, 416, 416))

    def conv(x: str, out: int, k: int = 3) -> str:
        if act == "relu":
            return net.conv(x, out, k, act="relu")
        return net.op("LeakyRelu", net.conv(x, out, k), alpha=0.1)

    x = "images"
    routes = []
    for i, out in enumerate((16, 32, 64, 128, 256, 512)):
        x = conv(x, out)
        routes.append(x)
        stride, border = (2, [0, 0, 0, 0]) if i < 5 else (1, [0, 0, 1, 1])
        x = net.op(
            "MaxPool", x, kernel_shape=[2, 2], strides=[stride, stride], pads=border
        )
    x = conv(conv(x, 1024), 256, 1)
    first = net.conv(conv(x, 512), 255)
    x = net.concat(_upsample(net, conv(x, 128, 1)), routes[4])
    return net.save(path, first, net.conv(conv(x, 256), 255))


def tiny_yolo_relu(path: Path) -> Path:
    """The same with relu."""
    return yolov3_tiny(path, "relu")


def yolov5n(path: Path, size: int = 160) -> Path:
    """YOLOv5n v6, decoded channels-last as its own export to TensorFlow does."""
    return _yolov5(path, size, False)


def yolov5_focus(path: Path, size: int = 320) -> Path:
    """A YOLOv5 of the first versions, which begin with slices of stride 2 (Focus)."""
    return _yolov5(path, size, True)


def _yolov5(path: Path, size: int, focus: bool) -> Path:
    net = Net("yolov5", (1, 3, size, size))
    if focus:
        parts = [
            _every_second(net, _every_second(net, "images", 2, i, size), 3, j, size)
            for j in (0, 1)
            for i in (0, 1)
        ]
        x = net.conv(net.concat(*parts), 16, 3, act="silu")
    else:
        weights = net.const(net.rng.normal(0, 0.1, (16, 3, 6, 6)).astype(np.float32))
        x = net.op(
            "Conv",
            "images",
            weights,
            channels=16,
            kernel_shape=[6, 6],
            strides=[2, 2],
            pads=[2] * 4,
        )
        x = net.activation(x, "silu")
    levels = []
    for out, times in [(32, 1), (64, 2), (128, 3), (256, 1)]:
        x = _c3(net, net.conv(x, out, 3, 2, act="silu"), out, times, True)
        levels.append(x)
    p5 = net.conv(_sppf(net, x), 128, act="silu")
    p4 = net.conv(
        _c3(net, net.concat(_upsample(net, p5), levels[2]), 128, 1, False),
        64,
        act="silu",
    )
    n3 = _c3(net, net.concat(_upsample(net, p4), levels[1]), 64, 1, False)
    n4 = _c3(net, net.concat(net.conv(n3, 64, 3, 2, act="silu"), p4), 128, 1, False)
    n5 = _c3(net, net.concat(net.conv(n4, 128, 3, 2, act="silu"), p5), 256, 1, False)
    heads = [
        _v5_head(net, level, size // stride, stride)
        for level, stride in ((n3, 8), (n4, 16), (n5, 32))
    ]
    return net.save(path, net.concat(*heads, axis=1))


def _every_second(net: Net, x: str, axis: int, first: int, size: int) -> str:
    ends = (np.array([v], np.int64) for v in (first, size, axis, 2))
    return net.op("Slice", x, *map(net.const, ends))


def _c3(net: Net, x: str, out: int, times: int, shortcut: bool) -> str:
    y = net.conv(x, out // 2, act="silu")
    for _ in range(times):
        z = net.conv(net.conv(y, out // 2, act="silu"), out // 2, 3, act="silu")
        y = net.op("Add", y, z) if shortcut else z
    return net.conv(net.concat(y, net.conv(x, out // 2, act="silu")), out, act="silu")


def _v5_head(net: Net, x: str, cells: int, stride: int) -> str:
    def part(first: int, end: int) -> str:
        return net.op(
            "Slice", y, *(net.const(np.array([v], np.int64)) for v in (first, end, 3))
        )

    y = net.op("Transpose", net.conv(x, 255), perm=[0, 2, 3, 1])
    y = net.op(
        "Sigmoid",
        net.op("Reshape", y, net.const(np.array([1, cells * cells, 3, 85], np.int64))),
    )
    grid = (
        np.stack(np.divmod(np.arange(cells * cells), cells), -1)
        .reshape(1, -1, 1, 2)
        .astype(np.float32)
    )
    scale = net.const(np.float32(stride / (cells * stride)))
    twice = net.const(np.float32(2))
    xy = net.op(
        "Mul", net.op("Add", net.op("Mul", part(0, 2), twice), net.const(grid)), scale
    )
    wh = net.op("Mul", part(2, 4), twice)
    wh = net.op(
        "Mul",
        net.op("Mul", wh, wh),
        net.const(net.rng.random((1, 1, 3, 2)).astype(np.float32)),
    )
    joined = net.op("Concat", xy, wh, part(4, 85), axis=3)
    return net.op(
        "Reshape", joined, net.const(np.array([1, cells * cells * 3, 85], np.int64))
    )


def tcn(path: Path) -> Path:
    """A temporal network: 118 steps of 100 features, kernels of 3x1 with dilations (1,
    1), (2, 1) and (4, 1).
    """
    net = Net("tcn", (1, 1, 118, 100))
    x = "images"
    for d in (1, 2, 4):
        weights = net.const(
            net.rng.normal(0, 0.3, (8, net.channels[x], 3, 1)).astype(np.float32)
        )
        x = net.op(
            "Relu",
            net.op(
                "Conv",
                x,
                weights,
                channels=8,
                kernel_shape=[3, 1],
                pads=[d, 0, d, 0],
                dilations=[d, 1],
            ),
        )
    x = net.op("Flatten", net.op("Transpose", x, perm=[0, 2, 3, 1]), axis=1)
    weights = net.const(net.rng.normal(0, 0.01, (1, 8 * 118 * 100)).astype(np.float32))
    return net.save(
        path,
        net.op(
            "Sigmoid",
            net.op("Gemm", x, weights, net.const(np.zeros(1, np.float32)), transB=1),
        ),
    )


def ggcnn(path: Path) -> Path:
    """A generative grasping network of 300 pixels: convolutions down, transposed
    convolutions up, four images out.
    """
    net = Net("ggcnn", (1, 1, 300, 300))

    def layer(
        kind: str, x: str, out: int, k: int, stride: int, border: int, more: int = 0
    ) -> str:
        if kind == "Conv":
            shape = (out, net.channels[x], k, k)
        else:
            shape = (net.channels[x], out, k, k)
        weights, bias = (
            net.rng.normal(0, 0.05, s).astype(np.float32) for s in (shape, (out,))
        )
        extra: dict[str, Any] = {"output_padding": [more, more]} if more else {}
        y = net.op(
            kind,
            x,
            net.const(weights),
            net.const(bias),
            channels=out,
            kernel_shape=[k, k],
            strides=[stride] * 2,
            pads=[border] * 4,
            **extra,
        )
        return net.op("Relu", y)

    x = layer("Conv", "images", 32, 9, 3, 3)
    x = layer("Conv", layer("Conv", x, 16, 5, 2, 2), 8, 3, 2, 1)
    x = layer("ConvTranspose", x, 8, 3, 2, 1, 1)
    x = layer("ConvTranspose", layer("ConvTranspose", x, 16, 5, 2, 2, 1), 32, 9, 3, 3)
    return net.save(path, *(net.conv(x, 1) for _ in range(4)))


def _sized(size: int) -> Callable[[Path], Path]:
    return lambda path: yolov8n_like(path, size)


LOGGED: Sequence[tuple[str, Callable[[Path], Path], str, str]] = [
    (
        "YOLOv8n 640",
        _sized(640),
        "nerbivol/edgetpu_lite",
        "yolov8n_full_integer_quant_edgetpu.log",
    ),
    (
        "YOLOv8n 192",
        _sized(192),
        "jveitchmichaelis/edgetpu-yolo",
        "yolov8n_full_integer_quant_edgetpu_192.log",
    ),
    (
        "YOLOv8n 160",
        _sized(160),
        "jveitchmichaelis/edgetpu-yolo",
        "yolov8n_full_integer_quant_edgetpu_160.log",
    ),
    (
        "YOLOv8n-cls",
        yolov8n_classifier,
        "VesalAhsani/YOLOv8-on-Google-Coral-Edge-TPU",
        "README.md",
    ),
    (
        "YOLOv5n 160",
        yolov5n,
        "jveitchmichaelis/edgetpu-yolo",
        "yolov5n-int8_edgetpu_160.log",
    ),
    (
        "YOLOv5s 224",
        lambda path: yolov5n(path, 224),
        "Kudos12th/kudos_edgetpu_yolo",
        "export.md",
    ),
    (
        "YOLOv5n 640",
        lambda path: yolov5n(path, 640),
        "Sandhya1708/modelnew",
        "yolov5n-int8_edgetpu.log",
    ),
    (
        "YOLOv5 with Focus",
        yolov5_focus,
        "stored document (YOLO to TFLite",
        "YOLOv5s with the Focus layer",
    ),
    ("YOLOv3-tiny", yolov3_tiny, "stored document (YOLO to TFLite", "YOLOv3-tiny"),
    (
        "YOLOv3-tiny, relu",
        tiny_yolo_relu,
        "KodeWorker/edge-tpu-tiny-yolo",
        "quant_coco-tiny-v3-relu_edgetpu.log",
    ),
    (
        "MobileNet v1",
        mobilenet_v1,
        "iwatake2222/EdgeTPU_Analysis",
        "mobilenet_v1_1.0_224_quant_edgetpu.log",
    ),
    (
        "MobileNet v2",
        mobilenet_v2,
        "iwatake2222/EdgeTPU_Analysis",
        "model_mobilenet_v2_w_fc_224x224x3_edgetpu.log",
    ),
    ("GG-CNN", ggcnn, "willcmartin/edgetpu-ggcnn", "convert_ggcnn.ipynb"),
    (
        "temporal network",
        tcn,
        "fredriktegnell/edgetpu-tcn",
        "quantized_model_edgetpu.log",
    ),
]
"""(name, maker, repository of the log, part of its path or note).

YOLOv5s has the operators of YOLOv5n, but wider.
"""
