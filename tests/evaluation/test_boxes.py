"""Boxes, masks and points of a detector, from results to figures and drawings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import TensorInfo
from edgec_runtime.vision.preprocess import Fit
from edgec_runtime.vision.tasks.detection import Detection
from edgec_runtime.vision.tasks.instances import Box, Boxes, Mask
from edgec_runtime.vision.tasks.points import Points, Pose

from edgec.evaluation.boxes import BoxPrecision
from edgec.evaluation.class_names import ClassNames
from edgec.evaluation.measure import LabelledPicture, whole_view
from edgec.evaluation.person_points import PersonPrecision
from edgec.evaluation.points import PointError
from edgec.evaluation.results import ResultReader
from edgec.evaluation.tasks import DataOptions, measure_of
from edgec.ir import Array

FRAME = np.zeros((48, 64, 3), np.uint8)
NAMES = ClassNames(2, ("cat", "dog"))
TASK = replace(Detection(), mask_column=-32, points=17, threshold=0.4)
MEASURE = BoxPrecision(NAMES, TASK)
SQUARE = [[10.0, 8.0, 30.0, 8.0, 30.0, 28.0, 10.0, 28.0]]


def picture(**changes: Any) -> LabelledPicture:
    """A dog of 20 x 20 pixels at 10, 8, with its mask and its points."""
    points = [[12.0 + i, 10.0 + i, 2] for i in range(17)]
    one = {
        "class": 1,
        "box": [10.0, 8.0, 20.0, 20.0],
        "area": 400.0,
        "crowd": 0,
        "mask": SQUARE,
        "points": [n for point in points for n in point],
        **changes,
    }
    return LabelledPicture(Path("a.png"), {"size": [64, 48], "objects": [one]})


def mask(left: int, top: int, right: int, bottom: int) -> Mask:
    logits = np.full((48, 64), -1, np.float32)
    logits[top:bottom, left:right] = 1
    return Mask(logits, (0, 0), (64, 48), whole_view(FRAME))


def found(shift: float = 0.0, score: float = 0.9, index: int = 1) -> Boxes:
    """A box so many pixels to the right of the dog's."""
    corners = (10 + shift, 8.0, 30 + shift, 28.0)
    points = tuple((12.0 + i + shift, 10.0 + i) for i in range(17))
    inside = mask(10 + round(shift), 8, 30 + round(shift), 28)
    box = Box(corners, score, index, "dog", points, (1.0,) * 17, mask=inside)
    return Boxes((box,))


def figures(result: Boxes, label: LabelledPicture | None = None) -> dict[str, float]:
    label = label or picture()
    row = MEASURE.observe(result, label, FRAME)
    return MEASURE.score([label], [row]).figures()


def test_what_is_found_exactly_has_every_figure() -> None:
    names = [figure.name for figure in MEASURE.figures]
    assert names == [
        "map",
        "map50",
        "mask.map",
        "mask.map50",
        "points.map",
        "points.map50",
    ]
    # pycocotools sums up with rounding: 1 - 1e-15 or so.
    assert figures(found()) == pytest.approx(dict.fromkeys(names, 100.0))


def test_each_kind_is_judged_by_its_own_overlap() -> None:
    # 16 of 20 columns: 2/3 of either box, at limits of 0.50, 0.55, 0.60 and 0.65.
    moved = figures(found(4))
    assert moved["map50"] == pytest.approx(100)
    assert moved["map"] == pytest.approx(40)
    assert moved["mask.map"] == pytest.approx(40)
    # Points of a face are judged by less than a pixel on so small an object.
    assert moved["points.map"] == 0
    assert 0 < figures(found(1))["points.map"] < 100
    # Another class, or nothing at all.
    assert figures(found(index=0))["map"] == 0
    assert figures(Boxes(()))["mask.map50"] == 0


def test_objects_without_a_mask_are_not_judged_by_masks() -> None:
    label = picture(mask=None, points=[])
    got = figures(found(), label)
    assert got["map"] == pytest.approx(100)
    assert np.isnan(got["mask.map"])
    assert np.isnan(got["points.map"])


def test_a_group_is_no_miss() -> None:
    """Several boxes inside of a crowd cost nothing (iscrowd)."""
    objects = [*picture().truth["objects"]]
    objects.append({**objects[0], "box": [40.0, 8.0, 20.0, 30.0], "crowd": 1})
    label = LabelledPicture(Path("a.png"), {"size": [64, 48], "objects": objects})
    crowd = tuple(
        Box((40.0 + i, 10.0, 46.0 + i, 20.0), 0.95, 1, "dog") for i in range(3)
    )
    boxes = Boxes((*crowd, *found().boxes))
    assert figures(boxes, label)["map"] == pytest.approx(100)


