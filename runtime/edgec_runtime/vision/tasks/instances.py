"""The result of a detection: boxes, perhaps with points, an angle or a mask each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from ..drawing import PALETTE, Color, box_into, line_into, points_into, tinted
from ..resample import sample
from .base import Array, View

Point = Tuple[float, float]
"""x and y in the frame."""


@dataclass(frozen=True)
class Mask:
    """The mask of a box's object: the pixels with a positive logit.

    Attributes:
        logits: part of a grid of logits, float32 [h, w]
        start: column and row of the part's first element in the grid
        grid: width and height of the grid, which covers the whole input
        view: the place of the frame in the input
    """

    logits: Array
    start: Tuple[int, int]
    grid: Tuple[int, int]
    view: View

    def inside(
        self, corners: Tuple[float, float, float, float]
    ) -> Tuple[int, int, Array]:
        """Return left and top of a box's first pixel, and its mask, bool [h, w].

        Args:
            corners: x1, y1, x2, y2 of the box in the frame
        """
        width, height = self.view.frame
        x1 = max(0, math.floor(corners[0]))
        y1 = max(0, math.floor(corners[1]))
        x2 = min(width, math.ceil(corners[2]))
        y2 = min(height, math.ceil(corners[3]))
        if x2 <= x1 or y2 <= y1:
            return x1, y1, np.zeros((0, 0), bool)

        # The logits are interpolated only at the pixels of the box.
        left, top, grid_width, grid_height = self.view.within(*self.grid)
        per_x = grid_width / width
        per_y = grid_height / height
        part = (
            left + x1 * per_x - self.start[0],
            top + y1 * per_y - self.start[1],
            (x2 - x1) * per_x,
            (y2 - y1) * per_y,
        )
        logits = sample(self.logits, part, (x2 - x1, y2 - y1))
        return x1, y1, logits > 0


@dataclass(frozen=True)
class Box:
    """A box in the frame.

    Attributes:
        corners: x1, y1, x2, y2; for a turned box those of the upright box around it
        score: its probability
        index: the number of its class
        label: the name of its class
        points: its points
        point_scores: the probability that each point is visible, if known
        angle: angle of a turned box in radians, clockwise from upright
        polygon: the four corners of a turned box
        mask: the mask of its object
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
        """Return the line of a table for a terminal."""
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
    """The boxes of a frame.

    Attributes:
        boxes: the boxes, the best first
        point_names: names of each box's points
        joined: pairs of points that are joined in pictures
        point_threshold: the least score of a point that is drawn
    """

    boxes: Tuple[Box, ...]
    point_names: Tuple[str, ...] = ()
    joined: Tuple[Tuple[int, ...], ...] = ()
    point_threshold: float = 0.0

    def to_json(self) -> Dict[str, Any]:
        """Return the result in JSON\'s types."""
        names = {"point_names": list(self.point_names)} if self.point_names else {}
        return {"boxes": [_json(b) for b in self.boxes], **names}

    def lines(self) -> List[str]:
        """Return the lines of a table for a terminal."""
        return [b.line() for b in self.boxes] or ["nothing"]

    def draw(self, frame: Array) -> Array:
        """Return the frame with labelled boxes, the best on top, and tinted masks."""
        picture = frame.copy()
        for n, b in reversed(list(enumerate(self.boxes))):
            # Masks have a colour for each object, so that objects can be told apart.
            number = n if b.mask is not None else b.index
            color = PALETTE[number % len(PALETTE)]
            if b.mask is not None:
                _tint(picture, b.mask.inside(b.corners), color)
            _draw_outline(picture, b, color)
            self._draw_points(picture, b, color)
        return picture

    def _draw_points(self, picture: Array, b: Box, color: Color) -> None:
        """Draw a box's points, and lines between joined ones."""
        visible = [True] * len(b.points)
        if b.point_scores:
            visible = [score >= self.point_threshold for score in b.point_scores]

        for start, end in self.joined:
            # A manifest may join points that the boxes do not have.
            if max(start, end) < len(visible) and visible[start] and visible[end]:
                line_into(picture, b.points[start], b.points[end], color)

        points = [point for point, is_visible in zip(b.points, visible) if is_visible]
        if points:
            points_into(picture, np.array(points), color)


def _tint(picture: Array, inside: Tuple[int, int, Array], color: Color) -> None:
    """Tint the pixels of a mask, as `Mask.inside` returns it."""
    left, top, mask = inside
    height, width = mask.shape

    # The part is a view, so that the assignment changes the picture.
    part = picture[top : top + height, left : left + width]
    part[...] = tinted(part, mask.astype(np.float32), color)


def _draw_outline(picture: Array, b: Box, color: Color) -> None:
    """Draw a box and its label."""
    label = f"{b.label} {b.score:.0%}"
    if not b.polygon:
        box_into(picture, b.corners, color, label)
        return

    ends = b.polygon[1:] + b.polygon[:1]
    for start, end in zip(b.polygon, ends):
        line_into(picture, start, end, color)
    # A box without extent draws only the label, at the top left.
    x, y = b.corners[:2]
    box_into(picture, (x, y, x, y), color, label)


def _json(b: Box) -> Dict[str, Any]:
    """Return a box in JSON's types."""
    # Numbers are rounded: more digits would be noise, and results go over networks.
    fields: Dict[str, Any] = {
        "label": b.label,
        "class": b.index,
        "score": round(b.score, 4),
        "box": [round(v, 2) for v in b.corners],
    }
    if b.points:
        fields["points"] = [[round(x, 2), round(y, 2)] for x, y in b.points]
    if b.point_scores:
        fields["point_scores"] = [round(score, 4) for score in b.point_scores]

    if b.angle is not None:
        fields["angle"] = round(b.angle, 4)
        fields["polygon"] = [[round(x, 2), round(y, 2)] for x, y in b.polygon]
    if b.mask is not None:
        fields["mask"] = _run_lengths(b.mask.inside(b.corners), b.mask.view.frame)
    return fields


def _run_lengths(
    inside: Tuple[int, int, Array], frame: Tuple[int, int]
) -> Dict[str, Any]:
    """Return a mask of the whole frame in COCO's uncompressed run-length encoding.

    Its counts are the lengths of runs down the columns, alternately outside and inside.

    Args:
        inside: left, top and pixels of the mask
        frame: width and height of the frame
    """
    left, top, part = inside

    height, width = part.shape

    mask = np.zeros((frame[1], frame[0]), bool)
    mask[top : top + height, left : left + width] = part

    flat = mask.T.reshape(-1)

    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    ends = np.concatenate([[0], changes, [flat.size]])

    counts = np.diff(ends).tolist()

    # The first run is outside by definition, so that its length may be 0.
    if flat[:1].any():
        counts = [0, *counts]
    return {"size": [frame[1], frame[0]], "counts": counts}
