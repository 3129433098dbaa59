"""The page of an evaluation: small pictures are seen, and a phone shows it briefly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgec_runtime.vision.preprocess import Fit
from edgec_runtime.vision.tasks.base import Result, View
from edgec_runtime.vision.tasks.classification import Class, Classes
from edgec_runtime.vision.tasks.instances import Box, Boxes, Mask
from edgec_runtime.vision.tasks.points import Points
from edgec_runtime.vision.tasks.segmentation import Segments

from edgec.evaluation.bootstrap import FigureEstimate
from edgec.evaluation.drawings import LEAST_SIDE, captions, drawing
from edgec.evaluation.measure import MeasuredFigure, whole_view
from edgec.evaluation.report import BUNDLE, FLOAT, EvaluatedSide, EvaluationReport
from edgec.evaluation.report import WorstPicture as Picture
from edgec.report.evaluation.page import MOST_OPEN, page
from tests.report.test_explain_browser import told

SMALL = np.full((48, 64, 3), 90, np.uint8)
FACTOR = LEAST_SIDE // 64
BOX = Box((20, 10, 44, 40), 0.9, 0, "square")
SCREEN = 844
"""Pixels of the height of a phone that is 390 wide."""


def results() -> dict[str, Result]:
    points = np.array([[8.0, 8.0], [40.0, 30.0]])
    sure = np.ones(2)
    mask = np.zeros((48, 64), np.float32)
    mask[:24] = 1
    view = whole_view(SMALL)
    return {
        "boxes": Boxes((BOX,)),
        "points": Points(points, sure, np.array([True, False]), 1.0, None),
        "mask": Segments(mask, None, view, labels=((1, "cat"),)),
        "classes": Classes(tuple(Class(i, f"c{i}", 0.2) for i in range(5))),
    }


def test_a_label_leaves_a_small_picture_to_be_seen() -> None:
    boxes = drawing(results()["boxes"], SMALL)
    assert boxes is not None
    assert boxes.shape == (48 * FACTOR, LEAST_SIDE, 3)
    changed = (boxes != 90).any(axis=2)
    # The outline is at the box's corners, and most of the picture is as it was.
    assert changed[10 * FACTOR, 20 * FACTOR]
    assert changed[40 * FACTOR - 1, 44 * FACTOR - 1]
    assert changed.mean() < 0.05


def test_all_of_a_box_is_enlarged_alike() -> None:
    corners = ((20.0, 10.0), (44.0, 10.0), (44.0, 40.0), (20.0, 40.0))
    logits = np.ones((12, 16), np.float32)
    view = View.of((64, 48), (128, 128), Fit("letterbox"))
    mask = Mask(logits, (0, 2), (16, 16), view)
    box = Box(BOX.corners, 0.9, 0, "", ((24, 14),), (1.0,), 0.0, corners, mask)
    picture = drawing(Boxes((box,)), SMALL)
    assert picture is not None
    changed = (picture != 90).any(axis=2)
    inside = (slice(12 * FACTOR, 39 * FACTOR), slice(21 * FACTOR, 43 * FACTOR))
    assert changed[inside].all()
    changed[8 * FACTOR : 41 * FACTOR, 19 * FACTOR : 45 * FACTOR] = False
    # Only the label stands out of it.
    assert not changed[41 * FACTOR :].any()


def test_large_pictures_and_tints_keep_their_pixels() -> None:
    mask = drawing(results()["mask"], SMALL)
    assert mask is not None
    assert mask.shape == SMALL.shape
    large = np.zeros((LEAST_SIDE, 10, 3), np.uint8)
    boxes = drawing(results()["boxes"], large)
    assert boxes is not None
    assert boxes.shape == large.shape
    assert drawing(results()["classes"], SMALL) is None


def test_captions_are_short() -> None:
    said = {name: captions(result) for name, result in results().items()}
    assert said == {
        "boxes": ["90% square"],
        "points": ["1 of 2 points"],
        "mask": ["50% cat"],
        "classes": ["20% c0", "20% c1", "20% c2"],
    }
    assert captions(Boxes(())) == ["nothing"]


def report(shown: Result, pictures: int) -> EvaluationReport:
    figure = MeasuredFigure("map", "mAP 50-95", "%", "average precision")
    estimate = FigureEstimate.of(90.0, np.array([89.0, 91.0]))
    sides = []
    for key, title in ((FLOAT, "float model"), (BUNDLE, "int8 bundle")):
        sides.append(EvaluatedSide(key, title, "here", {"map": estimate}))
    keys = ("truth", FLOAT, BUNDLE)
    picture = Picture(
        "a.png",
        {FLOAT: 0.5, BUNDLE: 0.6},
        {key: shown.lines() for key in keys},
        {key: captions(shown) for key in keys},
        {"picture": SMALL, **{key: drawing(shown, SMALL) for key in keys}},
    )
    return EvaluationReport(
        bundle="net",
        bundle_sha256="0" * 64,
        target="host",
        data="set",
        task="detection",
        pictures=400,
        measured=(figure,),
        sides=tuple(sides),
        drops={"map": estimate},
        resamples=10,
        when="",
        edgec="1",
        worst=(picture,) * pictures,
    )


def test_a_long_list_is_folded_and_the_rest_counted() -> None:
    text = page(report(results()["boxes"], 100))
    assert text.count('<div class="picture">') == 100
    assert text.index("<summary>70 more</summary>") > text.index("a.png")
    assert "300 other pictures are not shown" in text
    assert "<details>" not in page(report(results()["boxes"], MOST_OPEN))


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("name", ["boxes", "points", "mask", "classes"])
def test_a_phone_shows_a_row_a_picture_on_few_screens(
    name: str, tmp_path: Path
) -> None:
    html = page(report(results()[name], 100))
    ask = """
    const rows = [...page.querySelectorAll("section > .picture")].map((p) =>
      [...p.querySelectorAll("figure")].map((f) => f.getBoundingClientRect()).filter((b) => b.width));
    const image = [...page.querySelectorAll("section img")].find((i) => i.getBoundingClientRect().width);
    image.parentElement.click();
    const large = [...page.querySelectorAll(":checked + img")].map((i) => i.getBoundingClientRect().width);
    return { height: page.documentElement.scrollHeight, width: page.documentElement.scrollWidth,
      tops: rows.map((r) => new Set(r.map((b) => b.top)).size), columns: rows.map((r) => r.length), large: large.map((w) => w - page.documentElement.clientWidth) };
    """
    seen = told(html, ask, tmp_path, 390)
    assert seen["height"] <= 20 * SCREEN
    assert seen["width"] <= 390
    assert seen["tops"] == [1] * MOST_OPEN
    # The picture as it is has room beside words, not beside three drawings.
    assert set(seen["columns"]) == {4 if name == "classes" else 3}
    assert seen["large"] == [0]
