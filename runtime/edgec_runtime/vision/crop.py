"""Makes inputs of turned crops of frames, and maps results of a crop to the frame.

A crop is sampled with integers, so that csrc/ek_crop.h computes the same bits:

1. The frame is reduced by 2^level in both directions, where each pixel is the rounded
   mean of its block. The level is the largest that leaves at least one reduced pixel for
   each pixel of the input, so that a large crop does not alias (Williams, "Pyramidal
   Parametrics", 1983).
2. The position of each pixel of the input is computed in 1/65536 of a reduced pixel. The
   pixel is the bilinear mean of the four reduced pixels around it, with weights in
   1/2048, rounded once.
3. Outside the frame all pixels have the fill of the preprocessing.
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
"""Fractional bits of a position."""
WEIGHT_BITS = 11
"""Bits of a weight; a sum of weighted levels has 8 + 2 x 11 bits and fits into int32."""
MAX_LEVEL = 6
"""Largest level: a block has 64 x 64 pixels, and the sum of 4096 bytes."""
_ONE = 1 << PLACE_BITS
_WEIGHT_MASK = (1 << WEIGHT_BITS) - 1


@dataclass(frozen=True)
class Crop:
    """A rectangle of a frame, turned about its centre.

    Attributes:
        x: x of its centre in pixels of the frame, whose first pixel is from 0 to 1
        y: y of its centre
        width: length of its upper side in pixels of the frame
        height: length of its left side in pixels of the frame
        angle: angle by which it is turned, in radians, clockwise in the picture
        mirrored: whether its right side is at the left of the input
    """

    x: float
    y: float
    width: float
    height: float
    angle: float = 0.0
    mirrored: bool = False

    def to_frame(self, points: Array) -> Array:
        """Return points of the crop in pixels of the frame [..., 2].

        The points u and v are 0…1 of the crop's sides. With the centre c, the sides w
        and h and the angle a:

            x = cx + (u - 1/2) w cos a - (v - 1/2) h sin a
            y = cy + (u - 1/2) w sin a + (v - 1/2) h cos a
        """
        width = -self.width if self.mirrored else self.width
        cosine = math.cos(self.angle)
        sine = math.sin(self.angle)

        # These are relative to the centre, along the sides of the crop.
        u = points[..., 0] - 0.5
        v = points[..., 1] - 0.5
        across = u * width
        down = v * self.height

        x = self.x + across * cosine - down * sine
        y = self.y + across * sine + down * cosine
        return np.stack([x, y], -1)


@dataclass(frozen=True)
class CropView(View):
    """The view of a crop, which maps points of its input to the frame.

    Attributes:
        crop: the crop
    """

    crop: Crop

    @classmethod
    def of_crop(cls, crop: Crop, frame: Size, image: Size) -> CropView:
        """Return the view of a crop that fills an input."""
        whole = Fit()
        # The placement is not used: `to_frame` and `depth_to_frame` are overridden.
        place = Placement.of(frame, image, whole)
        return cls(
            frame=frame,
            image=image,
            place=place,
            crop=crop,
        )

    def to_frame(self, points: Array) -> Array:
        """Return points in pixels of the input as pixels of the frame [..., 2]."""
        relative = np.asarray(points, np.float64) / np.array(self.image)
        return np.asarray(self.crop.to_frame(relative), np.float32)

    def depth_to_frame(self, depth: Array) -> Array:
        """Return depths in pixels of the input as pixels of the frame."""
        per_pixel = self.crop.width / self.image[0]
        return np.asarray(depth * per_pixel, np.float32)


@dataclass(frozen=True)
class CropGrid:
    """The positions of an input's pixels in a reduced frame, in integers.

    Attributes:
        level: the frame is reduced by 2^level
        start: x and y of the first pixel, in 1/65536 of a reduced pixel, relative to the
            middle of the frame's first one
        across: x and y of the step to the next pixel of a row, in the same unit
        down: x and y of the step to the next row, in the same unit
        region: left, top, width and height of the reduced pixels that are read; a left
            or top of -1 is outside the frame, and so may be the last column and row
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
        level = _level(crop, image)
        side = 1 << level

        # These are the middles of the first pixel, the one right of it and the one below.
        u = np.array([0.5, 1.5, 0.5]) / image[0]
        v = np.array([0.5, 0.5, 1.5]) / image[1]
        middles = crop.to_frame(np.stack([u, v], -1))
        places = middles / side - 0.5
        start = _fixed(places[0])
        across = _fixed(places[1] - places[0])
        down = _fixed(places[2] - places[0])

        in_x = _ends(start[0], across[0], down[0], image)
        in_y = _ends(start[1], across[1], down[1], image)
        left, width = _span(in_x, frame[0], level)
        top, height = _span(in_y, frame[1], level)
        return cls(level, start, across, down, (left, top, width, height))


def _level(crop: Crop, image: Size) -> int:
    """Return the level at which an input of this size is sampled."""
    across = crop.width / image[0]
    down = crop.height / image[1]
    # A stretched crop has the mean level, so that it aliases a little in one direction.
    per_pixel = math.sqrt(across * down)
    if per_pixel < 1:
        return 0
    level = math.log2(per_pixel)
    return min(MAX_LEVEL, math.floor(level))


