"""Masks in COCO's labels: polygons, or lengths of runs down the columns.

Compressed lengths are text, of which each character has six bits: five of a number,
lowest first, and one that says that more follow; from the third length on it is the
difference to the length two before (cocoapi, common/maskApi.c, rleToString).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

MIN_POLYGON = 6
"""Numbers of the smallest polygon: three points."""
_FIRST = 48
"""The character of the number 0."""
_BITS = 5
_MORE = 0x20
_SIGN = 0x10
_VALUE = 0x1F
_LAST = 111
"""The last character there is."""
_LONGEST = 7
"""Characters of a length: 35 bits are more than any picture's pixels."""
_FARTHEST = 2
"""How far from a picture's first corner labels may be, in its sides."""


def mask_fault(label: Any, size: tuple[int, int]) -> str:
    """Return why a label is no mask of a picture; "" if it is one.

    pycocotools trusts labels, and would read or write beside its memory.

    size: width and height of the picture, px.
    """
    if isinstance(label, list):
        if not all(map(_is_polygon, label)):
            return "has polygons without three points"
        return next(filter(None, (_outline_fault(p, size) for p in label)), "")
    if not isinstance(label, dict):
        return "is neither polygons nor lengths of runs"

    width, height = size
    stated = label.get("size")
    if stated != [height, width]:
        return f"is of the size {stated}, its picture of {[height, width]}"
    try:
        total = sum(_lengths(label))
    except (KeyError, TypeError, ValueError, IndexError):
        return "has lengths of runs that cannot be read"
    if total != width * height:
        return f"has runs of {_short(total)} pixels, its picture {width * height}"
    return ""


def _is_polygon(numbers: Any) -> bool:
    """Return whether a part of a label is x and y of three points or more."""
    if not isinstance(numbers, list) or len(numbers) < MIN_POLYGON:
        return False
    if len(numbers) % 2:
        return False
    return all(isinstance(n, int | float) for n in numbers)


def far_corner(numbers: Sequence[float], size: tuple[int, int]) -> str:
    """Return the first point that is farther away than twice a picture; "" if none is.

    Args:
        numbers: x and y of each point, px
        size: width and height of the picture, px
    """
    width, height = size
    for x, y in zip(numbers[::2], numbers[1::2], strict=True):
        # Neither holds for what is no number.
        is_near = abs(x) <= _FARTHEST * width and abs(y) <= _FARTHEST * height
        if not is_near:
            return f"{_short(x)}, {_short(y)}"
    return ""


def _short(number: float) -> str:
    """Return a number in a few digits, also one too large for a float."""
    try:
        return f"{number:.6g}"
    except OverflowError:
        return f"a number of {len(str(abs(number)))} digits"


def _outline_fault(numbers: Sequence[float], size: tuple[int, int]) -> str:
    """Return why a polygon cannot be drawn; "" if it can.

    pycocotools takes memory for each step along the outline: gigabytes for a far corner,
    or for one that goes to and fro.
    """
    corner = far_corner(numbers, size)
    if corner:
        return f"has a corner at {corner}, its picture is {size[0]} x {size[1]}"
    points = np.array(numbers, np.float64).reshape(-1, 2)
    steps = np.abs(points - np.roll(points, -1, axis=0)).max(axis=1)
    length = float(steps.sum())
    # An outline of noise in all of the picture is shorter.
    width, height = size
    longest = width * height / 4 + 16 * (width + height)
    if length > longest:
        return f"has an outline of {length:.0f} px, more than {longest:.0f}"
    return ""


def _lengths(label: Mapping[str, Any]) -> Sequence[int]:
    """Return the lengths of the runs. Raises ValueError for negative ones."""
    counts = label["counts"]
    lengths = [*_decompressed(counts)] if isinstance(counts, str) else counts
    # bool is an int for Python, and no length.
    for length in lengths:
        if type(length) is not int or length < 0:
            raise ValueError(f"{length} is not a length")
    return [*lengths]


def _decompressed(text: str) -> Iterator[int]:
    """Yield the lengths of a text.

    Raises IndexError where it ends in a number, and ValueError for one that is too long.
    """
    lengths: list[int] = []
    place = 0
    while place < len(text):
        number = 0
        shift = 0
        more = True
        while more:
            if shift == _LONGEST * _BITS or not _FIRST <= ord(text[place]) <= _LAST:
                raise ValueError("it is not a length")
            bits = ord(text[place]) - _FIRST
            number |= (bits & _VALUE) << shift
            shift += _BITS
            more = bool(bits & _MORE)
            place += 1
        # The highest bit of the last part is the sign.
        if bits & _SIGN:
            number -= 1 << shift
        if len(lengths) > 2:
            number += lengths[-2]
        lengths.append(number)
        yield number
