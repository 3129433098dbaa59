"""Effects with masks and pictures of networks: overlay, blur, replace, cartoon."""

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
    """Return the effect that draws the result over the frame.

    The result of an image network is a picture, which is shown as it is.
    """

    def paint(frame: Array, result: Result) -> Array:
        if isinstance(result, Picture):
            return result.of_frame(setting.painter.resized)
        return result.draw(frame)

    return Painted(paint)


def blur(setting: EffectSetting) -> Effect:
    """Return the effect that blurs the background of a person."""
    return Painted(setting.painter.blur)


def cartoon(setting: EffectSetting) -> Effect:
    """Return the effect of an image network's picture with the frame's own lines."""
    return Painted(setting.painter.cartoon)


def replace(setting: EffectSetting) -> Effect:
    """Return the effect that replaces the background of a person by a picture.

    Raises InputError if the file is not a photo.
    """
    if not setting.value:
        raise InputError("the effect replace needs a picture", hint="replace=beach.jpg")
    picture = setting.picture()
    painter = setting.painter
    fillings: Dict[Tuple[int, int], Array] = {}

    def paint(frame: Array, segments: Segments) -> Array:
        size = frame.shape[1], frame.shape[0]
        if size not in fillings:
            # One picture of the frame's size is enough memory.
            fillings.clear()
            fillings[size] = painter.filling(picture, size)
        return painter.blend(frame, fillings[size], painter.matte(frame, segments))

    return Painted(paint)
