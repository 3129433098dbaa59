"""Backgrounds blurred and replaced behind a mask, and pictures of networks, with edges
that follow the frame's.

What a network makes is small: stretched to the frame, hair turns into blocks.  It is
fitted to the frame's luma within small windows (the fast guided filter of He and Sun,
2015), so that it changes where the frame does.  With a bundle's C (csrc/ek_matte.h,
ek_frame.h) the same is computed within a level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ...face.warping import Warp, warp_into
from ...vision.camera import CameraFrame
from ...vision.resample import resize, sample, whole
from ...vision.tasks.image import Picture
from ...vision.tasks.segmentation import Segments

if TYPE_CHECKING:
    from ...model.native import Painting

Array = NDArray[Any]

RADIUS = 4
"""Of the windows, in pixels of the mask."""

SMOOTH = 1e-3
"""Variance of luma (0…1) below which there is no edge."""

_LINES = 1
_FAINT = 1e-4
"""The same of pictures, whose lines are a pixel wide."""

_LUMA = np.array([77, 150, 29], np.float32) / np.float32(65280)


class Painter:
    """Effects on frames, uint8 [H,W,3], red first.  painting: the bundle's C
    (Vision.painting), None for numpy.
    """

    def __init__(self, painting: Optional[Painting] = None) -> None:
        self._painting = painting

    def matte(
        self,
        frame: Array,
        segments: Segments,
        radius: int = RADIUS,
        smooth: float = SMOOTH,
    ) -> Array:
        """uint8 [H,W]: how much of each pixel belongs to the mask, 255 all of it."""
        height, width = segments.probability.shape
        box = segments.view.within(width, height)
        size = (
            max(2, round(min(box[2], frame.shape[1]))),
            max(2, round(min(box[3], frame.shape[0]))),
        )

        # The fit costs by its pixels, so it is done in the size of the mask.
        mask = sample(_certain(segments), box, size)
        return self._fitted(self._guide(frame, size), mask, radius, smooth, frame)

    def _guide(self, frame: Array, size: Tuple[int, int]) -> Array:
        """The luma, 0…1, of a frame made small."""
        return np.asarray(self.resized(frame, size, "area") @ _LUMA, np.float32)

    def _fitted(
        self, guide: Array, plane: Array, radius: int, smooth: float, frame: Array
    ) -> Array:
        """uint8 [H,W] of the frame, 0…255, of a small plane, 0…1, that the guide
        explains.
        """
        if self._painting is not None:
            return self._painting.matte(guide, plane, radius, smooth, frame)

        # A guided filter: the plane is a * luma + b in each window.
        a, b = _fit(guide, plane, radius, smooth)
        whole = (0.0, 0.0, float(guide.shape[1]), float(guide.shape[0]))
        # The coefficients are enlarged, not the plane: the full frame's luma then puts
        # the edges where its own pixels have them.
        slope, more = (
            sample(x, whole, (frame.shape[1], frame.shape[0])) for x in (a, b)
        )
        return np.asarray(
            np.clip((slope * (frame @ _LUMA) + more) * 255 + 0.5, 0, 255), np.uint8
        )

    def cartoon(self, frame: Array, picture: Picture) -> Array:
        """An image network's picture with the lines of the frame, as far as the network
        saw that; one that is larger than the frame as it is.
        """
        small = picture.inside()
        part = picture.part(frame)
        if (
            min(small.shape[:2]) < 2
            or small.shape[0] > part.shape[0]
            or small.shape[1] > part.shape[1]
        ):
            return picture.of_frame(self.resized)

        # Each colour is fitted to the luma of the frame, whose lines it then has.
        guide = self._guide(part, (small.shape[1], small.shape[0]))
        planes = [small[..., c] * np.float32(1 / 255) for c in range(3)]
        return np.stack(
            [self._fitted(guide, p, _LINES, _FAINT, part) for p in planes], axis=-1
        )

    def blurred(
        self,
        frame: Array,
        segments: Optional[Segments] = None,
        strength: float = 1 / 24,
    ) -> Array:
        """The frame out of focus; what is of the mask has no part in it, so that it
        casts no shadow.

        strength: how far it is blurred, as a part of its width.
        """
        height, width = frame.shape[:2]
        factor = max(1.0, width * strength / 2)
        size = max(2, round(width / factor)), max(2, round(height / factor))

        # A blur in a small picture is one of a large radius, and costs little.
        small: Array = self.resized(frame, size, "area").astype(np.float32)
        weight = np.ones(small.shape[:2], np.float32)
        if segments is not None:
            high, wide = segments.probability.shape
            # Three times the probability: a pixel that is a third of the mask has no
            # part already, so that the mask's soft border leaves no halo.
            weight = np.clip(
                1
                - 3
                * sample(segments.probability, segments.view.within(wide, high), size),
                0,
                1,
            )

        # Weights go through the same filter, so that the mean leaves the mask out.
        soft = small * weight[..., None]
        weight = weight[..., None]
        for _ in range(2):  # without it, the small picture's pixels are seen
            soft = _softer(soft)
            weight = _softer(weight)
        part = np.minimum(1, weight * 64)  # far inside the mask nothing is left
        levels = soft / np.maximum(weight, 1 / 64) * part + small * (1 - part)
        return self.resized(
            np.asarray(levels + 0.5, np.uint8), (width, height), "bicubic"
        )

    def blur(self, frame: Array, segments: Segments, strength: float = 1 / 24) -> Array:
        """All but the mask out of focus."""
        return self.blend(
            frame, self.blurred(frame, segments, strength), self.matte(frame, segments)
        )

    def replace(self, frame: Array, segments: Segments, background: Array) -> Array:
        """All but the mask replaced by a picture of any size, its middle part of the
        frame's shape.
        """
        return self.blend(
            frame,
            self.filling(background, (frame.shape[1], frame.shape[0])),
            self.matte(frame, segments),
        )

    def filling(self, picture: Array, size: Tuple[int, int]) -> Array:
        """The middle of a picture, at this width and height.

        Worth keeping, where it is the same for many frames.
        """
        if (
            picture.dtype != np.uint8
            or picture.ndim != 3
            or picture.shape[2] != 3
            or picture.size == 0
        ):
            what = (
                "a background is uint8 [height,width,3], "
                f"not {picture.dtype} "
                f"{list(picture.shape)}"
            )
            raise InputError(what, hint="edgec_runtime.read_photo gives one")
        height, width = picture.shape[:2]

        # The largest part of the frame's shape, since stretching would distort it.
        ratio = min(width / size[0], height / size[1])
        part = size[0] * ratio, size[1] * ratio
        return resize(
            picture,
            ((width - part[0]) / 2, (height - part[1]) / 2, *part),
            size,
            "bilinear",
        )

    def blend(self, front: Array, back: Array, alpha: Array) -> Array:
        """`front` where alpha, uint8 [H,W], is 255, `back` where it is 0."""
        if self._painting is not None:
            return self._painting.blend(front, back, alpha)
        a = alpha[..., None].astype(np.int32)

        # Rounded division by 255, as csrc/ek_matte.h has it.
        v: Array = front * a + back * (255 - a) + 128
        return np.asarray((v + (v >> 8)) >> 8, np.uint8)

    def warp_into(self, warp: Warp, out: Array) -> None:
        """Draw a picture warped by a mesh into a result, uint8 [H, W, 3]."""
        if self._painting is not None:
            self._painting.warp_into(warp, out)
        else:
            warp_into(warp, out)

    def rgb(self, frame: CameraFrame) -> Array:
        """Return a camera's frame as uint8 [H, W, 3], red first."""
        if self._painting is not None:
            return self._painting.rgb(frame)
        return frame.rgb()

    def resized(self, frame: Array, size: Tuple[int, int], how: str) -> Array:
        """The whole picture at another width and height."""
        if self._painting is not None:
            return self._painting.resized(frame, size, how)
        return whole(frame, size, how)


