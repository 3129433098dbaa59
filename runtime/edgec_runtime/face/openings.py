"""The openings of a face, two eyes and a mouth, each between an upper and a lower edge.

An opening has its own triangles, whose corners are copies of the edges' points. A copy
has the position of its point in the result, but another one in the source. So an eye
does not move with its lids, and the mouth shows another picture.
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
"""Points of the upper lids' edges, and of the skin above them."""
LASH_SHARE = 0.5
"""Fraction of the lid that lashes shade."""


@dataclass(frozen=True)
class Opening:
    """The edges of an opening, and their copies among the corners of a mesh.

    Attributes:
        upper: numbers of the upper edge's points, from left to right
        lower: numbers of the lower edge's points, from left to right
        upper_copy: numbers of the copies of the upper edge's points
        lower_copy: numbers of the copies of the lower edge's points
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
    """Return the openings: the left eye, the right eye and the mouth.

    Args:
        first: the number of the first copy; the others follow
    """
    result: List[Opening] = []
    for upper, lower in openings():
        middle = first + len(upper)
        last = middle + len(lower)
        upper_copy = range(first, middle)
        lower_copy = range(middle, last)
        result.append(Opening(upper, lower, upper_copy, lower_copy))
        first = last
    return result


def copied(values: Array, face_openings: Sequence[Opening]) -> Array:
    """Return the values of the copies, in their order.

    Args:
        values: the values of all points [468, …]
        face_openings: the openings
    """
    numbers: List[int] = []
    for opening in face_openings:
        numbers += opening.upper
        numbers += opening.lower
    return np.asarray(values[numbers])


def keep_apart(points: Array) -> None:
    """Move lids and lips that overlap to their common middle.

    Args:
        points: the points of a face, which are changed [468, 3]
    """
    for upper, lower in openings():
        down = downward(points[upper[-1], :2] - points[upper[0], :2])
        for a, b in zip(upper[1:-1], lower[1:-1]):
            # Points that overlap move by half of the overlap each, others by 0.
            apart = points[b, :2] - points[a, :2]
            overlap = max(0.0, -float(apart @ down))
            points[a, :2] -= down * (overlap / 2)
            points[b, :2] += down * (overlap / 2)


def within_lids(begin: Array, eye: Opening) -> None:
    """Move copies in the source to between the portrait's own lids.

    The portrait has no pixels for an eye that is wider open.

    Args:
        begin: the corners in the source, which are changed [N, 2]
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
        # The lashes are below this row, the skin of the lid is above.
        rows.append(edge + (skin - edge) * LASH_SHARE)
    return np.concatenate(rows)


def lash_count() -> int:
    """Return the number of points of `lashes`."""
    return sum(len(upper) - 2 for upper, _ in LIDS)


def with_lashes(triangles: Array, first: int) -> Array:
    """Return the triangles of the skin with the points of `lashes` in the upper lids.

    Without them the lashes would be stretched over the whole closed lid.

    Args:
        triangles: the triangles of the skin [M, 3]
        first: the number of the first point of `lashes`
    """
    renumbered = np.arange(int(triangles.max()) + 1)
    strips: List[Triangle] = []
    for upper, _ in LIDS:
        inner = upper[1:-1]
        row = range(first, first + len(inner))
        # The skin ends at the new row, and a strip connects that to the edge.
        renumbered[list(inner)] = row
        strips += strip((upper[0], *row, upper[-1]), upper)
        first += len(inner)
    return np.concatenate([renumbered[triangles], np.array(strips)])
