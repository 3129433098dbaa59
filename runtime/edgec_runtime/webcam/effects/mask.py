"""mask=picture.png: a picture pinned to the face, in the light that falls on it."""

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
"""The masks that come with edgec: tools/face_masks.py draws them."""
LIGHT_PIXELS = 24
"""Pixels of a frame over whose mean light is taken."""
DARKEST = 0.35
BRIGHTEST = 1.5
LUMA = np.array([0.299, 0.587, 0.114])
HALVED_AT = 1.5
"""Pixels of a mask for one of a frame, from which on a smaller copy is used."""


def mask(setting: EffectSetting) -> Effect:
    """Return the effect that puts a picture over the face.

    Raises InputError where the file is no picture, or has no points beside it.
    """
    names = built_in_masks()
    if not setting.value:
        hint = f"mask={' or mask='.join(names)}, or a file: mask=hat.png"
        raise InputError("the effect mask needs a picture", hint=hint)
    path = Path(setting.value)
    if setting.value in names:
        path = BUILT_IN / f"{setting.value}.png"
    picture = read_photo(path, alpha=True)
    pinned = mask_points(path.with_suffix(".json"))
    return FaceMask(PinnedPicture(picture, pinned), setting.painter)


def built_in_masks() -> List[str]:
    """Return the names of the masks that come with edgec."""
    return sorted(path.stem for path in BUILT_IN.glob("*.png"))


class FaceMask(Effect):
    """A picture over a face, frame by frame."""

    smooths = True

    def __init__(self, picture: PinnedPicture, painter: Painter) -> None:
        """Begin without a face."""
        self._picture = picture
        self._painter = painter
        self._steady = SteadyFace()
        self._usual: List[float] = []
        self._smaller: Dict[int, Array] = {0: picture.source}

    def renew(self) -> None:
        """Take the usual light anew from the next frames."""
        self._usual = []

    def __call__(self, frame: Array, result: Result, at: float = 0.0) -> Array:
        """Return the frame with the mask; without a face as it is."""
        face: Optional[Array] = self._steady(result, at)
        if face is None:
            return frame
        light = self._light(frame, face)
        source = self._source(self._picture.scale(face))
        out = np.array(frame)
        self._painter.warp_into(self._picture.warp(face, light, source), out)
        return out

    def _light(self, frame: Array, face: Array) -> Array:
        """Return the brightness at the points of a face, 1: that of the face in the
        first frames [468].
        """
        size = (
            max(2, frame.shape[1] // LIGHT_PIXELS),
            max(2, frame.shape[0] // LIGHT_PIXELS),
        )
        small = self._painter.resized(frame, size, "area")
        scale = np.array(size) / [frame.shape[1], frame.shape[0]]
        # Beyond its outline there is no skin: hair says nothing of the light.
        middle = face[list(OVAL), :2].mean(axis=0)
        inside = middle + (face[:, :2] - middle) * 0.8
        luma = bilinear(small, inside * scale) @ LUMA
        usual = list(self._usual)
        if len(usual) < NEUTRAL_FRAMES:
            usual.append(float(luma.mean()))
            self._usual = usual
        relative = luma / max(float(np.median(usual)), 1.0)
        return np.asarray(np.clip(relative, DARKEST, BRIGHTEST))

    def _source(self, scale: float) -> Array:
        """Return the picture, smaller where the face is.

        What is reduced by more than a half would lose lines between two pixels.

        Args:
            scale: pixels of the picture for one of the frame
        """
        halvings = max(0, math.floor(math.log2(max(scale, 1.0) / HALVED_AT)) + 1)
        if halvings not in self._smaller:
            full = self._picture.source
            size = (
                max(2, full.shape[1] >> halvings),
                max(2, full.shape[0] >> halvings),
            )
            self._smaller[halvings] = whole(full, size, "area")
        return self._smaller[halvings]
