"""torchvision's single-shot detectors as torch.onnx exports them: edgec's C picks the
boxes that onnxruntime picks by the file's own nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from edgec_runtime import Bundle, Session
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.tasks.anchors import Anchors
from edgec_runtime.vision.tasks.detection import Detection
from edgec_runtime.vision.tasks.instances import Box

import edgec
from edgec.errors import UnsupportedError
from edgec.frontends.task_file import ANCHORS_FILE
from edgec.frontends.task_metadata import stated_task
from edgec.ir import Array
from tests.cli.verbs import edgec as verb
from tests.conftest import ROOT
from tests.tasks.torchvision_ssd import CELLS, CLASSES, SIDE, SIZES, Numbers, detector

ort = pytest.importorskip("onnxruntime")

PHOTOS = ROOT / "fixtures" / "photos"


def waves(width: int, height: int, seed: int) -> Array:
    """A picture, uint8 [height, width, 3]."""
    y, x = np.mgrid[0:height, 0:width] * (SIDE / width)
    planes = [
        128 + 127 * np.sin(x / (5 + 2 * i) + y / (7 - i) + i + seed) for i in range(3)
    ]
    return np.stack(planes, -1).astype(np.uint8)


def boxes_of(bundle: Path, pixels: Array) -> tuple[tuple[Box, ...], dict[str, Array]]:
    """What a bundle finds in a picture, and its input."""
    height, width, _ = pixels.shape
    with Bundle.open(bundle) as opened, Session(opened) as session:
        frame = CameraFrame.packed("rgb", pixels.reshape(-1), width, height)
        inputs = session.vision.prepare(frame)
        found: Any = session.vision.result(session.run(inputs), frame.size)
        return found.boxes, inputs


def compare(model: Path, bundle: Path, pixels: Array) -> int:
    """Compare the boxes with onnxruntime's; return how many there are."""
    found, inputs = boxes_of(bundle, pixels)
    names = ["boxes", "scores", "labels"]
    corners, scores, labels = ort.InferenceSession(str(model)).run(names, inputs)
    # The background is class 0 there.
    assert [box.index + 1 for box in found] == labels.tolist()
    np.testing.assert_allclose([b.score for b in found], scores, atol=1e-4)
    np.testing.assert_allclose([b.corners for b in found], corners, atol=0.02)
    return len(found)


@pytest.mark.cc
@pytest.mark.parametrize(
    ("sides", "shape"),
    [
        ((SIDE, SIDE), None),
        ((2 * SIDE, 4 * SIDE), None),
        (("height", "width"), (1, 3, 2 * SIDE, SIDE)),
    ],
    ids=["fixed", "resized", "dynamic"],
)
def test_the_boxes_are_those_of_the_export(
    sides: tuple[int | str, int | str],
    shape: tuple[int, ...] | None,
    tmp_path: Path,
) -> None:
    model = detector(tmp_path / "ssd.onnx", sides=sides)
    shapes = {} if shape is None else {"images": shape}
    bundle = tmp_path / "ssd.edgec"
    edgec.compile(model, output=bundle, input_shapes=shapes)
    with Bundle.open(bundle) as opened:
        (info,) = opened.manifest.input_infos()
    height, width = info.shape[2:]
    for seed in range(4):
        assert compare(model, bundle, waves(width, height, seed)) > 10


@pytest.mark.cc
@pytest.mark.parametrize(
    "numbers",
    [
        Numbers(limit=5),
        Numbers(candidates=2),
        Numbers(threshold=0.7),
        Numbers(iou=0.1),
        Numbers(scales=(3.0, 4.0, 5.0, 2.0)),
    ],
    ids=["limit", "candidates", "threshold", "iou", "scales"],
)
def test_its_numbers_are_read(numbers: Numbers, tmp_path: Path) -> None:
    """Each of them changes the boxes, and the graph has them nowhere else."""
    model = detector(tmp_path / "ssd.onnx", numbers)
    edgec.compile(model, output=tmp_path / "ssd.edgec")
    compare(model, tmp_path / "ssd.edgec", waves(SIDE, SIDE, 0))
    usual = detector(tmp_path / "usual.onnx")
    edgec.compile(usual, output=tmp_path / "usual.edgec")
    boxes, _ = boxes_of(tmp_path / "ssd.edgec", waves(SIDE, SIDE, 0))
    usual_boxes, _ = boxes_of(tmp_path / "usual.edgec", waves(SIDE, SIDE, 0))
    assert boxes != usual_boxes


@pytest.mark.cc
def test_a_simplified_graph_is_the_same(tmp_path: Path) -> None:
    """Half a width is folded into a constant where exponentials multiply it."""
    model = detector(tmp_path / "ssd.onnx", Numbers(folded=0.5))
    edgec.compile(model, output=tmp_path / "ssd.edgec")
    assert compare(model, tmp_path / "ssd.edgec", waves(SIDE, SIDE, 0)) > 10


