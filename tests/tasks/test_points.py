"""Points from tables: columns, depth, refinements, and which of two kinds it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edgec_runtime import TensorInfo
from edgec_runtime.vision.preprocess import Fit
from edgec_runtime.vision.tasks import parse_task
from edgec_runtime.vision.tasks.base import DecoderSetting, View
from edgec_runtime.vision.tasks.points import Points

from edgec.errors import InputError
from edgec.ir import Array

IMAGE = (10, 20)
FRAME = (40, 40)


def read(keys: dict[str, Any], arrays: list[Array]) -> Points:
    """The points of a frame of 40 x 40, stretched to an input of 10 x 20."""
    outputs = {
        f"out{i}": TensorInfo(f"out{i}", a.shape, "<f4", None)
        for i, a in enumerate(arrays)
    }
    task = parse_task({"task": "landmarks", "output": "#0", **keys})
    bound = task.bind(outputs, IMAGE)
    decode = bound.decoder(DecoderSetting(IMAGE, outputs, ("right", "left")))
    real = {
        name: np.asarray(a, np.float32) for name, a in zip(outputs, arrays, strict=True)
    }
    result = decode(real, View.of(FRAME, IMAGE, Fit()))
    assert isinstance(result, Points)
    return result


TABLE = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32)
XYZ = {"columns": ["x", "y", "z"]}


def test_depth_is_in_pixels_of_the_frame_as_x_is() -> None:
    got = read(XYZ, [TABLE])
    np.testing.assert_allclose(got.points, TABLE[:, :2] * [4, 2])
    assert got.depth is not None
    np.testing.assert_allclose(got.depth, TABLE[:, 2] * 4)
    assert got.to_json()["points"][1] == {
        "x": 16.0,
        "y": 10.0,
        "z": 24.0,
        "score": 1.0,
        "shown": True,
    }
    relative = read({**XYZ, "units": "relative"}, [TABLE])
    np.testing.assert_allclose(relative.points, TABLE[:, :2] * 40)
    assert relative.depth is not None
    np.testing.assert_allclose(relative.depth, TABLE[:, 2] * 40)


def test_points_and_numbers_that_do_not_count() -> None:
    got = read({"columns": ["x", "y", "unused"], "count": 2}, [TABLE])
    np.testing.assert_allclose(got.points, TABLE[:2, :2] * [4, 2])
    assert got.depth is None


def test_the_points_scores_have_an_activation_of_their_own() -> None:
    keys = {
        "columns": ["x", "y", "score"],
        "point_activation": "sigmoid",
        "score": "#1",
        "threshold": 0.5,
    }
    table = np.array([[1, 2, 3], [4, 5, -3]], np.float32)
    got = read(keys, [table, np.array([[0.75]], np.float32)])
    np.testing.assert_allclose(got.scores, 1 / (1 + np.exp([-3.0, 3.0])), rtol=1e-5)
    assert got.score == 0.75
    assert got.shown.tolist() == [True, False]


def test_a_refinement_moves_points_and_adds_others() -> None:
    got = read(
        {
            **XYZ,
            "refinements": [
                {"output": "#1", "points": [2, 0]},
                {"output": "#2", "points": [3, 4], "depth_of": [0, 2]},
                {"output": "out3", "points": [5], "columns": ["y", "x", "z"]},
            ],
        },
        [
            TABLE,
            np.array([[10, 11, 12, 13]], np.float32),
            np.array([[14, 15, 16, 17]], np.float32),
            np.array([[18, 19, 20]], np.float32),
        ],
    )
    expected = [[12, 13], [4, 5], [10, 11], [14, 15], [16, 17], [19, 18]]
    np.testing.assert_allclose(got.points, np.array(expected) * [4, 2])
    assert got.depth is not None
    # The mean of 3 and 9 is 6.
    np.testing.assert_allclose(got.depth, np.array([3, 6, 9, 6, 6, 20]) * 4)


@pytest.mark.parametrize(
    ("refinement", "words"),
    [
        ({"output": "#1", "points": [0]}, "has not the shape of the refinement"),
        ({"output": "#7", "points": [0, 1]}, 'no output "#7"'),
        ({"output": "#1", "points": [0, 4]}, "points 3 to 4 are not all"),
        (
            {"output": "#1", "points": [0, 1], "depth_of": [3]},
            "no point 3 with a depth",
        ),
        (
            {"output": "#1", "points": [0, 1], "columns": ["x", "z"]},
            "no points with x and y",
        ),
        ({"output": "#1", "points": []}, "has not the shape"),
        ({"points": [0]}, 'lacks "output"'),
        ({"output": "#1", "points": [-1, 0]}, "at least 0"),
    ],
)
def test_refinements_that_cannot_be(refinement: dict[str, Any], words: str) -> None:
    arrays = [TABLE, np.zeros((1, 4), np.float32)]
    with pytest.raises(InputError, match=words):
        read({**XYZ, "refinements": [refinement]}, arrays)


@pytest.mark.parametrize(("first", "label"), [(0.8, "right"), (0.1, "left")])
def test_the_more_probable_of_two_labels(first: float, label: str) -> None:
    got = read({**XYZ, "either": "#1"}, [TABLE, np.array([[first]], np.float32)])
    assert got.label is not None
    assert got.label.name == label
    assert got.label.score == pytest.approx(max(first, 1 - first))
    assert got.to_json()["label"] == label
    assert label in got.lines()[0]


def test_labels_and_scores_are_single_numbers() -> None:
    for key in ("either", "score"):
        with pytest.raises(InputError, match=f"has not the shape of the {key}"):
            read({**XYZ, key: "#1"}, [TABLE, np.zeros((1, 2), np.float32)])
