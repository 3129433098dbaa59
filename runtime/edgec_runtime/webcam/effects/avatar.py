"""The effect avatar=portrait.jpg: a portrait that moves like the person at the camera."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ...face.motion import Driver, FaceMotion, at_rest
from ...face.point_file import is_face, portrait_points
from ...face.points import depth_scale, face_points, has_irises, solid
from ...face.portrait import Portrait, check_portrait
from ...face.puppet import puppet as drawn_head
from ...face.warping import Warp
from ...vision.resample import resize
from ...vision.tasks.base import Result
from .base import Effect, EffectSetting
from .faces import SteadyFace
from .painter import Painter

Array = NDArray[Any]

SAMPLES = 3
"""Samples per pixel in each direction where edges are smoothed."""
HAIR = 0.33
"""Height of the hair above the mesh of a face, relative to the height of the mesh."""
FACE_SPACE = 1.35
"""Least height of the part around a face without hair, relative to the same."""
HELD_S = 0.4
"""Seconds for which a pose stays after the face is lost."""
EASE_S = 0.5
"""Time constant of the return to the neutral pose after that, seconds."""


def avatar(setting: EffectSetting) -> Effect:
    """Return the effect that shows a moving portrait.

    Raises InputError if the file is not a photo or has no face, or if the face looks
    aside, is tiny, or is near the border.
    """
    if not setting.value:
        raise InputError(
            "the effect avatar needs a portrait", hint="avatar=portrait.jpg"
        )
    path = Path(setting.value)
    picture = setting.picture()
    points = _portrait_points(setting, picture, path)
    check_portrait(points, (picture.shape[1], picture.shape[0]), str(path))

    def frame(size: Tuple[int, int]) -> Portrait:
        return framed(picture, points, size)

    return Avatar(setting.painter, frame)


def puppet(setting: EffectSetting) -> Effect:
    """Return the effect that shows a drawn head instead of the camera's picture."""
    return Avatar(setting.painter, drawn_head)


def _portrait_points(setting: EffectSetting, picture: Array, path: Path) -> Array:
    """Return the points of the face in a portrait, with depth in pixels [468, 3].

    They are those of the .json beside the file, or else of the bundle.
    """
    # An uploaded picture has no file beside it.
    if setting.value not in setting.uploads:
        file_points = portrait_points(path.with_suffix(".json"))
        if file_points is not None:
            return file_points
    hint = (
        "give a portrait with one large face that looks ahead, or place points in "
        f"{path.with_suffix('.json').name}"
    )
    if setting.find is None:
        raise InputError("nothing finds the face of a portrait here", str(path), hint)
    points = face_points(setting.find(picture))
    if points is None or not is_face(points[:, :2]):
        raise InputError("no face was found in the portrait", str(path), hint)
    return solid(points, depth_scale(points))


class Avatar(Effect):
    """The effect that shows a portrait with the motion of the face in each frame."""

    renewable = True
    smooths = True

    def __init__(
        self, painter: Painter, frame: Callable[[Tuple[int, int]], Portrait]
    ) -> None:
        """Begin in the neutral pose.

        Args:
            painter: paints
            frame: returns the portrait for a width and height
        """
        self._painter = painter
        self._frame = frame
        self._portrait: Optional[Portrait] = None
        self._steady = SteadyFace()
        self._driver = Driver()
        self._motion: FaceMotion = at_rest()
        self._seen_at = 0.0

    def renew(self) -> None:
        """Take the neutral pose anew from the next frames."""
        self._driver.renew()

    def __call__(self, frame: Array, result: Result, at: float = 0.0) -> Array:
        """Return the portrait with the motion of the face in a frame."""
        size = frame.shape[1], frame.shape[0]
        if self._portrait is None or self._portrait.size != size:
            self._portrait = self._frame(size)
        motion = self._next_motion(result, at)
        return drawn(self._portrait, motion, self._painter)

    def _next_motion(self, result: Result, at: float) -> FaceMotion:
        """Return the motion of a frame; without a face the last one, eased to rest."""
        points = self._steady(result, at)
        motion = None
        if points is not None:
            motion = self._driver(points, has_irises(result))
        if motion is not None:
            self._motion = motion
            self._seen_at = at
            return motion
        late = max(0.0, at - self._seen_at - HELD_S)
        return self._motion.eased(math.exp(-late / EASE_S))


