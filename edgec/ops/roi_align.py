"""RoiAlign: boxes of an image brought to one size by bilinear samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
    Sample,
    Struct,
    TensorType,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ops.cast import Cast
from edgec.ops.common import real_types
from edgec.ops.shape import from_nhwc, to_nhwc

_F = np.float32


@dataclass(frozen=True)
class RoiAlign(OpDef):
    """Image [N,H,W,C], boxes [R,4] (x before y, start before end) times `scale`, of
    images [R] → [R, *size, C].

    ratio: samples of a bin along each axis, 0: as many as it has pixels. largest: the
    largest weighted neighbour of all samples in place of the mean. half_pixel: pixels'
    centres lie at 0.5, and a box may be smaller than a pixel.
    """

    size: tuple[int, int]
    scale: float = 1.0
    ratio: int = 0
    largest: bool = False
    half_pixel: bool = True

    kind = "roi_align"
    onnx = ("RoiAlign",)
    roles: ClassVar[tuple[str, ...]] = ("act", "act", "index")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """[R, height, width, C]."""
        image, boxes, index = x
        real_types(self, image, boxes, int8=False)
        if (
            image.rank != 4
            or boxes.rank != 2
            or boxes.shape[1] != 4
            or index.shape != boxes.shape[:1]
        ):
            raise ValueError(f"boxes {boxes} of {index} do not fit {image}")
        if index.dtype != "int64" or 0 in image.shape:
            raise ValueError(f"{image}, of which {index}")
        return (TensorType((boxes.shape[0], *self.size, image.shape[3])),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """float32, sample by sample; ONNX's RoiAlign."""
        image, boxes, index = x
        y = np.zeros(yt[0].shape, _F)
        for r, box in enumerate(boxes):
            own = image[int(np.clip(index[r], 0, image.shape[0] - 1))]
            start = box[:2][::-1] * _F(self.scale) - _F(0.5 if self.half_pixel else 0)
            length = (
                box[2:][::-1] * _F(self.scale)
                - _F(0.5 if self.half_pixel else 0)
                - start
            )
            length = length if self.half_pixel else np.maximum(length, _F(1))
            step = length / np.array(self.size, _F)
            counts = [self.ratio or max(0, min(int(np.ceil(s)), 1 << 12)) for s in step]
            for i, j in np.ndindex(*self.size):
                first = start + step * np.array([i, j], _F)
                n = np.array(counts, _F)
                taps = [
                    self._taps(own, first + (np.array(k, _F) + _F(0.5)) * step / n)
                    for k in np.ndindex(*counts)
                ]
                if self.largest:
                    y[r, i, j] = np.max(np.concatenate(taps), 0) if taps else 0
                else:
                    y[r, i, j] = (
                        np.sum([t.sum(0) for t in taps], 0) / _F(max(1, len(taps)))
                        if taps
                        else 0
                    )
        return [y]

    def _taps(self, image: Array, place: Array) -> Array:
        """[4, C]: the weighted neighbours of a place."""
        size = np.array(image.shape[:2])
        if (place < -1).any() or (place > size).any():
            return np.zeros((4, image.shape[2]), _F)
        place = np.maximum(place, _F(0))
        low = np.minimum(place.astype(np.int64), size - 1)
        far = np.where(low >= size - 1, _F(0), place - low.astype(_F)).astype(_F)
        high = np.minimum(low + 1, size - 1)
        near = _F(1) - far
        return np.stack(
            [
                near[0] * near[1] * image[low[0], low[1]],
                near[0] * far[1] * image[low[0], high[1]],
                far[0] * near[1] * image[high[0], low[1]],
                far[0] * far[1] * image[high[0], high[1]],
            ]
        ).astype(_F)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """The image NCHW."""
        b = node.build
        index = node.input(2)
        half = node.attrs.get(
            "coordinate_transformation_mode",
            "half_pixel" if node.opset >= 16 else "output_half_pixel",
        )
        spec = cls(
            (
                int(node.attrs.get("output_height", 1)),
                int(node.attrs.get("output_width", 1)),
            ),
            float(node.attrs.get("spatial_scale", 1.0)),
            int(node.attrs.get("sampling_ratio", 0)),
            node.attrs.get("mode", "avg") == "max",
            half == "half_pixel",
        )
        if index.type.dtype == "int64":
            index = index
        else:
            index = b.add(Cast("int64"), [index], node.name)
        return from_nhwc(
            b, b.add(spec, [to_nhwc(b, node.input(0)), node.input(1), index], node.name)
        )

    def c(self, op: Op) -> KernelCall:
        """ek_roi_align_f32."""
        image = op.inputs[0].type.shape
        boxes = op.inputs[1].type.shape
        spec = Struct(
            "ek_roi_align_t",
            n=image[0],
            ih=image[1],
            iw=image[2],
            c=image[3],
            boxes=boxes[0],
            oh=self.size[0],
            ow=self.size[1],
            ratio=self.ratio,
            largest=self.largest,
            half=0.5 if self.half_pixel else 0.0,
            scale=self.scale,
        )
        return KernelCall.of("ek_roi_align_f32", *op.inputs, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Mean and maximum, both pixel centres, boxes beyond the image."""
        boxes = np.array(
            [[0, 0, 4, 5], [1.5, -2, 9, 3.25], [2, 2, 2.5, 2.5], [-30, -30, -20, -20]],
            _F,
        )
        index = np.array([0, 1, 1, 0])
        for i, spec in enumerate(
            (
                cls((2, 3)),
                cls((3, 3), 0.5, 2),
                cls((2, 2), 1.0, 2, True),
                cls((2, 2), 1.0, 0, False, False),
            )
        ):
            args = (Arg(TensorType((2, 6, 7, 3))), Arg(TensorType((4, 4)), True, boxes))
            yield Sample(
                spec, (*args, Arg(TensorType((4,), "int64"), True, index)), label=f"{i}"
            )
