"""Draws boxes, points, lines, tints and captions with numpy alone.

A device may have no other library. All functions take uint8 [H, W, 3], red first;
those with names in `_into` change the picture, the others return a copy.
"""

from __future__ import annotations

import functools
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Color = Tuple[int, int, int]

PALETTE: Tuple[Color, ...] = (
    (255, 87, 51),
    (46, 204, 113),
    (52, 152, 219),
    (241, 196, 15),
    (155, 89, 182),
    (26, 188, 156),
    (231, 76, 160),
    (149, 165, 166),
    (230, 126, 34),
    (127, 219, 255),
)
"""Colours of classes, in turn."""

_GLYPHS = (
    "A0e11111f111111 B1e11111e11111e C0e11101010110e D1e11111111111e E1f10101e10101f "
    "F1f10101e101010 G0e11101711110f "
    "H1111111f111111 I0e04040404040e J0702020202120c K11121418141211 L1010101010101f "
    "M111b1515111111 N11191513111111 "
    "O0e11111111110e P1e11111e101010 Q0e11111115120d R1e11111e141211 S0f10100e01011e "
    "T1f040404040404 U1111111111110e "
    "V11111111110a04 W1111111515150a X11110a040a1111 Y11110a04040404 Z1f01020408101f "
    "00e11131519110e 1040c040404040e "
    "20e11010204081f 31f02040201110e 402060a121f0202 51f101e0101110e 60608101e11110e "
    "71f010204080808 80e11110e11110e "
    "90e11110f01020c %18190204081303 .00000000000c0c ,00000000040408 -0000001f000000 "
    "/00010204081000 :000c0c000c0c00 "
    "'04040800000000 (02040808080402 )08040202020408 +0004041f040400 _0000000000001f "
    "?0e110102040004 &0c12140815120d"
)
"""Each letter, followed by its seven rows of five pixels in hexadecimal."""

GLYPH_HEIGHT = 7
GLYPH_WIDTH = 5
PLATE_HEIGHT = GLYPH_HEIGHT + 2
"""Height of a line of text in pixels, with a border above and below."""
ADVANCE = GLYPH_WIDTH + 1
"""Distance from letter to letter in pixels."""

LINE_SHARE = 240
"""Ratio of a picture's shorter side to the thickness of its lines."""

MAX_COORDINATE = 1e6
"""Limit to which coordinates are clipped, since a network can give infinity, too."""

MAX_LINE_POINTS = 10_000
"""Largest number of discs of which a line is drawn."""


@functools.lru_cache(maxsize=1)
def _font() -> Dict[str, Array]:
    """Return the letters, bool [7, 5] by character."""
    font = {" ": np.zeros((GLYPH_HEIGHT, GLYPH_WIDTH), bool)}
    for glyph in _GLYPHS.split():
        rows: List[List[int]] = []
        for i in range(1, len(glyph), 2):
            # The highest of five bits is the leftmost pixel.
            row = int(glyph[i : i + 2], 16)
            rows.append([row >> (4 - x) & 1 for x in range(GLYPH_WIDTH)])

        font[glyph[0]] = np.array(rows, bool)
    return font


def thickness(frame: Array) -> int:
    """Return the thickness of lines in a picture of this size, in pixels."""
    shorter = int(min(frame.shape[:2]))
    return max(1, round(shorter / LINE_SHARE))


def text_into(
    frame: Array, text: str, x: int, y: int, color: Color, below: Color = (0, 0, 0)
) -> None:
    """Draw capital letters on a plate; parts outside the picture are left out.

    Args:
        frame: the picture
        text: the text
        x: left of the plate
        y: top of the plate
        color: colour of the plate
        below: colour of the letters
    """
    font = _font()
    unit = thickness(frame)
    glyphs = [font.get(c, font["?"]) for c in text.upper()]
    plate = np.zeros((PLATE_HEIGHT, ADVANCE * len(glyphs) + 1), bool)
    for i, glyph in enumerate(glyphs):
        left = ADVANCE * i + 1
        plate[1 : 1 + GLYPH_HEIGHT, left : left + GLYPH_WIDTH] = glyph

    # A pixel of a letter is as thick as a line.
    large = np.repeat(np.repeat(plate, unit, 0), unit, 1)
    height, width = large.shape
    area, part = _overlap(frame, x, y, width, height)

    is_letter = large[part][..., None]
    letters = np.array(below, np.uint8)
    frame[area] = np.where(is_letter, letters, np.array(color, np.uint8))


