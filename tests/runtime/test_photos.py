"""What a session takes for a photo, and what for an input that is ready."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import (
    Bundle,
    InputError,
    Preprocess,
    Session,
    prepare,
    read_photo,
    write_bundle,
)
from edgec_runtime.__main__ import main
from edgec_runtime.model.inputs import check_inputs
from edgec_runtime.vision.preprocess import bind, parse
from PIL import Image

from tests.runtime import tiny_model

pytestmark = pytest.mark.cc


def _bundle(folder: Path, library: Path, text: str) -> Path:
    """The tiny model, whose input is uint8 [1,4,4,3], with a preprocessing."""
    manifest, files = tiny_model.parts(library)
    with_info = Bundle.open(_written(folder / "plain.edgec", manifest, files)).manifest
    manifest["preprocess"] = {
        "image": bind(with_info.tensors["image"], parse(text)).to_json()
    }
    return _written(folder / "photos.edgec", manifest, files)


def _written(path: Path, manifest: dict[str, object], files: dict[str, bytes]) -> Path:
    write_bundle(path, manifest, files)
    return path


def test_an_array_of_the_inputs_shape_is_taken_as_it_is(
    library: Path, tmp_path: Path
) -> None:
    with Session(_bundle(tmp_path, library, "raw,bgr,crop")) as s:
        ready = tiny_model.image()
        photo = tiny_model.image()[0]
        np.testing.assert_array_equal(
            s.run({"image": ready})["out"], tiny_model.reference(ready)["out"]
        )
        turned = np.ascontiguousarray(ready[..., ::-1])
        np.testing.assert_array_equal(
            s.run({"image": photo})["out"], tiny_model.reference(turned)["out"]
        )


@pytest.mark.parametrize(
    "shape",
    [(1, 1, 3), (7, 3, 3), (480, 641, 3), (33, 20, 4), (9, 9), (5, 6, 1), (4, 4, 3)],
)
@pytest.mark.parametrize(
    "text", ["raw", "0_255,letterbox=7", "raw,crop=0.5,gray", "m1_1,bgr,area"]
)
def test_photos_of_odd_sizes(
    library: Path, tmp_path: Path, shape: tuple[int, ...], text: str
) -> None:
    photo = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    with Session(_bundle(tmp_path, library, text)) as s:
        by_hand = prepare(photo, s.manifest.preprocess["image"], s.inputs[0])
        assert by_hand.shape == (1, 4, 4, 3)
        np.testing.assert_array_equal(
            s.run({"image": photo})["out"], tiny_model.reference(by_hand)["out"]
        )
        np.testing.assert_array_equal(s.prepare({"image": photo})["image"], by_hand)


def test_a_picture_of_pillow_is_a_photo(library: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    Image.fromarray(tiny_model.image(3)[0]).save(path)
    with Session(_bundle(tmp_path, library, "raw")) as s, Image.open(path) as picture:
        expected = tiny_model.reference(tiny_model.image(3))["out"]
        np.testing.assert_array_equal(s.run({"image": picture})["out"], expected)
        np.testing.assert_array_equal(
            s.run({"image": read_photo(path)})["out"], expected
        )


def test_what_is_no_photo_is_refused_with_both_ways_out(
    library: Path, tmp_path: Path
) -> None:
    with Session(_bundle(tmp_path, library, "raw")) as s:
        for wrong in (
            np.zeros((1, 8, 8, 3), np.uint8),
            np.zeros((8, 8, 3), np.float32),
            np.zeros((8, 8, 2), np.uint8),
        ):
            with pytest.raises(InputError) as e:
                s.run({"image": wrong})
            assert "or give a photo: uint8 [height, width, 3]" in (e.value.hint or "")
        with pytest.raises(InputError, match="is empty"):
            s.run({"image": np.zeros((0, 5, 3), np.uint8)})


def test_an_input_without_preprocessing_takes_no_photo(
    library: Path, tmp_path: Path
) -> None:
    with Bundle.open(_bundle(tmp_path, library, "raw")) as bundle:
        plain = replace(bundle.manifest, preprocess={})
    with pytest.raises(InputError) as e:
        check_inputs(plain, {"image": tiny_model.image()[0]})
    assert e.value.hint == "add the batch axis: array[None]"


def test_the_devices_program_decodes_photos_where_pillow_is(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.png"
    bundle = _bundle(tmp_path, library, "0_255,bgr")
    Image.fromarray(tiny_model.image(3)[0]).save(path)
    monkeypatch.setattr(
        "sys.argv",
        ["edgec_runtime", str(bundle), "--input", str(path), "--output", str(tmp_path)],
    )
    assert main() == 0
    expected = tiny_model.reference(
        np.ascontiguousarray(tiny_model.image(3)[..., ::-1])
    )["out"]
    np.testing.assert_array_equal(np.load(tmp_path / "output0.npy"), expected)


def test_the_devices_program_takes_no_more_files_than_inputs(
    library: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle = _bundle(tmp_path, library, "0_255,bgr")
    files = [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]
    monkeypatch.setattr("sys.argv", ["edgec_runtime", str(bundle), "--input", *files])
    assert main() == 2
    assert "2 files are more than the model has inputs, 1" in capsys.readouterr().err


def test_a_photo_of_16_bits_keeps_its_shades(tmp_path: Path) -> None:
    """Pillow's own conversion makes everything above 255 white."""
    shades = np.arange(0, 65536, 257, dtype=np.uint16).reshape(16, 16)
    Image.fromarray(shades).save(tmp_path / "deep.png")
    np.testing.assert_array_equal(
        read_photo(tmp_path / "deep.png"),
        np.arange(256).reshape(16, 16, 1).repeat(3, 2),
    )


@pytest.mark.filterwarnings("error")
def test_large_photos_are_read_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (9, 8)).save(tmp_path / "large.webp")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60)
    assert read_photo(tmp_path / "large.webp").shape == (8, 9, 3)


def test_files_that_are_no_photo(tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"broken.jpg cannot be read as a photo"):
        read_photo(tmp_path / "broken.jpg")
    with pytest.raises(InputError, match=r"there is no photo .*missing.jpg") as caught:
        read_photo(tmp_path / "missing.jpg")
    assert caught.value.hint == "check the path"


def test_the_manifest_is_typed(library: Path, tmp_path: Path) -> None:
    with Bundle.open(
        _bundle(tmp_path, library, "m1_1,letterbox=1/2/3,topleft")
    ) as bundle:
        found = bundle.manifest.preprocess["image"]
        assert isinstance(found, Preprocess)
        assert str(found) == "m1_1,rgb,letterbox=1/2/3,topleft,bilinear,nhwc"
        assert found.explained().endswith("(given: m1_1,letterbox=1/2/3,topleft)")
