"""How far the motion of one face goes in another: a face has its own proportions."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from .geometry import lengths, middle_of
from .landmarks import UPPER_MOUTH, openings

Array = NDArray[Any]

EYE_REACH = 0.3
MOUTH_REACH = 0.5
"""How far proportions of eyes and mouth reach, in distances of the eyes."""
LEAST = 0.01
"""The least size of an eye or a mouth: it divides."""
EYE_LIMITS = (0.5, 2.0)
MOUTH_LIMITS = (0.6, 1.6)
"""The factors that are possible: beyond, a face was not seen well."""


def proportions(own: Array, other: Array) -> Array:
    """Return factors for a motion of another face [468, 3].

    Eyes that are twice as open close twice as far, and wide mouths move more.

    Args:
        own: the face in the layout's frame [468, 3]
        other: the one that moves, likewise
    """
    factors = np.ones_like(own)
    for upper, lower in openings()[:2]:
        ratio = _opening(own, upper, lower) / _opening(other, upper, lower)
        factor = float(np.clip(ratio, *EYE_LIMITS))
        near = _nearness(own, upper, EYE_REACH)
        # Lids move up and down alone.
        factors[:, 1] *= 1 + near * (factor - 1)

    # Lips move in all directions, and so does the skin around them.
    ratio = _width(own, UPPER_MOUTH) / _width(other, UPPER_MOUTH)
    factor = float(np.clip(ratio, *MOUTH_LIMITS))
    near = _nearness(own, UPPER_MOUTH, MOUTH_REACH)
    factors *= 1 + near[:, None] * (factor - 1)
    return factors


def _opening(shape: Array, upper: Sequence[int], lower: Sequence[int]) -> float:
    """Return how far an eye is open.

    Args:
        shape: a face in the layout's frame [468, 3]
        upper: points of its upper lid
        lower: of its lower lid
    """
    top = shape[list(upper), 1]
    bottom = shape[list(lower), 1]
    apart = bottom - top
    return max(float(apart.mean()), LEAST)


def _width(shape: Array, edge: Sequence[int]) -> float:
    """Return the distance of the ends of an edge.

    Args:
        shape: a face in the layout's frame [468, 3]
        edge: points from left to right
    """
    across = shape[edge[-1]] - shape[edge[0]]
    return max(float(lengths(across)), LEAST)


def _nearness(shape: Array, edge: Sequence[int], reach: float) -> Array:
    """Return how near points are to an edge, 1 at its middle and 0 far away [468].

    Args:
        shape: a face in the layout's frame [468, 3]
        edge: points from left to right
        reach: the distance at which it is 1/e
    """
    middle = middle_of(shape, edge)
    apart = lengths(shape[:, :2] - middle[:2])
    relative = apart / reach
    return np.asarray(np.exp(-(relative**2)))
