"""Inputs made of crops: the bundle's C has the bits of numpy, and both are within one
level of the formula in real numbers.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from edgec_runtime import Bundle, CameraFrame, Vision
from edgec_runtime.tensors import TensorInfo
from edgec_runtime.vision.camera import FORMATS
from edgec_runtime.vision.crop import MAX_LEVEL, Crop, cropped
from edgec_runtime.vision.preprocess import Fit, bind, parse
from numpy.typing import NDArray

from tests.cascade import objects

BYTES = {"rgb": 3, "bgr": 3, "gray": 1, "rgba": 4, "yuyv": 2, "nv12": 1.5}
SIDE = 24
FILL = (10, 200, 60)


def by_formula(photo: NDArray[np.uint8], crop: Crop) -> NDArray[np.float64]:
    """The pixels of an input of SIDE x SIDE, in real numbers, pixel by pixel."""
    ratio = math.sqrt(crop.width * crop.height) / SIDE
    level = min(MAX_LEVEL, max(0, math.floor(math.log2(ratio)))) if ratio > 0 else 0
    size = 1 << level

    def block(x: int, y: int) -> NDArray[np.float64]:
        total = np.zeros(3)
        for row in range(y * size, (y + 1) * size):
            for column in range(x * size, (x + 1) * size):
                inside = 0 <= row < photo.shape[0] and 0 <= column < photo.shape[1]
                total += photo[row, column] if inside else FILL
        # A smaller frame is a picture too: its levels are whole.
        return np.floor(total / size**2 + 0.5)

    out = np.zeros((SIDE, SIDE, 3))
    for v in range(SIDE):
        for u in range(SIDE):
            relative = np.array([(u + 0.5) / SIDE, (v + 0.5) / SIDE])
            x, y = crop.to_frame(relative) / size - 0.5
            left, top = math.floor(x), math.floor(y)
            right, lower = x - left, y - top
            above = (1 - right) * block(left, top) + right * block(left + 1, top)
            below = (1 - right) * block(left, top + 1) + right * block(
                left + 1, top + 1
            )
            out[v, u] = (1 - lower) * above + lower * below
    return out


@pytest.mark.parametrize(
    "crop",
    [
        Crop(20, 15, 24, 24),
        Crop(21.3, 14.8, 9.5, 9.5, 0.7),
        Crop(20, 15, 60, 60, -2.5),
        Crop(3, 28, 70, 30, 0.3, mirrored=True),
        Crop(20, 15, 200, 200, 1.0),
        Crop(-50, 400, 30, 30),
    ],
    ids=["as it is", "enlarged", "level 1", "stretched", "level 3", "outside"],
)
def test_numpy_is_within_one_level_of_the_formula(crop: Crop) -> None:
    photo = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    info = TensorInfo("x", (1, SIDE, SIDE, 3), "|u1")
    how = bind(info, parse("raw"))
    how = replace(how, fit=Fit("letterbox", fill=FILL))
    made = cropped(photo, crop, how, info)[0]
    assert np.abs(made.astype(float) - by_formula(photo, crop)).max() <= 1


@pytest.mark.cc
def test_the_c_has_the_bits_of_numpy() -> None:
    rng = np.random.default_rng(1)
    with Bundle.open(objects.bundle()) as cascade:
        inner = cascade.network("discs")
        native = Vision(inner)
        plain = Vision(inner, native=False)
        assert native.native
        for n in range(240):
            format = FORMATS[n % len(FORMATS)]
            width, height = (2 * int(k) for k in rng.integers(1, 150, 2))
            data = rng.integers(0, 256, int(width * height * BYTES[format]), np.uint8)
            frame = CameraFrame.packed(format, data, width, height)
            crop = Crop(
                rng.uniform(-40, width + 40),
                rng.uniform(-40, height + 40),
                rng.uniform(2, 600),
                rng.uniform(2, 600),
                rng.uniform(-4, 4),
                mirrored=n % 2 > 0,
            )
            (one,) = native.cropped(frame, crop).values()
            (other,) = plain.cropped(frame, crop).values()
            np.testing.assert_array_equal(one, other, err_msg=f"{format} {crop}")


@pytest.mark.cc
def test_rows_of_a_frame_may_be_apart() -> None:
    wide = np.random.default_rng(2).integers(0, 256, (60, 90, 3), np.uint8)
    part = wide[5:45, 10:60]
    crop = Crop(25, 20, 40, 40, 0.2)
    with Bundle.open(objects.bundle()) as cascade:
        vision = Vision(cascade.network("discs"))
        (one,) = vision.cropped(CameraFrame.of(part), crop).values()
        (other,) = vision.cropped(CameraFrame.of(part.copy()), crop).values()
    np.testing.assert_array_equal(one, other)
