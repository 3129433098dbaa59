"""The parts of a face that makeup colours: lips, brows, lids and hair.

A part is a share for each corner of the mesh, 1 where it is coloured; between corners
shares go over into each other, so that colours have soft borders.
"""

from __future__ import annotations

from typing import Any, Dict, Sequence

import numpy as np
from numpy.typing import NDArray

from .geometry import smooth_step
from .landmarks import (
    COUNT,
    LEFT_BROW,
    LEFT_LID_SKIN,
    LEFT_UPPER_LID,
    LOWER_ROWS,
    OVAL,
    RIGHT_BROW,
    RIGHT_LID_SKIN,
    RIGHT_UPPER_LID,
    UPPER_ROWS,
)
from .pinned import RingedFace
from .warping import Warp

Array = NDArray[Any]

HAIR = "hair"
OUTER_SHARE = 0.25
"""Of the outer edge of lips and lids: the colour fades out beyond it."""
HAIR_BELOW = 0.1
HAIR_ABOVE = -0.25
"""Heights in the layout between which hair begins, from the eyes upwards."""
PARTS = ("lips", "brows", "lids", HAIR)


def part_shares(mesh: RingedFace) -> Dict[str, Array]:
    """Return how far each corner of the mesh belongs to a part, 0…1 [540].

    Args:
        mesh: of a face with rings
    """
    shares: Dict[str, Array] = {}
    for part in PARTS:
        shares[part] = np.zeros(len(mesh.layout))
    for rows in (UPPER_ROWS, LOWER_ROWS):
        _set(shares["lips"], rows[0], OUTER_SHARE)
        for row in rows[1:]:
            _set(shares["lips"], row, 1.0)
    for brow in (LEFT_BROW, RIGHT_BROW):
        _set(shares["brows"], brow, 1.0)
    for edge in (LEFT_UPPER_LID, RIGHT_UPPER_LID):
        _set(shares["lids"], edge[1:-1], 1.0)
    for skin in (LEFT_LID_SKIN, RIGHT_LID_SKIN):
        _set(shares["lids"], skin[1:-1], 1.0)

    # Hair is on the rings above the eyes, and ends within the last one.
    height = mesh.layout[:, 1]
    above = 1 - smooth_step(height, HAIR_ABOVE, HAIR_BELOW)
    hair = shares[HAIR]
    hair[COUNT:] = above[COUNT:]
    hair[list(OVAL)] = above[list(OVAL)]
    return shares


def _set(shares: Array, numbers: Sequence[int], share: float) -> None:
    """Set the share of some corners."""
    shares[list(numbers)] = share


def share_warp(mesh: RingedFace, corners: Array, shares: Array) -> Warp:
    """Return the warp that draws shares as levels, 255 for all.

    Args:
        mesh: of a face with rings
        corners: of the mesh in the frame [540, 3]
        shares: of a part [540]
    """
    white = np.full((2, 2, 4), 255, np.uint8)
    triangles = mesh.triangles(corners, closed=False)
    # Only triangles with a part of it: most of a face has none.
    is_part = np.any(shares[triangles] > 0, axis=1)
    return Warp(
        white,
        np.ones((len(corners), 2), np.float32),
        corners[:, :2].astype(np.float32),
        triangles[is_part],
        shares.astype(np.float32),
    )
