"""The end of TensorFlow's single-shot detectors: boxes decoded from anchors, the best
of those that overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, KernelCall, Op, OpDef, Sample, Struct, TensorType, TfliteOp
from edgec.ir.opdef import Arg
from edgec.ir.types import dequantize
from edgec.ops.common import custom_options, real_types
from edgec.ops.quantize import Dequantize
from edgec.ops.suppression import overlap

_F = np.float32
_MOST = 1 << 16


@dataclass(frozen=True)
class Detections(OpDef):
    """Boxes [1,N,4], scores [1,N,C] and anchors [N,4] → boxes [1,M,4], classes [1,M],
    scores [1,M], their count [1].

    Boxes are centre and size (y, x, h, w) in units of the anchors' size times 1 /
    scale, and become corners (top, left, bottom, right). Each counts by its best class;
    the first `background` classes count for nothing.
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
        """M detections; zeros where there are fewer."""
        real_types(self, *x, int8=False)
        boxes, scores, anchors = (t.shape for t in x)
        n = boxes[1] if len(boxes) == 3 else 0
        if (
            boxes != (1, n, 4)
            or scores[:2] != (1, n)
            or len(scores) != 3
            or anchors != (n, 4)
        ):
            raise ValueError(f"boxes {x[0]}, scores {x[1]} and anchors {x[2]}")
        if not 1 <= self.most <= _MOST or not 0 <= self.background < scores[2]:
            raise ValueError(
                f"{self.most} detections of {scores[2] - self.background} classes"
            )
        return tuple(
            TensorType(shape)
            for shape in ((1, self.most, 4), (1, self.most), (1, self.most), (1,))
        )

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """tensorflow/lite/kernels/detection_postprocess.cc with its fast suppression,
        in float32.
        """
        corners = self._corners(x[0][0], x[2])
        real = x[1][0][:, self.background :]
        own = real.argmax(1)
        best = real[np.arange(len(real)), own]
        kept: list[int] = []
        for i in np.argsort(-best, kind="stable"):
            if len(kept) == self.most or not best[i] >= _F(self.score):
                break
            # NaN is no overlap
            if not any(
                overlap(corners[k], corners[i]) > _F(self.overlap) for k in kept
            ):
                kept.append(int(i))
        y = [np.zeros(t.shape, _F) for t in yt]
        for out, values in zip(y, (corners, own, best), strict=False):
            out[0, : len(kept)] = values[kept]
        y[3][0] = len(kept)
        return y

    def _corners(self, boxes: Array, anchors: Array) -> Array:
        """top, left, bottom, right of every box."""
        scaled = boxes / np.array(self.scale, _F)
        centre = scaled[:, :2] * anchors[:, 2:] + anchors[:, :2]
        half = _F(0.5) * np.exp(scaled[:, 2:]) * anchors[:, 2:]
        return np.concatenate([centre - half, centre + half], 1)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Of the fast suppression alone, with one class for each detection: what
        exporters write.
        """
        given = custom_options(op)
        if (
            given.get("use_regular_nms", False)
            or given["max_classes_per_detection"] != 1
        ):
            raise ValueError(
                "suppression by class (use_regular_nms) and several classes for a box "
                "are not supported"
            )
        b = op.build
        inputs = []
        for i in range(3):
            v = op.input(i)
            if v.type.is_quantized:
                data = v.const
                name = f"{v.name}_real"
                if data is None:
                    v = b.add(Dequantize(), [v], name)
                else:
                    v = b.const(dequantize(data, v.type), name)
            inputs.append(v)
        spec = cls(
            int(given["max_detections"]),
            inputs[1].type.shape[-1] - int(given["num_classes"]),
            (
                float(given["y_scale"]),
                float(given["x_scale"]),
                float(given["h_scale"]),
                float(given["w_scale"]),
            ),
            float(given["nms_score_threshold"]),
            float(given["nms_iou_threshold"]),
        )
        for v, t in zip(op.outputs, spec.infer(*(v.type for v in inputs)), strict=True):
            v.type = t  # files declare no sizes
        b.write(spec, inputs, op.outputs)

    def c(self, op: Op) -> KernelCall:
        """ek_detection_f32."""
        scores = op.inputs[1].type.shape
        y, x, h, w = self.scale
        spec = Struct(
            "ek_detection_t",
            boxes=scores[1],
            classes=scores[2],
            background=self.background,
            most=self.most,
            y_scale=y,
            x_scale=x,
            h_scale=h,
            w_scale=w,
            score=self.score,
            overlap=self.overlap,
        )
        return KernelCall.of("ek_detection_f32", *op.inputs, *op.outputs, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Many boxes that overlap, with equal scores among them; fewer detections than
        asked for.
        """
        grid = np.stack(
            np.meshgrid(*[np.linspace(0.1, 0.9, 6, dtype=_F)] * 2), -1
        ).reshape(-1, 2)
        anchors = np.concatenate([grid, np.full_like(grid, 0.3)], 1)
        fixed = Arg(TensorType(anchors.shape), True, anchors)
        boxes = Arg(TensorType((1, len(anchors), 4)))
        scores = Arg(TensorType((1, len(anchors), 5)))
        for label, spec in (
            ("background", cls(10, 1, (10.0, 10.0, 5.0, 5.0), 0.1, 0.5)),
            ("few", cls(40, 0, (10.0, 10.0, 5.0, 5.0), 1.0, 0.1)),
        ):
            yield Sample(spec, (boxes, scores, fixed), label=label)
        equal = np.round(
            np.random.default_rng(2).random((1, len(anchors), 5)) * 3
        ).astype(_F)
        yield Sample(
            cls(12, 1, (10.0, 10.0, 5.0, 5.0), 1.0, 0.4),
            (boxes, Arg(TensorType(equal.shape), True, equal), fixed),
            label="equal",
        )
