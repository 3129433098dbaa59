"""`edgec export --frigate`: the files as Frigate's detectors read them, in words of our
own (the facts: edgec/exporting/frigate.py), against the float network.

The detectors read TFLite's reference kernels here. Int8 moves scores by up to `SCORE`
and edges of boxes by up to `PIXELS`, of 64; the networks have random weights.
"""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import yaml
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from click.testing import CliRunner
from edgec_runtime import Bundle
from numpy.typing import NDArray

import edgec
from edgec.cli.main import cli
from edgec.errors import BundleError, InputError
from edgec.exporting.frigate import CORAL, CPU, LABELS
from tests import builds
from tests.exporting import detectors
from tests.exporting.detectors import SIDE
from tests.interpreters import networks
from tests.networks import yolov8n_like
from tests.networks.yolo import yolo11n
from tests.tasks import yolo
from tests.toolchain.stand_in_edgetpu_compiler import StandInEdgetpuCompiler

pytestmark = [pytest.mark.cc, pytest.mark.slow]
Array = NDArray[Any]
SCORE = 0.04
PIXELS = 4.0
LIMIT = 0.4
"""Frigate's threshold of scores, and of overlaps."""
DOCS = Path(__file__).parents[2] / "docs" / "frigate.md"
KINDS: dict[str, dict[str, Any]] = {
    "yolo11": {"bins": 16},
    "yolo26": {"bins": 1, "picks": True},
    "one class": {"bins": 16, "classes": 1},
}


@dataclasses.dataclass(frozen=True)
class Exported:
    """The float network, and the folder."""

    model: Path
    folder: Path

    def config(self, name: str) -> dict[str, Any]:
        text = (self.folder / f"config_{name}.yml").read_text()
        loaded: dict[str, Any] = yaml.safe_load(text)
        return loaded

    def readme(self) -> str:
        return (self.folder / "README.md").read_text()


def export_int8(
    model: Path, pictures: Array, folder: Path, task: str | None = None
) -> None:
    """Compile a network for a Coral, all of it in int8, and export it to `frigate`."""
    np.savez(folder / "pictures.npz", images=pictures)
    edgec.compile(
        model,
        "pi4+coral",
        folder / "net.edgec",
        calibrate=folder / "pictures.npz",
        quantize="fast",
        task=task,
        edgetpu="all",
        budget="0%",
        edgetpu_compiler="none",
        min_cosine=-1.0,
    )
    edgec.export(folder / "net.edgec", frigate=folder / "frigate")


def exported(kind: str) -> Exported:
    """A network compiled for a Coral in int8, and exported; once a run."""

    def make(folder: Path) -> None:
        model = detectors.detector(folder / "net.onnx", **KINDS[kind])
        rng = np.random.default_rng(3)
        pictures = rng.uniform(0, 1, (8, 3, SIDE, SIDE)).astype(np.float32)
        export_int8(model, pictures, folder)

    folder = builds.once(f"frigate {kind}", make)
    return Exported(folder / "net.onnx", folder / "frigate")


def picture(seed: int) -> Array:
    """uint8 [1, height, width, 3], as Frigate gives it."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (1, SIDE, SIDE, 3), np.uint8)


def candidates(model: Path, pixels: Array) -> tuple[Array, Array]:
    """The float network's boxes (y, x, y, x in 0…1) [N, 4] and scores [N, classes]."""
    import onnx

    # All candidates, also of a network that picks some of them itself.
    loaded = onnx.load(model)
    named = [n.output[0] for n in loaded.graph.node if n.op_type == "Concat"]
    picks = any(n.op_type == "TopK" for n in loaded.graph.node)
    if picks:
        rows = [n for n in loaded.graph.node if n.op_type == "Transpose"][-1].input[0]
        loaded.graph.output.append(onnx.helper.make_empty_tensor_value_info(rows))
    assert named
    session = onnxruntime.InferenceSession(loaded.SerializeToString())
    planes = pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255
    found = session.run(None, {"images": planes})[-1][0].T
    boxes, scores = found[:, :4], found[:, 4:]
    if picks:
        corners = boxes[:, [1, 0, 3, 2]]
    else:
        half = boxes[:, [3, 2]] / 2
        middle = boxes[:, [1, 0]]
        corners = np.concatenate([middle - half, middle + half], axis=1)
    return corners / SIDE, scores


