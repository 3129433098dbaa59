"""Measures the effect of a difference on the task of a network, if it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from edgec_runtime.vision.tasks.base import Result
from edgec_runtime.vision.tasks.classification import Classes
from edgec_runtime.vision.tasks.image import Picture
from edgec_runtime.vision.tasks.instances import Box, Boxes
from edgec_runtime.vision.tasks.points import Points
from edgec_runtime.vision.tasks.segmentation import Segments

from edgec.ir import Array
from edgec.measure.decibels import decibels

FIGURES: Mapping[str, str] = {
    "top-1": "samples with the same first class",
    "IoU": "of the masks, intersection over union; of several classes, "
    "the mean of those that A sees",
    "probability": "mean difference of the masks' probabilities",
    "boxes": "overlap of the boxes that both find (intersection over union), "
    "over the number that the one which finds "
    "more has",
    "points": "mean distance, as a part of the input's width",
    "seen": "samples where both find somebody, or neither does",
    "PSNR": "of the pictures, dB",
}
"""The meaning of each figure, a mean over the samples that have it."""
MIN_MATCH_IOU = 0.5
"""Boxes with less overlap are not the same object."""
MAX_PSNR_DB = 100.0
"""Ratio of equal pictures, which would be infinite, dB."""
MAX_PIXEL = 255


@dataclass(frozen=True)
class Meaning:
    """Decodes the outputs of a bundle into a result of its task.

    Attributes:
        kind: kind of the task
        width: width of the input, px
        outputs: shape of each output that is decoded
        decode: returns the result, in pixels of the input
    """

    kind: str
    width: int
    outputs: Mapping[str, tuple[int, ...]]
    decode: Callable[[Mapping[str, Array]], Result]


@dataclass
class TaskFigures:
    """Collects figures over samples.

    Attributes:
        meaning: decodes the outputs
        called: A's name of each output of B
        found: figures of the samples so far, by name
    """

    meaning: Meaning
    called: Mapping[str, str]
    found: dict[str, list[float]] = field(default_factory=dict)

    def add(self, outputs: Mapping[str, tuple[Array, Array]]) -> None:
        """Add a sample: the real outputs of A and of B, by B's names.

        Nothing is added if these are not the outputs of the task.
        """
        # The arrays by the names that the task knows.
        outputs_a = {}
        outputs_b = {}
        for name, (array_a, array_b) in outputs.items():
            # The task may be of A's bundle and name the outputs as A does.
            if name not in self.meaning.outputs:
                name = self.called.get(name, "")
            outputs_a[name] = array_a
            outputs_b[name] = array_b

        for name, shape in self.meaning.outputs.items():
            # Without all outputs of the task there is no result.
            if name not in outputs_a or outputs_a[name].shape != shape:
                return

        a = self._decode(outputs_a)
        b = self._decode(outputs_b)
        for name, figure in agreement(a, b, self.meaning.width).items():
            self.found.setdefault(name, []).append(figure)

    def _decode(self, outputs: Mapping[str, Array]) -> Result:
        task_outputs = {name: outputs[name] for name in self.meaning.outputs}
        return self.meaning.decode(task_outputs)

    def means(self) -> dict[str, float]:
        """Return the mean of each figure over the samples that have it."""
        return {name: float(np.mean(values)) for name, values in self.found.items()}


def agreement(a: Result, b: Result, width: int) -> dict[str, float]:
    """Return the FIGURES of two results of one sample.

    Figures without a meaning for the sample are left out. `width` is the width of the
    input (px).
    """
    if isinstance(a, Classes) and isinstance(b, Classes):
        return _classes(a, b)
    if isinstance(a, Segments) and isinstance(b, Segments):
        return _segments(a, b)
    if isinstance(a, Boxes) and isinstance(b, Boxes):
        return _boxes(a, b)
    if isinstance(a, Points) and isinstance(b, Points):
        return _points(a, b, width)
    if isinstance(a, Picture) and isinstance(b, Picture):
        return {"PSNR": psnr_db(a.pixels, b.pixels)}
    return {}


def _classes(a: Classes, b: Classes) -> dict[str, float]:
    """Return whether the first class is the same; two empty lists agree."""

    first_a = [c.index for c in a.classes[:1]]
    first_b = [c.index for c in b.classes[:1]]
    return {"top-1": float(first_a == first_b)}


def _segments(a: Segments, b: Segments) -> dict[str, float]:
    """Return the overlap of the masks, of one class or of all classes that A has."""
    if a.classes is not None and b.classes is not None:
        overlaps = []
        for index in np.unique(a.classes):
            overlaps.append(_mask_iou(a.classes == index, b.classes == index))
        return {"IoU": float(np.mean(overlaps))}

    figures = {}
    mask_a = a.probability >= a.threshold
    mask_b = b.probability >= b.threshold
    # Two empty masks have no overlap to speak of.
    if mask_a.any() or mask_b.any():
        figures["IoU"] = _mask_iou(mask_a, mask_b)
    difference = np.abs(a.probability - b.probability)
    figures["probability"] = float(difference.mean())
    return figures


def _mask_iou(a: Array, b: Array) -> float:
    """Return the intersection over union of two masks."""
    return float((a & b).sum() / (a | b).sum())


def _boxes(a: Boxes, b: Boxes) -> dict[str, float]:
    """Return the overlap of common boxes, over the larger number of boxes."""
    most = max(len(a.boxes), len(b.boxes))
    if not most:
        return {}
    return {"boxes": _common_overlap(a.boxes, b.boxes) / most}


def _points(a: Points, b: Points, width: int) -> dict[str, float]:
    """Return the mean distance of the points that A shows."""
    figures = {"seen": float(a.shown.any() == b.shown.any())}
    if a.shown.any():
        offsets = a.points[a.shown] - b.points[a.shown]
        distances = np.linalg.norm(offsets, axis=1)
        figures["points"] = float(distances.mean()) / width
    return figures


def psnr_db(a: Array, b: Array) -> float:
    """Return the peak signal-to-noise ratio of two pictures, uint8 [H, W, C], in dB.

    10 log10(255² / mean squared difference), at most `MAX_PSNR_DB`.
    """
    noise = float(np.square(a.astype(np.float64) - b).mean())
    return min(MAX_PSNR_DB, decibels(MAX_PIXEL**2, noise))


def _common_overlap(a: Sequence[Box], b: Sequence[Box]) -> float:
    """Return the sum of the overlaps of boxes of one class.

    Each box is in one pair at most; the pair with the most overlap is taken first.
    """
    pairs = []
    for i, box_a in enumerate(a):
        for j, box_b in enumerate(b):
            pairs.append((_box_iou(box_a, box_b), i, j))

    total = 0.0
    matched_a = set[int]()
    matched_b = set[int]()
    for overlap, i, j in sorted(pairs, reverse=True):
        if overlap < MIN_MATCH_IOU:
            break
        if i not in matched_a and j not in matched_b:
            total += overlap
            matched_a.add(i)
            matched_b.add(j)
    return total


def _box_iou(a: Box, b: Box) -> float:
    """Return the intersection over union of two boxes; 0 if their classes differ."""
    if a.index != b.index:
        return 0.0
    corners_a = np.array(a.corners)
    corners_b = np.array(b.corners)
    low = np.maximum(corners_a[:2], corners_b[:2])
    high = np.minimum(corners_a[2:], corners_b[2:])
    intersection = float(np.maximum(high - low, 0).prod())

    area_a = float((corners_a[2:] - corners_a[:2]).prod())
    area_b = float((corners_b[2:] - corners_b[:2]).prod())
    union = area_a + area_b - intersection
    return intersection / union if union > 0 else 0.0