def _overlap(
    frame: Array, x: int, y: int, width: int, height: int
) -> Tuple[Tuple[slice, slice], Tuple[slice, slice]]:
    """Return the part of a rectangle in the picture, as slices of each of the two."""
    top = max(0, y)
    left = max(0, x)

    # The part of a rectangle outside has no pixels, and no negative size.
    bottom = max(top, min(frame.shape[0], y + height))
    right = max(left, min(frame.shape[1], x + width))

    area = slice(top, bottom), slice(left, right)
    part = slice(top - y, bottom - y), slice(left - x, right - x)
    return area, part


def caption(frame: Array, lines: Sequence[str]) -> Array:
    """Return a copy with lines of text at the top left."""
    picture = frame.copy()
    unit = thickness(picture)
    for i, line in enumerate(lines):
        y = 2 + (PLATE_HEIGHT + 1) * i
        text_into(picture, line, 2 * unit, y * unit, PALETTE[3])
    return picture


def box_into(frame: Array, box: Sequence[float], color: Color, label: str = "") -> None:
    """Draw the outline of a box, and a label.

    Args:
        frame: the picture
        box: x1, y1, x2, y2
        color: colour of the outline and the label's plate
        label: a text above the box, or inside it if there is no room above
    """
    unit = thickness(frame)
    corners: List[int] = []
    for v in box:
        bounded = max(-MAX_COORDINATE, min(MAX_COORDINATE, float(v)))
        corners.append(round(bounded))
    x1, y1, x2, y2 = corners
    for x, y, w, h in (
        (x1, y1, x2 - x1, unit),
        (x1, y2 - unit, x2 - x1, unit),
        (x1, y1, unit, y2 - y1),
        (x2 - unit, y1, unit, y2 - y1),
    ):
        area, _ = _overlap(frame, x, y, w, h)
        frame[area] = color

    if label:
        height = PLATE_HEIGHT * unit

        top = y1 - height if y1 >= height else max(0, y1)
        text_into(frame, label, max(0, x1), top, color)


def points_into(frame: Array, points: Array, color: Color, radius: int = 0) -> None:
    """Draw discs.

    Args:
        frame: the picture
        points: x and y of their centres [N, 2]
        color: colour of the discs
        radius: radius in pixels; 0 for the thickness of lines
    """
    radius = radius or max(1, thickness(frame))
    span = np.arange(-radius, radius + 1)
    dy, dx = np.meshgrid(span, span, indexing="ij")
    is_disc = dx * dx + dy * dy <= radius * radius

    # All discs are drawn at once, since a loop over a face's points takes milliseconds.
    centres = np.clip(points, -MAX_COORDINATE, MAX_COORDINATE).astype(np.int64)
    x = (centres[:, 0, None] + dx[is_disc]).ravel()
    y = (centres[:, 1, None] + dy[is_disc]).ravel()
    height, width = frame.shape[:2]
    is_inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    frame[y[is_inside], x[is_inside]] = color


def line_into(
    frame: Array, start: Sequence[float], end: Sequence[float], color: Color
) -> None:
    """Draw a straight line, as discs side by side."""
    longest = max(abs(end[0] - start[0]), abs(end[1] - start[1]))

    steps = int(min(MAX_LINE_POINTS, longest)) + 1

    # Discs at a distance of one pixel leave no gap in any direction.
    t = np.linspace(0, 1, steps + 1)[:, None]
    points = np.asarray(start) * (1 - t) + np.asarray(end) * t

    points_into(frame, points, color, max(1, thickness(frame) // 2))


def tinted(frame: Array, mask: Array, color: Color, strength: float = 0.5) -> Array:
    """Return a copy with a colour over it.

    Args:
        frame: the picture
        mask: relative share of the colour in each pixel, 0…1 [H, W]
        color: the colour
        strength: the share where the mask is 1
    """
    # Shares are in 1/256, so that the products fit into 16 bits.
    alpha = np.asarray(mask * (256 * strength), np.uint16)[..., None]
    tint = np.array(color, np.uint16) * alpha

    mixed = frame * (256 - alpha) + tint
    return np.asarray(mixed >> 8, np.uint8)


def side_by_side(pictures: List[Array]) -> Array:
    """Return pictures of the same height side by side."""
    return np.concatenate(pictures, axis=1)
