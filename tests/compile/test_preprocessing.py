"""The preprocessing from the command line to the device: what is printed, stored and
computed is one and the same.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Bundle, Session, read_photo
from onnx import TensorProto, helper, save

import edgec
from edgec.frontends import read_model
from edgec.quantize import choose, load_calibration
from tests.cli.verbs import edgec as typed
from tests.frontends.tflite_with_metadata import metadata, model, with_metadata

PHOTOS = Path(__file__).parents[2] / "fixtures" / "photos"
PHOTO = PHOTOS / "coffee.jpg"
SPEC = "0_255,mean=10/20/30,std=2/3/4,bgr,letterbox=7,topleft,bicubic"


def _abs(folder: Path) -> Path:
    """A network that gives its input back, with its sign taken off: abs(x [1,3,24,32])."""
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 3, 24, 32))
        for n in ("x", "y")
    )
    graph = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["y"], name="abs")], "g", [x], [y]
    )
    save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]),
        folder / "abs.onnx",
    )
    return folder / "abs.onnx"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the Pi too, by a preprocessing with everything in it."""
    folder = tmp_path_factory.mktemp("abs")
    done = typed(
        "compile",
        _abs(folder),
        "--target",
        "pi4",
        "--preprocess",
        SPEC,
        "-o",
        "abs.edgec",
        cwd=folder,
    )
    assert done.code == 0, done.err
    assert f'a photo becomes "x" by {SPEC},nchw (given: {SPEC})' in " ".join(
        done.out.split()
    )
    return folder / "abs.edgec"


@pytest.mark.slow
def test_host_and_device_make_the_same_of_a_photo(bundle: Path, tmp_path: Path) -> None:
    inputs = read_model(bundle.with_suffix(".onnx")).inputs
    calibration = load_calibration(PHOTO, inputs, choose(inputs, SPEC, {})["x"])[0]["x"]
    with Session(bundle) as session:
        on_device = session.run({"x": read_photo(PHOTO)})["y"]
    np.testing.assert_array_equal(on_device, np.abs(calibration))
    done = typed("run", bundle, "--input", PHOTO, "--output", "out.npz", cwd=tmp_path)
    assert done.code == 0, done.err
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], on_device)
    assert f'coffee.jpg became "x" by {SPEC},nchw (given: {SPEC})' in done.out
    np.testing.assert_array_equal(
        edgec.run(bundle, {"x": read_photo(PHOTO)})["y"], on_device
    )


@pytest.mark.slow
def test_prepared_inputs_are_taken_as_they_are(bundle: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.full((1, 3, 24, 32), -2, np.float32))
    done = typed(
        "run", bundle, "--input", "in.npy", "--output", "out.npz", cwd=tmp_path
    )
    assert (np.load(tmp_path / "out.npz")["y"] == 2).all()
    assert "became" not in done.out


@pytest.mark.slow
@pytest.mark.arm
def test_the_boards_program_gets_what_the_host_prepared(
    bundle: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "in.npz", x=read_photo(PHOTO))
    for given in (PHOTO, "in.npz"):
        done = typed(
            "run",
            bundle,
            "--input",
            given,
            "--output",
            "out.npz",
            "--on",
            "emulated:pi4",
            cwd=tmp_path,
        )
        assert done.code == 0, done.err
        assert "by 0_255,mean=10/20/30" in done.out
        with Session(bundle) as session:
            here = session.run({"x": read_photo(PHOTO)})["y"]
        np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], here)


@pytest.mark.slow
def test_the_default_is_in_the_manifest_and_said_to_be_assumed(tmp_path: Path) -> None:
    done = typed("compile", _abs(tmp_path), "-o", "abs.edgec", cwd=tmp_path)
    said = '"x" by 0_1,rgb,stretch,bilinear,nchw (assumed; --preprocess says otherwise)'
    assert f"a photo becomes {said}" in done.out
    stored = json.loads(zipfile.ZipFile(tmp_path / "abs.edgec").read("manifest.json"))[
        "preprocess"
    ]
    assert stored["x"]["range"] == "0_1"
    assert stored["x"]["given"] is None
    with Bundle.open(tmp_path / "abs.edgec") as opened:
        assert opened.manifest.preprocess["x"].assumed
    done = typed(
        "run", "abs.edgec", "--input", PHOTO, "--output", "out.png", cwd=tmp_path
    )
    assert f"coffee.jpg became {said}" in done.out


def test_explain_prints_it_where_photos_were_used(tmp_path: Path) -> None:
    path = _abs(tmp_path)
    shown = typed(
        "explain",
        path,
        "--calibrate",
        PHOTOS,
        "--quantize",
        "fast",
        "--preprocess",
        SPEC,
        cwd=tmp_path,
    )
    assert shown.code == 0, shown.err
    assert f'a photo becomes "x" by {SPEC},nchw' in " ".join(shown.out.split())
    shown = typed(
        "explain",
        path,
        "--calibrate",
        PHOTOS,
        "--quantize",
        "fast",
        "--json",
        cwd=tmp_path,
    )
    assert json.loads(shown.out)["remarks"] == [
        'a photo becomes "x" by 0_1,rgb,stretch,bilinear,nchw (assumed; '
        "--preprocess says otherwise)"
    ]
    assert (
        json.loads(typed("explain", path, "--json", cwd=tmp_path).out)["remarks"] == []
    )


def test_the_files_metadata_is_the_default_and_damage_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(with_metadata(model(), metadata([127], [128])))
    shown = typed(
        "explain",
        path,
        "--calibrate",
        PHOTOS,
        "--quantize",
        "fast",
        cwd=tmp_path,
    )
    assert "(from the file's metadata: 0_255,mean=127,std=128,rgb)" in " ".join(
        shown.out.split()
    )
    path.write_bytes(with_metadata(model(), metadata([127], [0])))
    shown = typed("explain", path, cwd=tmp_path)
    assert shown.code == 0
    assert "note: the file's metadata is ignored for image:" in shown.out


@pytest.mark.parametrize(
    ("spec", "what", "hint"),
    [
        ("bgr_imagenet", 'no preprocessing "bgr_imagenet"', "write imagenet,bgr"),
        ("0_1+bgr", 'no preprocessing "0_1+bgr"', "separate by commas: 0_1,bgr"),
        ("mean=123", "mean=123 is not in 0…1", "docs/preprocessing.md"),
        ("raw", "raw is for int8 and uint8; write 0_255", "docs/preprocessing.md"),
        ("nhwc", "is not an image of 1 or 3 channels in nhwc", ".npz"),
    ],
)
def test_wrong_preprocessings_are_refused_before_any_work(
    tmp_path: Path, spec: str, what: str, hint: str
) -> None:
    done = typed("compile", _abs(tmp_path), "--preprocess", spec, cwd=tmp_path)
    assert done.code == 2
    assert what in done.err
    assert hint in done.err
    assert not list(tmp_path.glob("*.edgec"))


def test_an_input_that_is_no_image_takes_no_photo(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(model(channels=4))
    done = typed("explain", "m.tflite", "--preprocess", "0_1", cwd=tmp_path)
    assert done.code == 2
    assert "no input is an image of 1 or 3 channels: image float32[1,8,8,4]" in done.err
