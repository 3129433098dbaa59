"""The base class of effects, and the setting from which one is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Optional

from numpy.typing import NDArray

from ...vision.photo import read_photo
from ...vision.tasks.base import Result
from .painter import Painter

Array = NDArray[Any]

Finder = Callable[[Array], Result]
"""Runs a bundle on a picture, uint8 [H, W, 3]."""

Uploads = Mapping[str, Array]
"""Pictures in memory, uint8 [H, W, 3], by names that are used like those of files."""


class Effect:
    """Makes a picture of a frame and its result.

    Some effects keep a state from frame to frame, so each stream has its own effect.

    Attributes:
        renewable: whether it has a neutral pose that can be taken anew
        smooths: whether it smooths results over time by itself
    """

    renewable: bool = False
    smooths: bool = False

    def __call__(self, frame: Array, result: Result, at: float = 0.0) -> Array:
        """Return the picture of a frame, uint8 [H, W, 3].

        Args:
            frame: uint8 [H, W, 3], red first; it stays as it is
            result: the bundle's result for it
            at: time of its capture, seconds
        """
        raise NotImplementedError

    def renew(self) -> None:
        """Take the neutral pose anew, if the effect has one."""


class Painted(Effect):
    """An effect without a state: a function of a frame and its result."""

    def __init__(self, paint: Callable[[Array, Any], Array]) -> None:
        self._paint = paint

    def __call__(self, frame: Array, result: Result, at: float = 0.0) -> Array:
        """Return the picture of a frame."""
        return self._paint(frame, result)


@dataclass(frozen=True)
class EffectSetting:
    """The setting of an effect.

    Attributes:
        value: the text after "="; "" if there is none
        painter: paints
        find: runs the bundle on a picture; None if there is no bundle
        uploads: pictures in memory, which the value may name
    """

    value: str
    painter: Painter
    find: Optional[Finder] = None
    uploads: Uploads = field(default_factory=dict)

    def picture(self) -> Array:
        """Return the picture that `value` names, uint8 [H, W, 3], red first.

        Raises InputError if the file is not a photo.
        """
        if self.value in self.uploads:
            return self.uploads[self.value]
        return read_photo(Path(self.value))