def _ends(start: int, across: int, down: int, image: Size) -> Tuple[int, int]:
    """Return the smallest and the largest position along an axis."""
    # A grid is a parallelogram, so that these are positions of its corners.
    columns = image[0] - 1
    rows = image[1] - 1
    right = columns * across
    below = rows * down
    low = start + min(right, 0) + min(below, 0)
    high = start + max(right, 0) + max(below, 0)
    return low, high


def blocks(length: int, level: int) -> int:
    """Return the number of reduced pixels of a side; the last block may be incomplete."""
    return -(-length >> level)


def _fixed(place: Array) -> Tuple[int, int]:
    """Return x and y in 1/65536."""
    x, y = (math.floor(float(n) * _ONE + 0.5) for n in place)
    return x, y


def _span(ends: Tuple[int, int], length: int, level: int) -> Tuple[int, int]:
    """Return the first reduced pixel that is read along an axis, and their number.

    Args:
        ends: the smallest and the largest position in 1/65536
        length: pixels of the frame along the axis
        level: the level of the grid
    """
    count = blocks(length, level)
    low = ends[0] >> PLACE_BITS
    high = (ends[1] >> PLACE_BITS) + 1

    # All pixels outside the frame are alike, so that one on each side is enough.
    first = min(max(low, -1), count)
    last = min(max(high, first + 1), count + 1)
    return first, last - first + 1


def cropped(photo: Array, crop: Crop, how: Preprocess, info: TensorInfo) -> Array:
    """Return an input made of a crop of a photo, repeated along the batch.

    Args:
        photo: uint8 [H, W, 3], red first
        crop: the crop
        how: a preprocessing that suits the input; of its fit only the fill is used
        info: the input
    """
    layout = ImageLayout.of(info, how.layout)
    assert layout is not None, "the preprocessing does not suit its input"
    size = layout.width, layout.height
    frame = (photo.shape[1], photo.shape[0])
    grid = CropGrid.of(crop, frame, size)
    region = _region(photo, grid, how.fit.fill)
    pixels = sampled(region, grid, frame, size)
    return levels_input(pixels, how, info, layout)


def sampled(region: Array, grid: CropGrid, frame: Size, size: Size) -> Array:
    """Return the pixels of an input, uint8 [H, W, 3].

    Args:
        region: the pixels of the grid's region, uint8 [height, width, 3]
        grid: the grid
        frame: width and height of the frame
        size: width and height of the input
    """
    x, right = _places(grid, 0, frame, size)
    y, lower = _places(grid, 1, frame, size)
    one = 1 << WEIGHT_BITS
    left = one - right
    upper = one - lower
    wide = region.astype(np.int32)

    # The means across are not rounded before the mean down.
    above = wide[y, x] * left + wide[y, x + 1] * right
    below = wide[y + 1, x] * left + wide[y + 1, x + 1] * right
    total = above * upper + below * lower

    half = 1 << 2 * WEIGHT_BITS - 1
    rounded = (total + half) >> 2 * WEIGHT_BITS
    return np.asarray(rounded, np.uint8)


def _places(grid: CropGrid, axis: int, frame: Size, size: Size) -> Tuple[Array, Array]:
    """Return the positions of an input's pixels along an axis of the region.

    Args:
        grid: the grid
        axis: 0 for x, 1 for y
        frame: width and height of the frame
        size: width and height of the input

    Returns:
        the index of the reduced pixel before each position [H, W], and the weight of the
        one after it in 1/2048 [H, W, 1]
    """
    columns = np.arange(size[0], dtype=np.int64)
    rows = np.arange(size[1], dtype=np.int64)
    right = columns * grid.across[axis]
    below = rows * grid.down[axis]
    position = grid.start[axis] + right[None, :] + below[:, None]

    # Positions further outside are moved to the first pixel with the fill.
    last = blocks(frame[axis], grid.level) << PLACE_BITS
    position = np.clip(position, -_ONE, last)
    pixels = position >> PLACE_BITS
    parts = (position >> PLACE_BITS - WEIGHT_BITS) & _WEIGHT_MASK
    weights = parts.astype(np.int32)
    return pixels - grid.region[axis], weights[..., None]


def _region(photo: Array, grid: CropGrid, fill: Tuple[int, ...]) -> Array:
    """Return the reduced pixels of a grid's region, uint8 [height, width, 3]."""
    left, top, width, height = grid.region
    side = 1 << grid.level
    canvas = np.empty((height * side, width * side, 3), np.uint8)
    canvas[:] = fill

    columns, photo_columns = _overlap(left * side, width * side, photo.shape[1])
    rows, photo_rows = _overlap(top * side, height * side, photo.shape[0])
    canvas[rows, columns] = photo[photo_rows, photo_columns]
    if grid.level == 0:
        return canvas

    squares = canvas.reshape(height, side, width, side, 3)
    sums = squares.sum(axis=(1, 3), dtype=np.int32)
    half = side * side // 2
    return np.asarray((sums + half) >> 2 * grid.level, np.uint8)


def _overlap(start: int, count: int, length: int) -> Tuple[slice, slice]:
    """Return the overlap of a canvas and a photo along an axis.

    Args:
        start: the photo's pixel at the canvas's beginning
        count: number of pixels of the canvas
        length: number of pixels of the photo

    Returns:
        its slices of the canvas and of the photo
    """
    first = min(max(start, 0), length)
    last = min(max(start + count, first), length)
    in_canvas = slice(first - start, last - start) if first < last else slice(0)
    return in_canvas, slice(first, last)
