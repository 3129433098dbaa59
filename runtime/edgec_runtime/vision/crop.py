"""Turned crops of frames as inputs, and where the results of a crop are in the frame.

A crop is sampled in whole numbers, so that csrc/ek_crop.h computes the same bits:

1. The frame is made smaller by 2^level in both directions, each pixel the rounded mean
   of its block. The level is the largest one that leaves at least one of its pixels for
   each pixel of the input, so that a large crop does not alias (Williams, "Pyramidal
   Parametrics", 1983).
2. Each pixel of the input lies at a place in 1/65536 of such a pixel, and is the
   bilinear mean of the four pixels around it, by weights of 1/2048, rounded once.
3. Beside the frame there are pixels of the preprocessing's fill, without an end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Tuple

import numpy as np
from numpy.typing import NDArray

from ..tensors import TensorInfo
from .photo import Placement, levels_input
from .preprocess import Fit, ImageLayout, Preprocess
from .tasks.base import Size, View

Array = NDArray[Any]

PLACE_BITS = 16
"""Bits behind the point of a place."""
WEIGHT_BITS = 11
"""Of a weight; a sum of weighted levels has 8 + 2 x 11 bits, which int32 holds."""
MAX_LEVEL = 6
"""Blocks have at most 64 x 64 pixels: 4096 levels of 8 bits are summed."""
_ONE = 1 << PLACE_BITS
_WEIGHT_MASK = (1 << WEIGHT_BITS) - 1


@dataclass(frozen=True)
class Crop:
    """A rectangle of a frame, turned about its centre.

    Attributes:
        x: of its centre, in pixels of the frame, whose first pixel is from 0 to 1
        y: of its centre
        width: along its own horizontal, in pixels of the frame
        height: along its own vertical
        angle: by which it is turned, in radians, clockwise in the picture
        mirrored: whether its right side is at the left of the input
    """

    x: float
    y: float
    width: float
    height: float
    angle: float = 0.0
    mirrored: bool = False

    def to_frame(self, points: Array) -> Array:
        """Return points of the crop, 0…1 of it, in pixels of the frame [..., 2].

        With the centre c, the sides w and h and the angle a:

            x = cx + (u - 1/2) w cos a - (v - 1/2) h sin a
            y = cy + (u - 1/2) w sin a + (v - 1/2) h cos a
        """
        sign = -1.0 if self.mirrored else 1.0
        across = (points[..., 0] - 0.5) * (sign * self.width)
        down = (points[..., 1] - 0.5) * self.height
        cosine = math.cos(self.angle)
        sine = math.sin(self.angle)
        x = self.x + across * cosine - down * sine
        y = self.y + across * sine + down * cosine
        return np.stack([x, y], -1)

    def corners(self) -> Array:
        """Return its four corners in the frame, [4, 2], clockwise from the input's
        upper left.
        """
        return self.to_frame(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]))


@dataclass(frozen=True)
class CropView(View):
    """The view of a crop: where points of its input are in the frame.

    Attributes:
        crop: the crop
    """

    crop: Crop

    @classmethod
    def of_crop(cls, crop: Crop, frame: Size, image: Size) -> CropView:
        """Return the view of a crop that fills an input."""
        place = Placement.of(frame, image, Fit())
        return cls(frame, image, place, crop)

    def to_frame(self, points: Array) -> Array:
        """Return points in pixels of the input as pixels of the frame [..., 2]."""
        relative = np.asarray(points, np.float64) / np.array(self.image)
        return np.asarray(self.crop.to_frame(relative), np.float32)


@dataclass(frozen=True)
class CropGrid:
    """The places of an input's pixels in a frame, in whole numbers.

    Attributes:
        level: the frame is smaller by 2^level
        start: x and y of the middle of the first pixel, in 1/65536 pixels of the
            smaller frame, whose first pixel has its middle at 0
        across: the step to the next pixel of a row
        down: the step to the next row
        region: left, top, width and height of the pixels that are read, of the
            smaller frame; -1 and the first number behind it are beside the frame
    """

    level: int
    start: Tuple[int, int]
    across: Tuple[int, int]
    down: Tuple[int, int]
    region: Tuple[int, int, int, int]

    @classmethod
    def of(cls, crop: Crop, frame: Size, image: Size) -> CropGrid:
        """Return the grid of a crop.

        Args:
            crop: the crop
            frame: width and height of the frame
            image: width and height of the input
        """
        per_pixel = math.sqrt(crop.width / image[0] * crop.height / image[1])
        level = min(MAX_LEVEL, max(0, math.floor(math.log2(max(per_pixel, 1.0)))))

        # The middles of the first pixel and of its two neighbours.
        u = np.array([0.5, 1.5, 0.5]) / image[0]
        v = np.array([0.5, 0.5, 1.5]) / image[1]
        places = crop.to_frame(np.stack([u, v], -1)) / (1 << level) - 0.5
        first = places[0]
        start = _fixed(first)
        across = _fixed(places[1] - first)
        down = _fixed(places[2] - first)

        spans = []
        for axis in (0, 1):
            far = (image[0] - 1) * across[axis]
            below = (image[1] - 1) * down[axis]
            ends = [start[axis] + i + j for i in (0, far) for j in (0, below)]
            length = blocks(frame[axis], level)
            spans.append(_span(min(ends), max(ends), length))
        (left, width), (top, height) = spans
        return cls(level, start, across, down, (left, top, width, height))


def blocks(length: int, level: int) -> int:
    """Return the pixels of a frame's side at a level; the last may be a part of one."""
    return -(-length >> level)


