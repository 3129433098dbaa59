"""Mattes, blurred and replaced backgrounds: edges of the frame, and C beside numpy."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import InputError, TensorInfo
from edgec_runtime.model.native import Painting
from edgec_runtime.vision.photo import prepare
from edgec_runtime.vision.preprocess import Fit, bind, parse
from edgec_runtime.vision.tasks.base import Result, View
from edgec_runtime.vision.tasks.classification import Classes
from edgec_runtime.vision.tasks.image import Picture
from edgec_runtime.vision.tasks.segmentation import Segmentation, Segments
from edgec_runtime.webcam.effects import (
    EFFECTS,
    Painter,
    effect,
    effects_for,
    wants_value,
)
from PIL import Image, ImageFilter

from edgec.emit.vision import vision_source
from edgec.ir import Array
from tests.tasks.vision import library

SMALL = (64, 36)
LARGE = (640, 360)
INFO = TensorInfo("x", (1, 36, 64, 3), "<f4")


@pytest.fixture(scope="module")
def painting(tmp_path_factory: pytest.TempPathFactory) -> Painting:
    info = TensorInfo("x", (1, 36, 64, 3), "<f4")
    mask = TensorInfo("m", (1, 36, 64, 1), "<f4")
    task = Segmentation().bind({"m": mask}, SMALL)
    text = vision_source([info], {"x": bind(info)}, task, [mask])
    made = Painting.of(library(text, tmp_path_factory.mktemp("painting")))
    assert made is not None
    return made


def _strands() -> tuple[Array, Array]:
    """A dark head with strands of hair before something bright: a frame, and how much
    of each pixel is the head.
    """
    x, y = np.meshgrid(np.arange(LARGE[0]) / LARGE[1], np.arange(LARGE[1]) / LARGE[1])
    angle = np.arctan2(y - 0.6, x - 0.9)
    reach = 0.28 + 0.045 * np.sin(23 * angle) + 0.02 * np.sin(71 * angle)
    alpha = np.clip((reach - np.hypot(x - 0.9, y - 0.6)) * LARGE[1] + 0.5, 0, 1).astype(
        np.float32
    )
    noise = np.random.default_rng(0).normal(0, 3, (*alpha.shape, 3))
    colors = np.array([40, 30, 25]) * alpha[..., None] + np.array([210, 220, 235]) * (
        1 - alpha[..., None]
    )
    return np.clip(colors + noise, 0, 255).astype(np.uint8), alpha


def _segments(
    alpha: Array, frame: tuple[int, int] = LARGE, fit: Fit | None = None
) -> Segments:
    """What a network makes of it at its size."""
    small = np.asarray(Image.fromarray(alpha).resize(SMALL, Image.Resampling.BOX))
    return Segments(
        small, None, View.of(frame, SMALL, fit or Fit()), 0.5, ((0, "person"),)
    )


@pytest.mark.cc
def test_a_matte_follows_the_frames_edges(painting: Painting) -> None:
    frame, alpha = _strands()
    segments = _segments(alpha)
    plain = np.abs(segments.mask() - alpha).mean()
    for painter in (Painter(), Painter(painting)):
        fitted = np.abs(painter.matte(frame, segments) / 255 - alpha)
        assert fitted.mean() < 0.5 * plain
        assert painter.matte(frame, segments)[alpha == 0].mean() < 4


@pytest.mark.cc
@pytest.mark.parametrize("size", [LARGE, (97, 61), (64, 36)])
@pytest.mark.parametrize("fit", [Fit(), Fit("letterbox"), Fit("crop", 0.8)])
def test_c_paints_what_numpy_paints(
    painting: Painting, size: tuple[int, int], fit: Fit
) -> None:
    whole, alpha = _strands()
    frame = np.asarray(Image.fromarray(whole).resize(size))
    segments = _segments(alpha, size, fit)
    background = np.random.default_rng(1).integers(0, 256, (50, 80, 3), np.uint8)
    by_c = Painter(painting)
    by_numpy = Painter()
    off = np.abs(
        by_c.matte(frame, segments).astype(int) - by_numpy.matte(frame, segments)
    )
    assert off.max() <= 2
    assert off.mean() < 0.05
    for made, law in (
        (by_c.blurred(frame), by_numpy.blurred(frame)),
        (by_c.blur(frame, segments), by_numpy.blur(frame, segments)),
        (
            by_c.replace(frame, segments, background),
            by_numpy.replace(frame, segments, background),
        ),
        (
            by_c.resized(frame, (33, 21), "bicubic"),
            by_numpy.resized(frame, (33, 21), "bicubic"),
        ),
    ):
        assert made.shape == law.shape
        assert np.abs(made.astype(int) - law).max() <= 2


def test_the_background_is_replaced_and_the_rest_is_left() -> None:
    frame, alpha = _strands()
    green = np.zeros((10, 10, 3), np.uint8) + np.array([0, 255, 0], np.uint8)
    made = Painter().replace(frame, _segments(alpha), green)
    inside, outside = (
        np.asarray(Image.fromarray(m).resize(LARGE)) for m in (alpha == 1, alpha == 0)
    )
    assert np.abs(made[inside].astype(int) - frame[inside]).mean() < 8
    assert np.abs(made[outside].astype(int) - (0, 255, 0)).mean() < 8
    with pytest.raises(InputError, match="a background is uint8"):
        Painter().replace(frame, _segments(alpha), green[..., 0])


def test_effects_by_name(tmp_path: Path) -> None:
    frame, alpha = _strands()
    segments = _segments(alpha)
    painter = Painter()
    Image.new("RGB", (20, 20), (0, 255, 0)).save(tmp_path / "g.png")
    np.testing.assert_array_equal(
        effect("blur", painter)(frame, segments), painter.blur(frame, segments)
    )
    np.testing.assert_array_equal(
        effect("overlay", painter)(frame, segments), segments.draw(frame)
    )
    green = effect(f"replace={tmp_path / 'g.png'}", painter)(frame, segments)
    np.testing.assert_array_equal(green[0, 0], (0, 255, 0))
    for text, said in (
        ("blurr", 'did you mean "blur"?'),
        ("replace", "the effect replace needs a picture"),
        (f"replace={tmp_path / 'gone.png'}", "gone.png"),
    ):
        with pytest.raises(InputError) as e:
            effect(text, painter)
        assert said in e.value.what
    with pytest.raises(InputError, match="blur is for a segmentation, not for classes"):
        effect("blur", painter)(frame, Classes(()))


def test_blurring_takes_detail_away_and_keeps_the_light() -> None:
    noise = np.random.default_rng(2).integers(0, 256, (120, 200, 3), np.uint8)
    soft = Painter().blurred(noise)
    assert soft.shape == noise.shape
    assert soft.std() < 0.2 * noise.std()
    assert abs(float(soft.mean()) - float(noise.mean())) < 1


def _picture(of: tuple[int, int], fit: Fit) -> tuple[Array, Picture]:
    """A frame with a thin black line on colours, and a network's picture of it: the
    same with red for blue.
    """
    frame = np.zeros((*of[::-1], 3), np.uint8) + np.array([60, 120, 200], np.uint8)
    frame[:, of[0] // 3 : of[0] // 3 + 3] = 0
    small = prepare(frame, bind(INFO, replace(parse("0_255"), fit=fit)), INFO)[0]
    return frame, Picture(
        small[..., ::-1].astype(np.uint8).copy(), View.of(of, SMALL, fit)
    )


@pytest.mark.cc
@pytest.mark.parametrize("fit", [Fit(), Fit("letterbox"), Fit("crop", 0.8)])
def test_a_cartoon_has_the_networks_colours_and_the_frames_lines(
    painting: Painting, fit: Fit
) -> None:
    frame, picture = _picture((400, 300), fit)
    for painter in (Painter(painting), Painter()):
        made = painter.cartoon(frame, picture)
        assert made.shape == picture.of_frame().shape
        part = picture.part(frame)
        assert made.shape == part.shape
        dark = part[..., 0] == 0
        far = np.asarray(Image.fromarray(dark).filter(ImageFilter.MaxFilter(61))) == 0
        assert np.abs(made[far].astype(int) - (200, 120, 60)).max() <= 3
        assert made[dark].mean() < 0.5 * picture.of_frame()[dark].mean()


def test_a_picture_larger_than_the_frame_stays_as_it_is() -> None:
    frame, picture = _picture((40, 30), Fit())
    np.testing.assert_array_equal(Painter().cartoon(frame, picture), picture.of_frame())


def test_each_effect_says_what_it_is_for() -> None:
    frame, picture = _picture((400, 300), Fit())
    _, alpha = _strands()
    results: dict[str, Result] = {
        "image": picture,
        "segmentation": _segments(alpha),
        "classification": Classes(()),
    }
    own: dict[str, set[str]] = {
        "image": {"cartoon"},
        "segmentation": {"blur", "replace"},
        "pose": set(),
    }
    for task, names in own.items():
        assert {"overlay", *names} <= {*effects_for(task)}
        assert not {*effects_for(task)} & set().union(*own.values()) - names
    for task, result in results.items():
        for name in {*EFFECTS} - {*effects_for(task)}:
            if wants_value(name):
                continue
            task = EFFECTS[name].tasks[0]
            is_face = task == "landmarks"
            wanted = "face points" if is_face else f"an? {task}"
            with pytest.raises(
                InputError, match=f"{name} is for {wanted}, not for "
            ) as e:
                effect(name, Painter())(frame, result)
            asked = "facemesh" if is_face else task
            assert f"--task {asked}" in str(e.value.hint)


def test_the_manual_has_a_row_for_each_effect() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
    _, _, *rows = page.split("## Effects\n")[1].split("\n\n")[1].splitlines()
    named = [name for row in rows for name in re.findall(r"`(\w+)", row.split("|")[1])]
    assert {*named} == {*EFFECTS}
