"""What Ultralytics' exporter writes into an .onnx file, and what its networks answer.

Facts are from its documentation (docs.ultralytics.com: modes/export,
guides/end2end-detection): the properties `task`, `names`, `kpt_shape`, `end2end` and
`args`; outputs [1, 4 + classes + extra, anchors] with all candidates, or, end to end,
[1, detections, 6 + extra] with those that the network has picked. Extra are factors of
prototype masks, points with how sure they are seen, or the angle of a turned box.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import ModelProto, NodeProto

from edgec.frontends.task_formats import FORMATS

_MAX_TEXT = 1 << 20
"""Bytes of a property."""

_PICKERS = ("TopK", "NonMaxSuppression")
"""Operators by which a network picks boxes."""

_SUFFIXES = {"detect": "", "segment": "-seg", "pose": "-pose", "obb": "-obb"}
"""Of the families in FORMATS, by the exporter's task."""


@dataclass(frozen=True)
class Head:
    """The tensor with all candidates that an end-to-end network picks its boxes from.

    outputs: the names of the model's outputs, with that tensor's in place of the first.
    """

    name: str
    outputs: tuple[str, ...]
    transposed: bool


@dataclass(frozen=True)
class Export:
    """One file. kind: detect, segment, pose, obb or classify. extra: numbers of a row
    beyond box and scores.

    picked: how many boxes the network picks itself, 0 for none; suppresses: by
    non-maximum suppression, not by a head that was trained to find each object once.
    points: how many a box has, and the numbers of each.
    """

    kind: str
    labels: tuple[str, ...]
    extra: int = 0
    picked: int = 0
    suppresses: bool = False
    points: tuple[int, int] = (0, 2)

    def task(self) -> dict[str, Any]:
        """The keys of a task's file, without preprocessing and labels."""
        if self.kind == "classify":
            return {"task": "classification"}
        return self._keys("yolo26" if self.picked else "yolov8")

    def task_of_candidates(self, head: Head) -> dict[str, Any]:
        """The same where the model ends at `head`."""
        keys = self._keys("yolov8") | {"transposed": head.transposed}
        if self.suppresses:
            return keys
        # a head that finds each object once: no suppression, and corners but where
        # boxes are turned
        order = "xywh" if self.kind == "obb" else "xyxy"
        return keys | {
            "order": order,
            "suppression": "none",
            "several": True,
            "limit": min(self.picked, 4096),
        }

    def _keys(self, family: str) -> dict[str, Any]:
        """Of a family, with the numbers of this network: what is extra is last in a row
        of either form.
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
    """What a file of that exporter says; None for another's, and where its properties
    and shapes leave a doubt.
    """
    said = {p.key: p.value for p in model.metadata_props}
    if said.get("author") != "Ultralytics" or any(
        len(text) > _MAX_TEXT for text in said.values()
    ):
        return None
    kind = said.get("task", "")
    names = ast.literal_eval(said["names"])
    labels = tuple(str(names[i]) for i in range(len(names)))
    if kind == "classify":
        return Export(kind, labels)
    shape = _shape(model.graph.output[0])
    if kind not in _SUFFIXES or len(shape) != 3:
        return None
    points = (0, 2)
    if kind == "pose":
        number, each = ast.literal_eval(said["kpt_shape"])
        points = int(number), int(each)
    extra = {
        "detect": 0,
        "segment": _planes(model),
        "pose": points[0] * points[1],
        "obb": 1,
    }[kind]
    # one of the two, where the file says so; else it is one that is older than its
    # end-to-end networks, or a YOLOv10
    end_to_end = said.get("end2end") == "True"
    suppresses = "'nms': True" in said.get("args", "") and not end_to_end
    if end_to_end or suppresses:
        if shape[2] == 6 + extra:
            return Export(kind, labels, extra, shape[1], suppresses, points)
        return None
    if shape[1] == 4 + len(labels) + extra:
        return Export(kind, labels, extra, points=points)
    # an RT-DETR's row is a box and a score for each class: with two classes it is as
    # long as one that was picked
    if shape[2] == 6 + extra and len(labels) != 2:
        return Export(kind, labels, extra, shape[1], points=points)
    return None


def head_of(model: ModelProto, found: Export) -> Head | None:
    """Where such a model can end so that all candidates are left; None where it does
    not pick any itself.

    It is the first tensor of their shape by which alone the model's inputs reach its
    first output.
    """
    if not found.picked:
        return None
    columns = 4 + len(found.labels) + found.extra
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    made = {name: node for node in graph.node for name in node.output}
    inputs = {i.name for i in graph.input} - {t.name for t in graph.initializer}
    output, *others = (o.name for o in graph.output)
    in_order = {name: number for number, name in enumerate(made)}
    for value in sorted(graph.value_info, key=lambda v: in_order.get(v.name, 0)):
        batch, *shape = _shape(value) or (0,)
        if batch != 1 or len(shape) != 2 or shape.count(columns) != 1:
            continue
        nodes = _between(value.name, output, made)
        read = {name for node in nodes for name in node.input}
        if (
            value.name in read
            and not read & inputs
            and any(n.op_type in _PICKERS for n in nodes)
        ):
            return Head(value.name, (value.name, *others), shape[0] == columns)
    return None


def _between(
    name: str, output: str, made: Mapping[str, NodeProto]
) -> Sequence[NodeProto]:
    """The nodes from which `output` is computed, without those in front of the tensor
    `name`.
    """
    found = list[NodeProto]()
    seen = {name}
    ahead = [output]
    while ahead:
        tensor = ahead.pop()
        node = made.get(tensor)
        if tensor in seen or node is None:
            continue
        seen.update(node.output)
        found.append(node)
        ahead += node.input
    return found


def _planes(model: ModelProto) -> int:
    """Of the prototype masks, the second output."""
    shapes = [_shape(o) for o in model.graph.output]
    return shapes[1][1] if len(shapes) == 2 and len(shapes[1]) == 4 else 0


def _shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """0 for what the file leaves open."""
    return tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
