"""The openings of a face: two eyes and a mouth, between an upper and a lower edge.

An opening has triangles of its own, whose corners are copies of its edges: in the
result they are where the edges are, in the source elsewhere. So eyes keep their place
in the head while lids go over them, and the mouth shows another picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from .geometry import downward, length
from .landmarks import (
    LEFT_LID_SKIN,
    LEFT_UPPER_LID,
    RIGHT_LID_SKIN,
    RIGHT_UPPER_LID,
    openings,
    strip,
)

Array = NDArray[Any]
Triangle = Tuple[int, int, int]

LIDS = ((LEFT_UPPER_LID, LEFT_LID_SKIN), (RIGHT_UPPER_LID, RIGHT_LID_SKIN))
"""The edges of the upper lids, and the skin above them."""
LASH_SHARE = 0.5
"""The part of a lid that lashes shade: it keeps its height when the eye closes."""


@dataclass(frozen=True)
class Opening:
    """The edges of an opening, and their copies among the corners of a mesh.

    Attributes:
        upper: numbers of the points of the upper edge, from left to right
        lower: of the lower edge
        upper_copy: numbers of the copies
        lower_copy: of the lower edge's
    """

    upper: Sequence[int]
    lower: Sequence[int]
    upper_copy: Sequence[int]
    lower_copy: Sequence[int]

    @property
    def triangles(self) -> List[Triangle]:
        """The triangles between the copies."""
        return strip(self.upper_copy, self.lower_copy)


def copied_openings(first: int) -> List[Opening]:
    """Return the eyes and the mouth.

    Args:
        first: the number of the first copy; the others follow
    """
    found: List[Opening] = []
    for upper, lower in openings():
        middle = first + len(upper)
        last = middle + len(lower)
        upper_copy = range(first, middle)
        lower_copy = range(middle, last)
        found.append(Opening(upper, lower, upper_copy, lower_copy))
        first = last
    return found


def copied(values: Array, found: Sequence[Opening]) -> Array:
    """Return the values of the points that have copies, in the copies' order.

    Args:
        values: of all points [468, …]
        found: the openings
    """
    numbers: List[int] = []
    for opening in found:
        numbers += opening.upper
        numbers += opening.lower
    return np.asarray(values[numbers])


def keep_apart(points: Array) -> None:
    """Move lids and lips that lie over each other to their middle.

    Args:
        points: [468, 3], which are changed
    """
    for upper, lower in openings():
        down = downward(points[upper[-1], :2] - points[upper[0], :2])
        for a, b in zip(upper[1:-1], lower[1:-1]):
            # Only what crossed moves, and both edges by half of it.
            apart = points[b, :2] - points[a, :2]
            overlap = max(0.0, -float(apart @ down))
            points[a, :2] -= down * (overlap / 2)
            points[b, :2] += down * (overlap / 2)


def within_lids(begin: Array, eye: Opening) -> None:
    """Keep the copies' places in the source between the portrait's own lids.

    Eyes that open wider than they are in the portrait have no pixels for it.

    Args:
        begin: the corners in the source [N, 2], which are changed
        eye: one of the eyes
    """
    for i in range(1, len(eye.upper) - 1):
        upper = begin[eye.upper[i]]
        lower = begin[eye.lower[i]]
        down = (lower - upper) / length(lower - upper)
        above = float((begin[eye.upper_copy[i]] - upper) @ down)
        begin[eye.upper_copy[i]] -= min(0.0, above) * down
        below = float((begin[eye.lower_copy[i]] - lower) @ down)
        begin[eye.lower_copy[i]] -= max(0.0, below) * down


def lashes(face: Array) -> Array:
    """Return the points between the edges of the upper lids and the skin above [14, 3].

    Args:
        face: the points of the face [468, 3]
    """
    rows: List[Array] = []
    for upper, above in LIDS:
        edge = face[list(upper[1:-1])]
        skin = face[list(above[1:-1])]
        # Half way up: lashes below, the skin of the lid above.
        rows.append(edge + (skin - edge) * LASH_SHARE)
    return np.concatenate(rows)


def lash_count() -> int:
    """Return the number of those points."""
    return sum(len(upper) - 2 for upper, _ in LIDS)


def with_lashes(triangles: Array, first: int) -> Array:
    """Return the triangles of the skin with a row of points more in the upper lids.

    Without it the lashes would be drawn out over all of a closed lid.

    Args:
        triangles: of the skin [M, 3]
        first: the number of the first of those points
    """
    renumbered = np.arange(int(triangles.max()) + 1)
    strips: List[Triangle] = []
    for upper, _ in LIDS:
        inner = upper[1:-1]
        row = range(first, first + len(inner))
        # The skin ends at the new row, and a strip goes on to the edge.
        renumbered[list(inner)] = row
        strips += strip((upper[0], *row, upper[-1]), upper)
        first += len(inner)
    return np.concatenate([renumbered[triangles], np.array(strips)])
