"""The end of TensorFlow's single-shot detectors: boxes decoded from anchors, then
non-maximum suppression.

Semantics: TFLite_Detection_PostProcess (tensorflow/lite/kernels/
detection_postprocess.cc) with its fast suppression; SSD, Liu et al. 2016,
arXiv:1512.02325.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    Op,
    OpDef,
    Sample,
    TensorType,
    TfliteOp,
    Value,
)
from edgec.ir.c_structs import DetectionParams
from edgec.ir.opdef import Arg
from edgec.ir.types import dequantize
from edgec.ops.argmax import ArgMax
from edgec.ops.common import custom_options, float_kernel, real_types
from edgec.ops.quantize import Dequantize
from edgec.ops.suppression import overlap

_DETECTION = float_kernel("detection", "ek_detection.h")

_F = np.float32
MAX_DETECTIONS = 1 << 16
"""Largest number of detections."""


@dataclass(frozen=True)
class Detections(OpDef):
    """Boxes [1, N, 4], scores [1, N, C] and anchors [N, 4] decoded to detections.

    Boxes are (y, x, h, w), centre and size relative to their anchors, which are centres
    and sizes too. Outputs, best first: corners (top, left, bottom, right) [1, M, 4],
    classes [1, M], scores [1, M], their number [1]; the rest of the lists is zero. A
    box counts by its best class.

    Attributes:
        most: M, the largest number of detections
        background: the number of first classes that stand for no object
        scale: divisors of y, x, h, w
        score: least score of a detection
        overlap: intersection over union with a better box above which a box is dropped
    """

    most: int
    background: int
    scale: tuple[float, float, float, float]
    score: float
    overlap: float

    kind = "detections"
    tflite = ("custom TFLite_Detection_PostProcess",)
    roles: ClassVar[tuple[str, ...]] = ("act", "act", "act")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the types of corners, classes, scores and number.

        Raises ValueError when the inputs do not fit, or no class is left.
        """
        real_types(self, *x, int8=False)
        boxes, scores, anchors = (t.shape for t in x)
        n = boxes[1] if len(boxes) == 3 else 0
        is_scores = len(scores) == 3 and scores[:2] == (1, n)
        if boxes != (1, n, 4) or not is_scores or anchors != (n, 4):
            raise ValueError(f"boxes {x[0]}, scores {x[1]} and anchors {x[2]}")

        # The background classes never count.
        classes = scores[2]
        has_classes = 0 <= self.background < classes
        if not 1 <= self.most <= MAX_DETECTIONS or not has_classes:
            raise ValueError(
                f"{self.most} detections of {classes - self.background} classes"
            )

        return (
            TensorType((1, self.most, 4)),
            TensorType((1, self.most)),
            TensorType((1, self.most)),
            TensorType((1,)),
        )

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the detections in float32.

        Source: tensorflow/lite/kernels/detection_postprocess.cc.
        """
        corners = self._corners(x[0][0], x[2])
        class_scores = x[1][0][:, self.background :]
        (classes,) = ArgMax(1).ref([class_scores], [], [])
        scores = class_scores[np.arange(len(class_scores)), classes]

        # From the best score down; a stable order for equal ones.
        selected: list[int] = []
        for i in np.argsort(-scores, kind="stable"):
            if len(selected) == self.most or not scores[i] >= _F(self.score):
                break
            # An overlap that is not a number drops no box.
            overlaps = (overlap(corners[k], corners[i]) for k in selected)
            if not any(ratio > _F(self.overlap) for ratio in overlaps):
                selected.append(int(i))

        # The rest of the lists is zero.
        y = [np.zeros(t.shape, _F) for t in yt]
        count = len(selected)
        y[0][0, :count] = corners[selected]
        y[1][0, :count] = classes[selected]
        y[2][0, :count] = scores[selected]
        y[3][0] = count

        return y

    def _corners(self, boxes: Array, anchors: Array) -> Array:
        """Return (top, left, bottom, right) of every box.

        centre = anchor centre + offset / scale * anchor size;
        size = exp(log size / scale) * anchor size.
        """
        scaled = boxes / np.array(self.scale, _F)
        anchor_centre = anchors[:, :2]
        anchor_size = anchors[:, 2:]
        centre = scaled[:, :2] * anchor_size + anchor_centre
        half = _F(0.5) * np.exp(scaled[:, 2:]) * anchor_size

        return np.concatenate([centre - half, centre + half], 1)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the fast suppression with one class for each detection.

        Exporters write no other form.
        """
        options = custom_options(op)
        is_regular = options.get("use_regular_nms", False)
        if is_regular or options["max_classes_per_detection"] != 1:
            raise ValueError(
                "suppression by class (use_regular_nms) and several classes for a box "
                "are not supported"
            )

        # The kernel computes in float32.
        inputs = [_as_float(op, op.input(i)) for i in range(3)]
        scale_names = ("y_scale", "x_scale", "h_scale", "w_scale")
        y_scale, x_scale, h_scale, w_scale = (float(options[n]) for n in scale_names)
        classes = inputs[1].type.shape[-1]
        spec = cls(
            most=int(options["max_detections"]),
            background=classes - int(options["num_classes"]),
            scale=(y_scale, x_scale, h_scale, w_scale),
            score=float(options["nms_score_threshold"]),
            overlap=float(options["nms_iou_threshold"]),
        )

        # Files declare no sizes of these outputs.
        types = spec.infer(*(v.type for v in inputs))
        for value, type_ in zip(op.outputs, types, strict=True):
            value.type = type_

        op.build.write(spec, inputs, op.outputs)

    def c(self, op: Op) -> KernelCall:
        """Return ek_detection_f32."""
        _, boxes, classes = op.inputs[1].type.shape
        y_scale, x_scale, h_scale, w_scale = self.scale
        spec = DetectionParams(
            boxes=boxes,
            classes=classes,
            background=self.background,
            most=self.most,
            y_scale=y_scale,
            x_scale=x_scale,
            h_scale=h_scale,
            w_scale=w_scale,
            score=self.score,
            overlap=self.overlap,
        )

        return KernelCall.of(_DETECTION, *op.inputs, *op.outputs, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield many boxes that overlap, equal scores, and fewer detections than asked
        for.
        """
        # Anchors on a grid overlap their neighbours.
        places = np.linspace(0.1, 0.9, 6, dtype=_F)
        centres = np.stack(np.meshgrid(places, places), -1).reshape(-1, 2)
        anchors = np.concatenate([centres, np.full_like(centres, 0.3)], 1)
        n = len(anchors)
        anchor_arg = Arg(TensorType(anchors.shape), True, anchors)
        boxes = Arg(TensorType((1, n, 4)))
        scores = Arg(TensorType((1, n, 5)))
        scale = (10.0, 10.0, 5.0, 5.0)

        random = (boxes, scores, anchor_arg)
        yield Sample(cls(10, 1, scale, 0.1, 0.5), random, label="background")
        yield Sample(cls(40, 0, scale, 1.0, 0.1), random, label="few")

        rng = np.random.default_rng(2)
        rounded = np.round(rng.random((1, n, 5)) * 3).astype(_F)
        equal_scores = Arg(TensorType(rounded.shape), True, rounded)
        equal = (boxes, equal_scores, anchor_arg)
        yield Sample(cls(12, 1, scale, 1.0, 0.4), equal, label="equal")


def _as_float(op: TfliteOp, value: Value) -> Value:
    """Return the reals of a quantized tensor; a float tensor as it is."""
    if not value.type.is_quantized:
        return value

    name = f"{value.name}_real"
    if value.const is None:
        return op.build.add(Dequantize(), [value], name)

    return op.build.const(dequantize(value.const, value.type), name)
