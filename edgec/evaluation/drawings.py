"""What a page shows of a result: the picture with the result in it, and a few words."""

from __future__ import annotations

from dataclasses import replace

from edgec_runtime.vision.tasks.base import Result, View
from edgec_runtime.vision.tasks.classification import Classes
from edgec_runtime.vision.tasks.instances import Box, Boxes
from edgec_runtime.vision.tasks.points import Points
from edgec_runtime.vision.tasks.segmentation import Segments

from edgec.ir import Array

LEAST_SIDE = 320
"""Pixels of the longer side of a drawing: a label has letters of 7 pixels, which would
cover a picture of 64.
"""
MOST_CLASSES = 3
"""Classes that stand beside a picture."""


def drawing(result: Result, frame: Array) -> Array | None:
    """Return the picture, enlarged if it is small, with a result drawn into it.

    None for classes, which are of the whole picture: the captions tell them.

    Args:
        result: the result, in pixels of the picture
        frame: the picture, uint8 [H, W, 3]; a drawing has a multiple of its size
    """
    if isinstance(result, Classes):
        return None
    factor = -(-LEAST_SIDE // max(frame.shape[:2]))
    if factor > 1 and isinstance(result, (Boxes, Points)):
        frame = frame.repeat(factor, axis=0).repeat(factor, axis=1)
        result = _enlarged(result, factor)
    # Tints and pictures have no letters.
    return result.draw(frame)


def captions(result: Result) -> list[str]:
    """Return what stands below a drawing, which itself shows where all of it is."""
    if isinstance(result, Classes):
        return [f"{c.score:.0%} {c.label}" for c in result.classes[:MOST_CLASSES]]
    if isinstance(result, Segments):
        return [f"{share:.0%} {label}" for label, share in result.shares()]
    if isinstance(result, Boxes):
        return [f"{b.score:.0%} {b.label}" for b in result.boxes] or ["nothing"]
    if isinstance(result, Points):
        return [f"{int(result.shown.sum())} of {len(result.points)} points"]
    return result.lines()


def _enlarged(result: Boxes | Points, factor: int) -> Boxes | Points:
    """Return a result in pixels of an enlarged picture."""
    if isinstance(result, Points):
        return replace(result, points=result.points * factor)
    return replace(result, boxes=tuple(_box(box, factor) for box in result.boxes))


def _box(box: Box, factor: int) -> Box:
    """Return a box in pixels of an enlarged picture."""
    x1, y1, x2, y2 = (v * factor for v in box.corners)
    mask = box.mask
    if mask is not None:
        mask = replace(mask, view=_view(mask.view, factor))
    return replace(
        box,
        corners=(x1, y1, x2, y2),
        points=tuple((x * factor, y * factor) for x, y in box.points),
        polygon=tuple((x * factor, y * factor) for x, y in box.polygon),
        mask=mask,
    )


def _view(view: View, factor: int) -> View:
    """Return where an enlarged picture lies in the input."""
    width, height = view.frame
    left, top, box_width, box_height = (v * factor for v in view.place.box)
    place = replace(view.place, box=(left, top, box_width, box_height))
    return replace(view, frame=(width * factor, height * factor), place=place)
