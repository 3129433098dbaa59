"""Small networks whose outputs and metadata are those of a YOLO as Ultralytics'
exporter writes it.

The layers in front are a few convolutions with weights of a fixed seed.  What is behind
them is written from the exporter's documentation: boxes as distances from the anchors,
scores by sigmoid, all in one tensor [1, 4 + classes + extra, anchors]; and, end to end,
the best of them picked by two TopK, as rows [1, detections, 6 + extra].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgec.ir import Array

SIDE = 64
STRIDE = 8
CLASSES = 3
MASKS = 4
POINTS = 2
ANCHORS = (SIDE // STRIDE) ** 2
EXTRA = {"detect": 0, "segment": MASKS, "pose": 3 * POINTS, "obb": 1}
"""Numbers of a row beyond its box and its scores."""


@dataclass
class Nodes:
    """A graph as it grows."""

    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))

    def add(
        self, kind: str, inputs: list[str], outputs: int = 1, **attributes: Any
    ) -> Any:
        names = [f"{kind}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(
            helper.make_node(kind, inputs, names, name=names[0], **attributes)
        )
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def convolution(
        self, x: str, read: int, written: int, size: int, bias: float = 0.0
    ) -> str:
        weights = self.rng.normal(
            0, 1.5 / size / read**0.5, (written, read, size, size)
        )
        biases = self.rng.normal(bias, 0.3, written)
        return str(
            self.add(
                "Conv",
                [x, self.constant(weights), self.constant(biases)],
                strides=[size, size],
            )
        )

    def flat(self, x: str, channels: int) -> str:
        return str(
            self.add("Reshape", [x, self.constant([1, channels, ANCHORS], np.int64)])
        )


def _anchors() -> Array:
    """float32 [2, N], x and y of the cells' middles, in cells."""
    y, x = np.meshgrid(
        np.arange(SIDE // STRIDE) + 0.5, np.arange(SIDE // STRIDE) + 0.5, indexing="ij"
    )
    return np.stack([x.reshape(-1), y.reshape(-1)]).astype(np.float32)


def _boxes(g: Nodes, features: str, corners: bool, angle: str | None) -> str:
    """[1, 4, N] in pixels: x1, y1, x2, y2, or x and y of the centre, width and height."""
    distances = g.add("Relu", [g.flat(g.convolution(features, 16, 4, 1, bias=1.5), 4)])
    low, high = g.add("Split", [distances], 2, axis=1)
    anchors = g.constant(_anchors()[None])
    if angle is None:
        one = g.add("Sub", [anchors, low])
        two = g.add("Add", [anchors, high])
        size = g.add("Sub", [two, one])
        both = g.add("Add", [one, two])
        middle = g.add("Mul", [both, g.constant(0.5)])
    else:
        # the middle is off the anchor by half the difference of the distances, turned
        size = g.add("Add", [low, high])
        x, y = g.add(
            "Split",
            [g.add("Mul", [g.add("Sub", [high, low]), g.constant(0.5)])],
            2,
            axis=1,
        )
        sine = g.add("Sin", [angle])
        cosine = g.add("Cos", [angle])
        off_x = g.add("Sub", [g.add("Mul", [x, cosine]), g.add("Mul", [y, sine])])
        off_y = g.add("Add", [g.add("Mul", [x, sine]), g.add("Mul", [y, cosine])])
        middle = g.add("Add", [anchors, g.add("Concat", [off_x, off_y], axis=1)])
    pair = [one, two] if corners and angle is None else [middle, size]
    return str(g.add("Mul", [g.add("Concat", pair, axis=1), g.constant(STRIDE)]))


def _extra(g: Nodes, features: str, task: str) -> list[str]:
    if task == "segment":
        return [g.flat(g.convolution(features, 16, MASKS, 1), MASKS)]
    if task == "obb":
        sure = g.add("Sigmoid", [g.flat(g.convolution(features, 16, 1, 1), 1)])
        return [
            g.add("Mul", [g.add("Sub", [sure, g.constant(0.25)]), g.constant(np.pi)])
        ]
    if task == "pose":
        shape = g.constant([1, POINTS, 3, ANCHORS], np.int64)
        points = g.add("Reshape", [g.convolution(features, 16, 3 * POINTS, 1), shape])
        xy, seen = g.add("Split", [points, g.constant([2, 1], np.int64)], 2, axis=2)
        at = g.add(
            "Mul",
            [
                g.add("Add", [xy, g.constant(_anchors()[None, None])]),
                g.constant(STRIDE),
            ],
        )
        return [
            g.flat(g.add("Concat", [at, g.add("Sigmoid", [seen])], axis=2), 3 * POINTS)
        ]
    return []


def _end_to_end(g: Nodes, raw: str, extra: int, detections: int, unknown: bool) -> str:
    """The best `detections` of all pairs of an anchor and a class, among the anchors
    whose best class is best.
    """
    rows = g.add("Transpose", [raw], perm=[0, 2, 1])
    parts = [4, CLASSES, *([extra] if extra else [])]
    boxes, scores, *rest = g.add(
        "Split", [rows, g.constant(parts, np.int64)], len(parts), axis=2
    )
    count = g.constant([detections], np.int64)
    last = g.constant([-1], np.int64)
    _, best = g.add(
        "TopK", [g.add("ReduceMax", [scores], axes=[-1], keepdims=0), count], 2
    )
    column = g.add("Unsqueeze", [best, last])
    every = g.add("Expand", [column, g.constant([1, detections, CLASSES], np.int64)])
    flat = g.add("Flatten", [g.add("GatherElements", [scores, every], axis=1)])
    score, index = g.add("TopK", [flat, count], 2)
    classes = g.constant(CLASSES, np.int64)
    row = g.add("GatherElements", [best, g.add("Div", [index, classes])], axis=1)
    picked = g.add("Unsqueeze", [row, last])
    label = g.add(
        "Cast",
        [g.add("Unsqueeze", [g.add("Mod", [index, classes]), last])],
        to=TensorProto.FLOAT,
    )

    def of(x: str, columns: int) -> str:
        wide = g.add("Expand", [picked, g.constant([1, detections, columns], np.int64)])
        return str(g.add("GatherElements", [x, wide], axis=1))

    found = [
        of(boxes, 4),
        g.add("Unsqueeze", [score, last]),
        label,
        *[of(x, extra) for x in rest],
    ]
    rows = g.add("Concat", found, axis=2)
    return str(g.add("Unknown", [rows], domain="example") if unknown else rows)


def yolo(
    path: Path,
    kind: str,
    end_to_end: bool,
    detections: int = 20,
    unknown: bool = False,
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Writes such a network.  kind: of EXTRA, or "classify".  metadata: in place of
    what the exporter writes.

    unknown: behind the boxes that it picks is an operator that nobody knows.
    """
    g = Nodes()
    outputs = []
    features = g.add("Relu", [g.convolution("images", 3, 16, STRIDE)])
    if kind == "classify":
        pooled = g.add("Flatten", [g.add("GlobalAveragePool", [features])])
        weights = g.constant(g.rng.normal(0, 1, (16, CLASSES)))
        outputs = [
            (
                g.add("Softmax", [g.add("MatMul", [pooled, weights])], axis=1),
                [1, CLASSES],
            )
        ]
    else:
        extra = _extra(g, features, kind)
        angle = extra[0] if kind == "obb" else None
        boxes = _boxes(g, features, end_to_end, angle)
        scores = g.add(
            "Sigmoid",
            [g.flat(g.convolution(features, 16, CLASSES, 1, bias=-0.5), CLASSES)],
        )
        raw = g.add("Concat", [boxes, scores, *extra], axis=1)
        rows = 4 + CLASSES + EXTRA[kind]
        outputs = [(raw, [1, rows, ANCHORS])]
        if end_to_end:
            found = _end_to_end(g, raw, EXTRA[kind], detections, unknown)
            outputs = [(found, [1, detections, 6 + EXTRA[kind]])]
        if kind == "segment":
            planes = 2 * SIDE // STRIDE
            outputs += [
                (
                    g.convolution("images", 3, MASKS, STRIDE // 2),
                    [1, MASKS, planes, planes],
                )
            ]
    for i, (name, _) in enumerate(outputs):
        g.nodes.append(helper.make_node("Identity", [name], [f"output{i}"]))
    graph = helper.make_graph(
        g.nodes,
        "main_graph",
        [
            helper.make_tensor_value_info(
                "images", TensorProto.FLOAT, [1, 3, SIDE, SIDE]
            )
        ],
        [
            helper.make_tensor_value_info(f"output{i}", TensorProto.FLOAT, s)
            for i, (_, s) in enumerate(outputs)
        ],
        g.constants,
    )
    domains = [
        helper.make_opsetid("", 17),
        *([helper.make_opsetid("example", 1)] if unknown else []),
    ]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8)
    said = {
        "author": "Ultralytics",
        "task": kind,
        "stride": "32",
        "batch": "1",
        "imgsz": f"[{SIDE}, {SIDE}]",
        "names": str({i: f"thing {i}" for i in range(CLASSES)}),
        "channels": "3",
        "end2end": str(end_to_end and kind != "classify"),
        **({"kpt_shape": f"[{POINTS}, 3]"} if kind == "pose" else {}),
        **metadata,
    }
    for key, value in said.items():
        model.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path
