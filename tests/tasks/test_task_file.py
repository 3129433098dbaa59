"""What a task's file, --task, --labels and --anchors say, and what becomes of what they
cannot say.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from edgec_runtime import Bundle, InputError, TensorInfo
from edgec_runtime.vision.tasks import TASKS, parse_task, task_json, task_schema
from edgec_runtime.vision.tasks.anchors import Anchors
from edgec_runtime.vision.tasks.detection import Detection

from edgec.frontends.task_file import ANCHORS_FILE, task_file
from edgec.frontends.task_formats import FORMATS
from tests.cli.test_errors import onnx_model
from tests.cli.verbs import edgec

SCHEMA = Path(__file__).parents[2] / "docs" / "task.schema.json"


def test_the_schema_in_docs_is_fresh(request: pytest.FixtureRequest) -> None:
    fresh = json.dumps(task_schema(), indent=1, ensure_ascii=False) + "\n"
    if request.config.getoption("--update-golden"):
        SCHEMA.write_text(fresh)
    assert SCHEMA.read_text() == fresh, "run pytest --update-golden tests/tasks"


@pytest.mark.parametrize("name", [*TASKS, *FORMATS])
def test_every_name_is_a_task_that_the_schema_takes_and_json_keeps(name: str) -> None:
    task = task_file(Path("m.onnx"), name).task
    assert task is not None
    plain = json.loads(json.dumps(task_json(task)))
    jsonschema.validate(plain, task_schema())
    assert parse_task(plain) == task


@pytest.mark.parametrize(
    ("name", "side", "boxes", "numbers"),
    [
        ("blazeface", 128, 896, 16),
        ("blazeface-back", 256, 896, 16),
        ("blazeface-full", 192, 2304, 16),
        ("blazepose", 224, 2254, 12),
        ("palm", 192, 2016, 18),
    ],
)
def test_detectors_of_mediapipe_have_the_boxes_of_its_files(
    name: str, side: int, boxes: int, numbers: int
) -> None:
    task = task_file(Path("m.tflite"), name).task
    assert isinstance(task, Detection)
    outputs = {
        n: TensorInfo(n, (1, boxes, size), "float32")
        for n, size in (("r", numbers), ("c", 1))
    }
    bound = task.bind(outputs, (side, side))
    assert bound.anchors is not None
    assert len(bound.anchors.made((side, side), {})) == boxes
    assert 4 + 2 * task.points == numbers


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"task": "detecton"}, 'did you mean "detection"?'),
        ({"task": "detection", "treshold": 0.5}, 'did you mean "threshold"?'),
        (
            {"task": "detection", "threshold": 1.5},
            "threshold is 1.5, not at least 0 and at most 1",
        ),
        ({"task": "detection", "threshold": True}, "threshold is True, not a number"),
        ({"task": "detection", "threshold": float("nan")}, "threshold is nan"),
        ({"task": "detection", "order": "xy"}, "not xywh or xyxy or yxyx or yxhw"),
        (
            {"task": "detection", "anchors": {"strides": [8, "16"]}},
            "anchors.strides[1] is '16', not an integer",
        ),
        ({"task": "detection", "anchors": 8}, "anchors is not an object"),
        ({"task": "landmarks", "lines": [[0, 1, 2]] * 9999}, "a list of at most 4096"),
        ({"task": "classification", "schema": 2}, "schema 2, this edgec reads 1"),
        (["detection"], "is not an object"),
    ],
)
def test_what_a_task_cannot_be(value: Any, said: str) -> None:
    with pytest.raises(InputError) as e:
        parse_task(value)
    assert said in e.value.what
    assert e.value.hint


def test_a_file_beside_the_model_is_read(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    assert task_file(model).task is None
    (tmp_path / "names.txt").write_text("a\n\nb\n")
    np.save(tmp_path / "a.npy", np.full((3, 4), 0.5))
    text = (
        'format = "yolox"\nthreshold = 0.25\nlabels = "names.txt"\npreprocess = '
        '"0_255,letterbox"\n'
        '[anchors]\nfile = "a.npy"\n'
    )
    (tmp_path / "net.edgec-task.toml").write_text(text)
    found = task_file(model)
    assert isinstance(found.task, Detection)
    assert (found.task.threshold, found.task.iou, found.labels) == (
        0.25,
        0.45,
        ("a", "b"),
    )
    assert found.task.anchors == Anchors(file=ANCHORS_FILE)
    assert np.load(io.BytesIO(found.files[ANCHORS_FILE])).dtype == np.float32
    assert {p.name for p in found.read} == {"net.edgec-task.toml", "names.txt", "a.npy"}
    assert found.with_preprocess("bgr") == "0_255,bgr,letterbox=114"
    (tmp_path / "net.edgec-task.json").write_text("{}")
    with pytest.raises(InputError, match="two files"):
        task_file(model)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.json", "{", "the task's file is damaged"),
        ("t.json", "[1]", "the task's file is damaged: Expected `object`, got `array`"),
        (
            "t.json",
            '{"task": "pose", "labels": "\\ud800"}',
            "the task's file is damaged",
        ),
        ("t.json", "{}", 'has no "task"'),
        ("t.json", '{"format": "yolo"}', 'there is no task "yolo"'),
        ("t.json", '{"task": "pose", "labels": 3}', "labels are 3"),
        ("t.json", '{"task": "pose", "labels": "gone.txt"}', "cannot read the labels"),
        ("t.json", '{"task": "pose", "labels": "a\\u0000b"}', "cannot read the labels"),
        ("t.json", '{"task": "pose", "preprocess": "0_2"}', 'no preprocessing "0_2"'),
        ("t.json", '{"task": "pose", "preprocess": 3}', "preprocess is 3"),
        (
            "t.json",
            '{"task": "detection", "anchors": {"file": "gone.npy"}}',
            "anchors cannot be read",
        ),
        ("t.json", '{"task": "pose", "input_shapes": 3}', "input_shapes are 3"),
        (
            "t.json",
            '{"task": "pose", "input_shapes": {"x": [1, 0]}}',
            "not a list of positive sizes",
        ),
        (
            "t.json",
            '{"task": "pose", "input_shapes": {"x": [1, true]}}',
            "not a list of positive sizes",
        ),
        (
            "t.json",
            '{"task": "pose", "input_shapes": {"x": "1x3"}}',
            "not a list of positive sizes",
        ),
        ("t.toml", "task = ", "cannot read t.toml"),
        ("t.toml", "task = 'detection'\nthreshold = inf", "threshold is inf"),
        ("t.toml", ".".join(["a"] * 60_000) + " = 1", "a line of 120003 characters"),
        ("t.toml", "a = " + "[" * 1900, "cannot read t.toml"),
    ],
)
def test_files_that_say_nothing(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as e:
        task_file(tmp_path / "m.onnx", str(tmp_path / name))
    assert said in e.value.what
    with pytest.raises(InputError, match="cannot be read"):
        task_file(tmp_path / "m.onnx", str(tmp_path / "gone.json"))


@pytest.mark.cc
def test_a_task_file_says_the_shape_of_a_dynamic_input(tmp_path: Path) -> None:
    """--input-shape overrules it."""
    path = onnx_model(tmp_path / "net.onnx", shape=(1, 3, "height", "width"))
    (tmp_path / "net.edgec-task.toml").write_text(
        'task = "image"\n[input_shapes]\nx = [1, 3, 8, 6]\n'
    )
    for options, shape in (
        ((), (1, 3, 8, 6)),
        (("--input-shape", "x=1x3x4x4"), (1, 3, 4, 4)),
    ):
        done = edgec("compile", path.name, *options, "-o", "net.edgec", cwd=tmp_path)
        assert done.code == 0, done
        with Bundle.open(tmp_path / "net.edgec") as bundle:
            (info,) = bundle.manifest.input_infos()
            assert info.shape == shape
    assert edgec("explain", path.name, cwd=tmp_path).code == 0


def test_anchors_beyond_float32(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "a.csv").write_text("0.5,0.5,1,1e+308\n0.25,0.5,1,2\n")
    with pytest.raises(InputError, match="anchors are finite numbers"):
        task_file(tmp_path / "m.onnx", "yolox", tmp_path / "a.csv")
    assert not recwarn.list


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "0.5,0.5,1,1\n0,0,1,1\n"),
        ("a.json", "[[0.5, 0.5, 1, 1], [0, 0, 1, 1]]"),
    ],
)
def test_anchors_of_other_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = task_file(tmp_path / "m.onnx", "detection", tmp_path / name)
    np.testing.assert_array_equal(
        np.load(io.BytesIO(found.files[ANCHORS_FILE])), [[0.5, 0.5, 1, 1], [0, 0, 1, 1]]
    )
    for wrong in ("1,2,3\n", "a,b,c,d\n", "1,2,3,inf\n", ""):
        (tmp_path / "wrong.csv").write_text(wrong)
        with pytest.raises(InputError, match="anchors"):
            task_file(tmp_path / "m.onnx", "detection", tmp_path / "wrong.csv")
    for odd in (
        f"[[1{'0' * 400}, 1, 1, 1]]",
        "[[[[",
        "[[NaN, 1, 1, 1]]",
        '[["a", 1, 1, 1]]',
    ):
        (tmp_path / "wrong.json").write_text(odd)
        with pytest.raises(InputError, match="anchors"):
            task_file(tmp_path / "m.onnx", "detection", tmp_path / "wrong.json")
    # more than a field of csv may have
    (tmp_path / "wrong.csv").write_text('"' + "1" * 200_000)
    with pytest.raises(InputError, match="anchors"):
        task_file(tmp_path / "m.onnx", "detection", tmp_path / "wrong.csv")
    with pytest.raises(InputError, match="anchors are for a detection"):
        task_file(tmp_path / "m.onnx", "pose", tmp_path / name)


def test_outputs_that_do_not_suit_are_refused_with_what_there_is() -> None:
    outputs = {
        "a": TensorInfo("a", (1, 10, 4), "<f4"),
        "b": TensorInfo("b", (1, 10, 4), "<f4"),
    }
    with pytest.raises(InputError, match="2 outputs could be the boxes") as e:
        parse_task({"task": "detection"}).bind(outputs, (8, 8))
    assert '"a" [1, 10, 4]' in (e.value.hint or "")
    bound = parse_task({"task": "detection", "boxes": "#1"}).bind(outputs, (8, 8))
    assert isinstance(bound, Detection)
    assert (bound.boxes, bound.scores) == ("b", "a")
    with pytest.raises(InputError, match='no output "c"'):
        parse_task({"task": "detection", "boxes": "c"}).bind(outputs, (8, 8))
    with pytest.raises(InputError, match="no output has the shape of the class scores"):
        parse_task({"task": "classification"}).bind(outputs, (8, 8))
