"""Small TFLite networks for scripts: a classifier, a segmentation, points, and two halves
of one network, all with random weights of fixed seeds; in int8, with uint8 pictures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

import edgec
from edgec.emit.tflite import write_tflite
from edgec.emit.tflite_detections import with_detections
from edgec.ir import Builder, Graph, Quant, TensorType, Value
from edgec.ops.detection import Detections
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.reduce import Mean
from edgec.ops.shape import Reshape
from edgec.ops.softmax import Softmax
from edgec.ops.unary import Logistic, Relu6
from edgec.quantize.change.steps.minmax import MinMaxRanges
from tests import builds
from tests.quantize.nets import Net, worked

SIZE = 16
"""Pixels of a side of every network's picture."""
CLASSES = 5
_CENTRES = (np.arange(8, dtype=np.float32) + 0.5) / 8
ANCHORS = np.stack(
    [
        np.repeat(_CENTRES, 8),
        np.tile(_CENTRES, 8),
        np.full(64, 0.25, np.float32),
        np.full(64, 0.25, np.float32),
    ],
    axis=1,
)
"""Centre y, x and height, width of each cell of 8 x 8, in parts of the picture."""
SUPPRESSION = Detections(
    most=10, background=1, scale=(10.0, 10.0, 5.0, 5.0), score=0.3, overlap=0.5
)


def _backbone(net: Net) -> Value:
    x = net.input(1, SIZE, SIZE, 3, name="image")
    return net.conv(net.conv(x, 8, stride=(2, 2), pads=(0, 1, 0, 1)), 12)


def classifier() -> Graph:
    """Probabilities of 5 classes."""
    net = Net("classifier", 1)
    y = net.conv(_backbone(net), CLASSES, 1, act="none")
    mean = net.op(Mean((1, 2), False), y)
    return net.done(net.op(Softmax(), mean, name="scores"))


def pixels() -> Graph:
    """A score of each of 5 classes for each of 8 x 8 places."""
    net = Net("pixels", 2)
    y = net.conv(_backbone(net), CLASSES, 1, act="none")
    return net.done(y)


def points() -> Graph:
    """17 rows of y, x and score, as MoveNet has them."""
    net = Net("points", 3)
    y = net.op(Mean((1, 2), True), _backbone(net))
    y = net.conv(y, 51, 1, act="none")
    return net.done(net.op(Reshape((1, 1, 17, 3)), y, name="pose"))


def first_half() -> Graph:
    """A picture to the tensor "middle"."""
    net = Net("first_half", 4)
    x = net.input(1, SIZE, SIZE, 3, name="image")
    return net.done(net.op(Relu6(), net.conv(x, 6, act="none"), name="middle"))


def second_half() -> Graph:
    """The tensor "middle" to probabilities of 5 classes."""
    net = Net("second_half", 5)
    y = net.conv(net.input(1, SIZE, SIZE, 6, name="middle"), CLASSES, 1, act="none")
    return net.done(net.op(Softmax(), net.op(Mean((1, 2), False), y), name="scores"))


def heads() -> Graph:
    """Boxes [1, 64, 4] and scores [1, 64, 6] of 8 x 8 cells, for `ANCHORS`."""
    net = Net("heads", 6)
    y = _backbone(net)
    boxes = net.op(Reshape((1, 64, 4)), net.conv(y, 4, 1, act="none"), name="boxes")
    scores = net.op(
        Logistic(),
        net.op(Reshape((1, 64, 6)), net.conv(y, 1 + CLASSES, 1, act="none")),
        name="class_scores",
    )
    return net.done(boxes, scores)


NETWORKS: dict[str, Callable[[], Graph]] = {
    f.__name__: f for f in (classifier, pixels, points, first_half, second_half, heads)
}


def quantized(graph: Graph) -> Graph:
    """In int8, also at its border, for pictures of 0…1."""
    rng = np.random.default_rng(0)
    (x,) = graph.inputs
    pictures = [
        {x.name: rng.uniform(0, 1, x.type.shape).astype(np.float32)} for _ in range(4)
    ]
    state = dataclasses.replace(worked(graph, count=0), samples=pictures)
    return _without_border(state.after(MinMaxRanges()).int8().graph)


def _without_border(graph: Graph) -> Graph:
    """Without the QUANTIZE of float inputs and the DEQUANTIZE of outputs."""
    for op in list(graph.ops):
        if isinstance(op.spec, Quantize) and op.inputs[0] in graph.inputs:
            name = op.inputs[0].name
            op.inputs[0].name = f"{name}_float"
            op.outputs[0].name = name
            graph.inputs = op.outputs
            graph.ops.remove(op)
        if isinstance(op.spec, Dequantize) and op.outputs[0] in graph.outputs:
            name = op.outputs[0].name
            op.outputs[0].name = f"{name}_float"
            op.inputs[0].name = name
            outer = graph.outputs.index(op.outputs[0])
            graph.outputs[outer] = op.inputs[0]
            graph.ops.remove(op)
    return graph


def with_pictures(graph: Graph) -> Graph:
    """With a uint8 input of the same real values, as converters write it."""
    (inner,) = graph.inputs
    assert inner.type.quant is not None
    zero_points = tuple(z + 128 for z in inner.type.quant.zero_point)
    quant = Quant(inner.type.quant.scale, zero_points)
    build = Builder(Graph(graph.name))
    outer = build.input(inner.name, TensorType(inner.type.shape, "uint8", quant))
    inner.name = f"{inner.name}_int8"
    build.write(Quantize("int8"), [outer], [inner])
    build.graph.ops += graph.ops
    build.graph.outputs = graph.outputs
    return build.graph


def with_signature(model: bytes, inputs: list[str], outputs: list[str]) -> bytes:
    """A file with the signature "serving_default" of these names, in order."""
    loaded = schema.ModelT.InitFromPackedBuf(model)
    graph = loaded.subgraphs[0]
    signature = schema.SignatureDefT()
    signature.signatureKey = b"serving_default"
    signature.inputs = _maps(inputs, graph.inputs)
    signature.outputs = _maps(outputs, graph.outputs)
    loaded.signatureDefs = [signature]
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(loaded.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _maps(names: list[str], tensors: list[int]) -> list[object]:
    rows = []
    for name, tensor in zip(names, tensors, strict=True):
        row = schema.TensorMapT()
        row.name = name.encode()
        row.tensorIndex = int(tensor)
        rows.append(row)
    return rows


def tflite(name: str) -> bytes:
    """The file of one of `NETWORKS`, with a uint8 picture where it has one."""
    graph = quantized(NETWORKS[name]())
    if name != "second_half":
        graph = with_pictures(graph)
    file = write_tflite(graph)
    if name == "heads":
        return with_detections(file, SUPPRESSION, ANCHORS, CLASSES)
    return file


def compiled(name: str, target: str = "host") -> tuple[Path, Path]:
    """The .tflite and the bundle of one of `NETWORKS`, once a run."""

    def make(folder: Path) -> None:
        model = folder / f"{name}.tflite"
        model.write_bytes(tflite(name))
        edgec.compile(model, target, folder / f"{name}.edgec", also=["host"])

    folder = builds.once(f"interpreters {name} {target}", make)
    return folder / f"{name}.tflite", folder / f"{name}.edgec"
