"""`edgec eval` as a whole: bundles on labelled pictures, against scikit-learn's and
pycocotools' own figures.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnxruntime
import pytest
from edgec_runtime import Bundle, Session, read_photo
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score, top_k_accuracy_score

import edgec
from edgec.cli.main import run_verb
from edgec.errors import EdgecError
from edgec.evaluation import observation_log
from edgec.evaluation.report import EvaluationReport
from edgec.evaluation.results import ResultReader
from edgec.ir import Array
from edgec.verbs.eval_sides import BundleHereSide
from fixtures.shapes.pictures import scenes, write_set
from tests import builds
from tests.conftest import ROOT, SHARED

DIGITS = ROOT / "fixtures" / "digits"
SHAPES = ROOT / "fixtures" / "shapes" / "shapes.onnx"
PICTURES = 120
"""Pictures of a set in a usual run: intervals are wide, and figures exact all the same."""

pytestmark = pytest.mark.cc


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Observations of other tests must not count; compiled kernels may be shared."""

    monkeypatch.setattr(
        observation_log, "cache_dir", lambda name: _made(tmp_path / name)
    )


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def digits() -> Path:
    """A folder with digits.edgec, in int8, and `set`: a folder for each digit."""

    def make(folder: Path) -> None:
        edgec.compile(
            DIGITS / "digits.onnx",
            output=folder / "digits.edgec",
            calibrate=DIGITS / "digits_calibration.npz",
            quantize="fast",
            task="classification",
            preprocess="gray",
        )
        data = load_digits()
        for i, (pixels, label) in enumerate(zip(data.images, data.target, strict=True)):
            # The network was trained on most of them: the figures are high, and exact.
            if i % 6 == 0:
                picture = Image.fromarray((pixels / 16 * 255).round().astype(np.uint8))
                large = picture.resize((32, 32), Image.Resampling.BILINEAR)
                place = folder / "set" / str(label)
                place.mkdir(parents=True, exist_ok=True)
                large.save(place / f"{i:04}.png")

    return builds.once("evaluated digits", make)


@pytest.fixture(scope="session")
def shapes() -> Path:
    """A folder with shapes.edgec, in int8, and `set`: pictures with COCO's labels."""

    def make(folder: Path) -> None:
        (folder / "photos").mkdir()
        for i, scene in enumerate(scenes(24, 3)):
            Image.fromarray(scene.picture).save(folder / "photos" / f"{i}.png")
        edgec.compile(
            SHAPES,
            output=folder / "shapes.edgec",
            calibrate=folder / "photos",
            quantize="fast",
        )
        write_set(folder / "set", PICTURES)

    return builds.once("evaluated shapes", make)


def of_onnxruntime(model: Path, name: str, x: Array) -> dict[str, Array]:
    session = onnxruntime.InferenceSession(str(model))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {name: x}), strict=True))


def scores_of(bundle: Path, model: Path, files: list[Path]) -> tuple[Array, Array]:
    """The scores of onnxruntime's float model, and of the bundle: [pictures, classes]."""
    floats = []
    int8 = []
    with Bundle.open(bundle) as opened, Session(opened) as session:
        (name,) = opened.manifest.inputs
        for file in files:
            # As the network was trained: one plane of 0 to 1.
            pixels = np.asarray(Image.open(file), np.float32)[None, None] / 255
            (y,) = of_onnxruntime(model, name, pixels).values()
            floats.append(y.reshape(-1))
            (y,) = session.run({name: read_photo(file)}).values()
            int8.append(np.asarray(y, np.float64).reshape(-1))
    return np.array(floats), np.array(int8)


def test_digits_have_the_figures_of_scikit_learn(digits: Path) -> None:
    model = DIGITS / "digits.onnx"
    report = edgec.eval(digits / "digits.edgec", digits / "set", model=model)
    files = sorted((digits / "set").rglob("*.png"))
    truth = np.array([int(file.parent.name) for file in files])
    both = scores_of(digits / "digits.edgec", model, files)
    assert report.pictures == len(files) == 300
    for side, scores in zip(report.sides, both, strict=True):
        top1 = 100 * accuracy_score(truth, scores.argmax(axis=1))
        top5 = 100 * top_k_accuracy_score(truth, scores, k=5)
        assert side.figures["top1"].value == pytest.approx(top1)
        assert side.figures["top5"].value == pytest.approx(top5)
        assert side.figures["top1"].low <= top1 <= side.figures["top1"].high
    drop = report.drops["top1"]
    values = [side.figures["top1"].value for side in report.sides]
    assert drop.value == pytest.approx(values[0] - values[1])
    assert drop.low <= drop.value <= drop.high


# ---- COCO


