"""Eyes that close: a lid over the eye of a portrait.

A portrait with open eyes has no pixels of a closed lid: one is drawn in the colours of
the skin about the eye, and comes over it as the eye closes.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from .geometry import bilinear, mixed, smooth_step
from .landmarks import (
    LEFT_LID_SKIN,
    LEFT_LID_UNDER,
    LEFT_LOWER_LID,
    LEFT_UPPER_LID,
    RIGHT_LID_SKIN,
    RIGHT_LID_UNDER,
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
UNDER = (LEFT_LID_UNDER, RIGHT_LID_UNDER)
"""The skin below them."""
UPPER_SHARE = 0.85
"""The upper lid's part of the way."""
SKIN_SHARE = 0.35
"""How far the skin above goes with the lid."""

SIDE = 40
"""Width and height of the picture of a lid."""
EDGE = 0.7
"""Where the edge of the lid is in its height."""
ABOVE = 0.2
"""How far the picture goes beyond the skin above, in heights of the lid."""
LASH = 0.04
"""Half the height of the lashes, in the height of the picture."""
LASH_SHADE = 0.45
"""How dark they are beside the skin."""
BORDER = 0.08
"""The part of the width over which a lid fades out on each side."""
UNLIKE = 24.0
"""Levels by which a colour about the eye differs from the skin below it, at most: what
differs more is a brow or a frame of glasses.
"""
SHOWN_FROM = 0.1
SHOWN_AT = 0.4
"""How far an eye is closed when the lid begins to be seen, and when it is."""
SHUT_FROM = 0.8
"""How far it is closed when the lid begins to cover what is below its edge, too."""


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
    found: List[Array] = []
    for (*_, skin), under in zip(EYES, UNDER):
        above = bilinear(portrait, flat[list(skin[1:-1])])
        below = bilinear(portrait, flat[list(under[1:-1])])
        found.append(_lid(above, below))
    return found


def _lid(above: Array, below: Array) -> Array:
    """Return the picture of a lid: the skin above the eye, and more and more of that
    below, so that it has no tint of its own.

    Args:
        above: colours of the skin above the eye, from left to right [7, 3]
        below: of the skin below it [7, 3]
    """
    # Through glasses the skin below the eye is seen as the lid would be.
    skin = np.median(below, axis=0)
    at = (np.arange(SIDE) + 0.5) / SIDE
    rows = [_row(np.clip(c, skin - UNLIKE, skin + UNLIKE), at) for c in (above, below)]
    # u runs from corner to corner, v from the skin above to that below.
    u, v = np.meshgrid(at, at)
    color = mixed(rows[0][None], rows[1][None], v)
    lash = np.exp(-(((v - EDGE) / LASH) ** 2))
    color = mixed(color, color * LASH_SHADE, lash)

    # It fades out on all sides, so that it has no edge of its own.
    alpha = smooth_step(v, 0.0, 0.3) * (1 - smooth_step(v, 0.9, 1.0))
    alpha = alpha * smooth_step(0.5 - np.abs(u - 0.5), 0.0, BORDER) * 255
    return np.dstack([color * alpha[..., None] / 255, alpha])


def _row(colors: Array, at: Array) -> Array:
    """Return colours between those of a row [SIDE, 3].

    Args:
        colors: from left to right [N, 3]
        at: places, 0…1 [SIDE]
    """
    known = np.linspace(0, 1, len(colors))
    return np.column_stack([np.interp(at, known, colors[:, c]) for c in range(3)])


def lid_warps(pictures: Sequence[Array], face: Array, closed: Array) -> List[Warp]:
    """Return the warps that draw lids over a portrait.

    Args:
        pictures: from lid_pictures
        face: the points of the face as it is drawn [468, 3]
        closed: how far the left and the right eye are [2]
    """
    below = np.arange(SIDE) + 0.5 > (EDGE + 2 * LASH) * SIDE
    found: List[Warp] = []
    for picture, share, eye, under in zip(pictures, closed, EYES, UNDER):
        shown = float(smooth_step(np.array(share), SHOWN_FROM, SHOWN_AT))
        shut = float(smooth_step(np.array(share), SHUT_FROM, 1.0))
        if shown > 0:
            # As long as the eye is open, it is seen below the edge.
            rows = np.where(below, shut, shown)[:, None, None]
            faded = np.clip(picture * rows + 0.5, 0, 255).astype(np.uint8)
            found.append(_over(faded, face[:, :2], eye, under))
    return found


def _over(
    picture: Array, face: Array, eye: Tuple[Sequence[int], ...], under: Sequence[int]
) -> Warp:
    """Return the warp of one lid.

    Args:
        picture: uint8 [SIDE, SIDE, 4]
        face: points as they are drawn [468, 2]
        eye: the edges of its lids and the skin above
        under: the skin below
    """
    upper, _, skin = eye
    edge = face[list(upper)]
    down = edge[1:-1] - face[list(skin[1:-1])]
    top = face[list(skin)] - ABOVE * down.mean(axis=0)

    count = len(upper)
    columns = np.linspace(0, SIDE, count)
    rows = np.repeat([0.0, EDGE * SIDE, float(SIDE)], count)
    begin = np.column_stack([np.tile(columns, 3), rows])
    numbers = range(3 * count)
    triangles = strip(numbers[:count], numbers[count : 2 * count])
    triangles += strip(numbers[count : 2 * count], numbers[2 * count :])
    end = np.concatenate([top, edge, face[list(under)]])
    return Warp(
        picture,
        begin.astype(np.float32),
        end.astype(np.float32),
        np.array(triangles, np.int32),
        blended=True,
    )
