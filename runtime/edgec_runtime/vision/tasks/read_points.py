"""Reads points from a network's outputs: tables, heatmaps, and refinements."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ...errors import InputError
from ...rows import parameter
from ...tensors import TensorInfo
from .base import Array, Size, output_for

COLUMNS = ("x", "y", "z", "score", "unused")
"""Numbers that an output can have for each point."""

PEAK_SHIFT = 0.25
"""Pixels by which the peak of a heatmap moves to its larger neighbour."""


@dataclass(frozen=True)
class ReadPoints:
    """Points in pixels of the input.

    Attributes:
        xy: x and y of each [N, 2]
        scores: score of each before the activation [N]; None if there are none
        depth: z of each in the same pixels [N]; None if there is none
    """

    xy: Array
    scores: Optional[Array]
    depth: Optional[Array]

    def first(self, count: Optional[int]) -> ReadPoints:
        """Return the first `count` points; all of them for None."""
        scores = self.scores
        depth = self.depth
        if scores is not None:
            scores = scores[:count]
        if depth is not None:
            depth = depth[:count]
        return ReadPoints(self.xy[:count], scores, depth)

    def grown(self, count: int) -> ReadPoints:
        """Return at least `count` points; new ones are at 0 and have the score 1."""
        n_new = max(0, count - len(self.xy))
        if not n_new:
            return self
        origins = np.zeros((n_new, 2))
        ones = np.ones(n_new, np.float32)
        zeros = np.zeros(n_new)
        return ReadPoints(
            xy=np.concatenate([self.xy, origins]),
            scores=_appended(self.scores, ones),
            depth=_appended(self.depth, zeros),
        )


def _appended(array: Optional[Array], elements: Array) -> Optional[Array]:
    """Return an array with further elements; None stays None."""
    return None if array is None else np.concatenate([array, elements])


def table_points(
    array: Array, columns: Sequence[str], unit: Tuple[float, float]
) -> ReadPoints:
    """Return the points of an output that is a table.

    Args:
        array: the numbers of all points, point by point
        columns: the meaning of each number of a point, of COLUMNS
        unit: pixels of the input per unit of x and y
    """
    table = array.reshape(-1, len(columns))
    # Several columns may be "unused": only the last one is in the dictionary.
    by_name = {name: table[:, i] for i, name in enumerate(columns)}
    xy = np.stack([by_name["x"], by_name["y"]], axis=-1).astype(np.float64)

    depth = by_name.get("z")
    if depth is not None:
        # Networks measure depth in the unit of x.
        depth = depth.astype(np.float64) * unit[0]
    return ReadPoints(xy * np.array(unit), by_name.get("score"), depth)


@dataclass(frozen=True)
class Refinement:
    """An output with some of the points; the texts of the fields describe it."""

    output: str = parameter("the output")
    points: Tuple[int, ...] = parameter(
        "the numbers of its points: of those that get another place, or, after the last "
        "one, of further points",
        low=0,
        high=4095,
    )
    columns: Tuple[str, ...] = parameter(
        "what is said of each point, in order", ("x", "y"), choices=COLUMNS
    )
    depth_of: Tuple[int, ...] = parameter(
        "points whose mean depth these get; default: what is said of them, or what they "
        "had",
        (),
        low=0,
        high=4095,
    )

    def applied(
        self, read: ReadPoints, array: Array, unit: Tuple[float, float]
    ) -> ReadPoints:
        """Return points of which some are replaced by those of this output.

        Args:
            read: the points of the other outputs
            array: this output
            unit: pixels of the input per unit of x and y
        """
        refined = table_points(array, self.columns, unit)
        numbers = np.array(self.points)
        grown = read.grown(int(numbers.max()) + 1)

        xy = grown.xy.copy()
        xy[numbers] = refined.xy
        if grown.depth is None:
            return replace(grown, xy=xy)

        depth = grown.depth.copy()
        if self.depth_of:
            depth[numbers] = depth[np.array(self.depth_of)].mean()
        elif refined.depth is not None:
            depth[numbers] = refined.depth
        return replace(grown, xy=xy, depth=depth)


def bound_refinements(
    refinements: Sequence[Refinement], count: int, outputs: Mapping[str, TensorInfo]
) -> Tuple[Refinement, ...]:
    """Return refinements with the names of their outputs.

    Args:
        refinements: the refinements of the task
        count: number of points of the task's own output
        outputs: the model's outputs

    Raises:
        InputError: an output has another shape, or points are missing between others
    """
    bound: List[Refinement] = []
    for refinement in refinements:
        numbers = len(refinement.points) * len(refinement.columns)

        # Any shape is allowed that has a number for each column of each point.
        def suits(shape: Tuple[int, ...], numbers: int = numbers) -> bool:
            return math.prod(shape) == numbers

        name = output_for(refinement.output, "refinement", outputs, suits)
        _check_points(refinement, count)
        count = max(count, *(n + 1 for n in refinement.points))
        bound.append(replace(refinement, output=name))
    return tuple(bound)


def _check_points(refinement: Refinement, count: int) -> None:
    """Raise InputError for points that a refinement cannot have.

    Args:
        refinement: the refinement
        count: number of points of the outputs before it
    """
    if not refinement.points or not {"x", "y"} <= set(refinement.columns):
        raise InputError(
            f"the refinement of {refinement.output} has no points with x and y",
            "refinements",
            "for example points: [0, 1], columns: [x, y]",
        )
    # The numbers of further points follow the last one without a gap.
    further = sorted({n for n in refinement.points if n >= count})
    if further != list(range(count, count + len(further))):
        raise InputError(
            f"points {count} to {further[-1]} are not all in the refinement",
            "refinements",
            "number further points one by one",
        )
    if max(refinement.depth_of, default=0) >= count:
        raise InputError(
            f"there is no point {max(refinement.depth_of)} with a depth",
            "refinements",
            f"give points before it: 0 to {count - 1}",
        )


def peaks(maps: Array, image: Size) -> ReadPoints:
    """Return the peaks of heatmaps as points.

    A peak moves a quarter of a pixel towards its larger neighbour in each direction,
    since the true peak is between the two.

    Args:
        maps: the heatmaps [H, W, points]
        image: width and height of the input
    """
    height, width, count = maps.shape
    flat = maps.reshape(-1, count)
    peak = flat.argmax(axis=0)
    y = peak // width
    x = peak % width

    numbers = np.arange(count)

    # At a border the peak itself stands for the missing neighbour.
    left = maps[y, np.maximum(x - 1, 0), numbers]
    right = maps[y, np.minimum(x + 1, width - 1), numbers]
    above = maps[np.maximum(y - 1, 0), x, numbers]
    below = maps[np.minimum(y + 1, height - 1), x, numbers]

    shift_x: Array = np.sign(right - left) * PEAK_SHIFT
    shift_y: Array = np.sign(below - above) * PEAK_SHIFT

    xy = np.stack(
        [
            (x + 0.5 + shift_x) * image[0] / width,
            (y + 0.5 + shift_y) * image[1] / height,
        ],
        -1,
    )

    # The height of a peak is the score of its point.
    return ReadPoints(xy, flat.max(axis=0), None)
