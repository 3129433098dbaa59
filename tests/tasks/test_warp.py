"""Pictures warped by meshes: every pixel once, and C as numpy."""

from __future__ import annotations

import numpy as np
import pytest
from edgec_runtime import TensorInfo
from edgec_runtime.face.warping import Warp, warp_into
from edgec_runtime.model.native import Painting
from edgec_runtime.vision.tasks.points import Landmarks

from edgec.emit.vision import vision_source
from edgec.ir import Array
from tests.tasks.vision import library

SIZE = (97, 61)


@pytest.fixture(scope="module")
def painting(tmp_path_factory: pytest.TempPathFactory) -> Painting:
    points = TensorInfo("p", (1, 936), "<f4")
    task = Landmarks().bind({"p": points}, (192, 192))
    text = vision_source([], {}, task, [points])
    made = Painting.of(library(text, tmp_path_factory.mktemp("warping")))
    assert made is not None
    return made


def _grid(columns: int, rows: int, rng: np.random.Generator, shaken: float) -> Warp:
    """A noisy picture over a grid of triangles whose inner corners are shaken."""
    x, y = np.meshgrid(np.linspace(0, SIZE[0], columns), np.linspace(0, SIZE[1], rows))
    begin = np.column_stack([x.ravel(), y.ravel()])
    end = begin.copy()
    is_inner = (begin > 0).all(axis=1) & (begin < SIZE).all(axis=1)
    end[is_inner] += rng.uniform(-shaken, shaken, (int(is_inner.sum()), 2))
    triangles = []
    for row in range(rows - 1):
        for column in range(columns - 1):
            a = row * columns + column
            triangles += [(a, a + 1, a + columns)]
            triangles += [(a + 1, a + columns + 1, a + columns)]
    source = rng.integers(0, 256, (SIZE[1], SIZE[0], 4), np.uint8)
    source[..., 3] = 255
    return Warp(
        source,
        begin.astype(np.float32),
        end.astype(np.float32),
        np.array(triangles, np.int32),
    )


def _canvas() -> Array:
    return np.zeros((SIZE[1], SIZE[0], 3), np.uint8)


@pytest.mark.cc
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("blended", [False, True])
def test_c_warps_as_numpy(painting: Painting, seed: int, blended: bool) -> None:
    rng = np.random.default_rng(seed)
    # Without folds: of what lies over each other, the order of blending would count.
    plain = _grid(9, 6, rng, 3.0)
    gain = rng.uniform(0.2, 1.8, len(plain.begin)).astype(np.float32)
    source = plain.source.copy()
    source[..., 3] = rng.integers(0, 256, source.shape[:2])
    warp = Warp(source, plain.begin, plain.end, plain.triangles, gain, blended)
    for each in (plain, warp):
        by_c = rng.integers(0, 256, (SIZE[1], SIZE[0], 3), np.uint8)
        by_numpy = by_c.copy()
        painting.warp_into(each, by_c)
        warp_into(each, by_numpy)
        assert np.abs(by_c.astype(int) - by_numpy).max() <= 1


@pytest.mark.parametrize("seed", range(6))
def test_every_pixel_is_drawn_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    warp = _grid(12, 9, rng, 2.5)
    drawn = np.zeros((SIZE[1], SIZE[0]), int)
    for triangle in warp.triangles:
        out = _canvas()
        white = np.full_like(warp.source, 255)
        one = Warp(white, warp.begin, warp.end, triangle[None])
        warp_into(one, out)
        drawn += out[..., 0] == 255
    assert (drawn == 1).all()


@pytest.mark.cc
def test_corners_in_their_places_change_nothing(painting: Painting) -> None:
    warp = _grid(7, 5, np.random.default_rng(0), 0.0)
    out = _canvas()
    painting.warp_into(warp, out)
    # Corners in the result are rounded to 1/256 pixel.
    assert np.abs(out.astype(int) - warp.source[..., :3]).max() <= 1


@pytest.mark.cc
def test_a_shift_of_part_of_a_pixel_is_a_mean(painting: Painting) -> None:
    warp = _grid(2, 2, np.random.default_rng(0), 0.0)
    out = _canvas()
    painting.warp_into(warp.moved(np.array([0.5, 0.0])), out)
    left = warp.source[:, :-1, :3].astype(float)
    right = warp.source[:, 1:, :3]
    assert np.abs(out[:, 1:] - (left + right) / 2).max() <= 1


@pytest.mark.cc
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e30, 1e9])
def test_corners_that_are_no_places_are_left_out(
    painting: Painting, value: float
) -> None:
    warp = _grid(4, 4, np.random.default_rng(0), 0.0)
    warp.end[5] = value
    warp.begin[6] = value
    by_c = _canvas()
    by_numpy = _canvas()
    painting.warp_into(warp, by_c)
    warp_into(warp, by_numpy)
    assert np.abs(by_c.astype(int) - by_numpy).max() <= 1


@pytest.mark.cc
def test_what_reaches_beyond_the_result_is_cut_off(painting: Painting) -> None:
    warp = _grid(5, 5, np.random.default_rng(1), 0.0).moved(np.array([-40, 20]), 2.0)
    by_c = _canvas()
    by_numpy = _canvas()
    painting.warp_into(warp, by_c)
    warp_into(warp, by_numpy)
    assert (by_c == by_numpy).all()
    assert by_c.any()


@pytest.mark.cc
@pytest.mark.parametrize("corner", [-1, 16, 1 << 30])
def test_corners_that_are_not_there_are_refused(
    painting: Painting, corner: int
) -> None:
    warp = _grid(4, 4, np.random.default_rng(0), 0.0)
    warp.triangles[0, 0] = corner
    with pytest.raises(ValueError, match="does not fit"):
        painting.warp_into(warp, _canvas())
