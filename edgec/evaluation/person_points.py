"""mAP of the points of persons, for networks that find one person in a picture.

COCO's measure compares points by their object keypoint similarity, the mean over
labelled points of exp(-d² / (2 s² k²)): d is the distance, s² the area of the person,
and k a constant of each kind of point (https://cocodataset.org/#keypoints-eval).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from edgec_runtime.vision.tasks.base import Result
from edgec_runtime.vision.tasks.points import COCO_LINES, COCO_POINTS, Points

from edgec.evaluation.average_precision import coco_module
from edgec.evaluation.boxes import DRAWS, PERSON_POINTS, BoxScores, figures_of_kind
from edgec.evaluation.class_names import ClassNames
from edgec.evaluation.coco_file import CocoReader
from edgec.evaluation.measure import (
    LabelledPicture,
    Measure,
    MeasuredFigure,
    Observation,
    Scored,
)
from edgec.ir import Array

_PERSON = ClassNames(1, ("person",))
_KEYPOINTS = "keypoints"


@dataclass(frozen=True)
class PersonPrecision(Measure):
    """Judges the 17 points of a person; the labels are those of `CocoReader`.

    Attributes:
        pictures: the folder of the pictures, if given
    """

    pictures: Path | None = None

    @property
    def resamples(self) -> int:
        """Fewer than of means: each takes as long as a summary of pycocotools."""
        return DRAWS

    @property
    def figures(self) -> tuple[MeasuredFigure, ...]:
        """mAP 50-95 and 50 of points."""
        return figures_of_kind(_KEYPOINTS)

    def read(self, data: Path) -> list[LabelledPicture]:
        """Return the pictures of COCO's annotations of persons."""
        # Without the library, minutes of inferences would be for nothing.
        coco_module("cocoeval")
        reader = CocoReader(_PERSON, self.pictures, points=PERSON_POINTS)
        return reader.read(data)

    def observe(
        self, result: Result, picture: LabelledPicture, frame: Array
    ) -> Observation:
        """Return the person that was found, with the box around its points."""
        assert isinstance(result, Points)
        if not result.shown.any():
            return {"found": []}
        low = result.points.min(axis=0)
        high = result.points.max(axis=0)

        # A point that the network is unsure of makes the whole person less probable.
        score = result.score * float(result.scores.mean())
        numbers: list[float] = []
        for x, y in result.points.tolist():
            numbers += [x, y, 1]
        row: dict[str, Any] = {
            "class": 0,
            "score": score,
            "box": [*low.tolist(), *(high - low).tolist()],
            "points": numbers,
        }
        return {"found": [row]}

    def score(
        self, pictures: Sequence[LabelledPicture], observations: Sequence[Observation]
    ) -> Scored:
        """Return what was found, matched with the labels."""
        return BoxScores.of((_KEYPOINTS,), pictures, observations)

    def truth(self, picture: LabelledPicture, frame: Array) -> Result:
        """Return the points of the largest labelled person."""
        persons = [one for one in picture.truth["objects"] if one["points"]]
        largest = max(persons, key=lambda one: float(one["area"]), default=None)
        if largest is None:
            rows = np.zeros((PERSON_POINTS, 3), np.float32)
        else:
            rows = np.array(largest["points"], np.float32).reshape(-1, 3)

        # A visibility of 0 says that a point has no label.
        shown = rows[:, 2] > 0
        sure = shown.astype(np.float32)
        return Points(rows[:, :2], sure, shown, 1.0, None, COCO_LINES, COCO_POINTS)