def _fixed(place: Array) -> Tuple[int, int]:
    """Return x and y in 1/65536."""
    x, y = (math.floor(float(n) * _ONE + 0.5) for n in place)
    return x, y


def _span(low: int, high: int, length: int) -> Tuple[int, int]:
    """Return the first pixel that is read along an axis, and their number.

    Args:
        low: the smallest place in 1/65536
        high: the largest
        length: the pixels of the frame along the axis
    """
    first = min(max(low >> PLACE_BITS, -1), length)
    last = min(max((high >> PLACE_BITS) + 1, first + 1), length + 1)
    return first, last - first + 1


def cropped(photo: Array, crop: Crop, how: Preprocess, info: TensorInfo) -> Array:
    """Return an input made of a crop of a photo, repeated along the batch.

    Args:
        photo: uint8 [H, W, 3], red first
        crop: the crop
        how: a preprocessing that suits the input; its fit gives the fill alone
        info: the input
    """
    layout = ImageLayout.of(info, how.layout)
    assert layout is not None, "the preprocessing does not suit its input"
    size = layout.width, layout.height
    grid = CropGrid.of(crop, (photo.shape[1], photo.shape[0]), size)
    pixels = sampled(_region(photo, grid, how.fit.fill), grid, photo.shape[:2], size)
    return levels_input(pixels, how, info, layout)


def sampled(region: Array, grid: CropGrid, frame: Tuple[int, ...], size: Size) -> Array:
    """Return the pixels of an input, uint8 [H, W, 3].

    Args:
        region: the pixels of the grid's region, uint8 [height, width, 3]
        grid: the grid
        frame: height and width of the frame
        size: width and height of the input
    """
    columns = np.arange(size[0], dtype=np.int64)[None, :]
    rows = np.arange(size[1], dtype=np.int64)[:, None]
    whole = []
    parts = []
    for axis in (0, 1):
        far = columns * grid.across[axis] + rows * grid.down[axis]
        last = blocks(frame[1 - axis], grid.level) << PLACE_BITS
        place = np.clip(grid.start[axis] + far, -_ONE, last)
        whole.append((place >> PLACE_BITS) - grid.region[axis])
        parts.append((place >> PLACE_BITS - WEIGHT_BITS) & _WEIGHT_MASK)
    x, y = whole
    right = parts[0].astype(np.int32)[..., None]
    lower = parts[1].astype(np.int32)[..., None]

    one = 1 << WEIGHT_BITS
    wide = region.astype(np.int32)
    upper_row = wide[y, x] * (one - right) + wide[y, x + 1] * right
    lower_row = wide[y + 1, x] * (one - right) + wide[y + 1, x + 1] * right
    total = upper_row * (one - lower) + lower_row * lower
    rounded = (total + (1 << 2 * WEIGHT_BITS - 1)) >> 2 * WEIGHT_BITS
    return np.asarray(rounded, np.uint8)


def _region(photo: Array, grid: CropGrid, fill: Tuple[int, ...]) -> Array:
    """Return the pixels of a grid's region, uint8 [height, width, 3]."""
    left, top, width, height = grid.region
    side = 1 << grid.level
    canvas = np.empty((height * side, width * side, 3), np.uint8)
    canvas[:] = fill

    # The part of the photo that lies in the region, in pixels of the photo.
    x1 = max(left * side, 0)
    y1 = max(top * side, 0)
    x2 = min((left + width) * side, photo.shape[1])
    y2 = min((top + height) * side, photo.shape[0])
    if x1 < x2 and y1 < y2:
        rows = slice(y1 - top * side, y2 - top * side)
        columns = slice(x1 - left * side, x2 - left * side)
        canvas[rows, columns] = photo[y1:y2, x1:x2]
    if grid.level == 0:
        return canvas

    squares = canvas.reshape(height, side, width, side, 3)
    sums = squares.sum(axis=(1, 3), dtype=np.int32)
    half = side * side // 2
    return np.asarray((sums + half) >> 2 * grid.level, np.uint8)
