"""The text detector and recogniser as `models:NAME`: beside onnxruntime and the usual
post-processing by OpenCV, and together on pictures.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import Session, read_photo
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.tasks.instances import Boxes
from edgec_runtime.vision.tasks.text_recognition import TextLine
from PIL import Image, ImageDraw, ImageFont

from edgec.ir import Array
from tests.cascade.objects import seen
from tests.catalogue.networks import bundle, fetched

pytestmark = pytest.mark.slow

TEXTS = (
    ("Hello World 2026", 0, (40, 20)),
    ("Turn left at 35 mph", 17, (120, 120)),
    ("edgec on a Pi", -25, (240, 250)),
    ("tiny words here", 5, (30, 400)),
)
"""Texts of a picture: how many degrees each is turned anticlockwise, and where it is."""


def picture() -> Array:
    image = Image.new("RGB", (640, 480), "white")
    font = ImageFont.load_default(40)
    for text, degrees, place in TEXTS:
        mask = Image.new("L", (int(font.getlength(text)) + 20, 60), 0)
        ImageDraw.Draw(mask).text((10, 5), text, 255, font)
        turned = mask.rotate(degrees, expand=True, resample=Image.Resampling.BICUBIC)
        image.paste((20, 20, 60), place, turned)
    return np.array(image)


def detected(pixels: Array) -> tuple[Boxes, Array, Array]:
    """The boxes, the input, and the map."""
    with Session(bundle("text-detector")) as session:
        frame = CameraFrame.of(pixels)
        inputs = session.vision.prepare(frame)
        outputs = session.run(inputs)
        result = session.vision.result(outputs, frame.size)
    assert isinstance(result, Boxes)
    (array,) = inputs.values()
    (values,) = outputs.values()
    return result, array, values


def cut(pixels: Array, polygon: Any) -> Array:
    """What is in a turned box, upright."""
    corners = np.array(polygon)
    width = round(float(np.hypot(*(corners[1] - corners[0]))))
    height = round(float(np.hypot(*(corners[3] - corners[0]))))
    quad = [*corners[0], *corners[3], *corners[2], *corners[1]]
    image = Image.fromarray(pixels).transform(
        (width, height), Image.Transform.QUAD, quad, Image.Resampling.BILINEAR
    )
    return np.array(image)


def within(quad: Array, shape: tuple[int, ...]) -> Array:
    """Whether the middle of each pixel is on the same side of all sides of a box."""
    y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
    sides = []
    for a, b in zip(quad, np.roll(quad, -1, axis=0), strict=True):
        sides.append((b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0]))
    every = np.stack(sides)
    return np.asarray((every >= 0).all(axis=0) | (every <= 0).all(axis=0))


def reference(values: Array) -> list[tuple[Array, float]]:
    """Corners and score of each box of a map [H, W]: DBPostProcess of PaddleOCR, with
    OpenCV's regions and rectangles.
    """
    cv2: Any = pytest.importorskip("cv2")
    binary = (values >= 0.3).astype(np.uint8)
    count, regions = cv2.connectedComponents(binary, connectivity=8)
    found = []
    for number in range(1, count):
        points = np.argwhere(regions == number)[:, ::-1].astype(np.float32) + 0.5
        centre, (width, height), angle = cv2.minAreaRect(points)
        width, height = width + 1, height + 1
        if min(width, height) < 3:
            continue
        quad = cv2.boxPoints((centre, (width, height), angle))
        score = float(values[within(quad, values.shape)].mean())
        if score >= 0.5:
            by = width * height * 1.6 / (2 * (width + height))
            grown = (centre, (width + 2 * by, height + 2 * by), angle)
            found.append((cv2.boxPoints(grown), score))
    return found


@pytest.mark.shared
@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("scikit-image__page.png", 6),
        ("test_data__missvickie_potato_chips.png", 15),
        ("openmv__hand.png", 0),
    ],
)
def test_boxes_are_the_usual_ones(shared: Path, name: str, least: int) -> None:
    runtime: Any = pytest.importorskip("onnxruntime")
    pixels = read_photo(shared / "data" / "photos" / name)
    got, array, values = detected(pixels)
    session = runtime.InferenceSession(str(fetched("text-detector")))
    (expected,) = session.run(None, {"x": array})
    np.testing.assert_allclose(values, expected, atol=1e-3)

    height, width = pixels.shape[:2]
    scale = min(640 / width, 480 / height)
    border = ((640 - round(width * scale)) / 2, (480 - round(height * scale)) / 2)
    theirs = []
    for quad, score in reference(expected[0, 0]):
        theirs.append(((quad - np.array(border)) / scale, score))
    assert len(got.boxes) >= least
    # A score next to the threshold may be on either side of it.
    sure = [one for one in theirs if one[1] >= 0.52]
    assert len(sure) <= len(got.boxes) <= len(theirs) + 2
    for corners, score in sure:
        centre = corners.mean(axis=0)
        near = min(
            got.boxes,
            key=lambda b: float(np.hypot(*(np.mean(b.polygon, axis=0) - centre))),
        )
        assert np.hypot(*(np.mean(near.polygon, axis=0) - centre)) < 1.5
        assert near.score == pytest.approx(score, abs=0.05)
        sides = sorted(np.hypot(*(corners[k] - corners[k - 1])) for k in (1, 2))
        own = np.array(near.polygon)
        own_sides = sorted(np.hypot(*(own[k] - own[k - 1])) for k in (1, 2))
        np.testing.assert_allclose(own_sides, sides, rtol=0.05, atol=1.5)


def test_texts_are_found_turned_upright_and_read() -> None:
    pixels = picture()
    got, _, _ = detected(pixels)
    assert len(got.boxes) == len(TEXTS)
    read = {}
    with Session(bundle("text-recogniser")) as session:
        for box in got.boxes:
            frame = CameraFrame.of(cut(pixels, box.polygon))
            outputs = session.run(session.vision.prepare(frame))
            line = session.vision.result(outputs, frame.size)
            assert isinstance(line, TextLine)
            assert line.score > 0.9
            assert len(line.columns) == len(line.text)
            assert list(line.columns) == sorted(line.columns)
            read[line.text] = box
    assert set(read) == {text for text, _, _ in TEXTS}
    for text, degrees, _ in TEXTS:
        angle = read[text].angle
        assert angle is not None
        assert -math.degrees(angle) == pytest.approx(degrees, abs=2)


def test_the_cascade_reads_them_all() -> None:
    with Session(bundle("texts")) as session:
        result = seen(session, picture())
    assert result.objects
    read = set()
    for one in result.objects:
        line = one.results["line"]
        assert isinstance(line, TextLine)
        read.add(line.text.strip())
        # The text is beside the upper left of its box.
        (box,) = one.results["text"].to_json()["boxes"]
        x, y = box["polygon"][0]
        assert math.hypot(line.corner[0] - x, line.corner[1] - y) < 120
    assert read == {text for text, _, _ in TEXTS}
    assert (result.draw(picture()) != picture()).any()


@pytest.mark.shared
def test_a_printed_heading(shared: Path) -> None:
    pixels = read_photo(shared / "data" / "photos" / "scikit-image__page.png")
    got, _, _ = detected(pixels)
    with Session(bundle("text-recogniser")) as session:
        frame = CameraFrame.of(cut(pixels, got.boxes[0].polygon))
        line = session.vision.result(
            session.run(session.vision.prepare(frame)), frame.size
        )
    assert line.lines()[0].split(maxsplit=1)[1] == "Region-based segmentation"
