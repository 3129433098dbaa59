"""avatar=portrait.jpg: a portrait that moves as the person before the camera does."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ...face.driving import Driver, FaceMotion, at_rest
from ...face.points import depth_scale, face_points, solid
from ...face.portrait import Portrait
from ...vision.resample import resize
from ...vision.tasks.base import Result
from .base import Effect, EffectSetting
from .faces import SteadyFace

Array = NDArray[Any]

HELD_S = 0.4
"""Seconds for which a pose stays after the face was lost."""
EASE_S = 0.5
"""Time constant of the way back to the neutral pose after that, seconds."""


def avatar(setting: EffectSetting) -> Effect:
    """Return the effect that shows a moving portrait.

    Raises InputError where the file is no photo, or has no face that is found or whose
    points are given.
    """
    if not setting.value:
        raise InputError("avatar wants a portrait", hint="avatar=portrait.jpg")
    path = Path(setting.value)
    picture = setting.picture()
    points = _found(setting, picture, path)
    return Avatar(setting, picture, points)


def _found(setting: EffectSetting, picture: Array, path: Path) -> Array:
    """Return the points of the face in a portrait, with depth in pixels [468, 3]."""
    hint = (
        "give a portrait with one large face that looks ahead, or place points in "
        f"{path.with_suffix('.json').name}"
    )
    if setting.find is None:
        raise InputError("nothing finds the face of a portrait here", str(path), hint)
    points = face_points(setting.find(picture))
    if points is None:
        raise InputError("no face was found in the portrait", str(path), hint)
    return solid(points, depth_scale(points))


class Avatar(Effect):
    """The portrait, and the person that drives it."""

    renewable = True

    def __init__(self, setting: EffectSetting, picture: Array, points: Array) -> None:
        """Begin in the neutral pose.

        Args:
            setting: what it is made of
            picture: the portrait, uint8 [H, W, 3]
            points: its face [468, 3]
        """
        self._painter = setting.painter
        self._picture = picture
        self._points = points
        self._portrait: Optional[Portrait] = None
        self._steady = SteadyFace()
        self._driver = Driver()
        self._motion: FaceMotion = at_rest()
        self._seen_at = 0.0

    def renew(self) -> None:
        """Take the neutral pose anew from the next frames."""
        self._driver.renew()

    def __call__(self, frame: Array, result: Result, at: float = 0.0) -> Array:
        """Return the portrait as the face of the frame is."""
        size = frame.shape[1], frame.shape[0]
        if self._portrait is None or self._portrait.size != size:
            self._portrait = framed(self._picture, self._points, size)
        motion = self._followed(result, at)
        out = np.empty_like(frame)
        self._painter.warp_into(self._portrait.warp(motion), out)
        return out

    def _followed(self, result: Result, at: float) -> FaceMotion:
        """Return the motion of this frame; without a face the last, eased to rest."""
        points = self._steady(result, at)
        motion = None if points is None else self._driver(points)
        if motion is not None:
            self._motion = motion
            self._seen_at = at
            return motion
        late = max(0.0, at - self._seen_at - HELD_S)
        return self._motion.eased(math.exp(-late / EASE_S))


def framed(picture: Array, points: Array, size: Tuple[int, int]) -> Portrait:
    """Return the part of a portrait about its face, as large as the frame.

    Args:
        picture: uint8 [H, W, 3]
        points: of its face [468, 3]
        size: width and height of the frame
    """
    height, width = picture.shape[:2]
    factor = min(width / size[0], height / size[1])
    part = np.array(size) * factor
    flat = points[:, :2]
    middle = (flat.min(axis=0) + flat.max(axis=0)) / 2
    corner = np.clip(middle - part / 2, 0, np.array([width, height]) - part)
    box = (float(corner[0]), float(corner[1]), float(part[0]), float(part[1]))
    moved = points.copy()
    moved[:, :2] -= corner
    return Portrait(resize(picture, box, size, "bilinear"), moved / factor)
