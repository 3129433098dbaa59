"""mAP of a detector: of its boxes, of masks of instances, and of points of persons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from edgec_runtime.vision.tasks.base import Result
from edgec_runtime.vision.tasks.detection import Detection
from edgec_runtime.vision.tasks.instances import Box, Boxes, Mask

from edgec.evaluation.average_precision import AveragePrecision, coco_module
from edgec.evaluation.class_names import ClassNames
from edgec.evaluation.coco_file import CocoReader
from edgec.evaluation.measure import (
    LabelledPicture,
    Measure,
    MeasuredFigure,
    Observation,
    Scored,
    whole_view,
)
from edgec.ir import Array

PERSON_POINTS = 17
"""COCO's measure of points has a constant for each of so many points of a person."""
DRAWS = 200
"""Bootstrap samples: one takes as long as pycocotools takes to sum up."""
_KINDS = {"bbox": "", "segm": "mask.", "keypoints": "points."}
"""What COCO judges, and the beginning of the figures' names."""
_TITLES = {"bbox": "", "segm": "masks, ", "keypoints": "points, "}


def figures_of_kind(kind: str) -> tuple[MeasuredFigure, MeasuredFigure]:
    """Return the two figures of a kind."""
    name = _KINDS[kind]
    title = _TITLES[kind]
    half = MeasuredFigure(
        f"{name}map50",
        f"{title}mAP 50",
        "%",
        "average precision where boxes overlap by half",
    )
    precision = MeasuredFigure(
        f"{name}map",
        f"{title}mAP 50-95",
        "%",
        "average precision, the mean over overlaps of 50 % to 95 %",
    )
    return precision, half


@dataclass(frozen=True)
class BoxPrecision(Measure):
    """Judges boxes by COCO's mAP; the labels are those of `CocoReader`.

    Attributes:
        names: the classes of the bundle
        task: the bundle's task
        pictures: the folder of the pictures, if given
    """

    names: ClassNames
    task: Detection
    pictures: Path | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """What COCO judges of the results: boxes, masks, points."""
        kinds = ["bbox"]
        if self.task.mask_column is not None:
            kinds.append("segm")
        if self.task.points == PERSON_POINTS:
            kinds.append("keypoints")
        return tuple(kinds)

    @property
    def resamples(self) -> int:
        """Fewer than of means: each takes as long as a summary of pycocotools."""
        return DRAWS

    @property
    def figures(self) -> tuple[MeasuredFigure, ...]:
        """mAP 50-95 and 50 of each kind."""
        return tuple(figure for kind in self.kinds for figure in figures_of_kind(kind))

    def read(self, data: Path) -> list[LabelledPicture]:
        """Return the pictures of COCO's annotations."""
        # Without the library, minutes of inferences would be for nothing.
        coco_module("cocoeval")
        reader = CocoReader(
            self.names,
            self.pictures,
            masks="segm" in self.kinds,
            points=PERSON_POINTS if "keypoints" in self.kinds else 0,
        )
        return reader.read(data)

    def observe(
        self, result: Result, picture: LabelledPicture, frame: Array
    ) -> Observation:
        """Return class, score and box of all that was found, with masks and points."""
        assert isinstance(result, Boxes)
        rows = []
        for box in result.boxes:
            x1, y1, x2, y2 = box.corners
            width = x2 - x1
            height = y2 - y1
            row: dict[str, Any] = {
                "class": box.index,
                "score": box.score,
                "box": [x1, y1, width, height],
            }
            if box.mask is not None:
                size = frame.shape[:2]
                row["mask"] = _runs(box, size)
            if box.points:
                # The third number is visibility, which COCO's measure does not read.
                numbers: list[float] = []
                for x, y in box.points:
                    numbers += [x, y, 1]
                row["points"] = numbers
            rows.append(row)
        return {"found": rows}

    def score(
        self, pictures: Sequence[LabelledPicture], observations: Sequence[Observation]
    ) -> Scored:
        """Return what was found, matched with the labels."""
        return BoxScores.of(self.kinds, pictures, observations)

    def truth(self, picture: LabelledPicture, frame: Array) -> Result:
        """Return the labelled objects as boxes."""
        boxes = []
        for one in picture.truth["objects"]:
            box = self._true_box(one, frame)
            boxes.append(box)
        task = self.task
        return Boxes(
            tuple(boxes),
            task.point_names,
            task.lines,
            task.point_threshold,
        )

    def _true_box(self, one: Mapping[str, Any], frame: Array) -> Box:
        """Return a labelled object as a box with certainty."""
        left, top, width, height = one["box"]
        numbers = one["points"] if self.task.points == PERSON_POINTS else []
        return Box(
            corners=(left, top, left + width, top + height),
            score=1.0,
            index=one["class"],
            label=self.names.label(one["class"]),
            points=tuple(zip(numbers[::3], numbers[1::3], strict=True)),
            # Points that were not labelled are at 0, 0, and are not drawn.
            point_scores=tuple(float(v > 0) for v in numbers[2::3]),
            mask=_mask(one["mask"], frame)
            if self.task.mask_column is not None
            else None,
        )

    def shown(self, result: Result) -> Result:
        """Return the boxes whose score reaches the bundle's own threshold."""
        assert isinstance(result, Boxes)
        boxes = [box for box in result.boxes if box.score >= self.task.threshold]
        return replace(result, boxes=tuple(boxes[: self.task.limit]))


