"""Boxes, points, lines, tints and captions in a picture, with numpy alone: a device may
have nothing else.

All take uint8 [H,W,3], red first; those that end in `into` change it, the others return
a copy.
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
"""A letter and seven rows of five pixels each, in hexadecimal."""


@functools.lru_cache(maxsize=1)
def _font() -> Dict[str, Array]:
    """bool [7,5] by character."""
    found = {" ": np.zeros((7, 5), bool)}
    for glyph in _GLYPHS.split():
        rows = [int(glyph[i : i + 2], 16) for i in range(1, 15, 2)]
        found[glyph[0]] = np.array(
            [[row >> (4 - x) & 1 for x in range(5)] for row in rows], bool
        )
    return found


def thickness(frame: Array) -> int:
    """Of lines, in pixels, for a picture of this size."""
    return max(1, round(int(min(frame.shape[:2])) / 240))


def text_into(
    frame: Array, text: str, x: int, y: int, color: Color, below: Color = (0, 0, 0)
) -> None:
    """Capital letters on a plate, its top left at x, y; what is beyond the picture is
    cut off.
    """
    font = _font()
    unit = thickness(frame)
    glyphs = [font.get(c, font["?"]) for c in text.upper()]
    plate = np.zeros((9, 6 * len(glyphs) + 1), bool)
    for i, glyph in enumerate(glyphs):
        plate[1:8, 6 * i + 1 : 6 * i + 6] = glyph
    large = np.repeat(np.repeat(plate, unit, 0), unit, 1)
    place, part = _overlap(frame, x, y, large.shape[1], large.shape[0])
    frame[place] = np.where(
        large[part][..., None], np.array(below, np.uint8), np.array(color, np.uint8)
    )


def _overlap(
    frame: Array, x: int, y: int, width: int, height: int
) -> Tuple[Tuple[slice, slice], Tuple[slice, slice]]:
    """Of a rectangle, what lies in the picture: there, and in the rectangle."""
    top = max(0, y)
    left = max(0, x)
    bottom = max(top, min(frame.shape[0], y + height))
    right = max(left, min(frame.shape[1], x + width))
    return (slice(top, bottom), slice(left, right)), (
        slice(top - y, bottom - y),
        slice(left - x, right - x),
    )


def caption(frame: Array, lines: Sequence[str]) -> Array:
    """A copy with lines at the top left."""
    picture = frame.copy()
    unit = thickness(picture)
    for i, line in enumerate(lines):
        text_into(picture, line, 2 * unit, (2 + 10 * i) * unit, PALETTE[3])
    return picture


def box_into(frame: Array, box: Sequence[float], color: Color, label: str = "") -> None:
    """A frame around x1, y1, x2, y2, with a label above it, or inside where there is no
    room.
    """
    unit = thickness(frame)
    x1, y1, x2, y2 = (round(max(-1e6, min(1e6, float(v)))) for v in box)
    for x, y, w, h in (
        (x1, y1, x2 - x1, unit),
        (x1, y2 - unit, x2 - x1, unit),
        (x1, y1, unit, y2 - y1),
        (x2 - unit, y1, unit, y2 - y1),
    ):
        place, _ = _overlap(frame, x, y, w, h)
        frame[place] = color
    if label:
        high = 9 * unit
        text_into(
            frame, label, max(0, x1), y1 - high if y1 >= high else max(0, y1), color
        )


def points_into(frame: Array, points: Array, color: Color, radius: int = 0) -> None:
    """Discs at points [N,2], x and y."""
    radius = radius or max(1, thickness(frame))
    span = np.arange(-radius, radius + 1)
    dy, dx = (d.ravel() for d in np.meshgrid(span, span, indexing="ij"))
    inside = dx * dx + dy * dy <= radius * radius
    at = np.clip(points, -1e6, 1e6).astype(np.int64)
    x, y = ((at[:, i, None] + d[inside]).ravel() for i, d in ((0, dx), (1, dy)))
    there = (x >= 0) & (x < frame.shape[1]) & (y >= 0) & (y < frame.shape[0])
    frame[y[there], x[there]] = color


def line_into(
    frame: Array, start: Sequence[float], end: Sequence[float], color: Color
) -> None:
    """A straight line."""
    steps = int(min(10_000, max(abs(end[0] - start[0]), abs(end[1] - start[1])))) + 1
    t = np.linspace(0, 1, steps + 1)[:, None]
    points_into(
        frame,
        np.asarray(start) * (1 - t) + np.asarray(end) * t,
        color,
        max(1, thickness(frame) // 2),
    )


def tinted(frame: Array, mask: Array, color: Color, strength: float = 0.5) -> Array:
    """A copy with a colour over it where the mask [H,W], 0…1, says so."""
    alpha = np.asarray(mask * (256 * strength), np.uint16)[..., None]
    return np.asarray(
        (frame * (256 - alpha) + np.array(color, np.uint16) * alpha) >> 8, np.uint8
    )


def side_by_side(pictures: List[Array]) -> Array:
    """In a row; all of one height."""
    return np.concatenate(pictures, axis=1)
