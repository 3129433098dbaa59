"""Reads points of a face that a person has placed in a picture, from a JSON file beside it.

A portrait that no network recognizes, like a cat or a statue, has 15 or more named
points; the layout is bent to these for the other points of the mesh.  A mask has points
of its picture with the numbers of points of the face.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, did_you_mean
from .bending import bent
from .landmarks import COUNT, LEFT_CORNERS, RIGHT_CORNERS, face_layout
from .points import solid

Array = NDArray[Any]

NAMES: Mapping[str, int] = {
    "left eye outer": 33,
    "left eye inner": 133,
    "left eye top": 159,
    "left eye bottom": 145,
    "right eye inner": 362,
    "right eye outer": 263,
    "right eye top": 386,
    "right eye bottom": 374,
    "left brow outer": 70,
    "left brow middle": 105,
    "left brow inner": 107,
    "right brow inner": 336,
    "right brow middle": 334,
    "right brow outer": 300,
    "nose top": 168,
    "nose tip": 4,
    "nose bottom": 2,
    "nose left": 129,
    "nose right": 358,
    "mouth left": 61,
    "mouth right": 291,
    "upper lip top": 0,
    "upper lip bottom": 13,
    "lower lip top": 14,
    "lower lip bottom": 17,
    "chin": 152,
    "jaw left": 172,
    "jaw right": 397,
    "cheek left": 234,
    "cheek right": 454,
    "forehead": 10,
}
"""The points with a name, and their numbers. Left and right are those of the picture."""
LEAST_NAMED = 15
LEAST_PINNED = 3
LEAST_EYES = 4.0
"""Least distance of the outer corners of the eyes in pixels."""
MOST_UPRIGHT = 0.7
"""The least share of a face's triangles that are not turned over."""
MAX_BYTES = 1 << 20
"""Largest size of a file, a hundred times that of 468 points."""
MAX_COORDINATE = 1e5
EXAMPLE = '{"points": {"left eye outer": [212, 180], …}}'


class Pinned(NamedTuple):
    """Points of a mask's picture, and the points of a face to which they belong.

    Attributes:
        places: x and y in the picture [N, 2]
        numbers: numbers of the face's points [N]
    """

    places: Array
    numbers: Array


def portrait_points(path: Path) -> Optional[Array]:
    """Return the points of a face that a file places, with depth [468, 3].

    Args:
        path: the file; None is returned where there is none

    Raises:
        InputError: it has no such points
    """
    if not path.exists():
        return None
    content = _read(path)
    if isinstance(content, Mapping):
        named = _named(content, path)
        layout = face_layout().points[:, :2]
        known = np.array(list(named.values()))
        flat = bent(layout[list(named)], known, layout)
    else:
        flat = _listed(content, path)
    if not is_face(flat):
        what = "these points make no face: its parts are not where a face has them"
        hint = "look at the names: left and right are the picture's"
        raise InputError(what, str(path), hint)
    # A file has no depth, so that of the layout is used.
    unknown = np.full((COUNT, 1), np.nan)
    return solid(np.hstack([flat, unknown]), math.nan)


def is_face(points: Array) -> bool:
    """Return whether points make a face that is upright and large enough to be drawn.

    Args:
        points: x and y in pixels [468, 2]
    """
    across = points[RIGHT_CORNERS[1]] - points[LEFT_CORNERS[0]]
    if across[0] < LEAST_EYES:
        return False
    # Most triangles of the skin lie as in the layout, neither folded nor turned.
    corners = points[face_layout().triangles]
    one = corners[:, 1] - corners[:, 0]
    two = corners[:, 2] - corners[:, 0]
    areas = one[:, 0] * two[:, 1] - two[:, 0] * one[:, 1]
    return float((areas > 0).mean()) >= MOST_UPRIGHT


def mask_points(path: Path) -> Pinned:
    """Return the points by which a mask is pinned to a face.

    Args:
        path: a file with {"points": [[x, y, number of a point], …]}

    Raises:
        InputError: there is none, or it has no such points
    """
    example = '{"points": [[120, 80, 33], …]}: x, y and the number of a point'
    if not path.exists():
        raise InputError("a mask has its points beside it", str(path), example)
    content = _read(path)
    if not isinstance(content, list) or len(content) < LEAST_PINNED:
        what = f"a mask has a list of {LEAST_PINNED} points or more"
        raise InputError(what, str(path), example)

    places: List[Tuple[float, float]] = []
    numbers: List[int] = []
    for row in content:
        if not isinstance(row, list) or len(row) != 3 or not _is_point(row[2]):
            raise InputError(f"{row!r:.60} is not a pinned point", str(path), example)
        places.append(_place(row[:2], path))
        numbers.append(row[2])
    if len(set(numbers)) < len(numbers):
        twice = next(n for n in numbers if numbers.count(n) > 1)
        raise InputError(f"point {twice} is pinned twice", str(path), "leave one out")
    return Pinned(np.array(places), np.array(numbers))


def _is_point(number: Any) -> bool:
    """Return whether a value is the number of a point."""
    # A bool is an int in Python, but not in JSON.
    is_integer = isinstance(number, int) and not isinstance(number, bool)
    return is_integer and 0 <= number < COUNT


def _read(path: Path) -> Any:
    """Return the value of "points" in a file."""
    hint = f"it should have {EXAMPLE}"
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path.name} is not a file of points", str(path), hint)
        decoded = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        what = f"cannot read {path.name}: {e.strerror}"
        raise InputError(what, str(path), "check its permissions") from e
    # A file of deep brackets makes the decoder recurse.
    except (ValueError, RecursionError) as e:
        what = f"{path.name} is not JSON: {e!s:.80}"
        raise InputError(what, str(path), hint) from e
    if not isinstance(decoded, dict) or "points" not in decoded:
        raise InputError(f'{path.name} has no "points"', str(path), hint)
    return decoded["points"]


def _place(value: Any, path: Path) -> Tuple[float, float]:
    """Return x and y of a place in a picture."""
    is_pair = isinstance(value, list) and len(value) == 2
    if not is_pair or not all(_is_coordinate(v) for v in value):
        what = f"{value!r:.60} is not a place in a picture"
        raise InputError(what, str(path), "give x and y in pixels: [212, 180]")
    return float(value[0]), float(value[1])


def _is_coordinate(value: Any) -> bool:
    """Return whether a value is a number that can be a coordinate."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and abs(value) <= MAX_COORDINATE


def _listed(given: Any, path: Path) -> Array:
    """Return all points of a face [468, 2]."""
    if not isinstance(given, list) or len(given) != COUNT:
        count = len(given) if isinstance(given, list) else "no"
        what = f"{path.name} has {count} points, not {COUNT}"
        raise InputError(what, str(path), f"or name some of them: {EXAMPLE}")
    return np.array([_place(value, path) for value in given])


def _named(given: Mapping[str, Any], path: Path) -> Dict[int, Tuple[float, float]]:
    """Return places by the numbers of their points."""
    points: Dict[int, Tuple[float, float]] = {}
    for name, value in given.items():
        if name not in NAMES:
            what = f'no point is called "{name:.40}"{did_you_mean(name, NAMES)}'
            raise InputError(what, str(path), "docs/webcam.md lists the names")
        points[NAMES[name]] = _place(value, path)
    if len(points) < LEAST_NAMED:
        what = f"{len(points)} points are placed, at least {LEAST_NAMED} are needed"
        missing = next(name for name, number in NAMES.items() if number not in points)
        raise InputError(what, str(path), f'place "{missing}", too')
    if len(set(points.values())) < len(points):
        raise InputError("two points are at one place", str(path), "move one of them")
    return points
