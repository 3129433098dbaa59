"""Landmarks and poses: points in the frame's pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ...errors import InputError
from ...rows import said
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
_COLUMNS = ("x", "y", "z", "score")


@dataclass(frozen=True)
class Landmarks:
    """The parameters of the task."""

    kind: ClassVar[str] = "landmarks"
    output: Optional[str] = said(
        "the output with the points; default: the only one that can be", None
    )
    columns: Tuple[str, ...] = said(
        "what is said of each point, in order", ("x", "y"), choices=_COLUMNS
    )
    units: str = said(
        "of x and y: 0…1 of the input, its pixels, or heatmaps [1,H,W,points] whose "
        "peaks they are",
        "pixels",
        choices=("relative", "pixels", "heatmaps"),
    )
    score: Optional[str] = said(
        "an output that says how sure it is that there is anything", None
    )
    activation: str = said(
        "of that, and of the points' own scores", "none", choices=ACTIVATIONS[:2]
    )
    threshold: float = said("points and results below are left out", 0.0, low=0, high=1)
    lines: Tuple[Tuple[int, ...], ...] = said(
        "pairs of points that are joined in pictures", (), low=0, high=4095
    )
    names: Tuple[str, ...] = said("of the points", ())

    def bind(self, outputs: Mapping[str, TensorInfo], image: Size) -> Landmarks:
        """See Task."""
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
        each = len(self.columns)
        if self.units == "heatmaps":
            name = output_for(
                self.output,
                "heatmaps",
                outputs,
                lambda shape: len(shape) == 4 and shape[0] == 1,
            )
            return replace(self, output=name)
        score = output_name(self.score, outputs)
        rest = {n: o for n, o in outputs.items() if n != score}

        def fits(shape: Sequence[int]) -> bool:
            numbers = math.prod(shape)
            return numbers % each == 0 and numbers >= 2 * each

        if score is not None:
            output_for(score, "score", outputs, lambda shape: math.prod(shape) == 1)
        return replace(
            self, score=score, output=output_for(self.output, "points", rest, fits)
        )

    def files(self) -> Tuple[str, ...]:
        """None."""
        return ()

    def decoder(self, setting: DecoderSetting) -> Decode:
        """See Task."""

        def decode(outputs: Outputs, view: View) -> Points:
            array = outputs[str(self.output)]
            scores: Optional[Array]
            depth: Optional[Array]
            if self.units == "heatmaps":
                inside, scores, depth = _peaks(array[0], setting.image)
            else:
                table = array.reshape(-1, len(self.columns))
                column = {name: table[:, i] for i, name in enumerate(self.columns)}
                inside = np.stack([column["x"], column["y"]], axis=-1).astype(
                    np.float64
                )
                if self.units == "relative":
                    inside = inside * np.array(setting.image)
                else:
                    inside = inside
                scores = column.get("score")
                depth = column.get("z")
            if scores is None:
                own = np.ones(len(inside), np.float32)
            else:
                own = activated(scores, self.activation)
            sure = 1.0
            if self.score is not None:
                sure = float(
                    activated(outputs[self.score].reshape(-1), self.activation)[0]
                )
            shown = (own >= self.threshold) & (sure >= self.threshold)
            return Points(
                view.to_frame(inside), own, shown, sure, depth, self.lines, self.names
            )

        return decode


@dataclass(frozen=True)
class Pose(Landmarks):
    """The parameters of the task: landmarks of a person, by default the 17 of COCO."""

    kind: ClassVar[str] = "pose"
    columns: Tuple[str, ...] = said(
        "what is said of each point, in order", ("y", "x", "score"), choices=_COLUMNS
    )
    units: str = said(
        "of x and y: 0…1 of the input, its pixels, or heatmaps [1,H,W,points] whose "
        "peaks they are",
        "relative",
        choices=("relative", "pixels", "heatmaps"),
    )
    threshold: float = said("points and results below are left out", 0.3, low=0, high=1)
    lines: Tuple[Tuple[int, ...], ...] = said(
        "pairs of points that are joined", COCO_LINES, low=0, high=4095
    )
    names: Tuple[str, ...] = said("of the points", COCO_POINTS)


def _peaks(maps: Array, image: Size) -> Tuple[Array, Array, None]:
    """Of [H,W,points] where each is largest, moved by a quarter to its larger
    neighbours; in pixels of the input.
    """
    height, width, count = maps.shape
    flat = maps.reshape(-1, count)
    at = flat.argmax(axis=0)
    y = at // width
    x = at % width
    every = np.arange(count)

    def slope(dy: int, dx: int) -> Array:
        back, ahead = (
            (np.clip(y + s * dy, 0, height - 1), np.clip(x + s * dx, 0, width - 1))
            for s in (-1, 1)
        )
        found: Array = (
            np.sign(maps[ahead[0], ahead[1], every] - maps[back[0], back[1], every])
            * 0.25
        )
        return found

    points = np.stack(
        [
            (x + 0.5 + slope(0, 1)) * image[0] / width,
            (y + 0.5 + slope(1, 0)) * image[1] / height,
        ],
        -1,
    )
    return points, flat.max(axis=0), None


@dataclass(frozen=True)
class Points:
    """points: float32 [N,2], x and y in the frame.  scores: of each; shown: whether it
    and all are sure enough; score: how sure it is that there is anything.  depth: z as
    the network has it.
    """

    points: Array
    scores: Array
    shown: Array
    score: float
    depth: Optional[Array]
    joined: Tuple[Tuple[int, ...], ...] = ()
    names: Tuple[str, ...] = ()

    def to_json(self) -> Dict[str, Any]:
        """See Result."""
        points = [
            {
                **({"name": self.names[i]} if i < len(self.names) else {}),
                "x": round(float(x), 2),
                "y": round(float(y), 2),
                "score": round(float(self.scores[i]), 4),
                "shown": bool(self.shown[i]),
            }
            for i, (x, y) in enumerate(self.points)
        ]
        return {"score": round(self.score, 4), "points": points}

    def lines(self) -> List[str]:
        """See Result."""
        if not self.shown.any():
            return ["nothing"]
        if not self.names:
            low = self.points[self.shown].min(axis=0)
            high = self.points[self.shown].max(axis=0)
            where = f"x {low[0]:.0f}…{high[0]:.0f}, y {low[1]:.0f}…{high[1]:.0f}"
            return [f"{self.score:7.1%}  {int(self.shown.sum())} points, {where}"]
        rows = [
            (self.scores[i], self.names[i], self.points[i])
            for i in np.flatnonzero(self.shown)
        ]
        return [
            f"{s:7.1%}  {name:15} x {p[0]:7.1f}  y {p[1]:7.1f}" for s, name, p in rows
        ]

    def draw(self, frame: Array) -> Array:
        """Points, and lines between those that are joined."""
        picture = frame.copy()
        for a, b in self.joined:
            if max(a, b) < len(self.points) and self.shown[a] and self.shown[b]:
                line_into(picture, self.points[a], self.points[b], PALETTE[1])
        points_into(
            picture,
            self.points[self.shown],
            PALETTE[3],
            (2 if self.joined else 1) * thickness(picture),
        )
        return picture
