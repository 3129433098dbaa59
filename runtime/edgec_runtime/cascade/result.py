"""The result of a cascade for a frame: objects, each with the results of all networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from ..vision.tasks.base import Result
from ..vision.tasks.classification import Classes
from ..vision.tasks.instances import Boxes
from ..vision.tasks.points import Points

Array = NDArray[Any]


@dataclass(frozen=True)
class CascadeObject:
    """An object of a frame.

    Attributes:
        identity: its number, the same in all frames; numbers begin at 1 and are not used
            again
        results: the result of each network in pixels of the frame, by the network's name
            and in the order of the networks; a detection's is a Boxes with a single box
    """

    identity: int
    results: Mapping[str, Result]

    def to_json(self) -> Dict[str, Any]:
        """Return the object in JSON's types."""
        results: Dict[str, Any] = {}
        for name, result in self.results.items():
            results[name] = result.to_json()
        return {"identity": self.identity, "results": results}


@dataclass(frozen=True)
class CascadeResult:
    """The objects of a frame.

    Attributes:
        objects: the objects, the one that was detected first at the beginning
    """

    objects: Tuple[CascadeObject, ...] = ()

    def to_json(self) -> Dict[str, Any]:
        """Return the result in JSON's types."""
        return {"objects": [item.to_json() for item in self.objects]}

    def lines(self) -> List[str]:
        """Return the lines of a table for a terminal."""
        if not self.objects:
            return ["nothing"]

        # Each line begins with object and network, since several tables are joined.
        lines: List[str] = []
        for item in self.objects:
            for name, result in item.results.items():
                head = f"{item.identity:3}  {name:12} "
                lines += [head + line for line in result.lines()]
        return lines

    def draw(self, frame: Array) -> Array:
        """Return a picture of the frame with the objects, uint8 [H, W, 3]."""
        picture: Array = np.array(frame)
        for item in self.objects:
            corner = (0, 0)
            for result in item.results.values():
                if isinstance(result, Classes):
                    # Classes are drawn at the top left of a picture: here of the part
                    # that begins at the object.
                    part = picture[corner[1] :, corner[0] :]
                    part[:] = result.draw(part)
                else:
                    picture = result.draw(picture)
                    corner = _lower_left(result, picture) or corner
        return picture


def _lower_left(result: Result, picture: Array) -> Optional[Tuple[int, int]]:
    """Return x and y of the lower left corner of boxes or points; None for other results.

    The corner is moved into the picture, with some room below it.
    """
    if isinstance(result, Boxes) and result.boxes:
        corners = np.reshape([box.corners for box in result.boxes], (-1, 2))
    elif isinstance(result, Points) and len(result.points):
        corners = np.asarray(result.points)
    else:
        return None
    # A network that has lost its object may output anything.
    finite = corners[np.isfinite(corners).all(axis=1)]
    if not len(finite):
        return 0, 0
    height, width = picture.shape[:2]
    x = np.clip(finite[:, 0].min(), 0, 0.9 * width)
    y = np.clip(finite[:, 1].max(), 0, 0.9 * height)
    return int(x), int(y)
