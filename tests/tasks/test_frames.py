"""Frames made into inputs by generated C: the same bits as numpy, from every format,
and close to Pillow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import InputError, QuantInfo, TensorInfo, prepare
from edgec_runtime.model.native import FrameInput
from edgec_runtime.vision.camera import FORMATS, CameraFrame, decode_jpeg
from edgec_runtime.vision.preprocess import bind, parse
from edgec_runtime.vision.resample import ONE, padded
from PIL import Image

from edgec.ir import Array
from tests.tasks.vision import frame_inputs

WAYS = {
    "0_255,bgr,letterbox,topleft": TensorInfo("a", (1, 3, 56, 40), "<f4"),
    "0_1": TensorInfo("b", (1, 36, 64, 3), "<f4"),
    "imagenet,crop=0.875": TensorInfo(
        "c", (1, 32, 32, 3), "|i1", QuantInfo((1 / 127,), (3,))
    ),
    "0_1,bicubic": TensorInfo("d", (1, 24, 24, 1), "<f4"),
    "0_255,area,letterbox=1/20/200": TensorInfo("e", (2, 3, 30, 30), "<f4"),
    "raw,nearest,crop": TensorInfo("f", (1, 19, 48, 3), "|u1"),
    "raw,gray,bicubic": TensorInfo("g", (1, 3, 17, 48), "|i1", QuantInfo((1.0,), (0,))),
}
SIZES = [(64, 48), (38, 54), (2, 2), (130, 8), (6, 300)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FrameInput]:
    how = {info.name: bind(info, parse(text)) for text, info in WAYS.items()}
    found = frame_inputs([*WAYS.values()], how, tmp_path_factory.mktemp("vision"))
    return dict(zip(WAYS, found, strict=True))


def frame(format: str, width: int, height: int, seed: int = 0) -> CameraFrame:
    each = {"gray": 2, "rgba": 8, "yuyv": 4, "nv12": 3}.get(format, 6)
    data = np.random.default_rng(seed).integers(
        0, 256, width * height * each // 2, np.uint8
    )
    return CameraFrame.packed(format, data, width, height)


@pytest.mark.cc
@pytest.mark.parametrize("text", WAYS)
@pytest.mark.parametrize("format", FORMATS)
def test_c_makes_the_same_bits(
    made: dict[str, FrameInput], text: str, format: str
) -> None:
    info = WAYS[text]
    for n, (width, height) in enumerate(SIZES):
        given = frame(format, width, height, n)
        out = np.empty(info.shape, info.numpy_dtype)
        assert made[text](given, out)
        np.testing.assert_array_equal(
            out, prepare(given.rgb(), bind(info, parse(text)), info)
        )


@pytest.mark.cc
def test_odd_sizes_and_rows_that_are_apart(made: dict[str, FrameInput]) -> None:
    wide = np.random.default_rng(1).integers(0, 256, (33, 61, 3), np.uint8)
    turned = np.ascontiguousarray(wide.transpose(1, 0, 2)).transpose(1, 0, 2)
    for pixels in (
        wide,
        wide[3:20, 5:28],
        wide[::2],
        wide[::-1],
        wide[:, ::-1],
        wide[:1, :1],
        turned,
    ):
        for text, info in WAYS.items():
            out = np.empty(info.shape, info.numpy_dtype)
            assert made[text](CameraFrame.of(pixels), out)
            np.testing.assert_array_equal(
                out, prepare(pixels, bind(info, parse(text)), info)
            )


@pytest.mark.cc
def test_what_c_has_no_room_for_is_left_to_numpy(made: dict[str, FrameInput]) -> None:
    """More than 512 rows in one of the result's."""
    info = WAYS["0_1"]
    tall = np.zeros((256 * 36 + 400, 4, 3), np.uint8)
    assert not made["0_1"](CameraFrame.of(tall), np.empty(info.shape, np.float32))


