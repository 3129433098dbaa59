"""The effect mask=picture.png: a picture that is pinned to the face and takes its light."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ...face.face_picture import PinnedPicture
from ...face.geometry import bilinear
from ...face.landmarks import OVAL
from ...face.motion import NEUTRAL_FRAMES
from ...face.point_file import mask_points
from ...vision.photo import read_photo
from ...vision.resample import whole
from ...vision.tasks.base import Result
from .base import Effect, EffectSetting
from .faces import SteadyFace
from .painter import Painter

Array = NDArray[Any]

BUILT_IN = Path(__file__).parents[2] / "face" / "masks"
"""The masks of edgec, which tools/face_masks.py draws."""
LIGHT_PIXELS = 24
"""Side of the squares whose mean brightness is the light there, in pixels of a frame."""
DARKEST = 0.35
BRIGHTEST = 1.5
"""Limits of the light, relative to the usual light."""
LUMA = np.array([0.299, 0.587, 0.114])
HALVED_AT = 1.5
"""Pixels of a mask per pixel of the frame, above which a smaller copy is used."""


def mask(setting: EffectSetting) -> Effect:
    """Return the effect that draws a picture over the face.

    Raises InputError if the file is not a picture, or has no points beside it.
    """
    names = built_in_masks()
    if not setting.value:
        hint = f"mask={' or mask='.join(names)}, or a file: mask=hat.png"
        raise InputError("the effect mask needs a picture", hint=hint)
    path = Path(setting.value)
    if setting.value in names:
        path = BUILT_IN / f"{setting.value}.png"
    picture = read_photo(path, alpha=True)
    points = mask_points(path.with_suffix(".json"))
    return FaceMask(PinnedPicture(picture, points), setting.painter)


def built_in_masks() -> List[str]:
    """Return the names of the masks that come with edgec."""
    return sorted(path.stem for path in BUILT_IN.glob("*.png"))


class FaceMask(Effect):
    """The effect that draws a picture over the face of each frame."""

    smooths = True

    def __init__(self, picture: PinnedPicture, painter: Painter) -> None:
        self._picture = picture
        self._painter = painter
        self._steady = SteadyFace()
        # mean luma of the face in the first frames
        self._first_luma: List[float] = []
        # copies of the picture by the number of halvings
        self._copies: Dict[int, Array] = {0: picture.source}

    def renew(self) -> None:
        """Measure the usual light anew, in the next frames."""
        self._first_luma = []

    def __call__(self, frame: Array, result: Result, at: float = 0.0) -> Array:
        """Return the frame with the mask; a frame without a face is not changed."""
        face: Optional[Array] = self._steady(result, at)
        if face is None:
            return frame
        light = self._light(frame, face)
        source = self._source(self._picture.scale(face))
        out = np.array(frame)
        self._painter.warp_into(self._picture.warp(face, light, source), out)
        return out

    def _light(self, frame: Array, face: Array) -> Array:
        """Return the light at the points of a face [468].

        It is 1 for the mean brightness of the face in the first frames.
        """
        size = (
            max(2, frame.shape[1] // LIGHT_PIXELS),
            max(2, frame.shape[0] // LIGHT_PIXELS),
        )
        small = self._painter.resized(frame, size, "area")
        scale = np.array(size) / [frame.shape[1], frame.shape[0]]
        # Points are moved inside the outline, since hair tells nothing about the light.
        middle = face[list(OVAL), :2].mean(axis=0)
        inside = middle + (face[:, :2] - middle) * 0.8
        luma = bilinear(small, inside * scale) @ LUMA
        # The list is replaced, since another thread may renew it.
        first = list(self._first_luma)
        if len(first) < NEUTRAL_FRAMES:
            first.append(float(luma.mean()))
            self._first_luma = first
        relative = luma / max(float(np.median(first)), 1.0)
        return np.asarray(np.clip(relative, DARKEST, BRIGHTEST))

    def _source(self, scale: float) -> Array:
        """Return the picture, or a smaller copy for a small face.

        Sampling at a scale of more than 2 would miss lines between two samples.

        Args:
            scale: pixels of the picture per pixel of the frame
        """
        halvings = max(0, math.floor(math.log2(max(scale, 1.0) / HALVED_AT)) + 1)
        if halvings not in self._copies:
            full = self._picture.source
            size = (
                max(2, full.shape[1] >> halvings),
                max(2, full.shape[0] >> halvings),
            )
            self._copies[halvings] = whole(full, size, "area")
        return self._copies[halvings]