def by_hand(bundle: Path, labels: Path, outputs_of: Any) -> tuple[float, float]:
    """mAP and mAP 50 of pycocotools, on the file of labels itself."""
    found = []
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(labels))
    with Bundle.open(bundle) as opened, Session(opened) as session:
        reader = ResultReader.of(opened)
        for image in truth.imgs.values():
            photo = read_photo(labels.parent / image["file_name"])
            result: Any = reader.result(
                outputs_of(session, photo), (image["width"], image["height"])
            )
            for box in result.boxes:
                x1, y1, x2, y2 = box.corners
                row = {"image_id": image["id"], "category_id": box.index + 1}
                found.append(
                    {**row, "score": box.score, "bbox": [x1, y1, x2 - x1, y2 - y1]}
                )
    with contextlib.redirect_stdout(io.StringIO()):
        run = COCOeval(truth, truth.loadRes(found), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return 100 * float(run.stats[0]), 100 * float(run.stats[1])


def test_boxes_have_the_figures_of_pycocotools(shapes: Path) -> None:
    labels = shapes / "set" / "shapes.json"
    bundle = shapes / "shapes.edgec"
    report = edgec.eval(bundle, labels, model=SHAPES, resamples=60)
    floats, int8 = report.sides

    def by_onnxruntime(session: Session, photo: Array) -> Mapping[str, Array]:
        x = photo.transpose(2, 0, 1)[None].astype(np.float32) / np.float32(255)
        return of_onnxruntime(SHAPES, "input", x)

    # The last bits of floats move a box over a limit of the overlap now and then.
    want = by_hand(bundle, labels, by_onnxruntime)
    assert floats.figures["map"].value == pytest.approx(want[0], abs=0.1)
    assert floats.figures["map50"].value == pytest.approx(want[1], abs=0.1)

    want = by_hand(bundle, labels, lambda s, photo: s.run(s.vision.prepare(photo)))
    assert int8.figures["map"].value == pytest.approx(want[0], abs=1e-6)
    assert int8.figures["map50"].value == pytest.approx(want[1], abs=1e-6)

    # A network that has learnt something, and an int8 form that lost something.
    assert floats.figures["map50"].value > 95
    assert report.drops["map"].value > 0.3
    for side in report.sides:
        estimate = side.figures["map"]
        assert estimate.low < estimate.value < estimate.high


@pytest.mark.shared
@pytest.mark.slow
def test_mnist_has_the_figures_of_scikit_learn(tmp_path: Path) -> None:
    with np.load(SHARED / "data" / "mnist_2000.npz") as data:
        images = data["images"][::8]
        truth = data["labels"][::8]
    lines = ["file,label"]
    photos = tmp_path / "photos"
    (tmp_path / "calibrate").mkdir()
    photos.mkdir()
    for i, (pixels, label) in enumerate(zip(images, truth, strict=True)):
        folder = "calibrate" if i < 32 else "photos"
        Image.fromarray(pixels).save(tmp_path / folder / f"{i}.png")
        if i >= 32:
            lines.append(f"{i}.png,{label}")
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(lines))
    model = SHARED / "models" / "mnist8" / "mnist8.onnx"
    bundle = tmp_path / "mnist.edgec"
    edgec.compile(
        model,
        output=bundle,
        calibrate=tmp_path / "calibrate",
        quantize="fast",
        task="classification",
        preprocess="0_255,gray",
    )
    report = edgec.eval(bundle, table, model=model, pictures=photos)
    scores = []
    with Bundle.open(bundle) as opened:
        (name,) = opened.manifest.inputs
    for pixels in images[32:]:
        x = pixels[None, None].astype(np.float32)
        (y,) = of_onnxruntime(model, name, x).values()
        scores.append(y.reshape(-1))
    want = 100 * accuracy_score(truth[32:], np.argmax(scores, axis=1))
    floats, int8 = report.sides
    assert floats.figures["top1"].value == pytest.approx(want)
    assert want > 95
    assert abs(int8.figures["top1"].value - want) < 2


# ---- the verb


