"""Landmarks and poses: points in the frame's pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ...errors import InputError
from ...rows import parameter
from ...tensors import TensorInfo
from ..drawing import PALETTE, line_into, points_into, thickness
from .base import (
    ACTIVATIONS,
    Array,
    Decode,
    DecoderSetting,
    Outputs,
    Size,
    View,
    activated,
    output_for,
    output_name,
)

COCO_POINTS = (
    "nose",
    "left eye",
    "right eye",
    "left ear",
    "right ear",
    "left shoulder",
    "right shoulder",
    "left elbow",
    "right elbow",
    "left wrist",
    "right wrist",
    "left hip",
    "right hip",
    "left knee",
    "right knee",
    "left ankle",
    "right ankle",
)
"""The 17 points of a person in the data set COCO, in order."""

COCO_LINES = (
    (0, 1),
    (0, 2),
    (1, 3),
    (2, 4),
    (5, 6),
    (5, 7),
    (7, 9),
    (6, 8),
    (8, 10),
    (5, 11),
    (6, 12),
    (11, 12),
    (11, 13),
    (13, 15),
    (12, 14),
    (14, 16),
)
"""Pairs of these points that are joined in pictures."""

_COLUMNS = ("x", "y", "z", "score")
"""Numbers that a network can give of a point."""

PEAK_SHIFT = 0.25
"""Pixels by which the peak of a heatmap moves to its larger neighbour."""


@dataclass(frozen=True)
class Landmarks:
    """The parameters of the task; the texts of the fields describe them."""

    kind: ClassVar[str] = "landmarks"
    output: Optional[str] = parameter(
        "the output with the points; default: the only one that can be", None
    )
    columns: Tuple[str, ...] = parameter(
        "what is said of each point, in order", ("x", "y"), choices=_COLUMNS
    )
    units: str = parameter(
        "of x and y: 0…1 of the input, its pixels, or heatmaps [1,H,W,points] whose "
        "peaks they are",
        "pixels",
        choices=("relative", "pixels", "heatmaps"),
    )
    score: Optional[str] = parameter(
        "an output that says how sure it is that there is anything", None
    )
    activation: str = parameter(
        "of that, and of the points' own scores", "none", choices=ACTIVATIONS[:2]
    )
    threshold: float = parameter(
        "points and results below are left out", 0.0, low=0, high=1
    )
    lines: Tuple[Tuple[int, ...], ...] = parameter(
        "pairs of points that are joined in pictures", (), low=0, high=4095
    )
    names: Tuple[str, ...] = parameter("of the points", ())

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Landmarks:
        """Return the task for a model, with everything that was left open."""
        if self.units != "heatmaps" and not {"x", "y"} <= set(self.columns):
            raise InputError(
                f"points have no x and y: {', '.join(self.columns)}",
                "columns",
                "for example x,y,z",
            )
        if any(len(pair) != 2 for pair in self.lines):
            raise InputError(
                "a line joins two points",
                at="lines",
                hint="for example [[0, 1], [1, 2]]",
            )
        if self.units == "heatmaps":
            name = output_for(self.output, "heatmaps", outputs, _is_heatmaps)
            return replace(self, output=name)

        each = len(self.columns)

        def is_table(shape: Sequence[int]) -> bool:
            # A single point would also be the shape of a box or of a score.
            numbers = math.prod(shape)
            return numbers % each == 0 and numbers >= 2 * each

        score = output_name(self.score, outputs)
        if score is not None:
            output_for(score, "score", outputs, _is_number)

        others = {n: o for n, o in outputs.items() if n != score}
        output = output_for(self.output, "points", others, is_table)

        return replace(self, score=score, output=output)

    def files(self) -> Tuple[str, ...]:
        """Return no paths: the task has no files."""
        return ()

    def decoder(self, setting: DecoderSetting) -> Decode:
        """Return the function that decodes the outputs, for a bound task."""

        def decode(outputs: Outputs, view: View) -> Points:
            read = self._read(outputs[str(self.output)], setting.image)
            if read.scores is None:
                scores = np.ones(len(read.xy), np.float32)
            else:
                scores = activated(read.scores, self.activation)

            score = 1.0
            if self.score is not None:
                number = outputs[self.score].reshape(-1)

                score = float(activated(number, self.activation)[0])

            # Points of a result that is not there are not shown, however sure they are.
            shown = (scores >= self.threshold) & (score >= self.threshold)
            points = view.to_frame(read.xy)
            return Points(
                points, scores, shown, score, read.depth, self.lines, self.names
            )

        return decode

    def _read(self, array: Array, image: Size) -> _ReadPoints:
        """Return the points of an output in pixels of the input."""
        if self.units == "heatmaps":
            return _peaks(array[0], image)
        table = array.reshape(-1, len(self.columns))

        columns = {name: table[:, i] for i, name in enumerate(self.columns)}
        xy = np.stack([columns["x"], columns["y"]], axis=-1).astype(np.float64)

        if self.units == "relative":
            xy = xy * np.array(image)
        return _ReadPoints(xy, columns.get("score"), columns.get("z"))


@dataclass(frozen=True)
class Pose(Landmarks):
    """The parameters of the task: landmarks of a person, by default the 17 of COCO."""

    kind: ClassVar[str] = "pose"
    columns: Tuple[str, ...] = parameter(
        "what is said of each point, in order", ("y", "x", "score"), choices=_COLUMNS
    )
    units: str = parameter(
        "of x and y: 0…1 of the input, its pixels, or heatmaps [1,H,W,points] whose "
        "peaks they are",
        "relative",
        choices=("relative", "pixels", "heatmaps"),
    )
    threshold: float = parameter(
        "points and results below are left out", 0.3, low=0, high=1
    )
    lines: Tuple[Tuple[int, ...], ...] = parameter(
        "pairs of points that are joined", COCO_LINES, low=0, high=4095
    )
    names: Tuple[str, ...] = parameter("of the points", COCO_POINTS)


@dataclass(frozen=True)
class _ReadPoints:
    """Points as an output has them.

    Attributes:
        xy: x and y in pixels of the input [N, 2]
        scores: the score of each before the activation; None if there are none
        depth: z of each; None if there is none
    """

    xy: Array
    scores: Optional[Array]
    depth: Optional[Array]


def _is_heatmaps(shape: Tuple[int, ...]) -> bool:
    """Return whether an output can be [1, H, W, points]."""
    return len(shape) == 4 and shape[0] == 1


def _is_number(shape: Tuple[int, ...]) -> bool:
    """Return whether an output is a single number."""
    return math.prod(shape) == 1


def _peaks(maps: Array, image: Size) -> _ReadPoints:
    """Return the peaks of heatmaps.

    A peak moves a quarter of a pixel towards its larger neighbour in each direction,
    since the true one lies between them.

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

    # Beside a border the peak itself stands for the neighbour that is missing.
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
    return _ReadPoints(xy, flat.max(axis=0), None)


