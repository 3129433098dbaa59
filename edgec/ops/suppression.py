"""The best of boxes that overlap, as TensorFlow's detectors end in TFLite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, KernelCall, Op, OpDef, Sample, Struct, TensorType, TfliteOp
from edgec.ir.opdef import Arg
from edgec.ops.common import real_types

_F = np.float32
_MOST = 1 << 16


@dataclass(frozen=True)
class NonMaxSuppression(OpDef):
    """Boxes [N,4] of two corners (y, x) and scores [N] → places [M], scores [M], how
    many there are [], best first.

    A score has to be above `score`; a box that overlaps a better one by `overlap` or
    more counts for nothing.
    """

    most: int
    overlap: float
    score: float

    kind = "non_max_suppression"
    tflite = ("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
    roles: ClassVar[tuple[str, ...]] = ("act", "act")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """M of each; zeros where there are fewer."""
        real_types(self, *x, int8=False)
        boxes, scores = x
        if (
            scores.rank != 1
            or boxes.shape != (*scores.shape, 4)
            or not 1 <= self.most <= _MOST
        ):
            raise ValueError(
                f"{self.most} of the boxes {boxes} with the scores {scores}"
            )
        return (
            TensorType((self.most,), "int32"),
            TensorType((self.most,)),
            TensorType((), "int32"),
        )

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """tensorflow/lite/kernels/internal/reference/non_max_suppression.h without its
        soft form, in float32.
        """
        corners = np.concatenate(
            [
                np.minimum(x[0][:, :2], x[0][:, 2:]),
                np.maximum(x[0][:, :2], x[0][:, 2:]),
            ],
            1,
        )
        kept: list[int] = []
        for i in np.argsort(-x[1], kind="stable"):
            if len(kept) == self.most or not x[1][i] > _F(self.score):
                break
            if all(overlap(corners[k], corners[i]) < _F(self.overlap) for k in kept):
                kept.append(int(i))
        places = np.zeros(self.most, np.int32)
        scores = np.zeros(self.most, _F)
        places[: len(kept)], scores[: len(kept)] = kept, x[1][kept]
        return [places, scores, np.array(len(kept), np.int32)]

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Limits must be constant; the soft form, which lowers scores, is not read."""
        most, overlapping, score = (op.const(i).item() for i in (2, 3, 4))
        if op.name.endswith("V5") and op.const(5).item() > 0:
            raise ValueError("soft suppression (a sigma above 0) is not supported")
        spec = cls(int(most), float(overlapping), float(score))
        inputs = [op.input(0), op.input(1)]
        b = op.build
        types = spec.infer(*(v.type for v in inputs))
        places, *scores, count = op.outputs
        outputs = [
            places,
            *(scores or [b.value(f"{places.name}_scores", types[1])]),
            count,
        ]
        for v, t in zip(outputs, types, strict=True):
            v.type = t  # files declare no sizes
        b.write(spec, inputs, outputs)

    def c(self, op: Op) -> KernelCall:
        """ek_suppression_f32."""
        spec = Struct(
            "ek_suppression_t",
            boxes=op.inputs[1].type.size,
            most=self.most,
            overlap=self.overlap,
            score=self.score,
        )
        return KernelCall.of("ek_suppression_f32", *op.inputs, *op.outputs, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Boxes that overlap, some with swapped corners or without an area; equal
        scores; fewer than asked for.
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
    """Intersection over union of boxes (top, left, bottom, right); 0 where one has no
    area.
    """
    of_a, of_b = ((v[2] - v[0]) * (v[3] - v[1]) for v in (a, b))
    if of_a <= 0 or of_b <= 0:
        return 0.0
    h, w = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), _F(0))
    return float(h * w / (of_a + of_b - h * w))
