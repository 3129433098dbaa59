"""Text: regions and rectangles beside OpenCV's, boxes of a map, characters of steps."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from edgec_runtime import TensorInfo
from edgec_runtime.vision.preprocess import Fit
from edgec_runtime.vision.regions import convex_hull, runs_of, smallest_rectangle
from edgec_runtime.vision.tasks import parse_task
from edgec_runtime.vision.tasks.base import DecoderSetting, View
from edgec_runtime.vision.tasks.instances import Boxes
from edgec_runtime.vision.tasks.text_recognition import TextLine
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import TensorProto, helper

from edgec.errors import InputError
from edgec.frontends.task_metadata import stated_task
from edgec.ir import Array

masks = arrays(np.bool_, st.tuples(st.integers(1, 12), st.integers(1, 12)))


def filled(mask: Array) -> list[set[tuple[int, int]]]:
    """The regions of a mask by flooding: sets of row and column."""
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    regions = []
    while left:
        open_ = [left.pop()]
        region = set(open_)
        while open_:
            y, x = open_.pop()
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left
            left -= near
            region |= near
            open_ += near
        regions.append(region)
    return regions


@given(masks)
def test_regions_are_what_a_flood_reaches(mask: Array) -> None:
    runs = runs_of(mask)
    found = []
    for numbers in runs.regions():
        found.append(
            {
                (int(runs.row[k]), x)
                for k in numbers
                for x in range(runs.start[k], runs.end[k])
            }
        )
    assert sorted(map(sorted, found)) == sorted(map(sorted, filled(mask)))


def test_a_spiral_is_one_region() -> None:
    """Its runs meet only at the innermost turn."""
    side = 201
    spiral = np.zeros((side, side), bool)
    for k in range(0, side // 2, 4):
        spiral[k, max(k - 4, 0) : side - k] = True
        spiral[k : side - k, side - k - 1] = True
        spiral[side - k - 1, k : side - k] = True
        spiral[k + 4 : side - k, k] = True
    assert len(runs_of(spiral).regions()) == len(filled(spiral)) == 1


@given(masks.filter(lambda mask: bool(mask.any())))
def test_the_outline_of_a_region_has_its_hull(mask: Array) -> None:
    runs = runs_of(mask)
    outlines = [runs.outline(numbers) for numbers in runs.regions()]
    for region in filled(mask):
        every = np.array([(x + 0.5, y + 0.5) for y, x in region])
        hull = convex_hull(every).tolist()
        assert hull in [convex_hull(outline).tolist() for outline in outlines]


@pytest.mark.parametrize("seed", range(20))
def test_rectangles_are_opencvs(seed: int) -> None:
    cv2: Any = pytest.importorskip("cv2")
    rng = np.random.default_rng(seed)
    points = (rng.normal(size=(40, 2)) * [30, 6]).astype(np.float32)
    angle = rng.uniform(-math.pi, math.pi)
    turn = np.array(
        [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    )
    points = (points @ turn + [200, 100]).astype(np.float32)
    got = smallest_rectangle(points.astype(np.float64))
    centre, size, _ = cv2.minAreaRect(points)
    np.testing.assert_allclose(got.centre, centre, atol=0.01)
    np.testing.assert_allclose(sorted(got.size), sorted(size), rtol=1e-3)
    corners = {tuple(np.round(p).astype(int)) for p in got.polygon()}
    theirs = cv2.boxPoints(cv2.minAreaRect(points))
    for corner in theirs:
        assert min(np.hypot(*(corner - np.array(c))) for c in corners) < 1.5
    assert -math.pi / 4 <= got.angle <= math.pi / 4


@pytest.mark.parametrize("degrees", [0, 10, 44, -30, 90, 200])
def test_a_rectangle_in_any_direction(degrees: float) -> None:
    """The angle is the one next to upright; the first corner is the top left."""
    radians = math.radians(degrees)
    along = np.array([math.cos(radians), math.sin(radians)])
    across = np.array([-along[1], along[0]])
    corners = [
        np.array([50, 40]) + a * 20 * along + b * 5 * across
        for a in (-1, 1)
        for b in (-1, 1)
    ]
    got = smallest_rectangle(np.array(corners))
    np.testing.assert_allclose(got.centre, (50, 40))
    upright = (degrees + 45) % 90 - 45
    assert math.degrees(got.angle) == pytest.approx(upright, abs=1e-6)
    expected = (10, 40) if round((degrees - upright) / 90) % 2 else (40, 10)
    np.testing.assert_allclose(got.size, expected)
    quad = got.polygon()
    assert quad[0] == pytest.approx(min(quad, key=lambda p: p[0] + p[1] * 1.01))
    # Clockwise in a picture.
    area = sum(
        a[0] * b[1] - b[0] * a[1]
        for a, b in zip(quad, np.roll(quad, -1, 0), strict=True)
    )
    assert area / 2 == pytest.approx(400)


def test_points_on_a_line_and_a_single_one() -> None:
    line = smallest_rectangle(np.array([[0.0, 0.0], [3.0, 3.0], [1.0, 1.0]]))
    assert sorted(line.size) == pytest.approx([0, math.sqrt(18)])
    one = smallest_rectangle(np.array([[2.0, 3.0]]))
    assert (one.centre, one.size) == ((2, 3), (0, 0))


MAP = (60, 80)
"""Height and width of the map; the input has twice as many pixels."""


def boxes(values: Array, frame: tuple[int, int] = (320, 240), **keys: Any) -> Boxes:
    array = values.reshape(1, 1, *values.shape).astype(np.float32)
    outputs = {"map": TensorInfo("map", array.shape, "<f4", None)}
    image = (2 * values.shape[1], 2 * values.shape[0])
    bound = parse_task({"task": "text-detection", **keys}).bind(outputs, image)
    decode = bound.decoder(DecoderSetting(image, outputs))
    result = decode({"map": array}, View.of(frame, image, Fit()))
    assert isinstance(result, Boxes)
    return result


def line_of_text(degrees: float, height: float = 8, width: float = 40) -> Array:
    """A map with a rectangle about (40, 30), 0.9 in it."""
    y, x = np.mgrid[: MAP[0], : MAP[1]] + 0.5
    radians = math.radians(degrees)
    along = (x - 40) * math.cos(radians) + (y - 30) * math.sin(radians)
    across = (y - 30) * math.cos(radians) - (x - 40) * math.sin(radians)
    inside = (np.abs(along) <= width / 2) & (np.abs(across) <= height / 2)
    return np.where(inside, 0.9, 0.1)


def test_a_box_grows_as_the_paper_says() -> None:
    (box,) = boxes(line_of_text(0)).boxes
    # 40 x 8 · 1.5 / 96 = 5 pixels of the map on each side; 4 of the frame for each.
    assert box.corners == pytest.approx(((15 - 0) * 4, 21 * 4, 65 * 4, 39 * 4))
    assert box.score == pytest.approx(0.9)
    assert box.label == "text"
    assert box.angle == pytest.approx(0)
    assert boxes(line_of_text(0), unclip=0.0).boxes[0].corners == pytest.approx(
        (80, 104, 240, 136)
    )


@pytest.mark.parametrize("degrees", [-40, -15, 5, 30])
def test_a_turned_line(degrees: float) -> None:
    (box,) = boxes(line_of_text(degrees)).boxes
    assert box.angle is not None
    assert math.degrees(box.angle) == pytest.approx(degrees, abs=3)
    polygon = np.array(box.polygon)
    np.testing.assert_allclose(polygon.mean(axis=0), (160, 120), atol=3)
    along, across = polygon[1] - polygon[0], polygon[3] - polygon[0]
    assert np.hypot(*along) == pytest.approx(200, rel=0.06)
    assert np.hypot(*across) == pytest.approx(72, rel=0.12)
    (found,) = boxes(line_of_text(degrees)).to_json()["boxes"]
    assert len(found["polygon"]) == 4
    assert "turned by" in boxes(line_of_text(degrees)).lines()[0]
    picture = boxes(line_of_text(degrees)).draw(np.zeros((240, 320, 3), np.uint8))
    assert picture.any()


def test_regions_that_are_no_text() -> None:
    assert boxes(np.zeros(MAP)).boxes == ()
    assert boxes(np.zeros(MAP)).lines() == ["nothing"]
    assert boxes(line_of_text(0, height=2)).boxes == ()
    assert len(boxes(line_of_text(0, height=2), least=1.0).boxes) == 1
    assert boxes(line_of_text(0), threshold=0.95).boxes == ()
    assert boxes(line_of_text(0), binary=0.95).boxes == ()


def test_numbers_that_are_none() -> None:
    """Outputs of a network that failed: no result, and JSON all the same."""
    values = line_of_text(0)
    values[28:30] = np.nan
    values[31, 40] = np.inf
    for got in (boxes(values), boxes(np.full(MAP, np.nan))):
        json.dumps(got.to_json(), allow_nan=False)
    array = np.full((1, 3, 4), np.nan, np.float32)
    info = {"y": TensorInfo("y", array.shape, "<f4", None)}
    task = parse_task({"task": "text-recognition"}).bind(info, (100, 10))
    decode = task.decoder(DecoderSetting((100, 10), info, ABC))
    line = decode({"y": array}, View.of((200, 20), (100, 10), Fit()))
    assert line.lines() == ["nothing"]
    json.dumps(line.to_json(), allow_nan=False)


def test_the_best_come_first_and_not_too_many() -> None:
    values = np.zeros((40, 200))
    for k in range(8):
        values[10:20, 25 * k : 25 * k + 20] = 0.7 + 0.03 * ((3 * k) % 8)
    scores = [box.score for box in boxes(values).boxes]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 8
    assert [b.score for b in boxes(values, limit=3).boxes] == scores[:3]


def test_a_map_of_noise_takes_no_time() -> None:
    import time

    noise = np.random.default_rng(0).random((480, 640))
    start = time.process_time()
    boxes(noise)
    assert time.process_time() - start < 2


def test_a_map_in_either_layout() -> None:
    values = line_of_text(0)
    first = boxes(values)
    for shape in ((1, *MAP, 1), (1, 1, *MAP)):
        info = TensorInfo("map", shape, "<f4", None)
        task = parse_task({"task": "text-detection"}).bind({"map": info}, (160, 120))
        decode = task.decoder(DecoderSetting((160, 120), {"map": info}))
        view = View.of((320, 240), (160, 120), Fit())
        assert decode({"map": values.reshape(shape).astype(np.float32)}, view) == first
    wrong = TensorInfo("map", (1, 3, 4, 4), "<f4", None)
    with pytest.raises(InputError, match="no output has the shape of the map of text"):
        parse_task({"task": "text-detection"}).bind({"map": wrong}, (8, 8))


def line(
    steps: list[int], labels: tuple[str, ...] | None, classes: int = 4, **keys: Any
) -> TextLine:
    """The text of steps with these best classes, each with probability 0.8."""
    array = np.full((1, len(steps), classes), 0.2 / (classes - 1), np.float32)
    array[0, np.arange(len(steps)), steps] = 0.8
    info = {"y": TensorInfo("y", array.shape, "<f4", None)}
    task = parse_task({"task": "text-recognition", **keys}).bind(info, (100, 10))
    decode = task.decoder(DecoderSetting((100, 10), info, labels))
    result = decode({"y": array}, View.of((200, 20), (100, 10), Fit()))
    assert isinstance(result, TextLine)
    return result


ABC = ("a", "b", "c")


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([1, 1, 2, 2, 3], "abc"),
        ([1, 0, 1, 1, 0, 0, 1], "aaa"),
        ([0, 0, 0], ""),
        ([3, 0, 3, 3, 0, 2], "ccb"),
    ],
)
def test_equal_neighbours_are_one_and_blanks_none(steps: list[int], text: str) -> None:
    got = line(steps, ABC)
    assert got.text == text
    assert got.score == pytest.approx(0.8 if text else 0)
    assert len(got.columns) == len(got.scores) == len(text)
    assert got.lines() == ([f"  80.0%  {text}"] if text else ["nothing"])
    assert got.to_json()["text"] == text
    assert got.draw(np.zeros((40, 200, 3), np.uint8)).any() == bool(text)


def test_where_a_character_begins() -> None:
    assert line([0, 1, 1, 0, 2], ABC).columns == pytest.approx((60, 180))


def test_the_last_class_may_be_the_space() -> None:
    assert line([1, 3, 2], ("a", "b")).text == "a b"


def test_a_blank_elsewhere() -> None:
    assert line([0, 3, 0, 2], ABC, blank=3).text == "aac"


def test_a_doubtful_text_is_left_out() -> None:
    got = line([1, 2], ABC, threshold=0.9)
    assert (got.text, got.lines()) == ("", ["nothing"])
    assert got.score == pytest.approx(0.8)


def test_characters_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="2 characters are not for 8 classes"):
        line([1], ("a", "b"), classes=8)
    with pytest.raises(InputError, match="not known") as e:
        line([1], None)
    assert "--labels" in str(e.value.hint)
    with pytest.raises(InputError, match="class 9 cannot be the blank of 4"):
        line([1], ABC, blank=9)


def recogniser(path: Path, characters: str | None) -> Path:
    """A network that says for five columns of pixels how bright they are in each colour."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 1, 5))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 5, 3))
    shape = helper.make_tensor("shape", TensorProto.INT64, [3], [1, 3, 5])
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["y"], perm=[0, 2, 1]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    if characters is not None:
        model.metadata_props.add(key="character", value=characters)
    onnx.save(model, path)
    return path


