"""Masks in COCO's labels: polygons, or lengths of runs down the columns.

Compressed lengths are text, of which each character has six bits: five of a number,
lowest first, and one that says that more follow; from the third length on it is the
difference to the length two before (cocoapi, common/maskApi.c, rleToString).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MIN_POLYGON = 6
"""Numbers of the smallest polygon: three points."""
_FIRST = 48
"""The character of the number 0."""
_BITS = 5
_MORE = 0x20
_SIGN = 0x10
_VALUE = 0x1F


def mask_fault(label: Any, size: tuple[int, int]) -> str:
    """Return why a label is no mask of a picture; "" if it is one.

    pycocotools trusts labels, and would read or write beside its memory.

    size: width and height of the picture, px.
    """
    if isinstance(label, list):
        is_polygon = all(map(_is_polygon, label))
        return "" if is_polygon else "has polygons without three points"
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
        return f"has runs of {total} pixels, its picture {width * height}"
    return ""


def _is_polygon(numbers: Any) -> bool:
    """Return whether a part of a label is x and y of three points or more."""
    if not isinstance(numbers, list) or len(numbers) < MIN_POLYGON:
        return False
    if len(numbers) % 2:
        return False
    return all(isinstance(n, int | float) and math.isfinite(n) for n in numbers)


def _lengths(label: Mapping[str, Any]) -> Sequence[int]:
    """Return the lengths of the runs. Raises ValueError for negative ones."""
    counts = label["counts"]
    lengths = [*_decompressed(counts)] if isinstance(counts, str) else counts
    # bool is an int for Python, and no length.
    for length in lengths:
        if type(length) is not int or length < 0:
            raise ValueError(f"{length} is no length")
    return [*lengths]


def _decompressed(text: str) -> Iterator[int]:
    """Yield the lengths of a text. Raises IndexError where it ends in a number."""
    lengths: list[int] = []
    place = 0
    while place < len(text):
        number = 0
        shift = 0
        more = True
        while more:
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