@pytest.mark.parametrize("how", ["bilinear", "bicubic", "area", "nearest"])
@pytest.mark.parametrize(("length", "count"), [(1, 5), (7, 7), (640, 224), (20, 333)])
def test_padded_weights_stay_within_and_sum_to_one(
    how: str, length: int, count: int
) -> None:
    first, weights = padded(how, length, 0.25, length - 0.25, count)
    assert (first >= 0).all()
    assert (first + weights.shape[1] <= length).all()
    assert (weights.sum(axis=1, dtype=np.int64) == ONE).all()


def _float_rgb(luma: Array, u: Array, v: Array) -> Array:
    """BT.601 with Y in 16…235, as its equations are."""
    y = 255 / 219 * (luma.astype(np.float64) - 16)
    u = u.astype(np.float64) - 128
    v = v.astype(np.float64) - 128
    red = y + 1.402 * 255 / 224 * v
    blue = y + 1.772 * 255 / 224 * u
    green = (y - 0.299 * red - 0.114 * blue) / 0.587
    return np.clip(np.stack([red, green, blue], -1), 0, 255)


def test_yuv_is_within_one_level_of_its_equations() -> None:
    packed = frame("yuyv", 256, 64, 5)
    p = packed.planes[0]
    u, v = (np.repeat(p[:, i::2, 1], 2, axis=1) for i in (0, 1))
    assert np.abs(packed.rgb() - _float_rgb(p[..., 0], u, v)).max() <= 1
    planar = frame("nv12", 256, 64, 6)
    u, v = (
        np.repeat(np.repeat(planar.planes[1][:, i::2], 2, axis=1), 2, axis=0)
        for i in (0, 1)
    )
    assert np.abs(planar.rgb() - _float_rgb(planar.planes[0], u, v)).max() <= 1


@pytest.mark.cc
@pytest.mark.parametrize("size", [(64, 48), (400, 300), (1280, 720)])
def test_c_is_within_one_level_of_pillow(
    made: dict[str, FrameInput], size: tuple[int, int]
) -> None:
    pixels = frame("rgb", *size).rgb()
    info = WAYS["0_1"]
    out = np.empty(info.shape, np.float32)
    assert made["0_1"](CameraFrame.of(pixels), out)
    by_pillow = np.asarray(
        Image.fromarray(pixels).resize((64, 36), Image.Resampling.BILINEAR)
    )
    assert np.abs(out[0] * 255 - by_pillow).max() <= 1.001


def test_frames_of_the_wrong_size_are_refused() -> None:
    with pytest.raises(InputError, match="5 bytes are not one rgb frame of 2 x 1"):
        CameraFrame.packed("rgb", np.zeros(5, np.uint8), 2, 1)
    with pytest.raises(InputError) as e:
        CameraFrame.packed("yuyv", np.zeros(6, np.uint8), 3, 1)
    assert e.value.hint == "its sides are even"
    with pytest.raises(InputError, match="no frame format"):
        CameraFrame.packed("yuy2", np.zeros(4, np.uint8), 2, 1)


@pytest.mark.parametrize(
    ("format", "data", "width", "what"),
    [
        ("rgb", np.full(6, np.nan), 2, "the data of a frame are float64"),
        ("rgb", [300] * 6, 2, "the data of a frame are list"),
        ("rgb", "abcdef", 2, "the data of a frame are str"),
        ("rgb", None, 2, "the data of a frame are NoneType"),
        ("rgb", bytes(6), None, "sides of a frame are None and 1"),
        ("rgb", bytes(6), "2", "sides of a frame are '2' and 1"),
        ("rgb", bytes(6), np.array([2, 2]), "sides of a frame are array"),
        (np.array(["rgb", "bgr"]), bytes(6), 2, "there is no frame format"),
    ],
)
def test_what_is_no_packed_frame(format: Any, data: Any, width: Any, what: str) -> None:
    with pytest.raises(InputError, match=what):
        CameraFrame.packed(format, data, width, 1)


def test_a_frame_of_bytes() -> None:
    given = CameraFrame.packed("rgb", bytes(range(6)), 2, 1)
    np.testing.assert_array_equal(given.rgb().reshape(-1), np.arange(6))


