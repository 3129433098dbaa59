"""The end of torchvision's single-shot detectors as torch.onnx writes it.

Source: torchvision/models/detection/ssd.py (`postprocess_detections`) and _utils.py
(`BoxCoder.decode_single`): boxes are decoded from anchors and cut off at the borders of
the image; of each class those above a score are sorted, and the best of them go into
non-maximum suppression. The number of boxes there hangs on the picture, so no graph of
fixed shapes can have these nodes. All numbers are read from them. The graph before them
is what it is: it may normalize and resize pictures.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from edgec.frontends.onnx import read_onnx
from edgec.frontends.onnx_file import subgraphs
from edgec.frontends.ultralytics import Head
from edgec.ir import Array

_LARGEST_LOG = np.log(np.float32(1000 / 16))
"""The limit of a box's log size over its anchor's. Boxes of that size, 62 times the
anchor's, reach beyond the image on all sides, so that it has no effect after they are
cut off.
"""


_SIDE = 347
"""Pixels in place of an open side of the input: no detector resizes pictures to it."""


@dataclass(frozen=True)
class Ssd:
    """Such a detector.

    Attributes:
        head: where its graph can end: at boxes [1, N, 4] and scores [1, N, classes], as
            the convolutions compute them.
        keys: of the task's file, without the file of the anchors.
        anchors: the tensor with x1, y1, x2, y2 of the anchors [N, 4], in pixels of the
            picture that the graph resizes its input to.
        size: the tensors with width and height of that picture.
    """

    head: Head
    keys: dict[str, Any]
    anchors: str
    size: tuple[str, str]

    def anchor_file(self, path: Path, model: ModelProto) -> bytes:
        """Return the anchors as the .npy file of a bundle: float32 [N, 4].

        A row has x and y of the centre, width and height, each 0…1 of the picture. path:
        the file of the model. Raises EdgecError if it cannot be read, ValueError if the
        anchors hang on the input.
        """
        (info,) = _inputs(model.graph)
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        given: dict[str, tuple[int, ...]] = {}
        if 0 in shape:
            given[info.name] = (1, shape[1] or 3, shape[2] or _SIDE, shape[3] or _SIDE)
        graph = read_onnx(path, given, outputs=(self.anchors, *self.size))
        corners, width, height = (v.const for v in graph.outputs)
        if corners is None or width is None or height is None:
            raise ValueError("the anchors are computed from the picture")
        image = (float(width.item()), float(height.item()))
        if given and _SIDE in image:
            raise ValueError("the anchors are for an input of one size")

        low, high = np.split(corners.astype(np.float64), 2, axis=1)
        rows = np.concatenate([(low + high) / 2, high - low], axis=1)
        rows /= np.array(image * 2)
        out = io.BytesIO()
        np.save(out, rows.astype(np.float32), allow_pickle=False)
        return out.getvalue()


def ssd_of(model: ModelProto) -> Ssd | None:
    """Return the detector that a model is; None for other models.

    Only a model with one input of one picture is one.
    """
    inputs = _inputs(model.graph)
    if len(inputs) != 1 or len(inputs[0].type.tensor_type.shape.dim) != 4:
        return None
    try:
        return _Nodes.of(model.graph).ssd([o.name for o in model.graph.output])
    # Other nodes, also where there are more or fewer inputs than are unpacked.
    except (ValueError, LookupError):
        return None


def _inputs(graph: GraphProto) -> list[Any]:
    """Return the inputs of a graph; old files list initializers among them."""
    initializers = {t.name for t in graph.initializer}
    return [i for i in graph.input if i.name not in initializers]


_SAME_ELEMENTS = (
    "Cast",
    "Flatten",
    "Identity",
    "Reshape",
    "Split",
    "Squeeze",
    "Unsqueeze",
)
"""Operators with one output that leave the elements in their order."""


@dataclass(frozen=True)
class _Selection:
    """The candidates of a class, the same way for all classes.

    Attributes:
        probabilities: of all boxes and classes.
        boxes: all boxes, as corners.
        threshold: a candidate's probability is above it.
        candidates: the largest number of them.
    """

    probabilities: str
    boxes: str
    threshold: float
    candidates: float


@dataclass(frozen=True)
class _Nodes:
    """The nodes of a graph by what they write, in all its branches.

    The methods follow them backwards, and raise ValueError or LookupError where they are
    not as torchvision's.
    """

    producers: dict[str, NodeProto] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: GraphProto) -> _Nodes:
        """Return the nodes of a graph and of the branches in it."""
        nodes = cls()
        nodes._add(graph)
        return nodes

    def _add(self, graph: GraphProto) -> None:
        for tensor in graph.initializer:
            # Large tensors are weights, and may lie in another file.
            if np.prod(tensor.dims) <= 1:
                self.constants[tensor.name] = numpy_helper.to_array(tensor)
        for node in graph.node:
            self.producers.update((name, node) for name in node.output)
            for branch in subgraphs(node).values():
                self._add(branch)
            for a in node.attribute:
                if node.op_type == "Constant" and a.name == "value":
                    self.constants[node.output[0]] = numpy_helper.to_array(a.t)

    # ---- steps
    # ----------------------------------------------------------------------------------
    def number(self, name: str) -> float:
        """Return a constant of one element."""
        array = self.constants[self.source(name)]
        _require(array.size == 1)
        return float(array.item())

    def node(self, name: str, kind: str) -> NodeProto:
        """Return the node of an operator that writes a tensor."""
        node = self.producers[name]
        _require(node.op_type == kind)
        return node

    def inputs(self, name: str, kind: str) -> Sequence[str]:
        """Return what the node of an operator that writes a tensor reads."""
        return list(self.node(name, kind).input)

    def source(self, name: str) -> str:
        """Return the tensor with the same elements that nodes began with.

        A part of a batch of one is the whole.
        """
        # In a damaged file nodes may form a circle.
        for _ in self.producers:
            node = self.producers.get(name)
            is_whole = node is not None and len(node.output) == 1
            if node is None or node.op_type not in _SAME_ELEMENTS or not is_whole:
                return name
            name = node.input[0]
        raise ValueError("the nodes form a circle")

    def with_number(self, name: str, kind: str) -> tuple[str, float]:
        """Return the two operands of a node, the second one a constant number.

        Factors, and what a maximum is of, may come in any order.
        """
        one, two = self.inputs(name, kind)
        if one in self.constants and kind in ("Max", "Mul"):
            one, two = two, one
        return one, self.number(two)

    def column(self, name: str) -> tuple[str, int]:
        """Return the tensor that a column was gathered from, and its number."""
        node = self.node(name, "Gather")
        _require(_attribute(node, "axis", 0) == 1)
        return node.input[0], int(self.number(node.input[1]))

    def columns(self, name: str, step: int) -> tuple[str, int]:
        """Return the tensor of which each `step`th column was taken, and the first."""
        data, start, end, axis, by = self.inputs(name, "Slice")
        _require(self.number(axis) == 1 and self.number(by) == step)
        _require(self.number(end) > np.iinfo(np.int32).max)
        return data, int(self.number(start))

    # ---- the detector
    # ----------------------------------------------------------------------------------
    def ssd(self, outputs: Sequence[str]) -> Ssd:
        """Return the detector with these outputs: boxes, scores and classes."""
        _require(len(outputs) == 3)
        (scores,) = [o for o in outputs if self._are_scores(o)]
        best, picked = self.inputs(scores, "Gather")
        kept, limit = self._first(picked)
        every, overlap = self._suppression(kept, best)
        selection = self._selection(every, best)
        clipped, size = self._clipped(selection.boxes)
        regression, anchors, scales = self._decoded(clipped)
        softmax = self.node(self.source(selection.probabilities), "Softmax")
        _require(_attribute(softmax, "axis", -1) in (-1, 2))

        head = Head(regression, (regression, softmax.input[0]), transposed=False)
        keys: dict[str, Any] = {
            "task": "detection",
            "boxes": regression,
            "scores": softmax.input[0],
            "scales": scales,
            "several": True,
            "background": True,
            "activation": "softmax",
            "threshold": _short(selection.threshold),
            "clipped": True,
            "candidates": int(selection.candidates),
            "iou": _short(overlap),
            "limit": limit,
        }
        return Ssd(head, keys, anchors, size)

    def _are_scores(self, name: str) -> bool:
        """Return whether an output is picked from the best scores of the classes."""
        node = self.producers.get(name)
        if node is None or node.op_type != "Gather":
            return False
        every = self.producers.get(node.input[0])
        if every is None or every.op_type != "Concat":
            return False
        kinds = [self.producers[i].op_type for i in every.input if i in self.producers]
        return kinds == ["TopK"] * len(every.input)

    def _first(self, picked: str) -> tuple[str, int]:
        """Return the places of all boxes that are left, and how many are told."""
        kept, start, end, axis, step = self.inputs(picked, "Slice")
        _require([self.number(n) for n in (start, axis, step)] == [0, 0, 1])
        return kept, int(self.number(end))

    def _suppression(self, kept: str, best: str) -> tuple[str, float]:
        """Return the boxes of all candidates, and the overlap at which one is dropped.

        kept: places of those that are left, best: the scores of all.
        """
        node = self.producers.get(kept)
        if node is not None and node.op_type == "If":
            # Without a box there is nothing to suppress.
            kept = subgraphs(node)["else_branch"].output[0].name
        table, column = self.column(self.source(kept))
        # A fifth input would be a least score.
        boxes, scores, _, overlap = self.inputs(table, "NonMaxSuppression")
        _require(column == 2 and self.source(scores) == best)

        # Boxes of one class lie far from those of the others.
        every, offsets = self.inputs(self.source(boxes), "Add")
        offsets = self.source(offsets)
        if self.producers[offsets].op_type == "Slice":
            offsets = self.producers[offsets].input[0]
        self.node(offsets, "Mul")
        return every, self.number(overlap)

    def _selection(self, every: str, best: str) -> _Selection:
        """Return how the candidates of all classes but the background are selected.

        every: their boxes, best: their scores.
        """
        boxes = self.inputs(every, "Concat")
        scores = self.inputs(best, "Concat")
        _require(len(boxes) == len(scores))
        found: set[_Selection] = set()
        for label, (own, score) in enumerate(zip(boxes, scores, strict=True), start=1):
            sorted_ = self.node(score, "TopK")
            column, places = self.inputs(sorted_.input[0], "GatherND")
            table, number = self.column(column)
            compared, threshold = self._greater(places)
            _require(compared == column and number == label)

            sure, order = self.inputs(own, "Gather")
            all_boxes, places = self.inputs(sure, "GatherND")
            _require(order == sorted_.output[1])
            _require(self._greater(places) == (column, threshold))

            least = self.inputs(self.source(sorted_.input[1]), "ReduceMin")[0]
            limit, _ = self.inputs(least, "Concat")
            candidates = self.number(limit)
            found.add(_Selection(table, all_boxes, threshold, candidates))
        _require(len(found) == 1)
        return found.pop()

    def _greater(self, places: str) -> tuple[str, float]:
        """Return the tensor whose elements above a number are at these places."""
        nonzero = self.inputs(places, "Transpose")[0]
        greater = self.inputs(nonzero, "NonZero")[0]
        return self.with_number(greater, "Greater")

    def _clipped(self, boxes: str) -> tuple[str, tuple[str, str]]:
        """Return the boxes before they are cut off, and width and height of the image."""
        across, down = self.inputs(self.source(boxes), "Concat")
        table, right = self._least(across, 0)
        other_table, bottom = self._least(down, 1)
        _require(table == other_table)
        return table, (right, bottom)

    def _least(self, part: str, axis: int) -> tuple[str, str]:
        """Return the boxes of which these are x or y, and where they are cut off."""
        positive, end = self.inputs(self.source(part), "Min")
        numbers, zero = self.with_number(positive, "Max")
        table, first = self.columns(numbers, 2)
        _require(zero == 0 and first == axis)
        return table, end

    def _decoded(self, boxes: str) -> tuple[str, str, list[float]]:
        """Return the convolutions' numbers, the anchors, and the four divisors.

        boxes: the corners that are decoded from them.
        """
        corners = self.inputs(self.source(boxes), "Concat")
        _require(len(corners) == 4)
        tables: set[tuple[str, str]] = set()
        scales = [0.0] * 4
        for axis in (0, 1):
            low = self.inputs(self.source(corners[axis]), "Sub")
            high = self.inputs(self.source(corners[axis + 2]), "Add")
            _require(low == high)
            middle, half = low
            size, factor = self.with_number(half, "Mul")
            _require(factor == 0.5)
            grown, extent = self.inputs(size, "Mul")
            shifted, centre = self.inputs(middle, "Add")
            offset, other_extent = self.inputs(shifted, "Mul")
            _require(extent == other_extent)

            clip = self.inputs(self.inputs(grown, "Exp")[0], "Clip")
            _require(len(clip) == 3 and not clip[1])
            _require(bool(np.isclose(self.number(clip[2]), _LARGEST_LOG)))
            for column, divided in ((axis, offset), (axis + 2, clip[0])):
                part, scales[column] = self.with_number(divided, "Div")
                table, first = self.columns(part, 4)
                _require(first == column)
                anchors = self._anchors(self.source(extent), self.source(centre), axis)
                tables.add((self.source(table), anchors))
        _require(len(tables) == 1)
        regression, anchors = tables.pop()
        return regression, anchors, scales

    def _anchors(self, extent: str, centre: str, axis: int) -> str:
        """Return the anchors of which these are a size and a centre."""
        end, start = self.inputs(extent, "Sub")
        table, last = self.column(end)
        other_start, half = self.inputs(centre, "Add")
        _require(self.with_number(half, "Mul") == (extent, 0.5))
        _require(self.column(start) == self.column(other_start) == (table, axis))
        _require(last == axis + 2)
        return table


def _require(is_so: bool) -> None:
    """Raise ValueError unless something is so."""
    if not is_so:
        raise ValueError("these are other nodes than torchvision's")


def _attribute(node: NodeProto, name: str, default: Any) -> Any:
    """Return an attribute of a node."""
    for a in node.attribute:
        if a.name == name:
            return helper.get_attribute_value(a)
    return default


def _short(number: float) -> float:
    """Return the shortest number that is the same in float32."""
    return float(str(np.float32(number)))
