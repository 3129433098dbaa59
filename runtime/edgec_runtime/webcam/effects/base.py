"""An effect, and what one needs to be made."""

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
"""Pictures in memory, uint8 [H, W, 3], by names that stand in the place of files."""


class Effect:
    """Draws what a bundle found in a frame.

    Some effects keep a state from frame to frame: a stream has an effect of its own.

    Attributes:
        renewable: whether it has a neutral pose to take anew
        smooths: whether it smooths results over time by itself
    """

    renewable: bool = False
    smooths: bool = False

    def __call__(self, frame: Array, result: Result, at: float = 0.0) -> Array:
        """Return the picture of a frame, uint8 [H, W, 3].

        Args:
            frame: uint8 [H, W, 3], red first; it stays as it is
            result: what was found in it
            at: when it was captured, seconds
        """
        raise NotImplementedError

    def renew(self) -> None:
        """Take the neutral pose anew, where the effect has one."""


class Painted(Effect):
    """An effect without a state: a function of a frame and its result."""

    def __init__(self, paint: Callable[[Array, Any], Array]) -> None:
        """Take the function."""
        self._paint = paint

    def __call__(self, frame: Array, result: Result, at: float = 0.0) -> Array:
        """Return the picture of a frame."""
        return self._paint(frame, result)


@dataclass(frozen=True)
class EffectSetting:
    """What an effect is made of.

    Attributes:
        value: the text behind the "=", "" without one
        painter: draws
        find: finds faces in pictures that are given; None: there is no bundle for it
        uploads: pictures in memory, which have a name in place of a file
    """

    value: str
    painter: Painter
    find: Optional[Finder] = None
    uploads: Uploads = field(default_factory=dict)

    def picture(self) -> Array:
        """Return the picture that `value` names, uint8 [H, W, 3], red first.

        Raises InputError for a file that is no photo.
        """
        if self.value in self.uploads:
            return self.uploads[self.value]
        return read_photo(Path(self.value))
