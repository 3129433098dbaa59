"""Eyes that close: a lid over the eye of a portrait.

A portrait with open eyes has no pixels of a closed lid: one is drawn in the colours of
the skin about the eye, and comes over it as the eye closes.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from .geometry import bilinear, lengths, mixed, smooth_step
from .landmarks import (
    LEFT_LID_SKIN,
    LEFT_LOWER_LID,
    LEFT_UPPER_LID,
    RIGHT_LID_SKIN,
    RIGHT_LOWER_LID,
    RIGHT_UPPER_LID,
    strip,
)
from .warping import Warp

Array = NDArray[Any]

EYES = (
    (LEFT_UPPER_LID, LEFT_LOWER_LID, LEFT_LID_SKIN),
    (RIGHT_UPPER_LID, RIGHT_LOWER_LID, RIGHT_LID_SKIN),
)
"""The edges of the lids and the skin above, of the left and the right eye."""
CHEEKS = (50, 280, 101, 330, 117, 346, 8, 9)
"""Points where the skin of most faces is bare."""
UPPER_SHARE = 0.85
"""The upper lid's part of the way."""
SKIN_SHARE = 0.35
"""How far the skin above goes with the lid."""

SIDE = 32
"""Width and height of the picture of a lid."""
EDGE = 0.86
"""Where the edge of the lid is in its height."""
ABOVE = 0.6
"""How far the picture goes beyond the skin above, in heights of the lid."""
LASH = 0.03
"""How far the picture goes below the edge, in distances of the eyes."""
SHOWN_FROM = 0.25
SHOWN_AT = 0.7
"""How far an eye is closed when the lid begins to be seen, and when it is."""
OWN_SHARE = 0.3
"""The share of the colour above the eye in that of the lid; the rest is the face's."""
SHADE = 0.95
"""How dark a lid is beside the skin, and its lashes."""
LASH_SHADE = 0.45


def close_eyes(shape: Array, own: Array, closed: Array) -> None:
    """Close the eyes of a face.

    Args:
        shape: the face in the layout's frame [468, 3], which is changed
        own: the face with its eyes as they usually are
        closed: how far the left and the right eye are [2]
    """
    for share, (upper, lower, skin) in zip(closed, EYES):
        top = own[list(upper), 1]
        bottom = own[list(lower), 1]
        way = (bottom - top) * share
        # The corners stay, and so does the expression of everything around.
        shape[list(upper), 1] = top + way * UPPER_SHARE
        shape[list(lower), 1] = bottom - way * (1 - UPPER_SHARE)
        if share > 0:
            followed = own[list(skin[1:-1]), 1] + way[1:-1] * SKIN_SHARE
            shape[list(skin[1:-1]), 1] = followed


def lid_pictures(portrait: Array, points: Array) -> List[Array]:
    """Return the pictures of the left and the right lid, float64 [SIDE, SIDE, 4].

    The fourth channel is alpha, 0…255, by which the others are multiplied.

    Args:
        portrait: uint8 [H, W, 3]
        points: the mesh of its face in pixels [468, 3]
    """
    flat = points[:, :2]
    face = np.median(bilinear(portrait, flat[list(CHEEKS)]), axis=0)
    return [_lid(bilinear(portrait, flat[list(skin)]), face) for *_, skin in EYES]


def _lid(above: Array, face: Array) -> Array:
    """Return the picture of a lid.

    Args:
        above: colours of the skin above it, from corner to corner [9, 3]
        face: the colour of the face [3]
    """
    at = np.linspace(0, 1, SIDE)
    known = np.linspace(0, 1, len(above))
    row = np.column_stack([np.interp(at, known, above[:, c]) for c in range(3)])
    skin = mixed(face, row, np.array(OWN_SHARE)) * SHADE

    # u runs from corner to corner, v from the skin above to below the lashes.
    u, v = np.meshgrid(at, at)
    lash = np.exp(-(((v - EDGE) / 0.05) ** 2))
    round_shade = 1 - 0.12 * np.abs(2 * u - 1) - 0.1 * smooth_step(v, 0.2, EDGE)
    color = skin[None] * round_shade[..., None]
    color = mixed(color, skin[None] * LASH_SHADE, lash)

    # It fades out on all sides, so that it has no edge of its own.
    alpha = smooth_step(v, 0.0, 0.55) * (1 - smooth_step(v, EDGE + 0.02, 1.0))
    alpha = alpha * smooth_step(0.5 - np.abs(u - 0.5), 0.0, 0.2) * 255
    return np.dstack([color * alpha[..., None] / 255, alpha])


def lid_warps(pictures: Sequence[Array], face: Array, closed: Array) -> List[Warp]:
    """Return the warps that draw lids over a portrait.

    Args:
        pictures: from lid_pictures
        face: the points of the face as it is drawn [468, 3]
        closed: how far the left and the right eye are [2]
    """
    found: List[Warp] = []
    for picture, share, eye in zip(pictures, closed, EYES):
        shown = float(smooth_step(np.array(share), SHOWN_FROM, SHOWN_AT))
        if shown > 0:
            faded = np.clip(picture * shown + 0.5, 0, 255).astype(np.uint8)
            found.append(_over(faded, face[:, :2], eye))
    return found


def _over(picture: Array, face: Array, eye: Tuple[Sequence[int], ...]) -> Warp:
    """Return the warp of one lid.

    Args:
        picture: uint8 [SIDE, SIDE, 4]
        face: points as they are drawn [468, 2]
        eye: the edges of its lids and the skin above
    """
    upper, _, skin = eye
    edge = face[list(upper)]
    # Lashes reach below the edge, away from the skin above.
    down = edge[1:-1] - face[list(skin[1:-1])]
    down = down.mean(axis=0)
    top = face[list(skin)] - ABOVE * down
    eyes = face[RIGHT_UPPER_LID[-1]] - face[LEFT_UPPER_LID[0]]
    below = edge + down / max(float(lengths(down)), 1e-6) * float(lengths(eyes)) * LASH

    count = len(upper)
    columns = np.linspace(0, SIDE, count)
    rows = np.repeat([0.0, EDGE * SIDE, float(SIDE)], count)
    begin = np.column_stack([np.tile(columns, 3), rows])
    numbers = range(3 * count)
    triangles = strip(numbers[:count], numbers[count : 2 * count])
    triangles += strip(numbers[count : 2 * count], numbers[2 * count :])
    end = np.concatenate([top, edge, below])
    return Warp(
        picture,
        begin.astype(np.float32),
        end.astype(np.float32),
        np.array(triangles, np.int32),
        blended=True,
    )