def drawn(portrait: Portrait, motion: FaceMotion, painter: Painter) -> Array:
    """Return a portrait with a motion, uint8 [H, W, 3]."""
    out = np.empty((portrait.size[1], portrait.size[0], 3), np.uint8)
    warp = portrait.warp(motion)
    painter.warp_into(warp, out)
    for lid in portrait.lids(motion):
        painter.warp_into(lid, out)
    if portrait.shows_mouth(motion):
        smooth_edges(painter, warp, portrait.mouth_triangles, out)
    return out


def smooth_edges(painter: Painter, warp: Warp, triangles: Array, out: Array) -> None:
    """Draw the pixels at the edges of some triangles again, as means of samples.

    Edges inside the mesh need no smoothing, since the picture continues across them.

    Args:
        painter: paints
        warp: the warp of the whole picture
        triangles: the triangles with visible edges, int32 [M, 3]
        out: the picture, which is changed, uint8 [H, W, 3]
    """
    points = warp.end[np.unique(triangles)]
    size = np.array([out.shape[1], out.shape[0]])
    low = np.clip(np.floor(points.min(axis=0)) - 1, 0, size).astype(int)
    high = np.clip(np.ceil(points.max(axis=0)) + 1, 0, size).astype(int)
    width, height = (high - low).tolist()
    if width == 0 or height == 0:
        return

    # The part is drawn SAMPLES times larger, for the means.
    large = np.zeros((height * SAMPLES, width * SAMPLES, 3), np.uint8)
    larger = warp.moved(-low, SAMPLES)
    # To know which pixels show these triangles, they are drawn white and all others
    # black, since nearer triangles may cover them.
    tones = np.zeros((2, 4, 4), np.uint8)
    tones[:, 2:] = 255
    begin = np.full_like(warp.begin, 0.5)
    begin[np.unique(triangles), 0] = 3.5
    painter.warp_into(replace(larger, source=tones, begin=begin), large)
    covered = _means(large, height, width)[..., :1]
    is_edge = (covered > 0) & (covered < 255)
    painter.warp_into(larger, large)
    levels = _means(large, height, width) + 0.5

    part = out[low[1] : high[1], low[0] : high[0]]
    np.copyto(part, levels.astype(np.uint8), where=is_edge)


def _means(samples: Array, height: int, width: int) -> Array:
    """Return the mean of the samples of each pixel [height, width, 3]."""
    pixels = samples.reshape(height, SAMPLES, width, SAMPLES, 3)
    return np.asarray(pixels.mean(axis=(1, 3)))


def framed(picture: Array, points: Array, size: Tuple[int, int]) -> Portrait:
    """Return the part of a portrait around its head, in the size of the frame.

    Args:
        picture: uint8 [H, W, 3]
        points: points of its face in pixels [468, 3]
        size: width and height of the frame
    """
    height, width = picture.shape[:2]
    factor = min(width / size[0], height / size[1])
    part = np.array(size) * factor
    flat = points[:, :2]
    low = flat.min(axis=0)
    high = flat.max(axis=0)
    # The hair is included as far as the part has space for it above the face.
    tall = high[1] - low[1]
    low[1] -= np.clip(part[1] - FACE_SPACE * tall, 0, HAIR * tall)
    middle = (low + high) / 2
    corner = np.clip(middle - part / 2, 0, np.array([width, height]) - part)
    box = (float(corner[0]), float(corner[1]), float(part[0]), float(part[1]))
    part_points = points.copy()
    part_points[:, :2] -= corner
    return Portrait(resize(picture, box, size, "bilinear"), part_points / factor)