def test_files_and_exit_codes(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", str(digits / "digits.edgec"), "--data", str(digits / "set")]
    words += ["--model", str(DIGITS / "digits.onnx"), "--samples", "60"]
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "html")}
    for kind, path in files.items():
        words += [f"--{kind}", str(path)]
    code = run_verb([*words, "--budget", "drop.top1<=5%,top1>=50%"])
    text = capsys.readouterr().out
    assert code == 0
    assert "top-1" in text
    assert "PASS    drop.top1<=5%: " in text

    report = json.loads(files["json"].read_text())
    assert report["data"]["pictures"] == 60
    assert [side["side"] for side in report["sides"]] == ["float", "bundle"]
    assert {f["name"] for f in report["figures"]} == {"top1", "top5"}
    assert set(report["drop"]["top1"]) == {"value", "low", "high"}
    assert [b["state"] for b in report["budgets"]] == ["pass", "pass"]
    assert len(report["worst"]) == 12
    assert set(report["worst"][0]["found"]) == {"truth", "float", "bundle"}

    cases = ElementTree.parse(files["junit"]).findall(".//testcase")
    assert [case.get("name") for case in cases] == ["drop.top1<=5%", "top1>=50%"]
    page = files["html"].read_text()
    # Label and classes are words beside the picture.
    assert page.count('<img src="data:image/jpeg;base64,') == 12
    assert page.count("100% class ") >= 12
    assert "48 other pictures are not shown" in page

    assert run_verb([*words, "-q", "--budget", "bundle.top1>=100%,top5<50%"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("FAIL    top5<50%: ")


def test_an_interrupted_evaluation_goes_on(
    digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[int] = []
    outputs = BundleHereSide.outputs

    def counted(self: BundleHereSide, photo: Array) -> Mapping[str, Array]:
        if len(ran) == 25:
            ran.clear()
            raise KeyboardInterrupt
        ran.append(1)
        return outputs(self, photo)

    monkeypatch.setattr(BundleHereSide, "outputs", counted)

    def run(**options: Any) -> EvaluationReport:
        return edgec.eval(
            digits / "digits.edgec", digits / "set", samples=40, worst=0, **options
        )

    words = ["eval", str(digits / "digits.edgec"), "--data", str(digits / "set")]
    assert run_verb([*words, "--samples", "40", "--worst", "0"]) == 130
    assert "kept: the same command goes on" in capsys.readouterr().err
    told: list[str] = []
    resumed = run(progress=told.append)
    assert len(ran) == 15
    pictures = [t for t in told if "bundle" in t]
    assert pictures[-2] == "step 1 of 3: int8 bundle 40/40"
    assert told[-1].startswith("step 3 of 3: bootstrap ")
    # Nothing is left to run; a fresh evaluation runs all of it, to the same figures.
    ran.clear()
    assert run().sides == resumed.sides
    assert ran == []
    with pytest.raises(KeyboardInterrupt):
        run(fresh=True)
    assert run().sides == resumed.sides


@pytest.mark.arm
def test_a_device_is_a_third_side(tmp_path: Path, digits: Path) -> None:
    made = edgec.compile(
        DIGITS / "digits.onnx",
        "pi4",
        output=tmp_path / "pi.edgec",
        calibrate=DIGITS / "digits_calibration.npz",
        quantize="fast",
        task="classification",
        preprocess="gray",
    )
    report = edgec.eval(
        made.path,
        digits / "set",
        on="emulated:pi4",
        samples=8,
        budgets=["device.top1>=50%"],
    )
    here, there = report.sides
    assert (here.key, there.key) == ("bundle", "device")
    # int8 is the same bits everywhere.
    assert here.figures == there.figures
    assert report.passed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "gone"], "there is no data set gone"),
        (["--budget", "top2>=90%"], "there is no figure top2"),
        (["--budget", "drop.top1<=1%"], "drop and float need --model"),
        (["--budget", "top1>=90"], "write bundle.top1>=90%"),
        (["--budget", "top1>=0.9"], "write bundle.top1>=90%"),
        (["--samples", "0"], "--samples cannot be 0"),
        (["--resamples", "3"], "--resamples cannot be 3"),
        (["--json", "a.json", "--html", "a.json"], "--json and --html name one file"),
        (["--html", "gone/a.html"], "the folder gone does not exist"),
        (["--on", "emulated:pi9"], "pi9"),
        (["--threads", "9"], "threads"),
        (["--model", str(SHAPES)], "shapes.onnx is not the model of digits.edgec"),
    ],
)
def test_what_cannot_be_evaluated(
    digits: Path,
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    start = ["eval", str(digits / "digits.edgec")]
    if "--data" not in words:
        start += ["--data", str(digits / "set"), "--samples", "3"]
    assert run_verb([*start, *words]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert "hint: " in message


def test_wrong_labels_of_a_set_end_in_a_message(shapes: Path, digits: Path) -> None:
    """A detector on a folder for each class, and a classifier on boxes."""
    with pytest.raises(EdgecError, match=r"set has 0 [.]json files"):
        edgec.eval(shapes / "shapes.edgec", digits / "set")
    with pytest.raises(EdgecError, match="set has no labelled picture"):
        edgec.eval(digits / "digits.edgec", shapes / "set")
    with pytest.raises(EdgecError, match=r"shapes[.]json has no labels of classes"):
        edgec.eval(digits / "digits.edgec", shapes / "set" / "shapes.json")