@dataclass(frozen=True)
class Points:
    """The points of a frame.

    Attributes:
        points: x and y in the frame, float32 [N, 2]
        scores: the score of each
        shown: whether the score of each and that of the result reach the threshold
        score: the probability that there is a result at all
        depth: z as the network has it
        joined: pairs of points that are joined in pictures
        names: names of points
    """

    points: Array
    scores: Array
    shown: Array
    score: float
    depth: Optional[Array]
    joined: Tuple[Tuple[int, ...], ...] = ()
    names: Tuple[str, ...] = ()

    def to_json(self) -> Dict[str, Any]:
        """Return the result in JSON\'s types."""
        points: List[Dict[str, Any]] = []
        for i, (x, y) in enumerate(self.points):
            point: Dict[str, Any] = {}
            if i < len(self.names):
                point["name"] = self.names[i]

            point["x"] = round(float(x), 2)
            point["y"] = round(float(y), 2)
            point["score"] = round(float(self.scores[i]), 4)
            point["shown"] = bool(self.shown[i])
            points.append(point)
        return {"score": round(self.score, 4), "points": points}

    def lines(self) -> List[str]:
        """Return the lines of a table for a terminal."""
        if not self.shown.any():
            return ["nothing"]

        # Points without names are many: a line for each would say little.
        if not self.names:
            low = self.points[self.shown].min(axis=0)
            high = self.points[self.shown].max(axis=0)
            where = f"x {low[0]:.0f}…{high[0]:.0f}, y {low[1]:.0f}…{high[1]:.0f}"
            return [f"{self.score:7.1%}  {int(self.shown.sum())} points, {where}"]

        rows: List[str] = []

        for i in np.flatnonzero(self.shown):
            x, y = self.points[i]
            name = self.names[i]

            rows.append(f"{self.scores[i]:7.1%}  {name:15} x {x:7.1f}  y {y:7.1f}")
        return rows

    def draw(self, frame: Array) -> Array:
        """Return the frame with points, and lines between joined ones."""
        picture = frame.copy()
        for a, b in self.joined:
            # A manifest may join points that this model does not have.
            has_both = max(a, b) < len(self.points)
            if has_both and self.shown[a] and self.shown[b]:
                line_into(picture, self.points[a], self.points[b], PALETTE[1])

        # Joints are larger than the many points of a face.
        radius = (2 if self.joined else 1) * thickness(picture)
        points_into(picture, self.points[self.shown], PALETTE[3], radius)
        return picture
