"""The inside of a mouth: a small picture that the lips uncover when they open.

Its first row is at the upper lip, so that what is there, teeth, stays with the head
while the jaw goes down. A portrait with open lips shows its own teeth; otherwise they
are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .geometry import bilinear, downward, lengths, mixed, smooth_step
from .landmarks import LOWER_MOUTH, STABLE, UPPER_MOUTH

Array = NDArray[Any]

FINE = 2
"""Pixels of the picture for one of the portrait, so that it stays sharp."""
DEPTH = 1.25
"""Height of the picture in widths of the mouth."""
LEAST_WIDTH = 4
TOUCHING = 0.5
"""Pixels between lips below which they touch."""
LEAST_OPEN = 0.06
"""The opening, in widths of the mouth, from which on a portrait shows its own teeth."""

TEETH = np.array([232.0, 220.0, 202.0])
CAVITY = np.array([72.0, 26.0, 26.0])
THROAT = np.array([20.0, 7.0, 9.0])
TONGUE = np.array([116.0, 56.0, 55.0])
"""Colours, red first, in the light of a face of medium brightness."""
TEETH_HEIGHT = 0.15
THROAT_AT = 0.2
TONGUE_AT = 0.5
"""The height of the teeth in the middle, and how far below them the inside is darkest
and the tongue brightest, in widths of the mouth.
"""
MEDIUM = 150.0
"""Luma of such a face."""
SKIN_SHARE = 0.25
"""The share of the skin's tint in the teeth: lips and lamps colour them."""
LUMA = np.array([0.299, 0.587, 0.114])
SOFT = 0.015
"""Half the border between what the portrait shows and what is added, in widths."""


@dataclass(frozen=True)
class MouthPicture:
    """The inside of a portrait's mouth.

    Attributes:
        pixels: uint8 [H, W, 3]
        columns: where the points of the upper edge are in it, from left to right
    """

    pixels: Array
    columns: Array

    @property
    def deepest(self) -> float:
        """The last row that can be shown."""
        return float(len(self.pixels) - 1)


def mouth_picture(portrait: Array, points: Array) -> MouthPicture:
    """Return the inside of the mouth of a portrait.

    Args:
        portrait: uint8 [H, W, 3]
        points: the mesh of its face in pixels [468, 3]
    """
    upper = points[list(UPPER_MOUTH), :2]
    lower = points[list(LOWER_MOUTH), :2]
    steps = lengths(np.diff(upper, axis=0))
    along = np.concatenate([[0.0], np.cumsum(steps)]) * FINE
    width = max(LEAST_WIDTH, round(float(along[-1])))

    # What the portrait shows of it is straightened: from the upper to the lower lip.
    columns = np.arange(width) + 0.5
    begin = _along(columns, along, upper)
    down = downward(upper[-1] - upper[0])
    # Where lips touch there is no way from one to the other but straight down.
    ways = _along(columns, along, lower - upper + TOUCHING * down)
    ways = ways / lengths(ways)[:, None]
    rows = np.arange(round(width * DEPTH)) + 0.5
    places = begin[None] + rows[:, None, None] / FINE * ways
    straight = bilinear(portrait, places)

    # How far down the portrait's own inside goes differs from column to column.
    opened = lengths(lower - upper) * FINE
    depth = np.interp(columns, along, opened)
    skin = bilinear(portrait, points[list(STABLE), :2])
    return MouthPicture(_inside(straight, depth, skin.mean(axis=0)), along)


def _along(columns: Array, along: Array, points: Array) -> Array:
    """Return points for each column, between those of the lips [W, 2].

    Args:
        columns: [W]
        along: where the points are [N]
        points: x and y [N, 2]
    """
    x = np.interp(columns, along, points[:, 0])
    y = np.interp(columns, along, points[:, 1])
    return np.column_stack([x, y])


def _inside(straight: Array, opened: Array, skin: Array) -> Array:
    """Return the inside of a mouth, uint8 [H, W, 3].

    At the top it is what the portrait shows of it, and below what a wider opening
    would show.

    Args:
        straight: the portrait from the upper lip downwards [H, W, 3]
        opened: how far it is open in each column, pixels [W]
        skin: mean colour of the face, 0…255 [3]
    """
    height, width = straight.shape[:2]
    # u runs across and v down, both in widths of the mouth.
    u = (np.arange(width) + 0.5) / width
    v = (np.arange(height) + 0.5) / width
    v = v[:, None]
    below = v - opened / width
    if opened.max() >= LEAST_OPEN * width:
        # The portrait shows its own teeth.
        added = _cavity(u, below)
    else:
        edge = _teeth_edge(u)
        added = _with_teeth(_cavity(u, v - edge), u, v, skin)
    # The face says how much light there is.
    light = np.clip(skin @ LUMA / MEDIUM, 0.3, 1.2)
    picture = mixed(straight, added * light, smooth_step(below, 0.0, SOFT))
    return np.asarray(np.clip(picture + 0.5, 0, 255), np.uint8)


def _cavity(u: Array, below: Array) -> Array:
    """Return what is behind the teeth, float64 [H, W, 3]: it gets darker towards the
    throat, in front of which the tongue comes up from below.

    Args:
        u: across, 0…1 [W]
        below: how far below the teeth, in widths [H, W]
    """
    side = np.abs(2 * u - 1)
    inner = smooth_step(below, 0.0, THROAT_AT) * (1 - 0.5 * side**2)
    dark = mixed(CAVITY, THROAT, inner)

    # The tongue is an ellipse, in the shade of the teeth at its upper end.
    across = (u - 0.5) / 0.38
    along = (below - TONGUE_AT) / 0.26
    tongue = np.hypot(across, along)
    shade = 0.35 + 0.65 * smooth_step(below, THROAT_AT, TONGUE_AT)
    part = 1 - smooth_step(tongue, 0.7, 1.0)
    return mixed(dark, TONGUE * shade[..., None], part)


def _teeth_edge(u: Array) -> Array:
    """Return where the upper teeth end, in widths of the mouth [W]: the row is an arch,
    lower in the middle and gone at the corners.

    Args:
        u: across, 0…1 [W]
    """
    return np.asarray(TEETH_HEIGHT * np.sqrt(1 - (2 * u - 1) ** 2))


def _with_teeth(picture: Array, u: Array, v: Array, skin: Array) -> Array:
    """Return the inside with the upper row of teeth.

    Args:
        picture: float64 [H, W, 3]
        u: across, 0…1 [W]
        v: down, in widths [H, 1]
        skin: mean colour of the face [3]
    """
    side = np.abs(2 * u - 1)
    edge = _teeth_edge(u)
    shape = 1 - smooth_step(v, edge - 0.02, edge + 0.02)
    shape = shape * (1 - smooth_step(side, 0.75, 0.95))

    # The lip's shadow lies on its upper part, the cheeks' on its sides.
    gap = np.abs(np.sin(u * np.pi * 7))
    bright = 0.65 + 0.35 * smooth_step(v, 0.0, 0.08)
    bright = bright * (1 - 0.45 * side**2)
    bright = bright * (0.92 + 0.08 * smooth_step(gap, 0.0, 0.25))

    luma = max(float(skin @ LUMA), 1.0)
    tint = skin / luma * float(TEETH @ LUMA)
    # White in the light that falls on the face.
    color = TEETH * (1 - SKIN_SHARE) + tint * SKIN_SHARE
    return mixed(picture, color * bright[..., None], shape)
