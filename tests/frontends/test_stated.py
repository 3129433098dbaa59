"""The preprocessing that model files state: TFLite's metadata, ONNX's properties; and
files that state nonsense.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from edgec_runtime import TensorInfo, prepare
from edgec_runtime.vision.preprocess import parse
from hypothesis import given
from hypothesis import strategies as st

from edgec.frontends import read_model
from edgec.frontends.preprocessing_metadata import Stated, stated_preprocessing
from edgec.ir.tensors import tensor_info
from edgec.quantize.observe.preprocess import choose
from tests.frontends import onnx_files
from tests.frontends.tflite_with_metadata import metadata, model, with_metadata

WHOLE = with_metadata(model(), metadata([127.5], [127.5]))


def _stated(path: Path) -> Stated:
    return stated_preprocessing(
        path, [tensor_info(v.name, v.type) for v in read_model(path).inputs]
    )


def _of(path: Path, data: bytes) -> Stated:
    path.write_bytes(data)
    return _stated(path)


@pytest.mark.parametrize(
    ("mean", "std", "color", "text"),
    [
        ([127.5], [127.5], 1, "m1_1,rgb"),
        ([127.5] * 3, [127.5] * 3, 1, "m1_1,rgb"),
        ([0], [255], 0, "0_1"),
        ([0], [1], 1, "0_255,rgb"),
        ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375], 1, "imagenet,rgb"),
        ([127], [128], None, "0_255,mean=127,std=128"),
        ([1, 2, 3.25], [4], None, "0_255,mean=1/2/3.25,std=4"),
        (None, None, 2, "gray"),
        (None, [255], None, "0_1"),
    ],
)
def test_normalization_options(
    tmp_path: Path,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    color: int | None,
    text: str,
) -> None:
    found = _of(
        tmp_path / "m.tflite", with_metadata(model(), metadata(mean, std, color))
    )
    assert found == Stated({"image": parse(text)})


def test_what_the_file_states_is_the_default_and_gives_way(tmp_path: Path) -> None:
    found = _of(tmp_path / "m.tflite", with_metadata(model(), metadata([127], [128])))
    inputs = read_model(tmp_path / "m.tflite").inputs
    default = choose(inputs, None, found.by_input)["image"]
    assert default.explained() == (
        "0_255,mean=127,std=128,rgb,stretch,bilinear,nhwc (from the file's metadata: "
        "0_255,mean=127,std=128,rgb)"
    )
    info = tensor_info("image", inputs[0].type)
    assert prepare(np.full((3, 3, 3), 255, np.uint8), default, info)[
        0, 0, 0
    ].tolist() == [1, 1, 1]
    part = choose(inputs, "letterbox", found.by_input)["image"]
    assert str(part) == "0_255,mean=127,std=128,rgb,letterbox=114,bilinear,nhwc"
    assert (
        str(choose(inputs, "0_1,bgr", found.by_input)["image"])
        == "0_1,bgr,stretch,bilinear,nhwc"
    )


@pytest.mark.parametrize(
    ("scale", "zero", "mean", "text"),
    [
        (
            0.0078125,
            0,
            127.5,
            "raw,rgb",
        ),  # as in the MobileNets of TFLite: the bytes come back
        (1 / 127.5, -1, 127.5, "raw,rgb"),
        (0.0078125, 0, 0.0, "0_255,std=127.5,rgb"),
        (0.02, 0, 127.5, "m1_1,rgb"),
    ],
)
def test_a_quantized_input_whose_bytes_come_back_is_raw(
    tmp_path: Path, scale: float, zero: int, mean: float, text: str
) -> None:
    file = with_metadata(model("int8", scale, zero), metadata([mean], [127.5]))
    assert _of(tmp_path / "m.tflite", file) == Stated({"image": parse(text)})


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "cannot be read"),
        (b"nonsense", "cannot be read"),
        (
            metadata([0], [1], identifier=b"M002"),
            "is ignored (ValueError: its identifier is b'M002'",
        ),
        (metadata([0], [1])[:60], "cannot be read"),
        (metadata([0], [float("nan")]), "mean or std is (nan,)"),
        (metadata([0], [0]), "ignored for image: preprocessing 0_255,std=0,rgb"),
        (metadata([0], [-1]), "std=-1 is not above 0"),
        (metadata([0, 0], [1, 1]), "mean and std are one number, or three"),
    ],
)
def test_malformed_metadata_is_ignored_with_a_note(
    tmp_path: Path, data: bytes, what: str
) -> None:
    found = _of(tmp_path / "m.tflite", with_metadata(model(), data))
    assert found.by_input == {}
    assert len(found.notes) == 1
    assert what in found.notes[0]


def test_files_without_metadata_state_nothing(tmp_path: Path) -> None:
    assert _of(tmp_path / "m.tflite", model()) == Stated()
    assert (
        _of(tmp_path / "m.tflite", with_metadata(model(), metadata(None, None, None)))
        == Stated()
    )


@given(
    st.lists(
        st.tuples(st.integers(8, len(WHOLE) - 1), st.integers(0, 255)),
        min_size=1,
        max_size=6,
    )
)
def test_flipped_bytes_are_noted_or_read(flips: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for at, value in flips:
        data[at] = value
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "m.tflite"
        path.write_bytes(data)
        stated_preprocessing(path, [TensorInfo("image", (1, 8, 8, 3), "<f4")])


@given(st.binary(max_size=120))
def test_random_metadata_is_noted_or_read(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "m.tflite"
        path.write_bytes(with_metadata(model(), b"\x10\0\0\0M001" + data))
        stated_preprocessing(path, [TensorInfo("image", (1, 8, 8, 3), "<f4")])


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"Image.BitmapPixelFormat": "Bgr8"}, "0_255,bgr"),
        (
            {
                "image.nominalpixelrange": "Normalized_0_1",
                "Image.BitmapPixelFormat": "RGB8",
            },
            "0_1,rgb",
        ),
        ({"Image.NominalPixelRange": "Normalized_1_1"}, "m1_1"),
        (
            {"author": "Ultralytics", "task": "detect", "stride": "32"},
            "0_1,rgb,letterbox=114",
        ),
        ({"author": "Ultralytics", "task": "classify"}, "0_1,rgb,crop"),
        ({"author": "somebody"}, None),
    ],
)
def test_properties_of_onnx(
    tmp_path: Path, properties: dict[str, str], text: str | None
) -> None:
    found = _onnx(tmp_path, properties)
    assert found == Stated({} if text is None else {"x": parse(text)})


def test_properties_of_onnx_that_cannot_be(tmp_path: Path) -> None:
    found = _onnx(tmp_path, {"Image.NominalPixelRange": "NominalRange_16_235"})
    assert found.by_input == {}
    assert "Image.NominalPixelRange is nominalrange_16_235" in found.notes[0]
    assert (
        "takes gray, not rgb"
        in _onnx(tmp_path, {"Image.BitmapPixelFormat": "Rgb8"}, channels=1).notes[0]
    )


def _onnx(folder: Path, properties: dict[str, str], channels: int = 3) -> Stated:
    relu = onnx_files.node("Relu", ["x"], "y")
    path = onnx_files.write(
        folder / "m.onnx", [relu], {"x": (1, channels, 8, 8)}, ["y"]
    )
    file = onnx.load(path)
    onnx.helper.set_model_props(file, properties)
    onnx.save(file, path)
    return _stated(path)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mnv1_025_224_u8/mnv1_025_224_u8.tflite", "raw,rgb"),
        ("mnv2_tf2_i8/mnv2_tf2_i8.tflite", "raw,rgb"),
        ("deeplab_dm05_u8/deeplab_dm05_u8.tflite", None),
        ("yolox_nano_416/yolox_nano_416.onnx", None),
    ],
)
def test_real_files(shared: Path, name: str, text: str | None) -> None:
    found = _stated(shared / "models" / name)
    assert found.notes == ()
    assert [str(wish) for wish in found.by_input.values()] == (
        [] if text is None else [text]
    )


@pytest.mark.shared
def test_a_real_file_of_windows_ml(shared: Path) -> None:
    path = shared / "models" / "fns_winml_udnie" / "fns_winml_udnie.onnx"
    found = stated_preprocessing(
        path, [TensorInfo("inputImage", (1, 3, 720, 720), "<f4")]
    )
    assert found == Stated({"inputImage": parse("0_255,bgr")})
