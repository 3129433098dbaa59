"""The task that a model file states of itself."""

from __future__ import annotations

import zipfile
from pathlib import Path

import flatbuffers
import pytest
from edgec_runtime.vision.tasks.classification import Classification
from edgec_runtime.vision.tasks.detection import Detection
from edgec_runtime.vision.tasks.image import ImageOutput
from onnx import TensorProto, helper, save

from edgec.frontends.task_metadata import stated_task
from edgec.frontends.tflite_metadata import OutputMetadata, read_outputs
from tests.frontends.tflite_with_metadata import (
    _table,
    _union,
    _vector,
    model,
    with_metadata,
)


def _metadata(kinds: list[int], labels: str | None) -> bytes:
    """ModelMetadata with an output of each content type; the last has a file of labels."""
    b = flatbuffers.Builder(256)
    outputs = []
    for i, kind in enumerate(kinds):
        files = []
        if labels is not None and i == len(kinds) - 1:
            name = b.CreateString(labels)
            files = [_table(b, 5, {0: name}, {2: 3})]
        content = _union(b, kind, _table(b, 1, {}))
        packed = _vector(b, files)
        outputs.append(_table(b, 7, {3: content, 6: packed}))
    subgraph = _table(b, 7, {3: _vector(b, outputs)})
    root = _table(b, 8, {3: _vector(b, [subgraph])})
    b.Finish(root, b"M001")
    return bytes(b.Output())


def _file(folder: Path, kinds: list[int], names: list[str] | None) -> Path:
    path = folder / "m.tflite"
    path.write_bytes(
        with_metadata(model(), _metadata(kinds, "labels.txt" if names else None))
    )
    if names:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("labels.txt", "\n".join(names))
    return path


def test_a_classification_with_its_labels(tmp_path: Path) -> None:
    path = _file(tmp_path, [1], ["cat", "dog"])
    assert read_outputs(path.read_bytes()) == [
        OutputMetadata(features=True, labels="labels.txt")
    ]
    found = stated_task(path)
    assert isinstance(found.task, Classification)
    assert found.labels == ("cat", "dog")
    assert found.stated


def test_a_detection_of_four_outputs(tmp_path: Path) -> None:
    found = stated_task(_file(tmp_path, [3, 1, 1, 1], ["cat"]))
    assert isinstance(found.task, Detection)
    assert (found.task.classes, found.task.order) == ("#1", "yxyx")


@pytest.mark.parametrize(
    ("kinds", "names"), [([1], None), ([1, 1], ["a"]), ([2], ["a"]), ([], None)]
)
def test_what_leaves_a_doubt_is_no_task(
    tmp_path: Path, kinds: list[int], names: list[str] | None
) -> None:
    assert stated_task(_file(tmp_path, kinds, names)).task is None


def test_damaged_metadata_is_no_task(tmp_path: Path) -> None:
    path = _file(tmp_path, [1], ["cat"])
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 7):
        damaged = data.copy()
        damaged[at] ^= 0xFF
        path.write_bytes(damaged)
        stated_task(path)
    (tmp_path / "x.onnx").write_bytes(b"none")
    assert stated_task(tmp_path / "x.onnx").task is None


def _ultralytics(folder: Path, task: str, names: str, shape: list[int]) -> Path:
    x = helper.make_tensor_value_info("images", TensorProto.FLOAT, (1, 3, 8, 8))
    y = helper.make_tensor_value_info("output0", TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        [helper.make_node("Abs", ["images"], ["output0"])], "g", [x], [y]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    helper.set_model_props(
        made, {"author": "Ultralytics", "task": task, "names": names}
    )
    save(made, folder / "u.onnx")
    return folder / "u.onnx"


def test_what_ultralytics_exports(tmp_path: Path) -> None:
    found = stated_task(
        _ultralytics(tmp_path, "detect", "{0: 'cat', 1: 'dog'}", [1, 6, 84])
    )
    assert isinstance(found.task, Detection)
    assert found.task.transposed
    assert found.labels == ("cat", "dog")
    found = stated_task(
        _ultralytics(tmp_path, "classify", "{0: 'cat', 1: 'dog'}", [1, 2])
    )
    assert isinstance(found.task, Classification)
    found = stated_task(_ultralytics(tmp_path, "detect", "{0: 'cat'}", [1, 300, 6]))
    assert isinstance(found.task, Detection)
    assert found.task.class_column == 5
    for task, names, shape in (
        ("detect", "{0: 'cat', 1: 'dog'}", [1, 300, 6]),  # a row of an RT-DETR, perhaps
        ("segment", "{0: 'cat'}", [1, 37, 84]),
        ("detect", "__import__('os')", [1, 6, 84]),
        ("detect", "{1: 'cat'}", [1, 5, 84]),
    ):
        assert stated_task(_ultralytics(tmp_path, task, names, shape)).task is None


def _of_images(folder: Path, said: dict[str, str], images: int = 1) -> Path:
    outputs = [
        helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, (1, 3, 8, 8))
        for i in range(2)
    ]
    for output in outputs[:images]:
        output.type.denotation = "IMAGE"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8))
    nodes = [
        helper.make_node("Abs", ["x"], ["y0"]),
        helper.make_node("Neg", ["x"], ["y1"]),
    ]
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], outputs),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    helper.set_model_props(made, said)
    save(made, folder / "i.onnx")
    return folder / "i.onnx"


def test_an_output_that_is_an_image(tmp_path: Path) -> None:
    found = stated_task(_of_images(tmp_path, {"Image.BitmapPixelFormat": "Bgr8"}))
    assert found.task == ImageOutput("y0", "0_255", "bgr")
    assert found.stated
    found = stated_task(
        _of_images(tmp_path, {"Image.NominalPixelRange": "Normalized_1_1"})
    )
    assert found.task == ImageOutput("y0", "m1_1", "rgb")
    for said, images in (
        ({}, 1),
        ({"Image.BitmapPixelFormat": "Bgr8"}, 2),
        ({"Image.BitmapPixelFormat": "Bgr8"}, 0),
        ({"Image.BitmapPixelFormat": "Cmyk"}, 1),
    ):
        assert stated_task(_of_images(tmp_path, said, images)).task is None
