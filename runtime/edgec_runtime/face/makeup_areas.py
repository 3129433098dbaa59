"""The parts of a face that makeup colours: lips, brows, lids and hair.

A part has a share for each corner of the mesh, 1 where it is coloured. Shares are
interpolated between corners, so that colours have soft borders.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

import numpy as np
from numpy.typing import NDArray

from .face_picture import RingedFace
from .geometry import downward, length, smooth_step
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
    openings,
    strip,
)
from .warping import Warp

Array = NDArray[Any]

HAIR = "hair"
OUTER_SHARE = 0.25
"""Share of the outer edge of lips, beyond which the colour fades out."""
HAIR_BELOW = 0.1
HAIR_ABOVE = -0.25
"""Values of y in the layout between which the share of hair rises from 0 to 1."""
LIDS = "lids"
PARTS = ("lips", "brows", LIDS, HAIR)
ABOVE_LIDS = 0.6
"""Share of the skin above the lids, where the colour fades out."""
SHUT = 0.06
OPEN = 0.11
"""Mean opening of an eye, relative to its width, at which the lid covers all of it, and
at which it covers nothing.
"""


def part_shares(mesh: RingedFace) -> Dict[str, Array]:
    """Return the share of each corner of the mesh in each part, 0…1 [540].

    Args:
        mesh: the mesh of a face with rings
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
        _set(shares[LIDS], edge[1:-1], 1.0)
    for skin in (LEFT_LID_SKIN, RIGHT_LID_SKIN):
        _set(shares[LIDS], skin[1:-1], ABOVE_LIDS)

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


def lid_shares(shares: Array, corners: Array) -> Array:
    """Return the shares of lids in a frame [540].

    The rest of a closed eye between the edges of its lids counts as lid, too.

    Args:
        shares: the shares for open eyes [540]
        corners: the corners of the mesh in the frame [540, 3]
    """
    result = shares.copy()
    for upper, lower in openings()[:2]:
        across = corners[upper[-1], :2] - corners[upper[0], :2]
        apart = corners[list(lower[1:-1]), :2] - corners[list(upper[1:-1]), :2]
        opening = (apart @ downward(across)).mean() / length(across)
        _set(result, lower[1:-1], float(1 - smooth_step(opening, SHUT, OPEN)))
    return result


def share_warp(mesh: RingedFace, corners: Array, shares: Array) -> Warp:
    """Return the warp that draws shares as levels, 255 for a share of 1.

    Args:
        mesh: the mesh of a face with rings
        corners: the corners of the mesh in the frame [540, 3]
        shares: the shares of a part [540]
    """
    white = np.full((2, 2, 4), 255, np.uint8)
    triangles = mesh.triangles(corners, closed=False)
    # Only triangles with a share are drawn, which are few.
    above = shares.copy()
    parts: List[Array] = []
    for upper, lower in openings()[:2]:
        if shares[lower[1]] > 0:
            parts.append(np.array(strip(upper, lower), np.int32))
            # A lid ends at the edge of the lower one.
            _set(above, lower, 0.0)
    is_part = np.any(above[triangles] > 0, axis=1)
    parts.append(triangles[is_part])
    return Warp(
        white,
        np.ones((len(corners), 2), np.float32),
        corners[:, :2].astype(np.float32),
        np.concatenate(parts),
        shares.astype(np.float32),
    )
