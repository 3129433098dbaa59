"""Calibration data from files, and what is said of files that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgec.errors import InputError
from edgec.ir import Quant, TensorType, Value
from edgec.quantize import choose, load_calibration
from edgec.quantize.observe.calibration import Photos, split

IMAGE = Value("image", TensorType((1, 4, 6, 3)))
PLANES = Value("planes", TensorType((1, 3, 4, 6)))
PLAIN = Value("plain", TensorType((2, 5)))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two photos of one colour each, a folder and a text file."""
    folder = tmp_path / "photos"
    (folder / "inner").mkdir(parents=True)
    Image.new("RGB", (12, 8), (255, 128, 0)).save(folder / "b.PNG")
    Image.new("RGB", (30, 30), (0, 64, 255)).save(folder / "a.bmp")
    (folder / "notes.txt").write_text("not a photo")
    return folder


def test_photos_come_by_name_in_the_input_layout(photos: Path) -> None:
    samples = load_calibration(photos, [IMAGE])
    assert [s["image"].shape for s in samples] == [(1, 4, 6, 3)] * 2
    np.testing.assert_allclose(
        samples[0]["image"][0, 0, 0], np.array([0, 64, 255]) / 255, rtol=1e-6
    )
    assert load_calibration(photos, [PLANES])[1]["planes"].shape == (1, 3, 4, 6)
    np.testing.assert_array_equal(
        load_calibration(photos, [PLANES])[1]["planes"],
        samples[1]["image"].transpose(0, 3, 1, 2),
    )
    assert len(load_calibration(photos, [IMAGE], limit=1)) == 1
    assert len(load_calibration(photos / "a.bmp", [IMAGE])) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("0_1", [0, 64 / 255, 1]),
        ("0_255", [0, 64, 255]),
        ("m1_1", [-1, 64 / 127.5 - 1, 1]),
        ("0_1,bgr", [1, 64 / 255, 0]),
        ("imagenet", [-0.485 / 0.229, (64 / 255 - 0.456) / 0.224, (1 - 0.406) / 0.225]),
    ],
)
def test_preprocessing(photos: Path, name: str, expected: list[float]) -> None:
    sample = load_calibration(photos, [IMAGE], choose([IMAGE], name, {})["image"])[0][
        "image"
    ]
    assert sample.dtype == np.float32
    np.testing.assert_allclose(sample[0, 3, 5], expected, rtol=1e-5, atol=1e-6)


def test_quantized_inputs_take_raw_pixels_or_reals(photos: Path) -> None:
    q = Quant.per_tensor(1 / 127, 0)
    u8 = Value("u", TensorType((1, 4, 6, 3), "uint8", Quant.per_tensor(1.0)))
    s8 = Value("s", TensorType((1, 4, 6, 3), "int8", q))
    assert load_calibration(photos, [u8])[0]["u"][0, 0, 0].tolist() == [0, 64, 255]
    assert load_calibration(photos, [s8])[0]["s"][0, 0, 0].tolist() == [-128, -64, 127]
    assert load_calibration(photos, [s8], choose([s8], "m1_1", {})["s"])[0]["s"][
        0, 0, 0
    ].tolist() == [-127, -63, 127]


def test_a_photo_is_turned_upright_and_grey_if_wanted(tmp_path: Path) -> None:
    picture = Image.fromarray(np.array([[0, 255], [0, 255]], np.uint8))
    exif = picture.getexif()
    exif[0x0112] = 6  # turned by a quarter
    picture.save(tmp_path / "turned.jpg", exif=exif, quality=100)
    grey = Value("grey", TensorType((1, 1, 2, 2)))
    sample = load_calibration(tmp_path, [grey])[0]["grey"]
    np.testing.assert_allclose(sample[0, 0], [[0, 0], [1, 1]], atol=0.02)


def test_npz_by_name_by_number_or_alone(tmp_path: Path) -> None:
    a = np.ones((3, 2, 5), np.float32)
    b = np.zeros((3, 1, 4, 6, 3), np.float64)
    path = tmp_path / "c.npz"
    np.savez(path, plain=a, image=b, other=np.zeros(1))
    samples = load_calibration(path, [PLAIN, IMAGE])
    assert len(samples) == 3
    assert samples[2]["image"].dtype == np.float32
    np.savez(path, in1_0=a[0], in0_0=a[0] * 2, out0_0=a[0])
    assert [s["plain"][0, 0] for s in load_calibration(path, [PLAIN])] == [2, 1]
    np.savez(path, whatever=np.zeros((7, 4, 6, 3), np.float32))
    assert [s["image"].shape for s in load_calibration(path, [IMAGE])] == [
        (1, 4, 6, 3)
    ] * 7
    np.savez(path, a[0])
    assert len(load_calibration(path, [PLAIN])) == 1


def _message(path: Path, *inputs: Value) -> str:
    with pytest.raises(InputError) as e:
        list(load_calibration(path, inputs))
    assert e.value.hint
    assert "\n  at: " in str(e.value) or "no such" in str(e.value)
    return e.value.what


