"""Properties of Ultralytics' .onnx files, and the outputs of its networks.

Facts are from its documentation (docs.ultralytics.com: modes/export,
guides/end2end-detection): the properties `task`, `names`, `kpt_shape`, `end2end` and
`args`; outputs [1, 4 + classes + extra, anchors] with all candidates, or, end to end,
[1, detections, 6 + extra] with those that the network has picked. Extra are factors of
prototype masks, points with how sure they are seen, or the angle of a turned box.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx
from onnx import ModelProto, NodeProto

from edgec.frontends.task_formats import FORMATS

MAX_PROPERTY_CHARACTERS = 1 << 20
"""The largest size of a property."""

_PICKERS = ("TopK", "NonMaxSuppression")
"""Operators by which a network picks boxes."""

_SUFFIXES = {"detect": "", "segment": "-seg", "pose": "-pose", "obb": "-obb"}
"""Suffixes of the families in FORMATS, by the exporter's task."""


@dataclass(frozen=True)
class Head:
    """The tensor with all candidates, from which an end-to-end network picks boxes.

    Attributes:
        name: the name of the tensor.
        outputs: the names of the outputs of the model that ends there, `name` first.
        transposed: whether the candidates lie along the last axis.
    """

    name: str
    outputs: tuple[str, ...]
    transposed: bool


@dataclass(frozen=True)
class Export:
    """A file of the exporter.

    Attributes:
        kind: detect, segment, pose, obb or classify.
        labels: the names of the classes.
        extra: the count of numbers in a row beyond box and scores.
        picked: how many boxes the network picks itself, 0 for none.
        suppresses: whether it picks by non-maximum suppression, rather than by a head
            trained to find each object once.
        points: how many points a box has, and the count of numbers of each.
    """

    kind: str
    labels: tuple[str, ...]
    extra: int = 0
    picked: int = 0
    suppresses: bool = False
    points: tuple[int, int] = (0, 2)

    def task(self) -> dict[str, Any]:
        """Return the keys of a task's file, without preprocessing and labels."""
        if self.kind == "classify":
            return {"task": "classification"}
        return self._keys("yolo26" if self.picked else "yolov8")

    def task_of_candidates(self, head: Head) -> dict[str, Any]:
        """Return the keys of a task's file if the model ends at `head`."""
        keys = self._keys("yolov8") | {"transposed": head.transposed}
        if self.suppresses:
            return keys
        # A head that finds each object once needs no suppression. Its boxes are
        # corners unless they are turned.
        order = "xywh" if self.kind == "obb" else "xyxy"
        return keys | {
            "order": order,
            "suppression": "none",
            "several": True,
            "limit": min(self.picked, 4096),
        }

    def _keys(self, family: str) -> dict[str, Any]:
        """Return the keys of a family, with the numbers of this network.

        Extra numbers are last in a row of either form.
        """
        keys = dict(FORMATS[family + _SUFFIXES[self.kind]])
        if self.kind == "segment":
            keys["mask_column"] = -self.extra
        if self.kind == "pose":
            number, each = self.points
            keys |= {
                "point_column": -self.extra,
                "points": number,
                "point_numbers": each,
            }
            if number != len(keys["point_names"]):
                keys |= {"point_names": [], "lines": []}
        return {k: v for k, v in keys.items() if k not in ("preprocess", "labels")}


def exported(model: ModelProto) -> Export | None:
    """Return the properties of a file of that exporter.

    None for other files, and if properties and shapes leave a doubt. Raises an error
    for properties that are not valid.
    """
    metadata = {p.key: p.value for p in model.metadata_props}
    if metadata.get("author") != "Ultralytics":
        return None
    if any(len(text) > MAX_PROPERTY_CHARACTERS for text in metadata.values()):
        return None
    kind = metadata.get("task", "")
    # The exporter writes a Python dict from numbers to names.
    names = ast.literal_eval(metadata["names"])
    labels = tuple(str(names[i]) for i in range(len(names)))
    if kind == "classify":
        return Export(kind, labels)
    shape = _shape(model.graph.output[0])
    # Other tasks are unknown, and other shapes have a head of their own.
    if kind not in _SUFFIXES or len(shape) != 3:
        return None

    points = (0, 2)
    if kind == "pose":
        number, each = ast.literal_eval(metadata["kpt_shape"])
        points = (int(number), int(each))
    extra = _extra(model, kind, points)
    candidates = Export(kind, labels, extra, points=points)
    return _picking(candidates, metadata, shape)


