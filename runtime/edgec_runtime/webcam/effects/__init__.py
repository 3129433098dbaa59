"""The effects of the webcam: each has a row in EFFECTS, and a function that makes it."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Callable, List, Mapping, Optional, Tuple

from numpy.typing import NDArray

from ...errors import InputError, did_you_mean
from ...vision.tasks.base import Result
from ...vision.tasks.image import Picture
from ...vision.tasks.segmentation import Segments
from . import pictures
from .avatar import avatar, puppet
from .base import Effect, EffectSetting, Finder, Uploads
from .faces import has_face_points
from .makeup import makeup
from .mask import built_in_masks, mask
from .painter import Painter

Array = NDArray[Any]

__all__ = [
    "EFFECTS",
    "OVERLAY",
    "Effect",
    "Painter",
    "Uploads",
    "effect",
    "effects_for",
    "file_of",
    "wants_value",
]

FACES = ("landmarks", "cascade")
"""Tasks whose results can have the points of a face."""


@dataclass(frozen=True)
class EffectRow:
    """An effect.

    Attributes:
        does: a description
        make: makes the effect
        tasks: the tasks for which it is; () for all
        suits: returns whether it can draw a result
        value: an example of its value, the text after "="; "" if it takes none
        file: whether the value is a file, which may have points in a .json beside it
        picture: whether the value may name a picture in memory instead
        built_in: returns the values for which edgec has a file
    """

    does: str
    make: Callable[[EffectSetting], Effect]
    tasks: Tuple[str, ...] = ()
    suits: Callable[[Result], bool] = lambda result: True
    value: str = ""
    file: bool = False
    picture: bool = False
    built_in: Callable[[], List[str]] = list


def _is_mask(result: Result) -> bool:
    return isinstance(result, Segments)


def _is_picture(result: Result) -> bool:
    return isinstance(result, Picture)


OVERLAY = "overlay"
EFFECTS: Mapping[str, EffectRow] = {
    OVERLAY: EffectRow(
        "draws what was found; an image network's picture as it is", pictures.overlay
    ),
    "blur": EffectRow(
        "what is behind a person, out of focus",
        pictures.blur,
        ("segmentation",),
        _is_mask,
    ),
    "replace": EffectRow(
        "another picture behind a person: replace=FILE",
        pictures.replace,
        ("segmentation",),
        _is_mask,
        "beach.jpg",
        file=True,
        picture=True,
    ),
    "cartoon": EffectRow(
        "an image network's picture, with the frame's own lines",
        pictures.cartoon,
        ("image",),
        _is_picture,
    ),
    "avatar": EffectRow(
        "a portrait that moves as the face does: avatar=FILE",
        avatar,
        FACES,
        has_face_points,
        "portrait.jpg",
        file=True,
        picture=True,
    ),
    "mask": EffectRow(
        "a picture over the face: mask=glasses, mask=FILE",
        mask,
        FACES,
        has_face_points,
        "glasses",
        file=True,
        built_in=built_in_masks,
    ),
    "makeup": EffectRow(
        "lips, brows, lids and hair in other colours: makeup=lips:#a03050",
        makeup,
        FACES,
        has_face_points,
        "lips:#a03050",
    ),
    "puppet": EffectRow(
        "a drawn head that moves as the face does",
        puppet,
        FACES,
        has_face_points,
    ),
}


def effects_for(task: str) -> List[str]:
    """Return the names of the effects for a task."""
    return [name for name, row in EFFECTS.items() if not row.tasks or task in row.tasks]


def file_of(text: str) -> str:
    """Return the user's file that an effect reads; "" if it reads none."""
    name, _, value = text.partition("=")
    row = EFFECTS.get(name)
    if row is None or not row.file or value in row.built_in():
        return ""
    return value


def wants_value(name: str) -> bool:
    """Return whether an effect takes a value, the text after "="."""
    return EFFECTS[name].value != ""


def effect(
    text: str,
    painter: Painter,
    find: Optional[Finder] = None,
    uploads: Uploads = MappingProxyType({}),
) -> Effect:
    """Return the effect that a text names.

    The effect raises InputError for a result of a task for which it is not.

    Args:
        text: its name in EFFECTS, and perhaps "=" and a value, for example "blur" or
            "avatar=portrait.jpg"
        painter: paints
        find: runs the bundle on a picture of the effect
        uploads: pictures in memory, which the value may name instead of a file

    Raises:
        InputError: there is no such effect, or not with this value
    """
    name, equals, value = text.partition("=")
    if name not in EFFECTS or (equals and not wants_value(name)):
        raise InputError(
            f'there is no effect "{text}"{did_you_mean(name, EFFECTS)}',
            hint="use " + ", ".join(EFFECTS),
        )
    row = EFFECTS[name]
    return _Checked(name, row, row.make(EffectSetting(value, painter, find, uploads)))


class _Checked(Effect):
    """An effect that refuses results of other tasks.

    It is made before the bundle's first result, so each result is checked.
    """

    def __init__(self, name: str, row: EffectRow, inner: Effect) -> None:
        self._name = name
        self._row = row
        self._inner = inner
        self.renewable = inner.renewable
        self.smooths = inner.smooths

    def __call__(self, frame: Array, result: Result, at: float = 0.0) -> Array:
        """Return the picture of a frame."""
        if self._row.suits(result):
            return self._inner(frame, result, at)

        task = self._row.tasks[0]
        subject = "face points" if task == "landmarks" else task
        article = "" if subject.endswith("s") else "an " if task == "image" else "a "
        other = type(result).__name__.lower().removesuffix("result")
        hint = f"use overlay, or a bundle that was compiled with --task {task}"
        if task == "landmarks":
            hint = "use overlay, or a bundle of a face mesh: --task facemesh"
        raise InputError(
            f"{self._name} is for {article}{subject}, not for {other}", hint=hint
        )

    def renew(self) -> None:
        """Take the neutral pose anew."""
        self._inner.renew()
