"""Makes ONNX files of the networks of ncnn's benchmark, from their published structure.

A .param file has the layers without their weights; here these are random.  Layers and the
numbers of their parameters are those of ncnn's operation reference (docs/developer-guide/
operators.md of Tencent/ncnn).  A detector ends before its boxes are decoded: what the
layers of OMITTED would read are its outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.networks import Net

SAME_UPPER = -233
"""The padding that ncnn writes for TensorFlow's SAME."""
OMITTED = {
    "DetectionOutput",
    "Flatten",
    "Noop",
    "Permute",
    "PriorBox",
    "Yolov3DetectionOutput",
    "YoloDetectionOutput",
}

Shape = tuple[int, int, int]
"""Channels, height and width."""


@dataclass(frozen=True)
class Layer:
    """A line of a .param file.

    Attributes:
        kind: of the layer
        inputs: the blobs that it reads
        outputs: the blobs that it writes
        values: its parameters by number, each one value or an array's
    """

    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    values: Mapping[int, Sequence[float]]

    @staticmethod
    def parse(line: str) -> Layer:
        """Return the layer of a line."""
        kind, _, n_inputs, n_outputs, *words = line.split()
        first, last = int(n_inputs), int(n_inputs) + int(n_outputs)
        values = {}
        for word in words[last:]:
            key, _, text = word.partition("=")
            numbers = [float(part) for part in text.split(",")]
            # An array's number is written as -23300 less it, and its length first.
            is_array = int(key) <= -23300
            number = -int(key) - 23300 if is_array else int(key)
            values[number] = numbers[1:] if is_array else numbers
        return Layer(kind, words[:first], words[first:last], values)

    def number(self, key: int, default: int = 0) -> int:
        """Return an integer parameter."""
        return int(self.values.get(key, [default])[0])

    def real(self, key: int, default: float = 0.0) -> float:
        """Return another parameter."""
        return self.values.get(key, [default])[0]

    def pair(self, width: int, height: int, default: int) -> tuple[int, int]:
        """Return parameters of height and width; that of width serves for both."""
        w = self.number(width, default)
        return self.number(height, w), w


class Converter:
    """Writes the layers of a network into an ONNX graph.

    Attributes:
        net: the graph
        names: the value of each blob
        shapes: the shape of each value
        outputs: the values that are the network's outputs
    """

    def __init__(self, name: str, shape: Shape) -> None:
        self.net = Net(name, [1, *shape])
        self.names: dict[str, str] = {}
        self.shapes: dict[str, Shape] = {"images": shape}
        self.outputs: list[str] = []

    def add(self, layer: Layer) -> None:
        """Write a layer; raises ValueError for a kind that is not known."""
        if layer.kind == "Input":
            self.names[layer.outputs[0]] = "images"
            return
        if layer.kind in OMITTED or not all(b in self.names for b in layer.inputs):
            # Prior boxes are known from the sizes of what they read.
            if layer.kind != "PriorBox":
                self.outputs += [self.names[b] for b in layer.inputs if b in self.names]
            return
        write = WRITERS.get(layer.kind)
        if write is None:
            raise ValueError(f"{layer.kind} is not known")
        results = write(self, layer, [self.names[b] for b in layer.inputs])
        self.names.update(zip(layer.outputs, results, strict=True))

    def value(self, kind: str, *inputs: str, shape: Shape, **attributes: Any) -> str:
        """Write an operator, and return its only result."""
        name = self.net.op(kind, *inputs, channels=shape[0], **attributes)
        self.shapes[name] = shape
        return name

    def weights(self, *shape: int) -> str:
        """Return random weights of [out, in / groups, kh, kw] that keep the scale."""
        scale = math.sqrt(2 / math.prod(shape[1:]))
        return self.net.const(self.net.rng.normal(0, scale, shape).astype(np.float32))

    def vector(self, size: int, mean: float = 0.0) -> str:
        """Return a random vector."""
        return self.net.const(self.net.rng.normal(mean, 0.05, size).astype(np.float32))

    def integers(self, *values: int) -> str:
        """Return a constant of integers."""
        return self.net.const(np.array(values, np.int64))

    def activated(self, x: str, layer: Layer) -> str:
        """Apply the activation of a convolution or dense layer."""
        shape = self.shapes[x]
        kind = layer.number(9)
        if kind == 0:
            return x
        if kind == 2:
            return self.value("LeakyRelu", x, shape=shape, alpha=layer.real(10))
        name = {1: "Relu", 4: "Sigmoid"}[kind]
        return self.value(name, x, shape=shape)


def _size(size: int, kernel: int, stride: int, pads: int) -> int:
    return (size + pads - kernel) // stride + 1


