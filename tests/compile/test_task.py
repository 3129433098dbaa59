"""A task from the command line to what `run` tells, draws and writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Bundle, Session, write_bundle
from edgec_runtime.session.vision import Vision
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.tasks import task_json
from edgec_runtime.vision.tasks.classification import Classification
from onnx import TensorProto, helper, save
from PIL import Image

from edgec.compiler.task import task_notes
from tests.cli.verbs import edgec as typed
from tests.exporting.detectors import detector

pytestmark = pytest.mark.slow


def _net(folder: Path, kind: str, output: tuple[int, ...]) -> Path:
    """One operator on x [1,3,24,32]; of "GlobalAveragePool" the mean of each colour."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 24, 32))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, output)
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], ["y"], name="n")], "g", [x], [y]
    )
    save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]),
        folder / "net.onnx",
    )
    return folder / "net.onnx"


@pytest.fixture(scope="module")
def colors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classification by what lies beside the model."""
    folder = tmp_path_factory.mktemp("colors")
    said = {
        "task": "classification",
        "labels": ["red", "green", "blue"],
        "preprocess": "0_1,letterbox=0",
        "top": 2,
    }
    (folder / "net.edgec-task.json").write_text(json.dumps(said))
    done = typed(
        "compile",
        _net(folder, "GlobalAveragePool", (1, 3, 1, 1)),
        "-o",
        "net.edgec",
        cwd=folder,
    )
    assert done.code == 0, done.err
    return folder / "net.edgec"


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photo") / "p.png"
    Image.new("RGB", (64, 48), (51, 204, 102)).save(path)
    return path


def test_run_tells_the_result_and_draws_it(
    colors: Path, photo: Path, tmp_path: Path
) -> None:
    done = typed("run", colors, "--input", photo, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out.split("\n")[1:3] == ["  80.0%  green", "  40.0%  blue"]
    done = typed("run", colors, "--input", photo, "--json", cwd=tmp_path)
    first = json.loads(done.out)["classes"][0]
    assert (first["label"], first["score"]) == ("green", 0.8)
    done = typed("run", colors, "--input", photo, "--out", "drawn.png", cwd=tmp_path)
    assert "drawn.png: classification (from local:)" in done.out
    drawn = np.asarray(Image.open(tmp_path / "drawn.png"))
    assert drawn.shape == (48, 64, 3)
    assert (drawn != (51, 204, 102)).any()
    done = typed("run", colors, "--input", photo, "--out", "found.json", cwd=tmp_path)
    assert json.loads((tmp_path / "found.json").read_text())["classes"][0] == first


def test_run_gives_outputs_as_they_are(
    colors: Path, photo: Path, tmp_path: Path
) -> None:
    done = typed("run", colors, "--input", photo, "--raw", cwd=tmp_path)
    assert "y: float32[1, 3, 1, 1], 0.2 to 0.8" in done.out
    told = json.loads(
        typed("run", colors, "--input", photo, "--raw", "--json", cwd=tmp_path).out
    )["outputs"]["y"]
    assert told["shape"] == [1, 3, 1, 1]
    typed("run", colors, "--input", photo, "--output", "y.npz", cwd=tmp_path)
    np.testing.assert_allclose(
        np.load(tmp_path / "y.npz")["y"].ravel(), [0.2, 0.8, 0.4], rtol=1e-6
    )
    done = typed(
        "run", colors, "--input", photo, "--raw", "--out", "y.png", cwd=tmp_path
    )
    assert done.code == 0
    # an image of three rows, as the shape says
    assert Image.open(tmp_path / "y.png").getpixel((0, 1)) == 204


def test_the_manifest_has_the_task_and_the_library_its_c(colors: Path) -> None:
    with Bundle.open(colors) as bundle, Session(bundle) as session:
        assert bundle.manifest.task is not None
        assert task_json(bundle.manifest.task) == {
            "schema": 1,
            "task": "classification",
            "output": "y",
            "top": 2,
        }
        assert bundle.manifest.labels == ("red", "green", "blue")
        by_c = Vision(bundle)
        by_numpy = Vision(bundle, native=False)
        assert by_c.native
        assert not by_numpy.native
        data = np.random.default_rng(0).integers(0, 256, 40 * 50 * 2, np.uint8)
        frame = CameraFrame.packed("yuyv", data, 40, 50)
        made = by_c.prepare(frame)
        np.testing.assert_array_equal(made["x"], by_numpy.prepare(frame)["x"])
        result = by_c.result(session.run(made), frame.size).to_json()
        assert result["classes"][0]["score"] > 0
        np.testing.assert_array_equal(
            session.prepare({"x": frame.rgb()})["x"], made["x"]
        )


def test_a_stream_prepares_and_decodes_in_stages_of_its_own(colors: Path) -> None:
    frames = [
        np.full((30 + i, 40, 3), (i, 255 - i, 0), np.uint8) for i in range(0, 255, 25)
    ]
    with Session(colors) as session:
        expected = [
            session.vision.result(session.run({"x": f}), (40, f.shape[0]))
            for f in frames
        ]
        with session.stream(
            frames, before=[session.vision.before], after=[session.vision.after]
        ) as stream:
            assert [shot.value for shot in stream] == expected
        assert {"prepare", "decode"} <= {
            stage.name for stage in stream.figures().stages
        }


def test_a_task_that_does_not_suit_is_refused_before_any_c_is_compiled(
    tmp_path: Path,
) -> None:
    net = _net(tmp_path, "GlobalAveragePool", (1, 3, 1, 1))
    for options, said in (
        (("--task", "detection"), "no output has the shape of the boxes"),
        (("--task", "clasification"), 'did you mean "classification"?'),
        (("--anchors", "a.npy"), "anchors are for a detection"),
    ):
        done = typed("compile", net, *options, "-o", "net.edgec", cwd=tmp_path)
        assert done.code == 2
        assert said in done.err
        assert not (tmp_path / "net.edgec").exists()


def test_a_picture_is_the_result_of_an_image_task(tmp_path: Path, photo: Path) -> None:
    net = _net(tmp_path, "Abs", (1, 3, 24, 32))
    done = typed(
        "compile",
        net,
        "--task",
        "style-bgr",
        "--preprocess",
        "letterbox",
        "-o",
        "net.edgec",
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    tall = tmp_path / "tall.png"
    Image.new("RGB", (30, 60), (10, 200, 90)).save(tall)
    done = typed("run", "net.edgec", "--input", tall, "--out", "out.png", cwd=tmp_path)
    assert "a picture of 32 x 24 pixels" in done.out
    drawn = np.asarray(Image.open(tmp_path / "out.png"))
    # the letterbox is gone, and bgr went in and came out
    assert drawn.shape == (60, 30, 3)
    assert np.abs(drawn[10:-10, 5:-5].astype(int) - (10, 200, 90)).max() <= 1


@pytest.mark.parametrize(
    ("preprocess", "said"),
    [("0_1", "0…1"), ("m1_1", "-1…1"), ("0_255", "pixels of 0…255")],
)
def test_a_picture_without_a_task_is_of_the_range_that_it_seems_to_have(
    tmp_path: Path, preprocess: str, said: str
) -> None:
    net = _net(tmp_path, "Identity", (1, 3, 24, 32))
    photo = tmp_path / "p.png"
    pixels = np.zeros((24, 32, 3), np.uint8)
    pixels[:, 16:] = (0, 100, 255)
    Image.fromarray(pixels).save(photo)
    done = typed(
        "compile", net, "--preprocess", preprocess, "-o", "net.edgec", cwd=tmp_path
    )
    assert done.code == 0, done.err
    done = typed("run", "net.edgec", "--input", photo, "--out", "out.png", cwd=tmp_path)
    assert (
        f"its values were taken to be {said}: --task of compile says what they are"
        in done.out
    )
    drawn = np.asarray(Image.open(tmp_path / "out.png"))
    assert np.abs(drawn.astype(int) - pixels).max() <= 1


def test_a_manifest_that_says_another_task_than_the_library_is_refused(
    tmp_path: Path, photo: Path
) -> None:
    """The C trusts its constants: with another table it would write elsewhere."""
    net = _net(tmp_path, "Abs", (1, 3, 24, 32))
    assert (
        typed("compile", net, "--task", "style", "-o", "net.edgec", cwd=tmp_path).code
        == 0
    )
    with Bundle.open(tmp_path / "net.edgec") as bundle:
        fields = bundle.manifest_fields()
        files = {name: bundle.read(name) for name in bundle.names}
    fields["task"]["color"] = "bgr"
    write_bundle(tmp_path / "lie.edgec", fields, files)
    done = typed("run", "lie.edgec", "--input", photo, cwd=tmp_path)
    assert done.code == 2
    assert "another preprocessing or task" in done.err


@pytest.mark.parametrize(
    ("labels", "end"), [(["palm"], "1 label: palm"), (["a", "b"], "2 labels: a, b")]
)
def test_what_the_outputs_are_taken_for(labels: list[str], end: str) -> None:
    (line,) = task_notes(Classification(), labels)
    assert line == f"its outputs are taken for classification, {end}"


@pytest.mark.parametrize("labels", [2, 4])
def test_labels_for_a_task_of_the_models_own(labels: int, tmp_path: Path) -> None:
    """A YOLO of three classes says its task itself, and a person its labels."""
    detector(tmp_path / "net.onnx", bins=16, classes=3)
    (tmp_path / "labels.txt").write_text("cat\n" * labels)
    done = typed("compile", "net.onnx", "--labels", "labels.txt", cwd=tmp_path)
    assert done.code == 2
    assert f"there are {labels} labels for 3 classes" in done.err
