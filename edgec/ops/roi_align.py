"""Boxes of an image brought to one size by bilinear samples.

Semantics: ONNX RoiAlign (Mask R-CNN, He et al. 2017, arXiv:1703.06870).
"""

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
    TensorType,
    Value,
)
from edgec.ir.c_structs import RoiAlignParams
from edgec.ir.opdef import Arg
from edgec.ops.cast import Cast
from edgec.ops.common import float_kernel, real_types
from edgec.ops.shape import from_nhwc, to_nhwc

_ROI_ALIGN = float_kernel("roi_align", "ek_roi_align.h")

_F = np.float32

MAX_SAMPLES = 1 << 12
"""Samples of a bin along one axis, however large the box is."""


@dataclass(frozen=True)
class RoiAlign(OpDef):
    """Boxes of images, resized to `size` bins: the mean of bilinear samples of a bin.

    Inputs: image [N, H, W, C], boxes [R, 4] (x before y, start before end), int64 image
    number of each box [R]. The output is [R, *size, C].

    Attributes:
        size: bins (vertical, horizontal) of a box
        scale: pixels of the image for a unit of the boxes
        ratio: samples of a bin along each axis; 0: as many as the bin has pixels
        largest: whether a bin is the largest weighted neighbour of its samples, not the
            mean
        half_pixel: whether the centres of pixels lie at 0.5; a box may then be smaller
            than a pixel
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
        """Return the resized boxes [R, height, width, C].

        Raises ValueError when boxes, image numbers and image do not fit.
        """
        image, boxes, index = x
        real_types(self, image, boxes, int8=False)
        is_fitting = image.rank == 4 and boxes.rank == 2 and boxes.shape[1] == 4
        if not is_fitting or index.shape != boxes.shape[:1]:
            raise ValueError(f"boxes {boxes} of {index} do not fit {image}")

        if index.dtype != "int64" or 0 in image.shape:
            raise ValueError(f"{image}, of which {index}")

        return (TensorType((boxes.shape[0], *self.size, image.shape[3])),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the bins in float32, sample by sample.

        An image number out of range is clamped.
        """
        images, boxes, index = x
        y = np.zeros(yt[0].shape, _F)
        for number, box in enumerate(boxes):
            # Generated code must never read beyond a tensor.
            place = int(np.clip(index[number], 0, images.shape[0] - 1))
            self._align(images[place], box, y[number])

        return [y]

    def _align(self, image: Array, box: Array, y: Array) -> None:
        """Write the bins of one box to `y` [*size, C]."""
        shift = _F(0.5 if self.half_pixel else 0)

        # Boxes have x before y, arrays rows before columns.
        start = box[:2][::-1] * _F(self.scale) - shift
        end = box[2:][::-1] * _F(self.scale) - shift
        length = end - start
        if not self.half_pixel:
            length = np.maximum(length, _F(1))

        bin_size = length / np.array(self.size, _F)
        counts: list[int] = []
        for extent in bin_size:
            # A box that is not a number has none.
            pixels = int(np.nan_to_num(np.clip(np.ceil(extent), 0, MAX_SAMPLES)))
            counts.append(self.ratio or pixels)

        sample_size = np.array(counts, _F)

        # Each bin is sampled at the middles of its parts.
        for i, j in np.ndindex(*self.size):
            first = start + bin_size * np.array([i, j], _F)
            neighbours: list[Array] = []
            for sample in np.ndindex(*counts):
                middle = np.array(sample, _F) + _F(0.5)
                place = first + middle * bin_size / sample_size
                neighbours.append(self._neighbours(image, place))
            y[i, j] = self._combined(neighbours)

    def _combined(self, neighbours: Sequence[Array]) -> Array | int:
        """Return the bin [C] of the weighted neighbours [4, C] of its samples."""
        if not neighbours:
            return 0

        if self.largest:
            return np.asarray(np.max(np.concatenate(neighbours), 0))

        samples = [weighted.sum(0) for weighted in neighbours]

        return np.asarray(np.sum(samples, 0) / _F(len(samples)))

    def _neighbours(self, image: Array, place: Array) -> Array:
        """Return the four pixels around a place, times their bilinear weights: [4, C].

        They are zeros for a place more than a pixel outside of the image, or NaN.
        """
        size = np.array(image.shape[:2])
        if not ((place >= -1) & (place <= size)).all():
            return np.zeros((4, image.shape[2]), _F)

        inside = np.maximum(place, _F(0))

        # The pixel at or before the place, and its neighbour.
        low = np.minimum(inside.astype(np.int64), size - 1)
        high = np.minimum(low + 1, size - 1)

        # Beyond the last pixel its neighbour counts nothing.
        is_last = low >= size - 1
        far = np.where(is_last, _F(0), inside - low.astype(_F)).astype(_F)
        near = _F(1) - far
        weighted = [
            near[0] * near[1] * image[low[0], low[1]],
            near[0] * far[1] * image[low[0], high[1]],
            far[0] * near[1] * image[high[0], low[1]],
            far[0] * far[1] * image[high[0], high[1]],
        ]

        return np.stack(weighted).astype(_F)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read RoiAlign of an NCHW image.

        Before opset 16 pixels' centres lie at whole numbers.
        """
        b = node.build
        image = node.input(0)
        boxes = node.input(1)
        index = node.input(2)
        default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
        coordinates = node.attrs.get("coordinate_transformation_mode", default)

        # ONNX's defaults are one bin.
        height = int(node.attrs.get("output_height", 1))
        width = int(node.attrs.get("output_width", 1))
        spec = cls(
            size=(height, width),
            scale=float(node.attrs.get("spatial_scale", 1.0)),
            ratio=int(node.attrs.get("sampling_ratio", 0)),
            largest=node.attrs.get("mode", "avg") == "max",
            half_pixel=coordinates == "half_pixel",
        )
        if index.type.dtype != "int64":
            index = b.add(Cast("int64"), [index], node.name)

        y = b.add(spec, [to_nhwc(b, image), boxes, index], node.name)

        return from_nhwc(b, y)

    def c(self, op: Op) -> KernelCall:
        """Return ek_roi_align_f32."""
        n, height, width, channels = op.inputs[0].type.shape
        spec = RoiAlignParams(
            n=n,
            ih=height,
            iw=width,
            c=channels,
            boxes=op.inputs[1].type.shape[0],
            oh=self.size[0],
            ow=self.size[1],
            ratio=self.ratio,
            largest=self.largest,
            half=0.5 if self.half_pixel else 0.0,
            scale=self.scale,
        )

        return KernelCall.of(_ROI_ALIGN, *op.inputs, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield mean and maximum, both pixel centres, and boxes beyond the image.

        The last box lies outside of the image.
        """
        corners = [
            [0, 0, 4, 5],
            [1.5, -2, 9, 3.25],
            [2, 2, 2.5, 2.5],
            [-30, -30, -20, -20],
        ]
        args = (
            Arg(TensorType((2, 6, 7, 3))),
            Arg(TensorType((4, 4)), True, np.array(corners, _F)),
            Arg(TensorType((4,), "int64"), True, np.array([0, 1, 1, 0])),
        )
        specs = (
            cls((2, 3)),
            cls((3, 3), 0.5, 2),
            cls((2, 2), 1.0, 2, True),
            cls((2, 2), 1.0, 0, False, False),
        )
        for i, spec in enumerate(specs):
            yield Sample(spec, args, label=f"{i}")
