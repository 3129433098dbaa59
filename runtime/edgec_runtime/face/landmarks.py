"""The 468 points of a face mesh: their numbers by the part of the face, and a face that
stands for all.

The numbers are those of the networks `facemesh`, as their documentation has them. Left
and right are the picture's. The layout, its triangles and its pairs are data of this
repository: tools/face_layout.py writes them.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

COUNT = 468
"""Points of a face mesh; networks with attention have more, which follow them."""

OVAL = (
    *(10, 338, 297, 332, 284, 251, 389, 356, 454, 323, 361, 288),
    *(397, 365, 379, 378, 400, 377, 152, 148, 176, 149, 150, 136),
    *(172, 58, 132, 93, 234, 127, 162, 21, 54, 103, 67, 109),
)
"""The outline, clockwise from the middle of the forehead."""

UPPER_LIP = (61, 185, 40, 39, 37, 0, 267, 269, 270, 409, 291)
LOWER_LIP = (61, 146, 91, 181, 84, 17, 314, 405, 321, 375, 291)
"""The outer edges of the lips, from the left corner to the right one."""

UPPER_MOUTH = (78, 191, 80, 81, 82, 13, 312, 311, 310, 415, 308)
LOWER_MOUTH = (78, 95, 88, 178, 87, 14, 317, 402, 318, 324, 308)
"""The inner edges of the lips, from the left corner to the right one."""

UPPER_ROWS = (
    UPPER_LIP,
    (76, 184, 74, 73, 72, 11, 302, 303, 304, 408, 306),
    (62, 183, 42, 41, 38, 12, 268, 271, 272, 407, 292),
    UPPER_MOUTH,
)
LOWER_ROWS = (
    LOWER_LIP,
    (76, 77, 90, 180, 85, 16, 315, 404, 320, 307, 306),
    (62, 96, 89, 179, 86, 15, 316, 403, 319, 325, 292),
    LOWER_MOUTH,
)
"""Rows of points of the lips, from the outer to the inner edge."""

LEFT_UPPER_LID = (33, 246, 161, 160, 159, 158, 157, 173, 133)
LEFT_LOWER_LID = (33, 7, 163, 144, 145, 153, 154, 155, 133)
RIGHT_UPPER_LID = (362, 398, 384, 385, 386, 387, 388, 466, 263)
RIGHT_LOWER_LID = (362, 382, 381, 380, 374, 373, 390, 249, 263)
"""The edges of the lids, from left to right."""

LEFT_LID_SKIN = (33, 247, 30, 29, 27, 28, 56, 190, 133)
RIGHT_LID_SKIN = (362, 414, 286, 258, 257, 259, 260, 467, 263)
"""The row of points above the edge of the upper lid, from corner to corner."""

LEFT_LID_UNDER = (33, 25, 110, 24, 23, 22, 26, 112, 133)
RIGHT_LID_UNDER = (362, 341, 256, 252, 253, 254, 339, 255, 263)
"""The row of points below the edge of the lower lid, from corner to corner."""

LEFT_BROW = (70, 63, 105, 66, 107, 55, 65, 52, 53, 46)
RIGHT_BROW = (336, 296, 334, 293, 300, 276, 283, 282, 295, 285)
"""The outlines of the brows, clockwise."""

STABLE = (
    *(10, 151, 9, 8, 168, 6, 197, 195, 5, 4, 1),
    *(33, 133, 362, 263, 127, 234, 356, 454, 162, 389, 21, 251),
    *(54, 103, 67, 109, 338, 297, 332, 284, 116, 345, 143, 372),
)
"""Points that follow the head and no expression: forehead, temples, the nose's bridge
and the corners of the eyes.
"""

LEFT_CORNERS = (33, 133)
RIGHT_CORNERS = (362, 263)
"""The corners of the eyes, from left to right."""

FOREHEAD = 10
CHIN = 152

_FILE = Path(__file__).with_name("layout.json")


@dataclass(frozen=True)
class FaceLayout:
    """A face that looks straight ahead with closed lips.

    Attributes:
        points: x to the right, y down and z away from the viewer, float64 [468, 3]. The
            distance of the eyes' outer corners is 1, and the mean of the stable points
            is the origin.
        triangles: of the skin, without the openings of eyes and mouth, clockwise on the
            screen, int32 [M, 3]
        mirrored: the point on the other side of the face of each
    """

    points: Array
    triangles: Array
    mirrored: Array


@functools.lru_cache(maxsize=1)
def face_layout() -> FaceLayout:
    """Return the layout."""
    # Text: a change of it can be read in a diff.
    stored = json.loads(_FILE.read_text())
    return FaceLayout(
        np.array(stored["points"], np.float64),
        np.array(stored["triangles"], np.int32),
        np.array(stored["mirrored"], np.int32),
    )


def strip(above: Sequence[int], below: Sequence[int]) -> List[Tuple[int, int, int]]:
    """Return the triangles between two rows of points, clockwise on the screen.

    Rows may share their ends.

    Args:
        above: numbers of points from left to right
        below: of as many
    """
    triangles: List[Tuple[int, int, int]] = []
    for i in range(len(above) - 1):
        triangles.append((above[i], above[i + 1], below[i]))
        triangles.append((above[i + 1], below[i + 1], below[i]))
    # At a shared end one of the two has no area.
    return [t for t in triangles if len(set(t)) == 3]


def openings() -> Tuple[Tuple[Tuple[int, ...], Tuple[int, ...]], ...]:
    """Return the upper and the lower edge of the left eye, the right eye and the
    mouth.
    """
    return (
        (LEFT_UPPER_LID, LEFT_LOWER_LID),
        (RIGHT_UPPER_LID, RIGHT_LOWER_LID),
        (UPPER_MOUTH, LOWER_MOUTH),
    )
