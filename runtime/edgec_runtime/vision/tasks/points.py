"""The tasks of landmarks and poses: points in pixels of the frame."""

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
)
from .read_points import (
    COLUMNS,
    ReadPoints,
    Refinement,
    bound_refinements,
    peaks,
    table_points,
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


MIDDLE = 0.5
"""The probability of the first of two labels from which it is the more probable one."""


@dataclass(frozen=True)
class Landmarks:
    """The parameters of the task; the texts of the fields describe them."""

    kind: ClassVar[str] = "landmarks"
    output: Optional[str] = parameter(
        "the output with the points; default: the only one that can be", None
    )
    columns: Tuple[str, ...] = parameter(
        "what is said of each point, in order", ("x", "y"), choices=COLUMNS
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
    activation: str = parameter("of that score", "none", choices=ACTIVATIONS[:2])
    point_activation: Optional[str] = parameter(
        "of the points' own scores; default: the same", None, choices=ACTIVATIONS[:2]
    )
    count: Optional[int] = parameter(
        "only so many points of the output count, from the first on; default: all",
        None,
        low=1,
        high=4096,
    )
    refinements: Tuple[Refinement, ...] = parameter(
        "outputs with more exact places of some points, or with further points", ()
    )
    either: Optional[str] = parameter(
        "an output with the probability of the first of two labels, as of a right and a "
        "left hand",
        None,
    )
    threshold: float = parameter(
        "points and results below are left out", 0.0, low=0, high=1
    )
    lines: Tuple[Tuple[int, ...], ...] = parameter(
        "pairs of points that are joined in pictures", (), low=0, high=4095
    )
    names: Tuple[str, ...] = parameter("of the points", ())

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Landmarks:
        """Return the task for a model, with defaults replaced by the model's outputs."""
        if self.units != "heatmaps" and not {"x", "y"} <= set(self.columns):
            raise InputError(
                f"points have no x and y: {', '.join(self.columns)}",
                "columns",
                "for example x,y,z",
            )
        wrong = [list(line) for line in self.lines if len(line) != 2]
        if wrong:
            raise InputError(
                f"the line {wrong[0]} does not join two points",
                at="lines",
                hint="for example [[0, 1], [1, 2]]",
            )
        if self.units == "heatmaps":
            name = output_for(self.output, "heatmaps", outputs, _is_heatmaps)
            return replace(self, output=name)

        width = len(self.columns)

        def is_table(shape: Sequence[int]) -> bool:
            # One point is not enough, since a box or a score may have that size, too.
            numbers = math.prod(shape)
            return numbers % width == 0 and numbers >= 2 * width

        score = _number_output(self.score, "score", outputs)
        either = _number_output(self.either, "either", outputs)

        others = {n: o for n, o in outputs.items() if n not in (score, either)}
        output = output_for(self.output, "points", others, is_table)

        count = self._own_points(outputs[output].shape)
        refinements = bound_refinements(self.refinements, count, outputs)

        return replace(
            self, score=score, output=output, either=either, refinements=refinements
        )

    def files(self) -> Tuple[str, ...]:
        """Return no paths: the task has no files."""
        return ()

    def point_count(self, shape: Sequence[int]) -> int:
        """Return the number of points of a result, for a bound task.

        Args:
            shape: the shape of the task's own output
        """
        count = self._own_points(shape)
        for refinement in self.refinements:
            largest = max(refinement.points)
            count = max(count, largest + 1)
        return count

    def _own_points(self, shape: Sequence[int]) -> int:
        """Return the number of points in the task's own output of this shape."""
        if self.units == "heatmaps":
            return shape[-1]

        count = math.prod(shape) // len(self.columns)
        if self.count is None:
            return count
        return min(count, self.count)

    def decoder(self, setting: DecoderSetting) -> Decode:
        """Return the function that decodes the outputs, for a bound task."""

        def decode(outputs: Outputs, view: View) -> Points:
            read = self._read(outputs, setting.image)
            if read.scores is None:
                scores = np.ones(len(read.xy), np.float32)
            else:
                scores = activated(
                    read.scores, self.point_activation or self.activation
                )

            score = 1.0
            if self.score is not None:
                number = outputs[self.score].reshape(-1)

                score = float(activated(number, self.activation)[0])

            # A doubtful result shows no points, whatever their own scores are.
            shown = (scores >= self.threshold) & (score >= self.threshold)
            depth = None if read.depth is None else view.depth_to_frame(read.depth)
            return Points(
                points=view.to_frame(read.xy),
                scores=scores,
                shown=shown,
                score=score,
                depth=depth,
                joined=self.lines,
                names=self.names,
                label=self._label(outputs, setting),
            )

        return decode

    def _read(self, outputs: Outputs, image: Size) -> ReadPoints:
        """Return the points of a frame's outputs in pixels of the input."""
        array = outputs[str(self.output)]
        if self.units == "heatmaps":
            return peaks(array[0], image)

        unit = (1, 1)
        if self.units == "relative":
            unit = image
        table = table_points(array, self.columns, unit)
        read = table.first(self.count)
        for refinement in self.refinements:
            read = refinement.applied(read, outputs[refinement.output], unit)
        return read

    def _label(
        self, outputs: Outputs, setting: DecoderSetting
    ) -> Optional[PointsLabel]:
        """Return the more probable of the two labels; None for a task without them."""
        if self.either is None:
            return None
        number = outputs[self.either].reshape(-1)
        first = float(number[0])
        if first >= MIDDLE:
            name = setting.label(0)
            return PointsLabel(name, first)

        name = setting.label(1)
        return PointsLabel(name, 1 - first)


@dataclass(frozen=True)
class Pose(Landmarks):
    """The parameters of the task: landmarks of a person, by default the 17 of COCO."""

    kind: ClassVar[str] = "pose"
    columns: Tuple[str, ...] = parameter(
        "what is said of each point, in order", ("y", "x", "score"), choices=COLUMNS
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


def _is_heatmaps(shape: Tuple[int, ...]) -> bool:
    """Return whether an output can be [1, H, W, points]."""
    return len(shape) == 4 and shape[0] == 1


def _is_number(shape: Tuple[int, ...]) -> bool:
    """Return whether an output is a single number."""
    return math.prod(shape) == 1


def _number_output(
    name: Optional[str], what: str, outputs: Mapping[str, TensorInfo]
) -> Optional[str]:
    """Return the name of an output with one number; None if no name is given.

    Args:
        name: its name, or "#" and its position
        what: its purpose, for messages
        outputs: the model's outputs
    """
    if name is None:
        return None
    return output_for(name, what, outputs, _is_number)


@dataclass(frozen=True)
class PointsLabel:
    """The label of all points together, for example of a left hand.

    Attributes:
        name: the label, for example "left"
        score: its probability
    """

    name: str
    score: float


@dataclass(frozen=True)
class Points:
    """The points of a frame.

    Attributes:
        points: x and y in the frame, float32 [N, 2]
        scores: score of each point [N]
        shown: whether the point's score and the result's reach the threshold, bool [N]
        score: the probability that there is an object at all
        depth: z of each point in pixels of the frame [N]; smaller is nearer to the
            camera, and the origin depends on the network; None if there is none
        joined: pairs of points that are joined in pictures
        names: names of points
        label: the label of all points together, if the network has one
    """

    points: Array
    scores: Array
    shown: Array
    score: float
    depth: Optional[Array]
    joined: Tuple[Tuple[int, ...], ...] = ()
    names: Tuple[str, ...] = ()
    label: Optional[PointsLabel] = None

    def to_json(self) -> Dict[str, Any]:
        """Return the result in JSON\'s types."""
        points: List[Dict[str, Any]] = []
        for i, (x, y) in enumerate(self.points):
            point: Dict[str, Any] = {}
            if i < len(self.names):
                point["name"] = self.names[i]

            point["x"] = round(float(x), 2)
            point["y"] = round(float(y), 2)
            if self.depth is not None:
                point["z"] = round(float(self.depth[i]), 2)
            point["score"] = round(float(self.scores[i]), 4)
            point["shown"] = bool(self.shown[i])
            points.append(point)
        result: Dict[str, Any] = {"score": round(self.score, 4)}
        if self.label is not None:
            result["label"] = self.label.name
            result["label_score"] = round(self.label.score, 4)
        return {**result, "points": points}

    def lines(self) -> List[str]:
        """Return the lines of a table for a terminal."""
        if not self.shown.any():
            return ["nothing"]

        rows: List[str] = []
        if self.label is not None:
            rows.append(f"{self.label.score:7.1%}  {self.label.name}")

        # Points without names are usually many, so that one line sums them up.
        if not self.names:
            low = self.points[self.shown].min(axis=0)
            high = self.points[self.shown].max(axis=0)
            area = f"x {low[0]:.0f}…{high[0]:.0f}, y {low[1]:.0f}…{high[1]:.0f}"
            count = int(self.shown.sum())
            return [*rows, f"{self.score:7.1%}  {count} points, {area}"]

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
