"""The result of a cascade for one frame: objects, each with what every network says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Tuple

import numpy as np
from numpy.typing import NDArray

from ..vision.tasks.base import Result

Array = NDArray[Any]


@dataclass(frozen=True)
class CascadeObject:
    """An object of a frame.

    Attributes:
        identity: its number, which it keeps from frame to frame; numbers begin at 1
            and are not used again
        results: what each network says of it, by the network's name and in the order
            of the networks, in pixels of the frame; the detector's is a Boxes with a
            single box
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
    """The objects of a frame, those that were found first at the beginning.

    Attributes:
        objects: the objects
    """

    objects: Tuple[CascadeObject, ...] = ()

    def to_json(self) -> Dict[str, Any]:
        """Return the result in JSON's types."""
        return {"objects": [one.to_json() for one in self.objects]}

    def lines(self) -> List[str]:
        """Return the lines of a table for a terminal."""
        if not self.objects:
            return ["nothing"]

        # Each line begins with its object: tables of several networks follow each other.
        lines: List[str] = []
        for one in self.objects:
            for name, result in one.results.items():
                head = f"{one.identity:3}  {name:12} "
                lines += [head + line for line in result.lines()]
        return lines

    def draw(self, frame: Array) -> Array:
        """Return a picture of the frame with the objects, uint8 [H, W, 3]."""
        picture: Array = np.array(frame)
        for one in self.objects:
            for result in one.results.values():
                picture = result.draw(picture)
        return picture