def loaded(path: Path) -> Interpreter:
    """With all kernels of TFLite: its suppression has one kernel alone."""
    interpreter = Interpreter(
        str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    return interpreter


# ---- detectors, from what Frigate's documentation and plugins say
# --------------------------------------------------------------------------------------


def yolo_on_edgetpu(path: Path, pixels: Array) -> tuple[Array, Array]:
    """Every candidate, as the Coral's detector decodes it: boxes (y, x, y, x) in 0…1
    [N, 4], probabilities [N, classes].
    """
    interpreter = loaded(path)
    (given,) = interpreter.get_input_details()
    assert given["dtype"] is np.uint8
    assert given["shape"].tolist() == [1, SIDE, SIDE, 3]
    interpreter.set_tensor(given["index"], pixels)
    interpreter.invoke()

    # The outputs have no order: boxes are those of 4 sides x 16 bins.
    rows = interpreter.get_output_details()
    assert len(rows) in (2, 3)
    assert all(len(row["shape"]) == 3 for row in rows)
    assert all(row["dtype"] is np.int8 for row in rows)
    (boxes,) = (row for row in rows if row["shape"][2] == 64)
    (classes,) = (row for row in rows if row["shape"][2] not in (1, 64))
    scale, zero = classes["quantization"]
    # It subtracts the zero point from int8 in 8 bits.
    assert 0 <= zero <= 127
    assert scale > 0
    logits = scale * (interpreter.get_tensor(classes["index"])[0].astype(float) - zero)
    scale, zero = boxes["quantization"]
    bins = scale * (interpreter.get_tensor(boxes["index"])[0].astype(float) - zero)

    powers = np.exp(bins.reshape(-1, 4, 16))
    left, top, right, bottom = ((powers * np.arange(16)).sum(2) / powers.sum(2)).T
    (x, y), strides = detectors.anchors()
    edges = [y - top, x - left, y + bottom, x + right]
    return np.stack(edges, 1) * strides[:, None] / SIDE, 1 / (1 + np.exp(-logits))


def four_outputs(path: Path, pixels: Array) -> Array:
    """Rows of class, score, y, x, y, x, as the detector of the CPU reads them, and that
    of the Coral with model_type ssd.
    """
    interpreter = loaded(path)
    (given,) = interpreter.get_input_details()
    interpreter.set_tensor(given["index"], pixels)
    interpreter.invoke()
    boxes, classes, scores, count = (
        interpreter.get_tensor(row["index"])[0]
        for row in interpreter.get_output_details()
    )
    found = []
    for i in range(min(int(count), 20)):
        if scores[i] < LIMIT:
            break
        found.append([classes[i], scores[i], *boxes[i]])
    return np.array(found)


def overlap(a: Array, b: Array) -> float:
    """Intersection over union of (y, x, y, x)."""
    low = np.maximum(a[:2], b[:2])
    high = np.minimum(a[2:], b[2:])
    shared = float(np.prod(np.maximum(high - low, 0)))
    areas = float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]))
    return shared / (areas - shared)


def check_detections(found: Array, boxes: Array, scores: Array) -> None:
    """Each is a candidate of the float network; the best is there; none overlap."""
    assert len(found) > 1
    assert (np.diff(found[:, 1]) <= 0).all()
    for number, score, *box in found:
        far = np.abs(boxes - np.array(box)).max(1) * SIDE
        near = far <= PIXELS
        assert near.any(), far.min()
        assert np.abs(scores[near, int(number)] - score).min() <= SCORE
    assert found[0, 1] >= scores.max() - SCORE
    for i in range(len(found)):
        for k in range(i):
            assert overlap(found[i, 2:], found[k, 2:]) <= LIMIT + 1e-3


