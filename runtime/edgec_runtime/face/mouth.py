"""Makes a picture of the inside of a mouth, which opening lips uncover.

Its first row is at the upper lip, so that the teeth do not move with the jaw. The teeth
of a portrait with open lips are its own, otherwise they are drawn.
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
"""Pixels of the picture per pixel of the portrait, so that it is sharp."""
DEPTH = 1.25
"""Height of the picture in widths of the mouth."""
LEAST_WIDTH = 4
"""Least width of the picture in pixels."""
TOUCHING = 0.5
"""Distance of touching lips in pixels."""
LEAST_OPEN = 0.06
"""Opening in widths of the mouth from which the portrait's own teeth are used."""

TEETH = np.array([232.0, 220.0, 202.0])
CAVITY = np.array([72.0, 26.0, 26.0])
THROAT = np.array([20.0, 7.0, 9.0])
TONGUE = np.array([116.0, 56.0, 55.0])
"""Colours, red first, in the light of a face of medium brightness."""
TEETH_HEIGHT = 0.15
THROAT_AT = 0.2
TONGUE_AT = 0.5
"""Height of the teeth in the middle, and distances below them at which the inside is
darkest and the tongue brightest, in widths of the mouth.
"""
MEDIUM = 150.0
"""Luma of a face of medium brightness."""
SKIN_SHARE = 0.25
"""Share of the skin's tint in the teeth, which reflect the lips and the light."""
LUMA = np.array([0.299, 0.587, 0.114])
SOFT = 0.015
"""Width of the transition from the portrait to the drawn part, in widths of the mouth."""


@dataclass(frozen=True)
class MouthPicture:
    """The inside of a portrait's mouth.

    Attributes:
        pixels: the picture, uint8 [H, W, 3]
        columns: x of the upper lip's points in it, from left to right [11]
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

    # The portrait's own pixels are straightened, along lines from upper to lower lip.
    columns = np.arange(width) + 0.5
    begin = _along(columns, along, upper)
    down = downward(upper[-1] - upper[0])
    # Touching lips have no line between them, so that straight down is added.
    ways = _along(columns, along, lower - upper + TOUCHING * down)
    ways = ways / lengths(ways)[:, None]
    rows = np.arange(round(width * DEPTH)) + 0.5
    places = begin[None] + rows[:, None, None] / FINE * ways
    straight = bilinear(portrait, places)

    # The height of the portrait's own inside differs from column to column.
    opened = lengths(lower - upper) * FINE
    depth = np.interp(columns, along, opened)
    skin = bilinear(portrait, points[list(STABLE), :2])
    return MouthPicture(_inside(straight, depth, skin.mean(axis=0)), along)


def _along(columns: Array, along: Array, points: Array) -> Array:
    """Return a point for each column, interpolated between those of a lip [W, 2].

    Args:
        columns: x of the columns [W]
        along: x of the points in the picture of the mouth [N]
        points: x and y of the points [N, 2]
    """
    x = np.interp(columns, along, points[:, 0])
    y = np.interp(columns, along, points[:, 1])
    return np.column_stack([x, y])


def _inside(straight: Array, opened: Array, skin: Array) -> Array:
    """Return the inside of a mouth, uint8 [H, W, 3].

    The upper part is the portrait's own, the part below is drawn for a wider opening.

    Args:
        straight: the portrait's pixels from the upper lip downwards [H, W, 3]
        opened: the portrait's opening in each column, pixels [W]
        skin: mean colour of the face, 0…255 [3]
    """
    height, width = straight.shape[:2]
    # u runs across and v down, both in widths of the mouth.
    u = (np.arange(width) + 0.5) / width
    v = (np.arange(height) + 0.5) / width
    v = v[:, None]
    below = v - opened / width
    if opened.max() >= LEAST_OPEN * width:
        # The portrait's own teeth are visible.
        added = _cavity(u, below)
    else:
        edge = _teeth_edge(u)
        added = _with_teeth(_cavity(u, v - edge), u, v, skin)
    # The brightness of the face tells the light.
    light = np.clip(skin @ LUMA / MEDIUM, 0.3, 1.2)
    picture = mixed(straight, added * light, smooth_step(below, 0.0, SOFT))
    return np.asarray(np.clip(picture + 0.5, 0, 255), np.uint8)


def _cavity(u: Array, below: Array) -> Array:
    """Return the cavity behind the teeth, float64 [H, W, 3].

    It gets darker towards the throat, in front of which the tongue is drawn.

    Args:
        u: position across, 0…1 [W]
        below: distance below the teeth, in widths [H, W]
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
    """Return the lower end of the upper teeth, in widths of the mouth [W].

    It is an arch, lowest in the middle and 0 at the corners.

    Args:
        u: position across, 0…1 [W]
    """
    return np.asarray(TEETH_HEIGHT * np.sqrt(1 - (2 * u - 1) ** 2))


def _with_teeth(picture: Array, u: Array, v: Array, skin: Array) -> Array:
    """Return the inside with the upper row of teeth.

    Args:
        picture: the inside without them, float64 [H, W, 3]
        u: position across, 0…1 [W]
        v: position down, in widths [H, 1]
        skin: mean colour of the face, 0…255 [3]
    """
    side = np.abs(2 * u - 1)
    edge = _teeth_edge(u)
    shape = 1 - smooth_step(v, edge - 0.02, edge + 0.02)
    shape = shape * (1 - smooth_step(side, 0.75, 0.95))

    # The lip shades the upper part, the cheeks shade the sides.
    gap = np.abs(np.sin(u * np.pi * 7))
    bright = 0.65 + 0.35 * smooth_step(v, 0.0, 0.08)
    bright = bright * (1 - 0.45 * side**2)
    bright = bright * (0.92 + 0.08 * smooth_step(gap, 0.0, 0.25))

    luma = max(float(skin @ LUMA), 1.0)
    tint = skin / luma * float(TEETH @ LUMA)
    # The teeth have partly the tint of the skin.
    color = TEETH * (1 - SKIN_SHARE) + tint * SKIN_SHARE
    return mixed(picture, color * bright[..., None], shape)