def test_a_model_states_its_characters(tmp_path: Path) -> None:
    """Letter by letter: capitals, a separator of lines that is a character, spaces."""
    stated = stated_task(recogniser(tmp_path / "r.onnx", "A\na\n\u2028\n \n"))
    assert stated.task is not None
    assert stated.task.kind == "text-recognition"
    assert stated.labels == ("A", "a", "\u2028", " ")
    assert stated_task(recogniser(tmp_path / "n.onnx", None)).task is None


@pytest.mark.cc
def test_a_recogniser_from_file_to_text(tmp_path: Path) -> None:
    from PIL import Image

    from tests.cli.test_errors import refused
    from tests.cli.verbs import edgec

    # Red is the blank, green a G, blue a B.
    pixels = np.zeros((1, 5, 3), np.uint8)
    for i, colour in enumerate((1, 1, 0, 1, 2)):
        pixels[0, i, colour] = 255
    Image.fromarray(pixels).save(tmp_path / "line.png")
    recogniser(tmp_path / "r.onnx", "G\nB\n")
    assert edgec("compile", "r.onnx", "--preprocess", "0_1", cwd=tmp_path).code == 0
    done = edgec("run", "r.edgec", "--input", "line.png", cwd=tmp_path)
    assert "100.0%  GGB" in done.out

    # With a task of the person's own, the characters in the model still count.
    task = ("--task", "text-recognition", "--preprocess", "0_1", "-o", "own.edgec")
    assert edgec("compile", "r.onnx", *task, cwd=tmp_path).code == 0
    done = edgec("run", "own.edgec", "--input", "line.png", cwd=tmp_path)
    assert "100.0%  GGB" in done.out

    recogniser(tmp_path / "n.onnx", None)
    said = edgec("compile", "n.onnx", "--task", "text-recognition", cwd=tmp_path)
    refused(said, "the characters of the classes are not known", "--labels")
    assert not (tmp_path / "n.edgec").exists()
