"""What a detection found: boxes in the frame's pixels, each perhaps with points, an
angle or a mask of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from ..drawing import PALETTE, box_into, line_into, points_into, tinted
from ..resample import sample
from .base import Array, View

Point = Tuple[float, float]


@dataclass(frozen=True)
class Mask:
    """Which pixels of a box are of its object: those where `logits` is above 0.

    logits: float32 [h,w], a part of a grid of `grid` (width, height) elements that
    shows the whole input; its first element is that of column and row `start`.
    """

    logits: Array
    start: Tuple[int, int]
    grid: Tuple[int, int]
    view: View

    def inside(
        self, corners: Tuple[float, float, float, float]
    ) -> Tuple[int, int, Array]:
        """Of a box x1, y1, x2, y2 in the frame: left and top of its first pixel, and
        bool [h,w].
        """
        width, height = self.view.frame
        x1 = max(0, math.floor(corners[0]))
        y1 = max(0, math.floor(corners[1]))
        x2 = min(width, math.ceil(corners[2]))
        y2 = min(height, math.ceil(corners[3]))
        if x2 <= x1 or y2 <= y1:
            return x1, y1, np.zeros((0, 0), bool)
        left, top, wide, high = self.view.within(*self.grid)
        per_x = wide / width
        per_y = high / height
        part = (
            left + x1 * per_x - self.start[0],
            top + y1 * per_y - self.start[1],
            (x2 - x1) * per_x,
            (y2 - y1) * per_y,
        )
        return x1, y1, sample(self.logits, part, (x2 - x1, y2 - y1)) > 0


@dataclass(frozen=True)
class Box:
    """corners: x1, y1, x2, y2 in the frame; of a box that is turned, those of the
    upright one around it.

    points: x and y; point_scores: how sure it is that each can be seen, where the
    network says so.  polygon: the four corners of a box that is turned, by `angle` in
    radians, clockwise from upright.
    """

    corners: Tuple[float, float, float, float]
    score: float
    index: int
    label: str
    points: Tuple[Point, ...] = ()
    point_scores: Tuple[float, ...] = ()
    angle: Optional[float] = None
    polygon: Tuple[Point, ...] = ()
    mask: Optional[Mask] = None

    def line(self) -> str:
        """For a table."""
        x1, y1, x2, y2 = self.corners
        text = (
            f"{self.score:7.1%}  {self.label:20} x {x1:.0f}…{x2:.0f}, "
            f"y {y1:.0f}…{y2:.0f}"
        )
        if self.angle is not None:
            text += f", turned by {math.degrees(self.angle):.0f}°"
        if self.mask is not None:
            text += f", {int(self.mask.inside(self.corners)[2].sum())} pixels"
        return text


@dataclass(frozen=True)
class Boxes:
    """The most certain first.

    point_names: of each box's points; joined: pairs of points with a line between them
    in pictures; point_threshold: points below are not drawn.
    """

    boxes: Tuple[Box, ...]
    point_names: Tuple[str, ...] = ()
    joined: Tuple[Tuple[int, ...], ...] = ()
    point_threshold: float = 0.0

    def to_json(self) -> Dict[str, Any]:
        """See Result."""
        names = {"point_names": list(self.point_names)} if self.point_names else {}
        return {"boxes": [_json(b) for b in self.boxes], **names}

    def lines(self) -> List[str]:
        """See Result."""
        return [b.line() for b in self.boxes] or ["nothing"]

    def draw(self, frame: Array) -> Array:
        """Boxes with their labels, the best on top; masks as tints of their colours."""
        picture = frame.copy()
        for n, b in reversed(list(enumerate(self.boxes))):
            # objects of one class are told apart by their masks' colours
            color = PALETTE[(n if b.mask is not None else b.index) % len(PALETTE)]
            if b.mask is not None:
                left, top, inside = b.mask.inside(b.corners)
                part = picture[
                    top : top + inside.shape[0], left : left + inside.shape[1]
                ]
                part[...] = tinted(part, inside.astype(np.float32), color)
            if b.polygon:
                for start, end in zip(b.polygon, b.polygon[1:] + b.polygon[:1]):
                    line_into(picture, start, end, color)
                box_into(
                    picture,
                    (*b.corners[:2], *b.corners[:2]),
                    color,
                    f"{b.label} {b.score:.0%}",
                )
            else:
                box_into(picture, b.corners, color, f"{b.label} {b.score:.0%}")
            self._draw_points(picture, b, color)
        return picture

    def _draw_points(self, picture: Array, b: Box, color: Tuple[int, int, int]) -> None:
        seen = [score >= self.point_threshold for score in b.point_scores] or [
            True
        ] * len(b.points)
        for one, other in self.joined:
            if max(one, other) < len(seen) and seen[one] and seen[other]:
                line_into(picture, b.points[one], b.points[other], color)
        shown = [point for point, sure in zip(b.points, seen) if sure]
        if shown:
            points_into(picture, np.array(shown), color)


def _json(b: Box) -> Dict[str, Any]:
    found: Dict[str, Any] = {
        "label": b.label,
        "class": b.index,
        "score": round(b.score, 4),
        "box": [round(v, 2) for v in b.corners],
    }
    if b.points:
        found["points"] = [[round(x, 2), round(y, 2)] for x, y in b.points]
    if b.point_scores:
        found["point_scores"] = [round(score, 4) for score in b.point_scores]
    if b.angle is not None:
        found["angle"] = round(b.angle, 4)
        found["polygon"] = [[round(x, 2), round(y, 2)] for x, y in b.polygon]
    if b.mask is not None:
        found["mask"] = _run_lengths(b.mask.inside(b.corners), b.mask.view.frame)
    return found


def _run_lengths(
    inside: Tuple[int, int, Array], frame: Tuple[int, int]
) -> Dict[str, Any]:
    """As COCO has a mask of the whole frame: lengths of runs down the columns, in turn
    outside and inside.
    """
    left, top, part = inside
    whole = np.zeros((frame[1], frame[0]), bool)
    whole[top : top + part.shape[0], left : left + part.shape[1]] = part
    flat = whole.T.reshape(-1)
    ends = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    counts = np.diff(np.concatenate([[0], ends, [flat.size]])).tolist()
    return {
        "size": [frame[1], frame[0]],
        "counts": [0, *counts] if flat[:1].any() else counts,
    }