# ---- the tests
# --------------------------------------------------------------------------------------


def test_yolo_as_the_coral_reads_it() -> None:
    made = exported("yolo11")
    assert made.config(CORAL)["model"]["model_type"] == "yolo-generic"
    for seed in range(3):
        pixels = picture(seed)
        boxes, scores = candidates(made.model, pixels)
        found, chances = yolo_on_edgetpu(made.folder / f"{CORAL}.tflite", pixels)
        np.testing.assert_allclose(chances, scores, atol=SCORE)
        np.testing.assert_allclose(found * SIDE, boxes * SIDE, atol=PIXELS)


@pytest.mark.sweep(1, among="networks of Frigate's size")
def test_attention_cuts_a_network_that_must_be_one_file(tmp_path: Path) -> None:
    """The table in docs/frigate.md, and what the export says of it."""
    size = 320
    model = yolo11n(tmp_path / "net.onnx", size)
    rng = np.random.default_rng(0)
    pictures = rng.uniform(0, 1, (2, 3, size, size)).astype(np.float32)
    export_int8(model, pictures, tmp_path, task="yolov8")
    text = (tmp_path / "frigate" / "README.md").read_text()
    mapped = re.search(r"maps (\d+) of (\d+) operations .*, ([0-9.]+ %) of", text)
    assert mapped is not None
    row = re.search(r"YOLO11n \| (\d+) of (\d+) \| (.*) \|", DOCS.read_text())
    assert row is not None
    assert mapped.groups()[1:] == row.groups()[1:]
    # Operations side by side may stand in another order.
    assert int(mapped[1]) == pytest.approx(int(row[1]), abs=2)
    assert "take a network without attention, as YOLOv8n or YOLOv9t" in text


@pytest.mark.sweep(1, among="networks of Frigate's size")
def test_a_yolo_of_frigates_usual_size(tmp_path: Path) -> None:
    """YOLOv8n's layers, 320 pixels, 80 classes: all of it maps, reshapes too."""
    size = 320
    model = yolov8n_like(tmp_path / "net.onnx", size, 80)
    rng = np.random.default_rng(0)
    pictures = rng.uniform(0, 1, (8, 3, size, size)).astype(np.float32)
    export_int8(model, pictures, tmp_path, task="yolov8")
    text = (tmp_path / "frigate" / "README.md").read_text()
    mapped = re.search(r"maps (\d+) of (\d+) operations", text)
    assert mapped is not None
    assert mapped[1] == mapped[2]
    assert f"| YOLOv8n | {mapped[1]} of {mapped[2]} | 100.0 % |" in DOCS.read_text()

    pixels = rng.integers(0, 256, (1, size, size, 3), np.uint8)
    interpreter = Interpreter(str(tmp_path / "frigate" / "coral.tflite"))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], pixels)
    interpreter.invoke()
    rows = {row["shape"][2]: row for row in interpreter.get_output_details()}
    assert rows[64]["shape"][1] == rows[80]["shape"][1] == 2100
    scale, zero = rows[80]["quantization"]
    logits = scale * (interpreter.get_tensor(rows[80]["index"])[0].astype(float) - zero)
    session = onnxruntime.InferenceSession(str(model))
    planes = pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255
    (expected,) = session.run(None, {"images": planes})
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), expected[0, 4:].T, atol=SCORE)


@pytest.mark.parametrize("kind", KINDS)
def test_yolo_as_the_cpu_reads_it(kind: str) -> None:
    made = exported(kind)
    assert made.config(CPU)["model"]["model_type"] == "ssd"
    pixels = picture(7)
    found = four_outputs(made.folder / f"{CPU}.tflite", pixels)
    check_detections(found, *candidates(made.model, pixels))