def _softer(x: Array) -> Array:
    for axis in (0, 1):
        # Weights of 1/4, 1/2, 1/4; at the border the element itself stands in.
        at = np.arange(x.shape[axis])
        x = (
            x / 2
            + (x.take(at - 1, axis, mode="clip") + x.take(at + 1, axis, mode="clip"))
            / 4
        )
    return x


def _certain(segments: Segments) -> Array:
    """The probability, with what is nearly sure made sure: a veil over all of a picture
    is seen.
    """
    middle = segments.threshold
    steep = (segments.probability - middle) * 1.6 + 0.5
    return np.asarray(np.clip(steep, 0, 1), np.float32)


def _fit(guide: Array, mask: Array, radius: int, smooth: float) -> Tuple[Array, Array]:
    """mask = a * guide + b, as well as it can within the radius."""
    mean = _mean(guide, radius)
    level = _mean(mask, radius)
    # Least squares in each window, covariance by variance; where the guide is flat,
    # `smooth` keeps the slope near 0 instead of amplifying noise.
    slope = (_mean(guide * mask, radius) - mean * level) / (
        _mean(guide * guide, radius) - mean * mean + smooth
    )
    # A pixel lies in many windows with fits of their own: the filter takes their mean.
    return _mean(slope, radius), _mean(level - slope * mean, radius)


def _mean(x: Array, radius: int) -> Array:
    """Return the mean of all elements within `radius` of each, inside the picture."""
    for axis in (0, 1):
        count = x.shape[axis]
        # Differences of running sums, so that the cost does not grow with the radius;
        # in float64, since a difference of two large float32 sums has few digits left.
        sums = np.concatenate(
            [np.zeros_like(x.take([0], axis), np.float64), x.cumsum(axis, np.float64)],
            axis,
        )
        low = np.maximum(np.arange(count) - radius, 0)
        high = np.minimum(np.arange(count) + radius, count - 1) + 1
        shape = (-1, 1) if axis == 0 else (1, -1)
        x = (sums.take(high, axis) - sums.take(low, axis)) / (high - low).reshape(shape)
    return x
