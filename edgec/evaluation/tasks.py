"""Chooses the measure of a task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgec_runtime.vision.tasks.classification import Classification
from edgec_runtime.vision.tasks.detection import Detection
from edgec_runtime.vision.tasks.image import ImageOutput
from edgec_runtime.vision.tasks.points import Landmarks
from edgec_runtime.vision.tasks.segmentation import Segmentation

from edgec.errors import InputError
from edgec.evaluation.boxes import PERSON_POINTS, BoxPrecision
from edgec.evaluation.class_names import ClassNames
from edgec.evaluation.classes import RankedClasses
from edgec.evaluation.coco_file import is_coco
from edgec.evaluation.images import PictureFidelity
from edgec.evaluation.masks import MaskOverlap
from edgec.evaluation.measure import Measure
from edgec.evaluation.person_points import PersonPrecision
from edgec.evaluation.points import PointError, between_points
from edgec.evaluation.results import ResultReader


@dataclass(frozen=True)
class DataOptions:
    """What a person says about a data set.

    Attributes:
        data: the data set
        pictures: the folder that names of pictures are relative to
        normalise: what errors of points are relative to: "box", or two points, "36,45"
    """

    data: Path
    pictures: Path | None = None
    normalise: str | None = None


def measure_of(reader: ResultReader, options: DataOptions, at: str) -> Measure:
    """Return the measure for the results of a reader.

    at: the bundle, for messages. Raises InputError for a task without a measure.
    """
    task = reader.task
    # A classifier without labels has classes all the same: their numbers.
    names = ClassNames(reader.classes, reader.labels or ())
    if isinstance(task, Classification):
        return RankedClasses(names, options.pictures)
    if isinstance(task, Detection):
        return BoxPrecision(names, task, options.pictures)
    if isinstance(task, Segmentation):
        return MaskOverlap(reader.labels or (), task.index, options.pictures)
    if isinstance(task, Landmarks):
        return _points(task, reader, options)
    if isinstance(task, ImageOutput):
        return PictureFidelity(options.pictures)
    raise InputError(
        f"there is no measure for the task {task.kind}",
        at,
        "evaluate a classification, detection, segmentation, landmarks, pose or image",
    )


def _points(task: Landmarks, reader: ResultReader, options: DataOptions) -> Measure:
    """Return the measure of points, of a face or of a person."""
    count = task.point_count(reader.outputs[str(task.output)].shape)
    # Persons in COCO's form may be several in a picture: errors would not say of whom.
    if count == PERSON_POINTS and is_coco(options.data):
        return PersonPrecision(options.pictures)
    return PointError(
        count=count,
        between=between_points(options.normalise, count, task.names),
        names=task.names,
        joined=task.lines,
        pictures=options.pictures,
    )