@dataclass(frozen=True)
class BoxScores:
    """mAP of each kind that COCO judges."""

    parts: Mapping[str, AveragePrecision]

    @classmethod
    def of(
        cls,
        kinds: Sequence[str],
        pictures: Sequence[LabelledPicture],
        observations: Sequence[Observation],
    ) -> BoxScores:
        """Return observations of these kinds, matched with the labels."""
        truth = _data_set(pictures)
        parts: dict[str, AveragePrecision] = {}
        for kind in kinds:
            # Objects without a mask say nothing about masks.
            labelled = _of_kind(truth, kind)
            classes = {one["category_id"] for one in labelled["annotations"]}
            found = _found(observations, kind, classes)
            parts[kind] = AveragePrecision(labelled, found, kind)
        return cls(parts)

    def figures(self, counts: Array | None = None) -> dict[str, float]:
        """Return the figures, see `Scored.figures`."""
        figures = {}
        for kind, part in self.parts.items():
            at_half, precision = part.figures(counts)
            figures[f"{_KINDS[kind]}map"] = precision
            figures[f"{_KINDS[kind]}map50"] = at_half
        return figures


def _data_set(pictures: Sequence[LabelledPicture]) -> dict[str, Any]:
    """Return labels as a data set of COCO, whose ids are places from 1 on."""
    images = []
    annotations: list[dict[str, Any]] = []
    for number, picture in enumerate(pictures, 1):
        width, height = picture.truth["size"]
        image = {"id": number, "width": width, "height": height}
        images.append(image)
        for one in picture.truth["objects"]:
            points = one["points"]
            # A visibility of 0 says that a point has no label.
            labelled = sum(v > 0 for v in points[2::3])
            annotations.append(
                {
                    # pycocotools takes 0 for "no object".
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": one["class"] + 1,
                    "bbox": one["box"],
                    "area": one["area"],
                    "iscrowd": one["crowd"],
                    "segmentation": one["mask"],
                    "keypoints": points,
                    "num_keypoints": labelled,
                }
            )
    classes = sorted({one["category_id"] for one in annotations})
    categories = [{"id": number, "name": str(number)} for number in classes]
    return {"images": images, "annotations": annotations, "categories": categories}


def _of_kind(truth: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return a data set with the objects that have a label of a kind."""
    suits: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
        "bbox": lambda one: True,
        "segm": lambda one: bool(one["segmentation"]),
        "keypoints": lambda one: len(one["keypoints"]) == 3 * PERSON_POINTS,
    }
    # The library changes what it is given.
    annotations = [dict(one) for one in truth["annotations"] if suits[kind](one)]
    return {**truth, "annotations": annotations}


def _found(
    observations: Sequence[Observation], kind: str, classes: set[int]
) -> list[dict[str, Any]]:
    """Return what was found as results of COCO, of the labelled classes alone."""
    keys = {"bbox": "box", "segm": "mask", "keypoints": "points"}
    names = {"bbox": "bbox", "segm": "segmentation", "keypoints": "keypoints"}
    results = []
    for number, observation in enumerate(observations, 1):
        for row in observation["found"]:
            category = row["class"] + 1
            # A data set that labels dogs says nothing of cats.
            if category not in classes:
                continue
            if keys[kind] not in row:
                continue
            results.append(
                {
                    "image_id": number,
                    "category_id": category,
                    "score": row["score"],
                    names[kind]: row[keys[kind]],
                }
            )
    return results


# ---- masks


def _runs(box: Box, size: tuple[int, ...]) -> dict[str, Any]:
    """Return a box's mask as lengths of runs, compressed as pycocotools does it.

    size: height and width of the picture.
    """
    assert box.mask is not None
    left, top, part = box.mask.inside(box.corners)
    mask = np.zeros(size, np.uint8, order="F")
    mask[top : top + part.shape[0], left : left + part.shape[1]] = part
    runs = coco_module("mask").encode(mask)
    return {"size": [*map(int, runs["size"])], "counts": runs["counts"].decode()}


def _mask(label: Any, frame: Array) -> Mask | None:
    """Return the mask of a label, which `mask_fault` has looked at; None without one."""
    if not label:
        return None
    height, width = frame.shape[:2]
    masks = coco_module("mask")
    runs = label
    # Compressed runs are as the library has them.
    if isinstance(label, list) or isinstance(label["counts"], list):
        runs = masks.frPyObjects(label, height, width)
    # Each polygon is a part of the object.
    if isinstance(runs, list):
        runs = masks.merge(runs)
    inside = masks.decode(runs)

    # The grid is the picture itself: positive inside, negative outside.
    logits = inside.astype(np.float32) * 2 - 1
    return Mask(logits, (0, 0), (width, height), whole_view(frame))
