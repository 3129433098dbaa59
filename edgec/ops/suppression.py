"""Non-maximum suppression: the best of boxes that overlap.

TensorFlow's detectors end in it when they are converted to TFLite. Semantics: TFLite
NON_MAX_SUPPRESSION_V4 and V5 (reference/non_max_suppression.h) without the soft form.
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
)
from edgec.ir.c_structs import SuppressionParams
from edgec.ir.opdef import Arg
from edgec.ops.common import float_kernel, real_types

_SUPPRESSION = float_kernel("suppression", "ek_detection.h")

_F = np.float32
MAX_BOXES = 1 << 16
"""Largest number of selected boxes."""


@dataclass(frozen=True)
class NonMaxSuppression(OpDef):
    """Greedy non-maximum suppression of boxes [N, 4] with scores [N].

    Boxes are two opposite corners (y, x, y, x). Outputs, best first: places [M] of the
    selected boxes, their scores [M], their number []; the rest of both lists is zero.

    Attributes:
        most: M, the largest number of selected boxes
        overlap: intersection over union with a better box at which a box is dropped
        score: a box must score above it
    """

    most: int
    overlap: float
    score: float

    kind = "non_max_suppression"
    tflite = ("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
    roles: ClassVar[tuple[str, ...]] = ("act", "act")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the types of places, scores and number.

        Raises ValueError when boxes and scores do not fit.
        """
        real_types(self, *x, int8=False)
        boxes, scores = x
        is_fitting = scores.rank == 1 and boxes.shape == (*scores.shape, 4)
        if not is_fitting or not 1 <= self.most <= MAX_BOXES:
            raise ValueError(
                f"{self.most} of the boxes {boxes} with the scores {scores}"
            )

        return (
            TensorType((self.most,), "int32"),
            TensorType((self.most,)),
            TensorType((), "int32"),
        )

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the selection in float32.

        Source: tensorflow/lite/kernels/internal/reference/non_max_suppression.h.
        """
        boxes, scores = x
        # Corners may come in any order.
        first = boxes[:, :2]
        second = boxes[:, 2:]
        low = np.minimum(first, second)
        high = np.maximum(first, second)
        corners = np.concatenate([low, high], 1)

        # From the best score down; a stable order for equal ones.
        selected: list[int] = []
        for i in np.argsort(-scores, kind="stable"):
            if len(selected) == self.most or not scores[i] > _F(self.score):
                break
            overlaps = (overlap(corners[k], corners[i]) for k in selected)
            if all(ratio < _F(self.overlap) for ratio in overlaps):
                selected.append(int(i))

        # The rest of the lists is zero.
        count = len(selected)
        places = np.zeros(self.most, np.int32)
        places[:count] = selected
        best_scores = np.zeros(self.most, _F)
        best_scores[:count] = scores[selected]

        return [places, best_scores, np.array(count, np.int32)]

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the operator with constant limits.

        The soft form of V5 (a sigma above 0), which lowers scores, is refused. V4 may
        lack the output of scores.
        """
        b = op.build
        most = op.const(2).item()
        max_overlap = op.const(3).item()
        min_score = op.const(4).item()
        if op.name.endswith("V5") and op.const(5).item() > 0:
            raise ValueError("soft suppression (a sigma above 0) is not supported")

        spec = cls(int(most), float(max_overlap), float(min_score))
        inputs = [op.input(0), op.input(1)]
        types = spec.infer(*(v.type for v in inputs))
        places, *scores, count = op.outputs
        if not scores:
            scores = [b.value(f"{places.name}_scores", types[1])]

        # Files declare no sizes of these outputs.
        outputs = [places, *scores, count]
        for value, type_ in zip(outputs, types, strict=True):
            value.type = type_

        b.write(spec, inputs, outputs)

    def c(self, op: Op) -> KernelCall:
        """Return ek_suppression_f32."""
        spec = SuppressionParams(
            boxes=op.inputs[1].type.size,
            most=self.most,
            overlap=self.overlap,
            score=self.score,
        )
        return KernelCall.of(_SUPPRESSION, *op.inputs, *op.outputs, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield boxes that overlap, and fewer boxes than asked for.

        Some have swapped corners or no area, and scores are equal among them.
        """
        rng = np.random.default_rng(4)
        first = rng.random((40, 2), _F)
        size = rng.random((40, 2), _F) * _F(0.6) - _F(0.2)
        boxes = np.concatenate([first, first + size], 1).astype(_F)
        boxes[7, 2:] = boxes[7, :2]
        scores = np.round(rng.random(40) * 8).astype(_F) / 8
        args = (
            Arg(TensorType(boxes.shape), True, boxes),
            Arg(TensorType(scores.shape), True, scores),
        )
        yield Sample(cls(6, 0.4, 0.1), args, label="best")
        yield Sample(cls(64, 0.2, 0.5), args, label="few")


def overlap(a: Array, b: Array) -> float:
    """Return the intersection over union of two boxes (top, left, bottom, right).

    It is 0 when a box has no area.
    """
    a_area = (a[2] - a[0]) * (a[3] - a[1])
    b_area = (b[2] - b[0]) * (b[3] - b[1])
    if a_area <= 0 or b_area <= 0:
        return 0.0

    low = np.maximum(a[:2], b[:2])
    high = np.minimum(a[2:], b[2:])
    height, width = np.maximum(high - low, _F(0))

    # Boxes apart from each other have a side of 0.
    intersection = height * width

    return float(intersection / (a_area + b_area - intersection))