def test_a_label_draws_itself_as_a_result() -> None:
    drawn = MEASURE.truth(picture(), FRAME)
    assert isinstance(drawn, Boxes)
    (box,) = drawn.boxes
    assert (box.label, box.score) == ("dog", 1.0)
    assert box.mask is not None
    assert int(box.mask.inside(box.corners)[2].sum()) == 400
    assert drawn.draw(FRAME).any()
    assert MEASURE.loss(found(), picture(), FRAME) == pytest.approx(0)
    # An overlap of 16 columns of 24.
    assert MEASURE.loss(found(4), picture(), FRAME) == pytest.approx(1 - 16 / 24)


def test_improbable_boxes_are_judged_and_not_shown() -> None:
    boxes = Boxes((*found().boxes, *found(30, score=0.01).boxes))
    row = MEASURE.observe(boxes, picture(), FRAME)
    assert len(row["found"]) == 2
    shown = MEASURE.shown(boxes)
    assert isinstance(shown, Boxes)
    assert [box.score for box in shown.boxes] == [0.9]


def test_observations_are_json() -> None:
    row = MEASURE.observe(found(3), picture(), FRAME)
    again = json.loads(json.dumps(row))
    one = MEASURE.score([picture()], [row]).figures()
    assert MEASURE.score([picture()], [again]).figures() == one


def test_a_class_that_the_set_does_not_label_costs_nothing() -> None:
    cat = Box((40.0, 8.0, 60.0, 28.0), 0.99, 0, "cat")
    boxes = Boxes((cat, *found().boxes))
    assert figures(boxes)["map"] == pytest.approx(100)


def test_draws_of_a_set() -> None:
    """A picture that is left out takes its misses with it."""
    labels = [picture(), picture()]
    rows = [
        MEASURE.observe(found(), labels[0], FRAME),
        MEASURE.observe(Boxes(()), labels[1], FRAME),
    ]
    scored = MEASURE.score(labels, rows)

    def whole(counts: Array) -> float:
        return scored.figures(counts)["map"]

    assert whole(np.array([2, 0])) == pytest.approx(100)
    assert whole(np.array([0, 2])) == 0
    # Recalls up to 0.5: 51 of 101.
    assert whole(np.array([1, 1])) == pytest.approx(100 * 51 / 101)


# ---- networks of one person


def person(shift: float = 0.0, shown: bool = True) -> Points:
    points = np.array([[12.0 + i + shift, 10.0 + i] for i in range(17)], np.float32)
    sure = np.full(17, 0.9)
    return Points(points, sure, np.full(17, shown), 1.0, None)


def person_figures(result: Points) -> dict[str, float]:
    measure = PersonPrecision()
    label = picture(**{"class": 0, "mask": None})
    row = measure.observe(result, label, FRAME)
    return measure.score([label], [row]).figures()


def test_a_pose_is_judged_by_cocos_points() -> None:
    exact = person_figures(person())
    assert exact == pytest.approx({"points.map": 100.0, "points.map50": 100.0})
    # The same points in a box of a detector have the same figure.
    near = person_figures(person(1))
    assert near["points.map"] == figures(found(1))["points.map"]
    assert person_figures(person(shown=False))["points.map"] == 0
    measure = PersonPrecision()
    truth = measure.truth(picture(), FRAME)
    assert isinstance(truth, Points)
    assert truth.points.tolist()[:2] == [[12, 10], [13, 11]]
    assert measure.loss(person(4), picture(), FRAME) == pytest.approx(4 / 64)


def test_the_form_of_the_labels_decides_for_a_pose(tmp_path: Path) -> None:
    task = Pose(output="y", columns=("x", "y", "score"))
    outputs = {"y": TensorInfo("y", (1, 17, 3), "<f4", None)}
    reader = ResultReader(task, (64, 48), Fit(), outputs)
    path = tmp_path / "labels.json"
    path.write_text('{"images": []}')
    assert isinstance(measure_of(reader, DataOptions(path), "a"), PersonPrecision)
    path.write_text("[]")
    measure = measure_of(reader, DataOptions(path), "a")
    assert isinstance(measure, PointError)
    # COCO's names of points say which two are the eyes.
    assert measure.between == (1, 2)