def test_lists_of_several_lengths_are_no_photo() -> None:
    with pytest.raises(InputError, match="a photo is a uint8 array, not a list"):
        CameraFrame.of([[1, 2], [3]])  # type: ignore[arg-type]


def test_a_jpeg_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "p.jpg"
    smooth = np.add.outer(np.arange(48), np.arange(64)).astype(np.uint8)
    Image.fromarray(np.stack([smooth, smooth + 40, smooth + 80], -1)).save(
        path, quality=95
    )
    decoded = decode_jpeg(path.read_bytes()).rgb()
    assert decoded.shape == (48, 64, 3)
    assert np.abs(decoded[..., 1].astype(int) - smooth - 40).mean() < 3
    with pytest.raises(InputError, match="not a JPEG"):
        decode_jpeg(b"\xff\xd8 cut off")


def _shaped(*shapes: tuple[int, ...], dtype: str = "uint8") -> tuple[Array, ...]:
    return tuple(np.zeros(shape, dtype) for shape in shapes)


NO_FRAMES = {
    "nv12 of one plane": ("nv12", _shaped((4, 4))),
    "nv12 with few colours": ("nv12", _shaped((4, 4), (1, 2))),
    "nv12 of three planes": ("nv12", _shaped((4, 4), (2, 4), (2, 4))),
    "odd nv12": ("nv12", _shaped((5, 4), (2, 4))),
    "odd yuyv": ("yuyv", _shaped((4, 5, 2))),
    "yuyv of three bytes": ("yuyv", _shaped((4, 4, 3))),
    "rgba of three channels": ("rgba", _shaped((4, 4, 3))),
    "rgb of two": ("rgb", _shaped((4, 4, 2))),
    "gray of three": ("gray", _shaped((4, 4, 3))),
    "floats": ("rgb", _shaped((4, 4, 3), dtype="float32")),
    "no rows": ("rgb", _shaped((0, 4, 3))),
    "one axis": ("gray", _shaped((16,))),
    "no planes": ("rgb", ()),
    "an array for planes": ("gray", np.zeros((1, 4, 4), np.uint8)),
    "a list for a plane": ("gray", ([[1, 2], [3, 4]],)),
    "rows without end": ("gray", (np.broadcast_to(np.uint8(0), (1 << 32, 4)),)),
    "another format": ("yuv", _shaped((4, 4))),
}


@pytest.mark.parametrize("case", NO_FRAMES)
def test_what_is_no_frame_is_refused_before_c_reads_it(case: str) -> None:
    with pytest.raises(InputError) as e:
        CameraFrame(*NO_FRAMES[case])  # type: ignore[arg-type]
    assert e.value.hint


@pytest.mark.parametrize("photo", [[], None, np.zeros((4, 4, 5), np.uint8)])
def test_what_is_no_photo_is_refused(photo: Any) -> None:
    with pytest.raises(InputError):
        CameraFrame.of(photo)


@pytest.mark.cc
def test_an_array_that_was_changed_since_is_refused(
    made: dict[str, FrameInput],
) -> None:
    """Its shape is changed where it is: the C would read other memory."""
    info = WAYS["0_1"]
    pixels = np.zeros((64, 64), np.uint8)
    given = CameraFrame("gray", (pixels,))
    pixels.shape = (16, 256)
    assert made["0_1"](given, np.empty(info.shape, np.float32))
    pixels.shape = (4096,)
    with pytest.raises(InputError, match="has no pixels"):
        made["0_1"](given, np.empty(info.shape, np.float32))


@pytest.mark.cc
def test_an_array_that_c_could_not_fill_is_refused(
    made: dict[str, FrameInput],
) -> None:
    info = WAYS["0_1"]
    given = frame("rgb", 64, 48)
    fixed = np.zeros(info.shape, np.float32)
    fixed.flags.writeable = False
    for out in (
        np.empty((1, 36, 64), np.float32),
        np.empty(info.shape, np.float16),
        np.empty((*info.shape[:3], 6), np.float32)[..., ::2],
        fixed,
    ):
        with pytest.raises(InputError, match="an array is"):
            made["0_1"](given, out)
