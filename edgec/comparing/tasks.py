"""What the difference between two networks does to what they are for: figures of a
task, where a bundle knows it.
"""

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
"""What a figure is: the mean over the samples that it can be told of."""
_SAME_OBJECT = 0.5
_TOP_DB = 100.0
"""What equal pictures count as."""


@dataclass(frozen=True)
class Meaning:
    """How the outputs of a bundle become a result, in pixels of its input. kind: of the
    task; width: of the input; outputs: shapes by name.
    """

    kind: str
    width: int
    outputs: Mapping[str, tuple[int, ...]]
    decode: Callable[[Mapping[str, Array]], Result]


@dataclass
class TaskFigures:
    """Sums figures over samples. called: A's names of B's outputs."""

    meaning: Meaning
    called: Mapping[str, str]
    found: dict[str, list[float]] = field(default_factory=dict)

    def add(self, outputs: Mapping[str, tuple[Array, Array]]) -> None:
        """A sample: the reals of A and of B, by B's names.

        Nothing, where these are not the task's.
        """
        own = {
            (n if n in self.meaning.outputs else self.called.get(n, "")): pair
            for n, pair in outputs.items()
        }
        if any(
            n not in own or own[n][0].shape != shape
            for n, shape in self.meaning.outputs.items()
        ):
            return
        a, b = (
            self.meaning.decode({n: own[n][i] for n in self.meaning.outputs})
            for i in (0, 1)
        )
        for name, figure in agreement(a, b, self.meaning.width).items():
            self.found.setdefault(name, []).append(figure)

    def means(self) -> dict[str, float]:
        """Over the samples that have the figure."""
        return {name: float(np.mean(row)) for name, row in self.found.items()}


def agreement(a: Result, b: Result, width: int) -> dict[str, float]:
    """FIGURES of two results of one sample; what there is nothing to say of is left
    out. width: of the input.
    """
    if isinstance(a, Classes) and isinstance(b, Classes):
        return {
            "top-1": float(
                [c.index for c in a.classes[:1]] == [c.index for c in b.classes[:1]]
            )
        }
    if isinstance(a, Segments) and isinstance(b, Segments):
        return _segments(a, b)
    if isinstance(a, Boxes) and isinstance(b, Boxes):
        most = max(len(a.boxes), len(b.boxes))
        return {"boxes": _common(a.boxes, b.boxes) / most} if most else {}
    if isinstance(a, Points) and isinstance(b, Points):
        return _points(a, b, width)
    if isinstance(a, Picture) and isinstance(b, Picture):
        noise = float(np.square(a.pixels.astype(np.float64) - b.pixels).mean())
        return {
            "PSNR": min(_TOP_DB, 10 * float(np.log10(255**2 / noise)))
            if noise
            else _TOP_DB
        }
    return {}


def _segments(a: Segments, b: Segments) -> dict[str, float]:
    if a.classes is not None and b.classes is not None:
        return {
            "IoU": float(
                np.mean(
                    [_iou(a.classes == c, b.classes == c) for c in np.unique(a.classes)]
                )
            )
        }
    masks = [s.probability >= s.threshold for s in (a, b)]
    found = {"IoU": _iou(*masks)} if masks[0].any() or masks[1].any() else {}
    return {**found, "probability": float(np.abs(a.probability - b.probability).mean())}


def _iou(a: Array, b: Array) -> float:
    return float((a & b).sum() / (a | b).sum())


def _points(a: Points, b: Points, width: int) -> dict[str, float]:
    """The points that A shows."""
    found = {"seen": float(a.shown.any() == b.shown.any())}
    if a.shown.any():
        far = np.linalg.norm(a.points[a.shown] - b.points[a.shown], axis=1)
        found["points"] = float(far.mean()) / width
    return found


def _common(a: Sequence[Box], b: Sequence[Box]) -> float:
    """The overlaps of boxes of one class, each in one pair, the closest first."""
    every = [
        (_overlap(one, other), i, j)
        for i, one in enumerate(a)
        for j, other in enumerate(b)
    ]
    total = 0.0
    seen_a = set[int]()
    seen_b = set[int]()
    for overlap, i, j in sorted(every, reverse=True):
        if overlap >= _SAME_OBJECT and i not in seen_a and j not in seen_b:
            total += overlap
            seen_a.add(i)
            seen_b.add(j)
    return total


def _overlap(a: Box, b: Box) -> float:
    if a.index != b.index:
        return 0.0
    one = np.array(a.corners)
    other = np.array(b.corners)
    inside = float(
        np.maximum(
            np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0
        ).prod()
    )
    whole = sum(float((c[2:] - c[:2]).prod()) for c in (one, other)) - inside
    return inside / whole if whole > 0 else 0.0
