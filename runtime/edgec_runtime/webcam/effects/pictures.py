"""Effects of masks and pictures that networks make: overlay, blur, replace, cartoon."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from numpy.typing import NDArray

from ...errors import InputError
from ...vision.tasks.base import Result
from ...vision.tasks.image import Picture
from ...vision.tasks.segmentation import Segments
from .base import Effect, EffectSetting, Painted

Array = NDArray[Any]


def overlay(setting: EffectSetting) -> Effect:
    """Return the effect that draws what was found; an image network's picture as it
    is.
    """

    def paint(frame: Array, result: Result) -> Array:
        if isinstance(result, Picture):
            return result.of_frame(setting.painter.resized)
        return result.draw(frame)

    return Painted(paint)


def blur(setting: EffectSetting) -> Effect:
    """Return the effect that blurs what is behind a person."""
    return Painted(setting.painter.blur)


def cartoon(setting: EffectSetting) -> Effect:
    """Return the effect of an image network's picture with the frame's own lines."""
    return Painted(setting.painter.cartoon)


def replace(setting: EffectSetting) -> Effect:
    """Return the effect that puts another picture behind a person.

    Raises InputError for a file that is no photo.
    """
    if not setting.value:
        raise InputError("the effect replace needs a picture", hint="replace=beach.jpg")
    picture = setting.picture()
    painter = setting.painter
    kept: Dict[Tuple[int, int], Array] = {}

    def paint(frame: Array, segments: Segments) -> Array:
        size = frame.shape[1], frame.shape[0]
        if size not in kept:
            # A picture as large as a frame: only the present size is worth its memory.
            kept.clear()
            kept[size] = painter.filling(picture, size)
        return painter.blend(frame, kept[size], painter.matte(frame, segments))

    return Painted(paint)
