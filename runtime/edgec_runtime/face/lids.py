"""Closes the eyes of a portrait by drawing lids over them.

A portrait with open eyes has no pixels of a closed lid. One is drawn in the colours of
the skin around the eye, and fades in as the eye closes.
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
"""Points of the upper lid's edge, the lower lid's edge and the skin above, for the left
and the right eye.
"""
UNDER = (LEFT_LID_UNDER, RIGHT_LID_UNDER)
"""Points of the skin below the left and the right eye."""
UPPER_SHARE = 0.85
"""The upper lid's share of the movement by which an eye closes."""
SKIN_SHARE = 0.35
"""Share of the movement with which the skin above the lid follows."""

SIDE = 40
"""Width and height of the picture of a lid."""
EDGE = 0.7
"""Position of the lid's edge in the height of its picture."""
ABOVE = 0.2
"""Distance from the skin's points up to the picture's top, in heights of the lid."""
LASH = 0.04
"""Half the height of the lashes, relative to the height of the picture."""
LASH_SHADE = 0.45
"""Brightness of the lashes relative to the skin."""
BORDER = 0.08
"""Fraction of the width over which a lid fades out on each side."""
UNLIKE = 24.0
"""Limit of the difference between a colour around the eye and the skin below it, in
levels: a brow or a frame of glasses differs more.
"""
SHOWN_FROM = 0.1
SHOWN_AT = 0.4
"""Closures of an eye between which the lid fades in."""
SHUT_FROM = 0.8
"""Closure of an eye from which the lid also covers the part below its edge."""


def close_eyes(shape: Array, own: Array, closed: Array) -> None:
    """Close the eyes of a face.

    Args:
        shape: the face in the layout's frame [468, 3], which is changed
        own: the neutral face [468, 3]
        closed: closure of the left and the right eye, 0…1 [2]
    """
    for share, (upper, lower, skin) in zip(closed, EYES):
        top = own[list(upper), 1]
        bottom = own[list(lower), 1]
        way = (bottom - top) * share
        # Only the lids move, so that the rest of the face keeps its expression.
        shape[list(upper), 1] = top + way * UPPER_SHARE
        shape[list(lower), 1] = bottom - way * (1 - UPPER_SHARE)
        if share > 0:
            inner = list(skin[1:-1])
            shape[inner, 1] = own[inner, 1] + way[1:-1] * SKIN_SHARE


def lid_pictures(portrait: Array, points: Array) -> List[Array]:
    """Return the pictures of the left and the right lid, float64 [SIDE, SIDE, 4].

    The fourth channel is alpha, 0…255, by which the others are multiplied.

    Args:
        portrait: uint8 [H, W, 3]
        points: the mesh of its face in pixels [468, 3]
    """
    flat = points[:, :2]
    pictures: List[Array] = []
    for (*_, skin), under in zip(EYES, UNDER):
        above = bilinear(portrait, flat[list(skin[1:-1])])
        below = bilinear(portrait, flat[list(under[1:-1])])
        pictures.append(_lid(above, below))
    return pictures


def _lid(above: Array, below: Array) -> Array:
    """Return the picture of a lid, float64 [SIDE, SIDE, 4].

    Its colours go over from those of the skin above the eye to those below it.

    Args:
        above: colours of the skin above the eye, from left to right [7, 3]
        below: colours of the skin below it, from left to right [7, 3]
    """
    # The skin below the eye is a better reference, since glasses tint it like the lid.
    skin = np.median(below, axis=0)
    at = (np.arange(SIDE) + 0.5) / SIDE
    rows = [_row(np.clip(c, skin - UNLIKE, skin + UNLIKE), at) for c in (above, below)]
    # u runs from corner to corner of the eye, v from the skin above to that below.
    u, v = np.meshgrid(at, at)
    color = mixed(rows[0][None], rows[1][None], v)
    lash = np.exp(-(((v - EDGE) / LASH) ** 2))
    color = mixed(color, color * LASH_SHADE, lash)

    # The lid fades out on all sides, so that its border is not visible.
    alpha = smooth_step(v, 0.0, 0.3) * (1 - smooth_step(v, 0.9, 1.0))
    alpha = alpha * smooth_step(0.5 - np.abs(u - 0.5), 0.0, BORDER) * 255
    return np.dstack([color * alpha[..., None] / 255, alpha])


def _row(colors: Array, at: Array) -> Array:
    """Return colours between those of a row [SIDE, 3].

    Args:
        colors: colours from left to right [N, 3]
        at: positions, 0…1 [SIDE]
    """
    x = np.linspace(0, 1, len(colors))
    return np.column_stack([np.interp(at, x, colors[:, c]) for c in range(3)])


def lid_warps(pictures: Sequence[Array], face: Array, closed: Array) -> List[Warp]:
    """Return the warps that draw lids over a portrait.

    Args:
        pictures: the pictures of lid_pictures
        face: the points of the face as it is drawn [468, 3]
        closed: closure of the left and the right eye [2]
    """
    below = np.arange(SIDE) + 0.5 > (EDGE + 2 * LASH) * SIDE
    warps: List[Warp] = []
    for picture, share, eye, under in zip(pictures, closed, EYES, UNDER):
        shown = float(smooth_step(np.array(share), SHOWN_FROM, SHOWN_AT))
        shut = float(smooth_step(np.array(share), SHUT_FROM, 1.0))
        if shown > 0:
            # A partly open eye is visible below the edge of the lid.
            rows = np.where(below, shut, shown)[:, None, None]
            faded = np.clip(picture * rows + 0.5, 0, 255).astype(np.uint8)
            warps.append(_lid_warp(faded, face[:, :2], eye, under))
    return warps


def _lid_warp(
    picture: Array, face: Array, eye: Tuple[Sequence[int], ...], under: Sequence[int]
) -> Warp:
    """Return the warp that draws one lid.

    Args:
        picture: the picture of the lid, uint8 [SIDE, SIDE, 4]
        face: the points of the face as it is drawn [468, 2]
        eye: points of the lids' edges and the skin above, a row of EYES
        under: points of the skin below
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