def _conv(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    channels, height, width = c.shapes[inputs[0]]
    out, groups = layer.number(0), layer.number(7, 1)
    kernel = layer.pair(1, 11, 1)
    stride = layer.pair(3, 13, 1)
    left = layer.number(4)
    attributes: dict[str, object] = {"strides": list(stride), "group": groups}
    if left == SAME_UPPER:
        attributes["auto_pad"] = "SAME_UPPER"
        size = (-(-height // stride[0]), -(-width // stride[1]))
    else:
        top = layer.number(14, left)
        right, bottom = layer.number(15, left), layer.number(16, top)
        attributes["pads"] = [top, left, bottom, right]
        size = (
            _size(height, kernel[0], stride[0], top + bottom),
            _size(width, kernel[1], stride[1], left + right),
        )
    w = c.weights(out, channels // groups, *kernel)
    bias = [c.vector(out)] if layer.number(5) else []
    y = c.value("Conv", inputs[0], w, *bias, shape=(out, *size), **attributes)
    return [c.activated(y, layer)]


def _deconv(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    channels, height, width = c.shapes[inputs[0]]
    out, groups = layer.number(0), layer.number(7, 1)
    kernel, stride, pad = layer.number(1), layer.number(3, 1), layer.number(4)
    w = c.weights(channels, out // groups, kernel, kernel)
    sizes = [(side - 1) * stride + kernel - 2 * pad for side in (height, width)]
    y = c.value(
        "ConvTranspose",
        inputs[0],
        w,
        shape=(out, sizes[0], sizes[1]),
        strides=[stride] * 2,
        pads=[pad] * 4,
        group=groups,
    )
    return [c.activated(y, layer)]


def _dense(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    """A dense layer is a convolution over the whole image, of [1, out, 1, 1]."""
    channels, height, width = c.shapes[inputs[0]]
    out = layer.number(0)
    w = c.weights(out, channels, height, width)
    bias = [c.vector(out)] if layer.number(1) else []
    y = c.value("Conv", inputs[0], w, *bias, shape=(out, 1, 1))
    return [c.activated(y, layer)]


def _pool(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    channels, height, width = c.shapes[inputs[0]]
    average = layer.number(0) == 1
    if layer.number(4):
        kind = "GlobalAveragePool" if average else "GlobalMaxPool"
        return [c.value(kind, inputs[0], shape=(channels, 1, 1))]
    kernel, stride = layer.pair(1, 11, 1), layer.pair(2, 12, 1)
    left = layer.number(3)
    top = layer.number(13, left)
    right, bottom = layer.number(14, left), layer.number(15, top)
    # Without another mode the last window may reach beyond the image.
    beyond = layer.number(5) == 0
    sizes = []
    for side, k, s, pads in (
        (height, kernel[0], stride[0], top + bottom),
        (width, kernel[1], stride[1], left + right),
    ):
        steps = (side + pads - k) / s
        sizes.append((math.ceil(steps) if beyond else math.floor(steps)) + 1)
    y = c.value(
        "AveragePool" if average else "MaxPool",
        inputs[0],
        shape=(channels, sizes[0], sizes[1]),
        kernel_shape=list(kernel),
        strides=list(stride),
        pads=[top, left, bottom, right],
        ceil_mode=int(beyond),
    )
    return [y]


def _binary(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    shapes = [c.shapes[x] for x in inputs]
    product = layer.number(0) == (2 if layer.kind == "BinaryOp" else 0)
    largest = max(shapes, key=math.prod)
    return [c.value("Mul" if product else "Add", *inputs, shape=largest)]


def _shuffle(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    channels, height, width = shape = c.shapes[inputs[0]]
    groups = layer.number(0)
    if layer.number(1):
        groups = channels // groups
    apart = c.integers(1, groups, channels // groups, height, width)
    x = c.net.op("Reshape", inputs[0], apart)
    x = c.net.op("Transpose", x, perm=[0, 2, 1, 3, 4])
    return [c.value("Reshape", x, c.integers(1, *shape), shape=shape)]


def _slice(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    channels, height, width = c.shapes[inputs[0]]
    sizes = [int(size) for size in layer.values[0]]
    # The sizes that are left open share the rest.
    open_sizes = sizes.count(SAME_UPPER)
    rest = channels - sum(size for size in sizes if size != SAME_UPPER)
    sizes = [rest // open_sizes if size == SAME_UPPER else size for size in sizes]
    results, first = [], 0
    for size in sizes:
        results.append(_channels(c, inputs[0], first, (size, height, width)))
        first += size
    return results


def _channels(c: Converter, x: str, first: int, shape: Shape) -> str:
    """Cut channels out of a value."""
    begin, end = c.integers(first), c.integers(first + shape[0])
    return c.value("Slice", x, begin, end, c.integers(1), shape=shape)


def _crop(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    """Crops of the benchmark cut channels alone."""
    channels, height, width = c.shapes[inputs[0]]
    if 9 in layer.values:
        begin, end = int(layer.values[9][0]), min(int(layer.values[10][0]), channels)
    else:
        begin, end = layer.number(2), layer.number(2) + layer.number(5)
    return [_channels(c, inputs[0], begin, (end - begin, height, width))]


def _concat(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    _, height, width = c.shapes[inputs[0]]
    channels = sum(c.shapes[x][0] for x in inputs)
    return [c.value("Concat", *inputs, shape=(channels, height, width), axis=1)]


def _padding(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    channels, height, width = c.shapes[inputs[0]]
    top, bottom, left, right = (layer.number(key) for key in range(4))
    front, behind = layer.number(7), layer.number(8)
    pads = c.integers(0, front, top, left, 0, behind, bottom, right)
    shape = (channels + front + behind, height + top + bottom, width + left + right)
    return [c.value("Pad", inputs[0], pads, shape=shape)]


def _interp(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    channels, height, width = c.shapes[inputs[0]]
    scales = (layer.real(1), layer.real(2))
    sizes = (int(height * scales[0]), int(width * scales[1]))
    nearest = layer.number(0) == 1
    y = c.value(
        "Resize",
        inputs[0],
        "",
        c.net.const(np.array([1, 1, *scales], np.float32)),
        shape=(channels, *sizes),
        mode="nearest" if nearest else "linear",
        coordinate_transformation_mode="asymmetric" if nearest else "half_pixel",
        **({"nearest_mode": "floor"} if nearest else {}),
    )
    return [y]


def _lrn(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    shape = c.shapes[inputs[0]]
    size, alpha, beta = layer.number(1, 5), layer.real(2, 1.0), layer.real(3, 0.75)
    return [c.value("LRN", *inputs, shape=shape, size=size, alpha=alpha, beta=beta)]


def _relu(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    shape = c.shapes[inputs[0]]
    if slope := layer.real(0):
        return [c.value("LeakyRelu", *inputs, shape=shape, alpha=slope)]
    return [c.value("Relu", *inputs, shape=shape)]


def _swish(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    shape = c.shapes[inputs[0]]
    sigmoid = c.value("Sigmoid", *inputs, shape=shape)
    return [c.value("Mul", inputs[0], sigmoid, shape=shape)]


def _reduction(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    """Reductions of the benchmark are means over the image."""
    channels = c.shapes[inputs[0]][0]
    return [c.value("GlobalAveragePool", *inputs, shape=(channels, 1, 1))]


def _norm(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    shape = c.shapes[inputs[0]]
    size = layer.number(0)
    rest = [c.vector(size, 1), c.vector(size), c.vector(size)]
    variance = c.net.const(np.ones(size, np.float32))
    return [c.value("BatchNormalization", *inputs, *rest, variance, shape=shape)]


def _constant(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    channels = layer.number(0)
    values = c.net.rng.normal(0, 1, (1, channels, 1, 1)).astype(np.float32)
    name = c.net.const(values)
    c.shapes[name] = (channels, 1, 1)
    return [name]


def _same(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
    return [inputs[0]] * len(layer.outputs)


def _unary(kind: str, **attributes: object) -> Writer:
    """Return the writer of an operator of one image."""

    def write(c: Converter, layer: Layer, inputs: Sequence[str]) -> Sequence[str]:
        return [c.value(kind, inputs[0], shape=c.shapes[inputs[0]], **attributes)]

    return write


Writer = Callable[[Converter, Layer, Sequence[str]], Sequence[str]]
"""Writes a layer, and returns the values of its outputs."""

WRITERS: Mapping[str, Writer] = {
    "BatchNorm": _norm,
    "BinaryOp": _binary,
    "Concat": _concat,
    "Convolution": _conv,
    "ConvolutionDepthWise": _conv,
    "Crop": _crop,
    "DeconvolutionDepthWise": _deconv,
    "Dropout": _same,
    "Eltwise": _binary,
    "HardSigmoid": _unary("HardSigmoid", alpha=0.2, beta=0.5),
    "HardSwish": _unary("HardSwish"),
    "InnerProduct": _dense,
    "Interp": _interp,
    "LRN": _lrn,
    "MemoryData": _constant,
    "Padding": _padding,
    "Pooling": _pool,
    "ReLU": _relu,
    "Reduction": _reduction,
    "Reshape": _same,
    "ShuffleChannel": _shuffle,
    "Sigmoid": _unary("Sigmoid"),
    "Slice": _slice,
    "Softmax": _unary("Softmax", axis=1),
    "Split": _same,
    "Swish": _swish,
}


def convert(param: Path, shape: Sequence[int], to: Path) -> Path:
    """Write the ONNX file of a .param file.

    Args:
        param: the structure
        shape: of the input, NCHW
        to: the file to write, with random weights of a fixed seed

    Raises ValueError for a layer that is not known.
    """
    _, channels, height, width = shape
    converter = Converter(param.stem, (channels, height, width))
    layers = [Layer.parse(line) for line in param.read_text().splitlines()[2:]]
    for layer in layers:
        converter.add(layer)
    read = {blob for layer in layers for blob in layer.inputs}
    ends = [b for layer in layers for b in layer.outputs if b not in read]
    names = [
        *converter.outputs,
        *(converter.names[b] for b in ends if b in converter.names),
    ]
    return converter.net.save(to, *dict.fromkeys(names))