def test_what_is_wrong_is_said(tmp_path: Path, photos: Path) -> None:
    assert "no such calibration data" in _message(tmp_path / "nothing", IMAGE)
    assert "holds no photo" in _message(photos / "inner", IMAGE)
    assert "neither an .npz file, a photo nor a folder" in _message(
        photos / "notes.txt", IMAGE
    )
    assert "photos feed one input" in _message(photos, IMAGE, PLAIN)
    (photos / "c.jpg").write_bytes(b"broken")
    assert "c.jpg cannot be read as a photo" in _message(photos, IMAGE)
    path = tmp_path / "c.npz"
    path.write_bytes(b"broken")
    assert "cannot be read: " in _message(path, IMAGE)
    np.savez(path, x=np.zeros((2, 5)), y=np.zeros(2))
    assert "no array named plain; it has x, y" in _message(path, PLAIN)
    np.savez(path, plain=np.zeros((3, 5)))
    assert "array plain has shape [3, 5], but input plain is float32[2,5]" in _message(
        path, PLAIN
    )
    np.savez(path, plain=np.zeros((2, 5), np.uint8))
    assert "array plain is uint8" in _message(path, PLAIN)
    np.savez(path, plain=np.zeros((3, 2, 5)), image=np.zeros((2, 4, 6, 3)))
    assert "unequal numbers of samples: 3 of plain, 2 of image" in _message(
        path, PLAIN, IMAGE
    )
    np.savez(path, in0_0=np.zeros((2, 5)))
    assert "has no array in0_1 for input image" in _message(path, PLAIN, IMAGE)
    for n in (0, 3):
        np.savez(path, in0_0=np.zeros((n, 2, 5)))
        assert (
            f"array in0_0 holds {n} samples, and its name says which one it is"
            in _message(path, PLAIN)
        )
    np.savez(path, plain=np.zeros((0, 2, 5)))
    assert "holds no sample" in _message(path, PLAIN)


def test_inputs_that_are_no_image(photos: Path) -> None:
    with pytest.raises(InputError, match="is not an image"):
        load_calibration(photos, [PLAIN])
    with pytest.raises(InputError, match="cannot take a photo"):
        load_calibration(photos, [Value("i", TensorType((1, 4, 6, 3), "int64"))])
    with pytest.raises(InputError, match=r'no preprocessing "0_2"'):
        choose([IMAGE], "0_2", {})
    with pytest.raises(
        InputError, match="no input is an image of 1 or 3 channels: plain"
    ):
        choose([PLAIN], "0_1", {})
    assert choose([PLAIN], None, {}) == {}
    assert list(choose([PLAIN, IMAGE], "imagenet", {})) == ["image"]


@pytest.mark.parametrize(
    ("count", "held"), [(1, 0), (3, 0), (4, 1), (9, 2), (43, 10), (64, 16), (1000, 16)]
)
def test_a_quarter_is_held_back(tmp_path: Path, count: int, held: int) -> None:
    path = tmp_path / "c.npz"
    np.savez(path, plain=np.arange(count * 10, dtype=np.float32).reshape(count, 2, 5))
    every = load_calibration(path, [PLAIN])
    known, other = split(every, 100)
    seen, kept = ({float(s["plain"][0, 0]) for s in part} for part in (known, other))
    assert (len(kept), len(seen)) == (held, min(100, count - held))
    assert not seen & kept
    again = split(load_calibration(path, [PLAIN]), 100)
    assert [[s["plain"][0, 0] for s in part] for part in again] == [
        [s["plain"][0, 0] for s in p] for p in (known, other)
    ]
    assert len(split(every, 1000, hold=False)[0]) == count
    assert len(split(every, 1000, hold=False)[1]) == 0


def test_both_parts_are_drawn_from_the_whole_folder() -> None:
    """The first photos of a folder may be all of one kind."""
    known, other = split([{"plain": np.array(i)} for i in range(1000)], 100)
    for part in (known, other):
        assert 300 < np.mean([s["plain"] for s in part]) < 700


def test_photos_that_are_held_back_are_not_read(photos: Path) -> None:
    for i, name in enumerate("defghi"):
        Image.new("RGB", (6, 4), (i, 0, 0)).save(photos / f"{name}.png")
    known, other = split(load_calibration(photos, [IMAGE]), 100)
    assert isinstance(known, Photos)
    assert isinstance(other, Photos)
    assert len(other) == 2
    for path in other.paths:
        path.write_bytes(b"broken")
    assert len(list(known)) == len(known)


def test_copies_of_a_photo_are_one_sample(photos: Path) -> None:
    """Else what is held back could be what calibration saw."""
    (photos / "c.png").write_bytes((photos / "b.PNG").read_bytes())
    assert len(load_calibration(photos, [IMAGE])) == 2


def test_folders_of_classes_take_turns(tmp_path: Path) -> None:
    """So that few samples have pictures of all classes."""
    for name, level in {"cats/1.png": 0, "cats/2.png": 51, "dogs/1.png": 255}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (9, 9), (level, level, level)).save(path)
    samples = load_calibration(tmp_path, [IMAGE])
    levels = [float(s["image"].mean()) for s in samples]
    np.testing.assert_allclose(levels, [0, 1, 51 / 255], rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_arrays_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    np.savez(tmp_path / "x.npz", plain=np.full((2, 5), value, np.float32))
    with pytest.raises(InputError, match="NaN or infinite"):
        load_calibration(tmp_path / "x.npz", [PLAIN])