def _extra(model: ModelProto, kind: str, points: tuple[int, int]) -> int:
    """Return the count of numbers of a row beyond box and scores."""
    extra = {
        "detect": 0,
        "segment": _planes(model),
        "pose": points[0] * points[1],
        "obb": 1,
    }
    return extra[kind]


def _picking(
    export: Export, metadata: Mapping[str, str], shape: tuple[int, ...]
) -> Export | None:
    """Return the export with the number of boxes that the network picks itself.

    metadata: the properties. shape: of the first output. None if they contradict.
    """
    picked_columns = 6 + export.extra
    candidate_columns = 4 + len(export.labels) + export.extra
    end_to_end = metadata.get("end2end") == "True"
    suppresses = "'nms': True" in metadata.get("args", "") and not end_to_end
    if end_to_end or suppresses:
        if shape[2] != picked_columns:
            return None
        return replace(export, picked=shape[1], suppresses=suppresses)

    # Without a statement, the file is older than the exporter's end-to-end networks, or
    # it is a YOLOv10.
    if shape[1] == candidate_columns:
        return export
    # An RT-DETR's row is a box and a score for each class: with two classes it is as
    # long as a row of a picked box.
    if shape[2] == picked_columns and len(export.labels) != 2:
        return replace(export, picked=shape[1])
    return None


def head_of(model: ModelProto, export: Export) -> Head | None:
    """Return where such a model can end so that all candidates remain.

    It is the first tensor of their shape through which alone the model's inputs reach
    its first output. None if the model does not pick boxes itself.
    """
    if not export.picked:
        return None
    columns = 4 + len(export.labels) + export.extra
    # The file has shapes for inputs and outputs only.
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    producer = {name: node for node in graph.node for name in node.output}
    initializers = {t.name for t in graph.initializer}
    inputs = {i.name for i in graph.input} - initializers
    output, *others = (o.name for o in graph.output)

    # The graph lists the shapes in no order.
    position = {name: number for number, name in enumerate(producer)}
    values = sorted(graph.value_info, key=lambda v: position.get(v.name, 0))
    for value in values:
        sides = _candidate_sides(value, columns)
        if sides is None:
            continue
        behind = _between(value.name, output, producer)
        if _picks_from(value.name, behind, inputs):
            return Head(value.name, (value.name, *others), sides[0] == columns)
    return None


def _candidate_sides(
    value: onnx.ValueInfoProto, columns: int
) -> tuple[int, int] | None:
    """Return the last two dimensions of a tensor of the candidates' shape.

    One of them is `columns`, and the first dimension is 1. None for other tensors.
    """
    shape = _shape(value)
    if len(shape) != 3 or shape[0] != 1:
        return None
    sides = (shape[1], shape[2])
    return sides if sides.count(columns) == 1 else None


def _picks_from(name: str, nodes: Sequence[NodeProto], inputs: set[str]) -> bool:
    """Return whether nodes read a tensor and no input, and pick boxes."""
    read = {tensor for node in nodes for tensor in node.input}
    if name not in read or not read.isdisjoint(inputs):
        return False
    return any(node.op_type in _PICKERS for node in nodes)


def _between(
    name: str, output: str, producer: Mapping[str, NodeProto]
) -> Sequence[NodeProto]:
    """Return the nodes that compute `output` behind the tensor `name`.

    The nodes in front of that tensor are left out.
    """
    nodes: list[NodeProto] = []
    # The search backwards stops at the tensor itself.
    visited = {name}
    waiting = [output]
    while waiting:
        tensor = waiting.pop()
        node = producer.get(tensor)
        if tensor in visited or node is None:
            continue
        visited.update(node.output)
        nodes.append(node)
        waiting += node.input
    return nodes


def _planes(model: ModelProto) -> int:
    """Return the number of prototype masks, the channels of the second output."""
    shapes = [_shape(o) for o in model.graph.output]
    # Prototype masks are [1, masks, height, width].
    if len(shapes) == 2 and len(shapes[1]) == 4:
        return shapes[1][1]
    return 0


def _shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """Return the shape of a value, with 0 for open dimensions."""
    return tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
