"""Draws a head of simple shapes as a portrait, whose mesh is the layout itself."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import numpy as np
from numpy.typing import NDArray

from .geometry import downward
from .landmarks import (
    LEFT_BROW,
    LOWER_LIP,
    OVAL,
    RIGHT_BROW,
    UPPER_LIP,
    UPPER_MOUTH,
    face_layout,
)
from .lids import EYES
from .portrait import Portrait
from .shapes import Color, ellipse, fill, rounded

Array = NDArray[Any]
Shape = Tuple[Array, Color]

WALL: Color = (218, 228, 234)
SHIRT: Color = (58, 104, 150)
COLLAR: Color = (44, 82, 122)
SKIN: Color = (240, 200, 172)
SHADE: Color = (222, 174, 146)
HAIR: Color = (84, 54, 42)
EYE: Color = (250, 250, 248)
IRIS: Color = (70, 110, 140)
PUPIL: Color = (26, 24, 28)
LIPS: Color = (196, 92, 92)
LINE: Color = (140, 64, 66)

UNIT = 0.25
"""The distance of the eyes, in heights of the picture."""
MIDDLE = 0.4
"""Position of the layout's origin, in heights of the picture from the top."""
OPENED = 1.5
"""Factor by which the drawn eyes are wider open than those of the layout."""


def puppet(size: Tuple[int, int]) -> Portrait:
    """Return the drawn head as a portrait.

    Args:
        size: width and height in pixels
    """
    points = face_layout().points.copy()
    _open_eyes(points)
    unit = size[1] * UNIT
    origin = np.array([size[0] / 2, size[1] * MIDDLE])
    picture = np.full((size[1], size[0], 3), WALL, np.uint8)
    for outline, color in _shapes(points[:, :2]):
        fill(picture, outline * unit + origin, color)
    face = points * unit
    face[:, :2] += origin
    return Portrait(picture, face)


def _open_eyes(points: Array) -> None:
    """Open the eyes of the layout further.

    Args:
        points: [468, 3], which are changed
    """
    for upper, lower, skin in EYES:
        middle = (points[list(upper), 1] + points[list(lower), 1]) / 2
        top = points[list(upper), 1] - middle
        points[list(upper), 1] = middle + top * OPENED
        points[list(lower), 1] = middle - top * OPENED
        # The skin above makes room for the lid and its line.
        points[list(skin[1:-1]), 1] += top[1:-1] * OPENED


def _shapes(face: Array) -> List[Shape]:
    """Return the shapes of the head, from back to front.

    Args:
        face: points in the frame of the layout [468, 2]
    """
    parts: Tuple[Callable[[Array], List[Shape]], ...] = (_body, _head, _eyes, _mouth)
    shapes: List[Shape] = []
    for part in parts:
        shapes += part(face)
    return shapes


def _body(face: Array) -> List[Shape]:
    """Return shoulders, collar, neck and the hair behind the head."""
    shoulders = np.array([[-2.6, 2.9], [-1.7, 1.85], [-0.6, 1.62], [0.6, 1.62]])
    right = np.array([[1.7, 1.85], [2.6, 2.9], [2.6, 4.0], [-2.6, 4.0]])
    neck = np.array([[-0.42, 0.7], [0.42, 0.7], [0.46, 1.75], [-0.46, 1.75]])
    return [
        (ellipse((0.0, 0.05), (0.98, 1.08)), HAIR),
        (rounded(np.concatenate([shoulders, right])), SHIRT),
        (ellipse((0.0, 1.7), (0.62, 0.2)), COLLAR),
        (neck, SHADE),
    ]


def _head(face: Array) -> List[Shape]:
    """Return ears, head, fringe, brows and nose."""
    outline = face[list(OVAL)]
    shapes: List[Shape] = []
    for side in (-1, 1):
        shapes.append((ellipse((side * 0.8, 0.28), (0.14, 0.22)), SHADE))
    shapes.append((rounded(outline), SKIN))

    # The fringe goes along the upper part of the outline, and down to the forehead.
    crown = np.array([[-0.84, 0.1], [-0.92, -0.4], [-0.5, -0.9], [0.0, -1.0]])
    right = np.array([[0.5, -0.9], [0.92, -0.4], [0.84, 0.1], [0.68, -0.22]])
    edge = np.array([[0.3, -0.36], [-0.1, -0.26], [-0.5, -0.34], [-0.7, -0.2]])
    shapes.append((rounded(np.concatenate([crown, right, edge])), HAIR))
    for brow in (LEFT_BROW, RIGHT_BROW):
        shapes.append((rounded(face[list(brow)]), HAIR))

    nose = face[[193, 114, 129, 98, 2, 327, 358, 343, 417]]
    shapes.append((rounded(nose[2:7]), SHADE))
    return shapes


def _eyes(face: Array) -> List[Shape]:
    """Return the whites, the irises and the lines of the lids."""
    shapes: List[Shape] = []
    for upper, lower, _ in EYES:
        outline = face[[*upper, *lower[-2:0:-1]]]
        middle = outline.mean(axis=0)
        opened = float(np.ptp(outline[:, 1]))
        shapes.append((rounded(outline), EYE))
        shapes.append((ellipse(middle, (opened * 0.48, opened * 0.48)), IRIS))
        shapes.append((ellipse(middle, (opened * 0.24, opened * 0.24)), PUPIL))
        light = middle - opened * 0.14
        shapes.append((ellipse(light, (opened * 0.09, opened * 0.09)), EYE))
        shapes.append((_stroke(face[list(upper)], 0.03), PUPIL))
    return shapes


def _mouth(face: Array) -> List[Shape]:
    """Return the lips, and the line between them."""
    outline = face[[*UPPER_LIP, *LOWER_LIP[-2:0:-1]]]
    return [
        (rounded(outline), LIPS),
        (_stroke(face[list(UPPER_MOUTH)], 0.014), LINE),
    ]


def _stroke(points: Array, width: float) -> Array:
    """Return the outline of a line from left to right that is thinner at its ends.

    Args:
        points: points of the line [N, 2]
        width: its width in the middle
    """
    across = downward(points[-1] - points[0])
    share = np.sin(np.linspace(0.2, np.pi - 0.2, len(points)))
    half = across * (width / 2 * share)[:, None]
    return np.concatenate([points - half, (points + half)[::-1]])