def test_the_task_that_the_nodes_state(tmp_path: Path) -> None:
    stated = stated_task(detector(tmp_path / "ssd.onnx"))
    assert isinstance(stated.task, Detection)
    assert stated.head is not None
    assert stated.head.outputs == (stated.task.boxes, stated.task.scores)
    expected = Detection(
        boxes=stated.task.boxes,
        scores=stated.task.scores,
        anchors=Anchors(file=ANCHORS_FILE),
        scales=(10.0, 10.0, 5.0, 5.0),
        several=True,
        background=True,
        activation="softmax",
        threshold=0.2,
        clipped=True,
        candidates=8,
        iou=0.45,
        limit=40,
    )
    assert stated.task == expected
    anchors = Anchors(file=ANCHORS_FILE).made((SIDE, SIDE), stated.files)
    # Those of a cell follow each other, and cells row by row.
    sizes = np.array(SIZES)
    for number, row in enumerate(anchors):
        cell, of_cell = divmod(number, len(SIZES))
        centre = (np.array([cell % CELLS, cell // CELLS]) + 0.5) / CELLS
        np.testing.assert_allclose(row, [*centre, *sizes[of_cell]], atol=1e-6)


def test_a_person_is_told(tmp_path: Path) -> None:
    model = detector(tmp_path / "ssd.onnx")
    result = verb("explain", model.name, "--target", "pi4", cwd=tmp_path)
    assert result.code == 0
    head = stated_task(model).head
    assert head is not None
    text = " ".join(result.out.split())
    assert f'the end-to-end head behind "{head.name}" is left out' in text
    assert "edgec's C picks the boxes as that would" in text
    kept = verb("compile", model.name, "--keep-head", cwd=tmp_path)
    assert kept.code == 2
    assert "error: NonZero" in kept.err


@pytest.mark.cc
@pytest.mark.parametrize("first", [("__background__",), ()])
def test_labels_with_and_without_the_background(
    first: tuple[str, ...], tmp_path: Path
) -> None:
    """torchvision's lists begin with it, others do not."""
    model = detector(tmp_path / "ssd.onnx")
    names = [f"thing {i}" for i in range(1, CLASSES)]
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join([*first, *names]))
    edgec.compile(model, output=tmp_path / "ssd.edgec", labels=labels)
    boxes, _ = boxes_of(tmp_path / "ssd.edgec", waves(SIDE, SIDE, 0))
    assert {box.label for box in boxes} == set(names)
    for box in boxes:
        assert box.label == f"thing {box.index + 1}"


@pytest.mark.cc
def test_int8_ends_before_the_head(tmp_path: Path) -> None:
    """Nearly all of the surest boxes are found."""
    model = detector(tmp_path / "ssd.onnx")
    bundle = tmp_path / "ssd.edgec"
    edgec.compile(model, output=bundle, calibrate=PHOTOS, quantize="fast")
    found, inputs = boxes_of(bundle, waves(SIDE, SIDE, 0))
    names = ["boxes", "scores", "labels"]
    every = ort.InferenceSession(str(model)).run(names, inputs)
    hits = 0
    for corners, score, label in zip(*every, strict=True):
        for box in found:
            is_near = np.abs(np.array(box.corners) - corners).max() < 2
            if is_near and box.index + 1 == label and abs(box.score - score) < 0.1:
                hits += 1
                break
    assert hits >= 0.8 * len(every[1])


def _with_a_node_changed(path: Path, kind: str, number: int, change: Any) -> None:
    """Change the node of an operator with this number among its like."""
    model = onnx.load(str(path))
    change([n for n in model.graph.node if n.op_type == kind][number])
    onnx.save(model, str(path))


def _swap(node: Any) -> None:
    node.input[0], node.input[1] = node.input[1], node.input[0]


def _along_rows(node: Any) -> None:
    node.attribute[0].i = 1


@pytest.mark.parametrize(
    "numbers",
    [Numbers(largest=20.0), Numbers(last_threshold=0.3), Numbers(folded=0.4)],
    ids=["another limit of sizes", "a threshold of one class", "less than half"],
)
def test_other_numbers_are_another_graph(numbers: Numbers, tmp_path: Path) -> None:
    model = detector(tmp_path / "ssd.onnx", numbers)
    assert stated_task(model).task is None
    with pytest.raises(UnsupportedError, match="NonZero"):
        edgec.compile(model, output=tmp_path / "ssd.edgec")


@pytest.mark.parametrize(
    ("kind", "number", "change"),
    [
        ("Softmax", 0, _along_rows),
        ("Div", -3, _swap),
        ("Sub", -1, _swap),
        ("Greater", 1, _swap),
        ("Max", 0, lambda node: setattr(node, "op_type", "Add")),
        ("Concat", 9, lambda node: node.input.append(node.input[0])),
        ("Slice", -1, lambda node: node.input.pop()),
    ],
)
def test_other_nodes_are_another_graph(
    kind: str, number: int, change: Any, tmp_path: Path
) -> None:
    model = detector(tmp_path / "ssd.onnx")
    assert stated_task(model).task is not None
    _with_a_node_changed(model, kind, number, change)
    assert stated_task(model).task is None


def test_a_circle_of_nodes_ends(tmp_path: Path) -> None:
    model = detector(tmp_path / "ssd.onnx")

    def bite(node: Any) -> None:
        node.input[0] = node.output[0]

    _with_a_node_changed(model, "Reshape", -1, bite)
    assert stated_task(model).task is None


def test_anchors_of_a_picture_of_any_size_are_not_guessed(tmp_path: Path) -> None:
    """Where nothing resizes the picture, the anchors suit one size only."""
    sides = ("height", "width")
    model = detector(tmp_path / "ssd.onnx", sides=sides, resized=False)
    assert stated_task(model).task is None


def test_a_picture_without_a_batch_is_no_image(tmp_path: Path) -> None:
    path = detector(tmp_path / "ssd.onnx")
    model = onnx.load(str(path))
    del model.graph.input[0].type.tensor_type.shape.dim[0]
    onnx.save(model, str(path))
    assert stated_task(path).task is None
