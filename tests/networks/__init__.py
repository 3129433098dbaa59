"""Networks as exporters write them (ONNX, NCHW), with random weights: like YOLOv8n,
EfficientNet-Lite0, MobileNets.

The weights are He-initialised from a fixed seed, so activations keep a scale that can
be quantized.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.networks.stages import EFFICIENTNET_B0, MOBILENET_V2

OPSET = 17


class Net:
    """An ONNX graph while it is written: values are names, channels and sizes are
    known.
    """

    def __init__(self, name: str, shape: Sequence[int], seed: int = 0) -> None:
        self.name = name
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [
            helper.make_tensor_value_info("images", TensorProto.FLOAT, list(shape))
        ]
        self.channels = {"images": shape[1]}

    def const(self, array: np.ndarray[Any, Any] | np.generic) -> str:
        """An initializer."""
        name = f"const_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(
        self,
        kind: str,
        *inputs: str,
        channels: int | None = None,
        outputs: int = 1,
        **attributes: Any,
    ) -> str:
        """A node; the name of its first output, which has as many channels as its first
        input if nothing is said.
        """
        base = f"/{kind}_{len(self.nodes)}"
        names = [f"{base}_output_{i}" for i in range(outputs)]
        self.nodes.append(
            helper.make_node(kind, list(inputs), names, base, **attributes)
        )
        for n in names:
            self.channels[n] = (
                channels if channels is not None else self.channels.get(inputs[0], 0)
            )
        return names[0]

    def conv(
        self,
        x: str,
        out: int,
        k: int = 1,
        stride: int = 1,
        group: int = 1,
        act: str | None = None,
    ) -> str:
        """A convolution with bias, padded so that stride 1 keeps the size; act: relu,
        relu6, silu.
        """
        fan_in = self.channels[x] // group * k * k
        weights = self.rng.normal(
            0, math.sqrt(2 / fan_in), (out, self.channels[x] // group, k, k)
        )
        bias = self.rng.normal(0, 0.05, out)
        y = self.op(
            "Conv",
            x,
            self.const(weights.astype(np.float32)),
            self.const(bias.astype(np.float32)),
            channels=out,
            kernel_shape=[k, k],
            strides=[stride, stride],
            pads=[k // 2] * 4,
            group=group,
            dilations=[1, 1],
        )
        return self.activation(y, act)

    def activation(self, x: str, act: str | None) -> str:
        """As torch exports it: SiLU is Mul(x, Sigmoid(x)), ReLU6 is Clip."""
        if act == "silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if act == "relu6":
            return self.op(
                "Clip", x, self.const(np.float32(0)), self.const(np.float32(6))
            )
        return self.op("Relu", x) if act == "relu" else x

    def concat(self, *parts: str, axis: int = 1) -> str:
        """Along channels, or another axis."""
        if axis == 1:
            channels = sum(self.channels[p] for p in parts)
        else:
            channels = self.channels[parts[0]]
        return self.op("Concat", *parts, axis=axis, channels=channels)

    def halves(self, x: str) -> tuple[str, str]:
        """Its channels, split in two."""
        half = self.channels[x] // 2
        first = self.op(
            "Split",
            x,
            self.const(np.array([half, half], np.int64)),
            axis=1,
            outputs=2,
            channels=half,
        )
        return first, first[:-1] + "1"

    def save(self, path: Path, *outputs: str) -> Path:
        """Writes the file; checked."""
        values = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs
        ]
        graph = helper.make_graph(
            self.nodes, self.name, self.inputs, values, self.constants
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
        )
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        onnx.checker.check_model(model)
        onnx.save(model, path)
        return path


def mobilenet_v1(
    path: Path, size: int = 224, width: float = 1.0, classes: int = 1000
) -> Path:
    """MobileNet v1 with its batch normalisation folded: depthwise and 1x1 convolutions
    with ReLU6.
    """
    net = Net("mobilenet_v1", (1, 3, size, size))
    x = net.conv("images", _width(32, width), 3, 2, act="relu6")
    blocks = [
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *[(512, 1)] * 5,
        (1024, 2),
        (1024, 1),
    ]
    for out, stride in blocks:
        x = net.conv(x, net.channels[x], 3, stride, net.channels[x], "relu6")
        x = net.conv(x, _width(out, width), act="relu6")
    return net.save(path, _classifier(net, x, classes))


def mobilenet_like(
    path: Path, size: int = 224, width: float = 1.0, classes: int = 1000
) -> Path:
    """MobileNet v2: inverted residuals with ReLU6."""
    net = Net("mobilenet_like", (1, 3, size, size))
    x = net.conv("images", _width(32, width), 3, 2, act="relu6")
    for expand, out, times, stride, k in MOBILENET_V2:
        for i in range(times):
            step = stride if i == 0 else 1
            x = _inverted(net, x, _width(out, width), expand, k, step, "relu6")
    return net.save(path, _classifier(net, net.conv(x, 1280, act="relu6"), classes))


def efficientnet_lite_like(path: Path, size: int = 224, classes: int = 1000) -> Path:
    """EfficientNet-Lite0: no squeeze and excitation, ReLU6 in place of swish."""
    net = Net("efficientnet_lite_like", (1, 3, size, size))
    x = net.conv("images", 32, 3, 2, act="relu6")
    for expand, out, times, stride, k in EFFICIENTNET_B0:
        for i in range(times):
            x = _inverted(net, x, out, expand, k, stride if i == 0 else 1, "relu6")
    return net.save(path, _classifier(net, net.conv(x, 1280, act="relu6"), classes))


def yolov8n_like(path: Path, size: int = 640, classes: int = 80) -> Path:
    """YOLOv8n with its decoding head, as ultralytics exports it: one output (1, 4 +
    classes, anchors).
    """
    net = Net("yolov8n_like", (1, 3, size, size))
    x = net.conv("images", 16, 3, 2, act="silu")
    x = _c2f(net, net.conv(x, 32, 3, 2, act="silu"), 32, 1, True)
    p3 = _c2f(net, net.conv(x, 64, 3, 2, act="silu"), 64, 2, True)
    p4 = _c2f(net, net.conv(p3, 128, 3, 2, act="silu"), 128, 2, True)
    p5 = _sppf(net, _c2f(net, net.conv(p4, 256, 3, 2, act="silu"), 256, 1, True))
    up4 = _c2f(net, net.concat(_upsample(net, p5), p4), 128, 1, False)
    n3 = _c2f(net, net.concat(_upsample(net, up4), p3), 64, 1, False)
    n4 = _c2f(net, net.concat(net.conv(n3, 64, 3, 2, act="silu"), up4), 128, 1, False)
    n5 = _c2f(net, net.concat(net.conv(n4, 128, 3, 2, act="silu"), p5), 256, 1, False)
    return net.save(path, _detect(net, [n3, n4, n5], size, classes))


MAKERS: dict[str, Callable[..., Path]] = {
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_like": mobilenet_like,
    "efficientnet_lite_like": efficientnet_lite_like,
    "yolov8n_like": yolov8n_like,
}


def _width(channels: int, by: float) -> int:
    return max(8, int(channels * by + 4) // 8 * 8)


def _inverted(
    net: Net, x: str, out: int, expand: int, k: int, stride: int, act: str
) -> str:
    y = x
    wide = net.channels[x] * expand
    if expand != 1:
        y = net.conv(y, wide, act=act)
    y = net.conv(net.conv(y, wide, k, stride, wide, act), out)
    return net.op("Add", x, y) if stride == 1 and net.channels[x] == out else y


def _classifier(net: Net, x: str, classes: int) -> str:
    flat = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    width = net.channels[x]
    weights = net.rng.normal(0, 1 / math.sqrt(width), (classes, width)).astype(
        np.float32
    )
    return net.op(
        "Gemm",
        flat,
        net.const(weights),
        net.const(np.zeros(classes, np.float32)),
        transB=1,
    )


def _c2f(net: Net, x: str, out: int, times: int, shortcut: bool) -> str:
    first, y = net.halves(net.conv(x, out, act="silu"))
    parts = [first, y]
    for _ in range(times):
        z = net.conv(net.conv(y, out // 2, 3, act="silu"), out // 2, 3, act="silu")
        y = net.op("Add", y, z) if shortcut else z
        parts.append(y)
    return net.conv(net.concat(*parts), out, act="silu")


def _sppf(net: Net, x: str) -> str:
    out = net.channels[x]
    parts = [net.conv(x, net.channels[x] // 2, act="silu")]
    for _ in range(3):
        parts.append(
            net.op(
                "MaxPool",
                parts[-1],
                kernel_shape=[5, 5],
                strides=[1, 1],
                pads=[2, 2, 2, 2],
            )
        )
    return net.conv(net.concat(*parts), out, act="silu")


def _upsample(net: Net, x: str) -> str:
    scales = net.const(np.array([1, 1, 2, 2], np.float32))
    return net.op(
        "Resize",
        x,
        "",
        scales,
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )


def _detect(net: Net, levels: Sequence[str], size: int, classes: int) -> str:
    flat = []
    anchors = []
    strides = []
    for level, stride in zip(levels, (8, 16, 32), strict=True):
        box = level
        cls = level
        for _ in range(2):
            box = net.conv(box, 64, 3, act="silu")
            cls = net.conv(cls, max(64, classes), 3, act="silu")
        both = net.concat(net.conv(box, 64), net.conv(cls, classes))
        cells = (size // stride) ** 2
        flat.append(
            net.op(
                "Reshape", both, net.const(np.array([1, 64 + classes, cells], np.int64))
            )
        )
        y, x = np.divmod(np.arange(cells), size // stride)
        anchors.append(np.stack([x + 0.5, y + 0.5]))
        strides.append(np.full(cells, stride))
    total = sum(len(s) for s in strides)
    joined = net.op("Concat", *flat, axis=2)
    box = net.op(
        "Split", joined, net.const(np.array([64, classes], np.int64)), axis=1, outputs=2
    )
    cls = box[:-1] + "1"
    bins = net.op("Reshape", box, net.const(np.array([1, 4, 16, total], np.int64)))
    bins = net.op("Softmax", net.op("Transpose", bins, perm=[0, 2, 1, 3]), axis=1)
    net.channels[bins] = 16
    dfl = net.op(
        "Conv",
        bins,
        net.const(np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1)),
        kernel_shape=[1, 1],
        channels=1,
    )
    ltrb = net.op("Reshape", dfl, net.const(np.array([1, 4, total], np.int64)))
    lt = net.op("Split", ltrb, net.const(np.array([2, 2], np.int64)), axis=1, outputs=2)
    at = net.const(np.concatenate(anchors, 1)[None].astype(np.float32))
    low = net.op("Sub", at, lt)
    high = net.op("Add", at, lt[:-1] + "1")
    middle = net.op("Div", net.op("Add", low, high), net.const(np.float32(2)))
    boxes = net.op("Concat", middle, net.op("Sub", high, low), axis=1)
    boxes = net.op(
        "Mul", boxes, net.const(np.concatenate(strides)[None].astype(np.float32))
    )
    return net.op("Concat", boxes, net.op("Sigmoid", cls), axis=1)
