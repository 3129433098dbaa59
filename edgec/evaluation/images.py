"""PSNR and SSIM of pictures that a network paints, on pairs of photo and target.

SSIM(x, y) = (2 μx μy + c1) (2 σxy + c2) / ((μx² + μy² + c1) (σx² + σy² + c2)), the mean
over all windows, on luma; means and variances are weighted by a Gaussian of 11 × 11
pixels with a deviation of 1.5, c1 = (0.01 · 255)², c2 = (0.03 · 255)² (Wang et al.,
Image Quality Assessment: From Error Visibility to Structural Similarity, 2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edgec_runtime import read_photo
from edgec_runtime.vision.tasks.base import Result
from edgec_runtime.vision.tasks.image import Picture

from edgec.comparing.tasks import psnr_db
from edgec.errors import InputError
from edgec.evaluation.measure import (
    LabelledPicture,
    Means,
    Measure,
    MeasuredFigure,
    Observation,
    Scored,
    whole_view,
)
from edgec.evaluation.pairs import TARGETS, PairReader
from edgec.ir import Array

WINDOW = 11
"""Rows and columns of a window."""
DEVIATION = 1.5
_C1 = (0.01 * 255) ** 2
_C2 = (0.03 * 255) ** 2
_LUMA = np.array([0.299, 0.587, 0.114])
"""Shares of red, green and blue in luma (ITU-R BT.601)."""

_PSNR = MeasuredFigure("psnr", "PSNR", "dB", "peak signal-to-noise ratio of the pixels")
_SSIM = MeasuredFigure("ssim", "SSIM", "", "structural similarity of luma, 1 if equal")


@dataclass(frozen=True)
class PictureFidelity(Measure):
    """Judges painted pictures; the label is the picture that is wanted.

    Attributes:
        pictures: the folder that names of pictures are relative to, if given
    """

    pictures: Path | None = None

    @property
    def figures(self) -> tuple[MeasuredFigure, ...]:
        """PSNR and SSIM."""
        return _PSNR, _SSIM

    def read(self, data: Path) -> list[LabelledPicture]:
        """Return photos and targets."""
        return PairReader(TARGETS, self.pictures).read(data)

    def observe(
        self, result: Result, picture: LabelledPicture, frame: Array
    ) -> Observation:
        """Return PSNR and SSIM. Raises InputError for pictures of unequal sizes."""
        assert isinstance(result, Picture)
        assert picture.beside is not None
        target = read_photo(picture.beside)
        painted = _in_size_of(target, result)
        if painted is None:
            inside = _size_text(result.inside())
            size_text = _size_text(result.of_frame())
            sizes = inside
            if size_text != inside:
                sizes += f", or {size_text} for the whole photo"
            raise InputError(
                f"{picture.beside.name} is {_size_text(target)}, "
                f"the network paints {sizes}",
                str(picture.beside),
                "give targets in that size",
            )
        return {
            "psnr": psnr_db(target, painted),
            "ssim": ssim(target, painted),
        }

    def score(
        self, pictures: Sequence[LabelledPicture], observations: Sequence[Observation]
    ) -> Scored:
        """Return the means of the pictures."""
        return Means.of(self.figures, observations)

    def truth(self, picture: LabelledPicture, frame: Array) -> Result:
        """Return the target."""
        assert picture.beside is not None
        pixels = read_photo(picture.beside)
        return Picture(pixels, whole_view(pixels))

    def loss(self, result: Result, picture: LabelledPicture, frame: Array) -> float:
        """Return 1 less the structural similarity."""
        return 1 - float(self.observe(result, picture, frame)["ssim"])


def _size_text(pixels: Array) -> str:
    """Return width and height of a picture, for messages."""
    height, width = pixels.shape[:2]
    return f"{width} x {height}"


def _in_size_of(target: Array, result: Picture) -> Array | None:
    """Return what was painted, in the size of a target.

    It is the network's own size, or the size of the photo; None where neither is it.
    """
    # Exact pixels first: enlarging to the photo is bicubic, and blurs.
    sizes = (result.inside(), result.of_frame())
    for painted in sizes:
        if painted.shape == target.shape:
            return painted
    return None


def ssim(a: Array, b: Array) -> float:
    """Return the structural similarity of two pictures, uint8 [H, W, 3].

    In a picture smaller than a window the window is as large as the picture.
    """
    x = a.astype(np.float64) @ _LUMA
    y = b.astype(np.float64) @ _LUMA
    mean_x = _windowed(x)
    mean_y = _windowed(y)

    # E[x²] - E[x]², in each window.
    variance_x = _windowed(x * x) - mean_x**2
    variance_y = _windowed(y * y) - mean_y**2
    covariance = _windowed(x * y) - mean_x * mean_y

    light = (2 * mean_x * mean_y + _C1) / (mean_x**2 + mean_y**2 + _C1)
    structure = (2 * covariance + _C2) / (variance_x + variance_y + _C2)
    return float((light * structure).mean())


def _windowed(plane: Array) -> Array:
    """Return the weighted mean of every window that lies inside a plane [H, W]."""
    # The Gaussian is separable: down the columns, then along the rows.
    for axis in range(2):
        size = min(WINDOW, plane.shape[axis])
        middle = (size - 1) / 2
        places = np.arange(size) - middle
        weights = np.exp(-(places**2) / (2 * DEVIATION**2))
        # Weights of 1 altogether: the mean of equal pixels is that pixel.
        weights /= weights.sum()
        windows = np.lib.stride_tricks.sliding_window_view(plane, size, axis=axis)
        plane = windows @ weights
    return plane