@pytest.mark.parametrize("kind", ["yolo26", "one class"])
def test_heads_that_the_corals_yolo_does_not_know_have_four_outputs(kind: str) -> None:
    made = exported(kind)
    assert made.config(CORAL)["model"]["model_type"] == "ssd"
    coral, cpu = (made.folder / f"{name}.tflite" for name in (CORAL, CPU))
    assert coral.read_bytes() == cpu.read_bytes()


def test_yolo_as_onnx_reads_it() -> None:
    """Its own file, by the lines of the configuration."""
    made = exported("yolo11")
    model = made.config("onnx")["model"]
    assert (model["input_tensor"], model["input_dtype"]) == ("nchw", "float")
    session = onnxruntime.InferenceSession(str(made.model))
    assert session.get_inputs()[0].shape == [1, 3, model["height"], model["width"]]
    (rows,) = session.run(None, {"images": np.zeros((1, 3, SIDE, SIDE), np.float32)})
    # [1, 4 + classes, N]; it is told from [N, 4 + classes] by N being larger.
    labels = (made.folder / LABELS).read_text().splitlines()
    assert rows.shape[1] == 4 + len(labels) < rows.shape[2]
    # A network that picks its boxes has rows that this detector does not read.
    assert not (exported("yolo26").folder / "config_onnx.yml").exists()


def test_the_configuration_and_the_label_map() -> None:
    made = exported("yolo11")
    coral = made.config(CORAL)
    assert coral["detectors"] == {"edgetpu": {"type": "edgetpu", "device": "usb"}}
    model = coral["model"]
    assert model.pop("path").endswith("/coral_edgetpu.tflite")
    assert model.pop("labelmap_path").endswith("/labels.txt")
    assert model == {
        "model_type": "yolo-generic",
        "width": SIDE,
        "height": SIDE,
        "input_tensor": "nhwc",
        "input_pixel_format": "rgb",
        "input_dtype": "int",
    }
    lines = (made.folder / LABELS).read_text().splitlines()
    pairs = [line.split(" ", maxsplit=1) for line in lines]
    assert {int(n): label.strip() for n, label in pairs} == {
        i: f"thing {i}" for i in range(3)
    }


def test_readme_and_summary_say_what_the_stock_compiler_maps(tmp_path: Path) -> None:
    text = exported("yolo11").readme()
    assert "`edgetpu_compiler -s coral.tflite`" in text
    assert "100.0 % of its multiply-accumulates" in text
    bundle = exported("yolo11").model.parent / "net.edgec"
    words = ["export", str(bundle), "--frigate", str(tmp_path / "frigate")]
    said = CliRunner().invoke(cli, words)
    assert said.exit_code == 0
    assert "Stock column: edgetpu_compiler alone maps" in said.output
    text = exported("yolo26").readme()
    assert "the first on the CPU is dequantize" in text


def test_edgetpu_compiler_runs_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = exported("yolo11")
    compiler = StandInEdgetpuCompiler(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{compiler.folder}:{os.environ['PATH']}")
    edgec.export(made.model.parent / "net.edgec", frigate=tmp_path / "frigate")
    assert (tmp_path / "frigate" / f"{CORAL}_edgetpu.tflite").exists()
    assert "edgetpu_compiler ran" in (tmp_path / "frigate" / "README.md").read_text()


def test_ssd(tmp_path: Path) -> None:
    """The four outputs are bit for bit those of the file that it was compiled from."""
    model, bundle = networks.compiled("heads", "pi4+coral")
    edgec.export(bundle, frigate=tmp_path / "frigate")
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (1, 16, 16, 3), np.uint8)
    expected = four_outputs(model, pixels)
    for name in (CORAL, CPU):
        found = four_outputs(tmp_path / "frigate" / f"{name}.tflite", pixels)
        np.testing.assert_array_equal(found, expected)
    config = yaml.safe_load((tmp_path / "frigate" / "config_cpu.yml").read_text())
    assert (config["model"]["model_type"], config["model"]["width"]) == ("ssd", 16)
    assert not (tmp_path / "frigate" / "config_onnx.yml").exists()


