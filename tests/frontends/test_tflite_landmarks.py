"""MediaPipe's operators that look closer at a part of a face, against what its kernels
do, written here in float64.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from edgec.errors import UnsupportedError
from edgec.frontends import read_model
from edgec.ir import Array, interp
from tests.frontends.tflite_operators import Given, model_of, packed
from tests.harness import assert_agree, run_c

OPTIONS = {
    "left_rotation_idx": 3,
    "right_rotation_idx": 8,
    "output_height": 12,
    "output_width": 16,
    "scale_x": 1.5,
    "scale_y": 1.25,
    "subset_idxs": [0, 5, 5, 9, 11, 2],
    "target_rotation_radians": 0.0,
}
F32 = np.float32


def matrix(rows: Any = ((1, 0, 0), (0, 1, 0))) -> Array:
    """[4,4] of the factors and the shift of x and y."""
    m = np.eye(4)
    m[:2, :2], m[:2, 3] = np.array(rows)[:, :2], np.array(rows)[:, 2]
    return m


def turn(r: float) -> Array:
    return matrix([(np.cos(r), -np.sin(r), 0), (np.sin(r), np.cos(r), 0)])


def check(
    name: str,
    options: bytes | None,
    inputs: dict[str, Array],
    want: Array,
    folder: Path,
) -> None:
    path = folder / "m.tflite"
    given = [Given(v) for v in inputs.values()]
    path.write_bytes(
        packed(model_of(name, options, given, [(want.shape, F32)], version=2))
    )
    graph = read_model(path)
    for got in (interp(graph, inputs), run_c(graph, inputs)):
        assert_agree(got, {"y0": want.astype(F32)})


@pytest.mark.parametrize("angle", [0.0, 0.7, -2.0])
def test_the_place_of_a_part(angle: float, tmp_path: Path) -> None:
    """Shift to the middle of the turned box, turn back, scale, shift from the part's
    corner.
    """
    landmarks = np.random.default_rng(1).random((1, 12, 3)).astype(F32) * 40
    places = landmarks[0].astype(float)
    across = places[8] - places[3]
    r = angle - np.arctan2(across[1], across[0])
    turned = (
        np.c_[places[OPTIONS["subset_idxs"], :2], np.zeros((6, 1)), np.ones((6, 1))]
        @ turn(r).T
    )
    low = turned.min(0)
    high = turned.max(0)
    x, y = (turn(-r) @ ((low + high) / 2))[:2]
    scale = matrix(
        [(1.5 * (high - low)[0] / 16, 0, 0), (0, 1.25 * (high - low)[1] / 12, 0)]
    )
    want = (
        matrix([(1, 0, x), (0, 1, y)])
        @ turn(-r)
        @ scale
        @ matrix([(1, 0, -8), (0, 1, -6)])
    )
    options = bytes(flexbuffers.Dumps({**OPTIONS, "target_rotation_radians": angle}))
    check("Landmarks2TransformMatrix", options, {"x0": landmarks}, want[None], tmp_path)


def test_the_part(tmp_path: Path) -> None:
    """Bilinear at pixels' centres; nothing beyond the centres of the border pixels."""
    image = np.random.default_rng(2).random((1, 9, 7, 3)).astype(F32)
    m = matrix([(0.61, -0.33, 1.2), (0.29, 0.7, -0.4)])
    want = np.zeros((1, 10, 8, 3))
    for i, j in np.ndindex(10, 8):
        x, y = (m @ (j + 0.5, i + 0.5, 0, 1))[:2] - 0.5
        if 0 <= x <= 6 and 0 <= y <= 8:
            a = int(x)
            b = int(y)
            for t, u in np.ndindex(2, 2):
                if b + t < 9 and a + u < 7:
                    want[0, i, j] += (
                        image[0, b + t, a + u]
                        * abs(1 - t - (y - b))
                        * abs(1 - u - (x - a))
                    )
    assert 0 < np.count_nonzero(want) < want.size
    options = bytes(flexbuffers.Dumps({"output_height": 10, "output_width": 8}))
    check(
        "TransformTensorBilinear",
        options,
        {"x0": image, "x1": m[None].astype(F32)},
        want,
        tmp_path,
    )


@pytest.mark.parametrize("dimensions", [2, 3])
def test_the_way_back(dimensions: int, tmp_path: Path) -> None:
    landmarks = np.random.default_rng(3).random((1, 11, dimensions)).astype(F32)
    m = matrix([(0.61, -0.33, 1.2), (0.29, 0.7, -0.4)])
    want = landmarks.astype(float)
    want[0, :, :2] = want[0, :, :2] @ m[:2, :2].T + m[:2, 3]
    check(
        "TransformLandmarks",
        None,
        {"x0": landmarks, "x1": m[None].astype(F32)},
        want,
        tmp_path,
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"subset_idxs": [0, 12]}, "subset_idxs"),
        ({"left_rotation_idx": 12}, "turned by 12 and 8"),
        ({"output_width": 0}, "a part of"),
        ({"scale_x": float("nan")}, "a part of"),
        ({"scale_x": None}, "custom Landmarks2TransformMatrix"),
        (None, "options that are not a map"),
    ],
)
def test_what_is_wrong_is_said(
    changed: dict[str, Any] | None, message: str, tmp_path: Path
) -> None:
    if changed is None:
        options = b""
    else:
        options = bytes(flexbuffers.Dumps({**OPTIONS, **changed}))
    path = tmp_path / "m.tflite"
    x = Given(np.zeros((1, 12, 3), F32))
    path.write_bytes(
        packed(
            model_of(
                "Landmarks2TransformMatrix", options, [x], [((1, 4, 4), F32)], version=2
            )
        )
    )
    with pytest.raises(UnsupportedError, match=message):
        read_model(path)
