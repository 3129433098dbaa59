"""Paints effects: it blurs or replaces the background of a mask, and refines the
pictures of image networks, with edges that follow those of the frame.

The output of a network is small, and simply enlarging it would turn hair into blocks.
It is fitted to the frame's luma within small windows (the fast guided filter of He and
Sun, 2015), so that it has edges where the frame has them.  A bundle's C
(csrc/ek_matte.h, ek_frame.h) computes the same up to a difference of one level (1/255).
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
"""Radius of the windows for a mask, in its pixels."""

SMOOTH = 1e-3
"""Variance of luma (0…1) below which a window of a mask counts as without an edge."""

_PICTURE_RADIUS = 1
_PICTURE_SMOOTH = 1e-4
"""RADIUS and SMOOTH for pictures of image networks, whose lines are a pixel wide."""

_LUMA = np.array([77, 150, 29], np.float32) / np.float32(65280)
"""Weights of red, green and blue, 0…255, for the luma, 0…1."""


class Painter:
    """Paints effects on frames, uint8 [H,W,3], red first.

    Args:
        painting: the bundle's C (Vision.painting); None to compute with numpy
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
        """Return the share of each pixel in a mask, uint8 [H,W], 255 for all of it.

        Args:
            frame: uint8 [H,W,3]
            segments: the mask
            radius: radius of the windows, pixels of the mask
            smooth: variance of luma below which a window counts as without an edge
        """
        height, width = segments.probability.shape
        box = segments.view.within(width, height)
        size = (
            max(2, round(min(box[2], frame.shape[1]))),
            max(2, round(min(box[3], frame.shape[0]))),
        )

        # The time of the fit grows with its pixels, so it has the size of the mask.
        mask = sample(_contrasted(segments), box, size)
        return self._fitted(self._guide(frame, size), mask, radius, smooth, frame)

    def _guide(self, frame: Array, size: Tuple[int, int]) -> Array:
        """Return the luma of a frame at a smaller width and height, 0…1 [h,w]."""
        return np.asarray(self.resized(frame, size, "area") @ _LUMA, np.float32)

    def _fitted(
        self, guide: Array, plane: Array, radius: int, smooth: float, frame: Array
    ) -> Array:
        """Return a small plane enlarged to the frame with edges that follow it.

        Args:
            guide: luma of the frame in the size of the plane, 0…1 [h,w]
            plane: the plane, 0…1 [h,w]
            radius: radius of the windows, pixels of the plane
            smooth: variance of luma below which a window counts as without an edge
            frame: uint8 [H,W,3]

        Returns:
            the plane, 0…255, uint8 [H,W]
        """
        if self._painting is not None:
            return self._painting.matte(guide, plane, radius, smooth, frame)

        # In a guided filter the plane is slope * luma + offset in each window.
        box = (0.0, 0.0, float(guide.shape[1]), float(guide.shape[0]))
        # The coefficients are enlarged, not the plane, so that the luma of the full
        # frame places the edges.
        slope, offset = (
            sample(x, box, (frame.shape[1], frame.shape[0]))
            for x in _fit(guide, plane, radius, smooth)
        )
        levels = (slope * (frame @ _LUMA) + offset) * 255 + 0.5
        return np.asarray(np.clip(levels, 0, 255), np.uint8)

    def cartoon(self, frame: Array, picture: Picture) -> Array:
        """Return an image network's picture with the lines of the frame, uint8 [h,w,3].

        It covers the part of the frame that the network had as input. A picture that is
        larger than that part is not refined.
        """
        small = picture.inside()
        part = picture.part(frame)
        if (
            min(small.shape[:2]) < 2
            or small.shape[0] > part.shape[0]
            or small.shape[1] > part.shape[1]
        ):
            return picture.of_frame(self.resized)

        # Each colour is fitted to the luma of the frame, so that it gets its lines.
        guide = self._guide(part, (small.shape[1], small.shape[0]))
        planes = [small[..., c] * np.float32(1 / 255) for c in range(3)]
        return np.stack(
            [
                self._fitted(guide, p, _PICTURE_RADIUS, _PICTURE_SMOOTH, part)
                for p in planes
            ],
            axis=-1,
        )

    def blurred(
        self,
        frame: Array,
        segments: Optional[Segments] = None,
        strength: float = 1 / 24,
    ) -> Array:
        """Return the frame blurred, uint8 [H,W,3].

        Pixels of the mask are left out of the means, so that a person does not smear
        into the background.

        Args:
            frame: uint8 [H,W,3]
            segments: the mask; None to blur everything
            strength: radius of the blur, as a fraction of the frame's width
        """
        height, width = frame.shape[:2]
        factor = max(1.0, width * strength / 2)
        size = max(2, round(width / factor)), max(2, round(height / factor))

        # A blur with a small radius in a small picture stands for one with a large
        # radius, and takes little time.
        small: Array = self.resized(frame, size, "area").astype(np.float32)
        weight = np.ones(small.shape[:2], np.float32)
        if segments is not None:
            rows, columns = segments.probability.shape
            box = segments.view.within(columns, rows)
            probability = sample(segments.probability, box, size)
            # A pixel has no weight from a probability of 1/3 on, so that the soft
            # border of the mask leaves no halo.
            weight = np.clip(1 - 3 * probability, 0, 1)

        # The weights go through the same filter, so that their quotient is a mean of
        # the background alone.
        soft = small * weight[..., None]
        weight = weight[..., None]
        for _ in range(2):  # once would leave the small picture's pixels visible
            soft = _softer(soft)
            weight = _softer(weight)
        # Far inside the mask there is no background; the frame's own pixels stay there.
        part = np.minimum(1, weight * 64)
        levels = soft / np.maximum(weight, 1 / 64) * part + small * (1 - part)
        return self.resized(
            np.asarray(levels + 0.5, np.uint8), (width, height), "bicubic"
        )

    def blur(self, frame: Array, segments: Segments, strength: float = 1 / 24) -> Array:
        """Return the frame with everything blurred but the mask, uint8 [H,W,3]."""
        return self.blend(
            frame, self.blurred(frame, segments, strength), self.matte(frame, segments)
        )

    def replace(self, frame: Array, segments: Segments, background: Array) -> Array:
        """Return the frame with another background behind the mask, uint8 [H,W,3].

        background: uint8 [h,w,3] of any size; its middle fills the frame.
        """
        return self.blend(
            frame,
            self.filling(background, (frame.shape[1], frame.shape[0])),
            self.matte(frame, segments),
        )

    def filling(self, picture: Array, size: Tuple[int, int]) -> Array:
        """Return the middle of a picture, scaled to a width and height.

        Raises InputError if the picture is not uint8 [H,W,3].
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

        # The part has the frame's aspect ratio, since stretching would distort it.
        ratio = min(width / size[0], height / size[1])
        part = size[0] * ratio, size[1] * ratio
        return resize(
            picture,
            ((width - part[0]) / 2, (height - part[1]) / 2, *part),
            size,
            "bilinear",
        )

    def blend(self, front: Array, back: Array, alpha: Array) -> Array:
        """Return `front` where alpha, uint8 [H,W], is 255, and `back` where it is 0."""
        if self._painting is not None:
            return self._painting.blend(front, back, alpha)
        a = alpha[..., None].astype(np.int32)

        # This is the rounded division by 255 of csrc/ek_matte.h.
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
        """Return a picture at another width and height.

        how: the filter, "area", "bilinear" or "bicubic".
        """
        if self._painting is not None:
            return self._painting.resized(frame, size, how)
        return whole(frame, size, how)


def _softer(x: Array) -> Array:
    """Return a picture [H,W,C] after a blur with the weights 1/4, 1/2, 1/4."""
    for axis in (0, 1):
        # At the border the element itself stands for its missing neighbour.
        at = np.arange(x.shape[axis])
        x = (
            x / 2
            + (x.take(at - 1, axis, mode="clip") + x.take(at + 1, axis, mode="clip"))
            / 4
        )
    return x


def _contrasted(segments: Segments) -> Array:
    """Return the probability with more contrast about the threshold, float32 [H,W].

    Values near 0 and 1 become 0 and 1, since otherwise a faint veil of the background
    would be visible over the person, and the other way round.
    """
    levels = (segments.probability - segments.threshold) * 1.6 + 0.5
    return np.asarray(np.clip(levels, 0, 1), np.float32)


def _fit(guide: Array, mask: Array, radius: int, smooth: float) -> Tuple[Array, Array]:
    """Return slope and offset [H,W] of the best fit mask = slope * guide + offset.

    The fit is that of the windows around each pixel.
    """
    mean = _mean(guide, radius)
    level = _mean(mask, radius)
    # The slope of least squares is covariance by variance. Where the guide is flat,
    # `smooth` keeps it near 0, so that it does not amplify noise.
    slope = (_mean(guide * mask, radius) - mean * level) / (
        _mean(guide * guide, radius) - mean * mean + smooth
    )
    # A pixel is in many windows, each with its own fit: the filter takes their mean.
    return _mean(slope, radius), _mean(level - slope * mean, radius)


def _mean(x: Array, radius: int) -> Array:
    """Return the mean of all elements within `radius` of each, inside the picture."""
    for axis in (0, 1):
        count = x.shape[axis]
        # With differences of running sums the time does not grow with the radius. They
        # are float64, since a difference of large float32 sums has few exact digits.
        sums = np.concatenate(
            [np.zeros_like(x.take([0], axis), np.float64), x.cumsum(axis, np.float64)],
            axis,
        )
        low = np.maximum(np.arange(count) - radius, 0)
        high = np.minimum(np.arange(count) + radius, count - 1) + 1
        shape = (-1, 1) if axis == 0 else (1, -1)
        x = (sums.take(high, axis) - sums.take(low, axis)) / (high - low).reshape(shape)
    return x