@pytest.mark.shared
def test_ssd_of_coco(shared: Path, tmp_path: Path) -> None:
    """Google's SSD MobileNet: what its own file finds in a photo."""
    folder = shared / "models" / "ssd_mnv1_coco_u8"
    model = folder / "ssd_mnv1_coco_u8.tflite"
    edgec.compile(
        model,
        "pi4+coral",
        tmp_path / "ssd.edgec",
        task="tflite-ssd",
        edgetpu="all",
        edgetpu_compiler="none",
    )
    edgec.export(tmp_path / "ssd.edgec", frigate=tmp_path / "frigate")
    pixels = np.load(folder / "ref.npz")["in0_0"]
    expected = four_outputs(model, pixels)
    found = four_outputs(tmp_path / "frigate" / "coral.tflite", pixels)
    assert len(found) == len(expected) > 0
    np.testing.assert_array_equal(found[:, 0], expected[:, 0])
    # The uint8 kernels of the file round elsewhere than those of int8.
    np.testing.assert_allclose(found[:, 1:], expected[:, 1:], atol=0.03)


# ---- refusals
# --------------------------------------------------------------------------------------


def test_networks_that_frigate_cannot_read(tmp_path: Path) -> None:
    classifier = networks.compiled("classifier", "pi4+coral")[1]
    with pytest.raises(InputError, match="nobody said what its outputs mean"):
        edgec.export(classifier, frigate=tmp_path / "a")
    # In float, without a segment for the Edge TPU: no weights as TFLite has them.
    model = detectors.detector(tmp_path / "net.onnx")
    edgec.compile(model, "host", tmp_path / "net.edgec")
    with pytest.raises(InputError, match="not quantized") as caught:
        edgec.export(tmp_path / "net.edgec", frigate=tmp_path / "b")
    assert "--calibrate" in str(caught.value.hint)
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()


def test_heads_that_are_missing(tmp_path: Path) -> None:
    """A network with one grid, and one whose pixels have a scale for each channel."""
    yolo.yolo(tmp_path / "one.onnx", "detect", False)
    detectors.detector(tmp_path / "three.onnx")
    pictures = np.random.default_rng(0).uniform(0, 1, (8, 3, SIDE, SIDE))
    np.savez(tmp_path / "x.npz", images=pictures.astype(np.float32))
    options: dict[str, Any] = {
        "calibrate": tmp_path / "x.npz",
        "quantize": "fast",
        "edgetpu": "all",
        "budget": "0%",
        "edgetpu_compiler": "none",
        "min_cosine": -1.0,
    }
    for name, preprocess, fault in (
        ("one", None, "no raw head at the grid of 16 pixels"),
        ("three", "imagenet", "differs between channels"),
    ):
        edgec.compile(
            tmp_path / f"{name}.onnx",
            "pi4+coral",
            tmp_path / "net.edgec",
            preprocess=preprocess,
            **options,
        )
        with pytest.raises(InputError, match=fault) as caught:
            edgec.export(tmp_path / "net.edgec", frigate=tmp_path / "frigate")
        assert caught.value.hint
        assert not (tmp_path / "frigate").exists()


def test_a_bundle_without_its_report(tmp_path: Path) -> None:
    from edgec_runtime import write_bundle

    _, path = networks.compiled("heads", "pi4+coral")
    for name in ("report/values.json", "report/anchors.npy"):
        with Bundle.open(path) as bundle:
            files = {n: bundle.read(n) for n in bundle.names if n != name}
            fields = bundle.manifest_fields()
        for key in ("libraries", "programs", "weights"):
            fields[key] = {t: p for t, p in fields[key].items() if p in files}
        write_bundle(tmp_path / "less.edgec", fields, files)
        with pytest.raises(BundleError, match=name):
            edgec.export(tmp_path / "less.edgec", frigate=tmp_path / "frigate")
        assert not (tmp_path / "frigate").exists()
