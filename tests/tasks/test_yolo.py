"""YOLO networks as Ultralytics exports them today: what they are is read from the file,
and what is found is compared with plain loops over what onnxruntime computes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import Bundle, Session
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.tasks.classification import Classes
from edgec_runtime.vision.tasks.instances import Box, Boxes
from onnx import TensorProto, helper

import edgec
from edgec.errors import EdgecError
from edgec.frontends.ultralytics import exported
from edgec.ir import Array
from tests.cli.verbs import edgec as verb
from tests.conftest import ROOT
from tests.tasks.yolo import CLASSES, EXTRA, POINTS, SIDE, yolo

pytestmark = pytest.mark.cc
ort = pytest.importorskip("onnxruntime")

KINDS = tuple(EXTRA)
PHOTOS = ROOT / "fixtures" / "photos"
FRAME = (96, 48)
"""Width and height: letterboxed into SIDE x SIDE, it is 64 x 32 with 16 rows of gray
above.
"""
SCALE = SIDE / FRAME[0]
ABOVE = 16
THRESHOLD = 0.25
IOU = 0.7


def result(
    model: Path, folder: Path, **options: Any
) -> tuple[Any, dict[str, Array], Array]:
    """What is found in a frame by the compiled model, the model's input, and the frame."""
    edgec.compile(model, output=folder / "y.edgec", **options)
    y, x = np.mgrid[0 : FRAME[1], 0 : FRAME[0]]
    waves = [128 + 127 * np.sin(x / (5 + 2 * i) + y / (7 - i) + i) for i in range(3)]
    pixels = np.stack(waves, -1).astype(np.uint8)
    with Bundle.open(folder / "y.edgec") as bundle, Session(bundle) as session:
        frame = CameraFrame.packed("rgb", pixels.reshape(-1), *FRAME)
        inputs = session.vision.prepare(frame)
        return session.vision.result(session.run(inputs), frame.size), inputs, pixels


def in_frame(x: float, y: float) -> tuple[float, float]:
    return x / SCALE, (y - ABOVE) / SCALE


def rows_of(outputs: list[Array], kind: str, end_to_end: bool) -> list[dict[str, Any]]:
    """Boxes of the model's own outputs, in pixels of its input: as its exporter's
    documentation has them.
    """
    if end_to_end:
        found = []
        for row in outputs[0][0]:
            if row[4] >= THRESHOLD:
                found.append(
                    {
                        "box": row[:4],
                        "score": row[4],
                        "class": int(row[5]),
                        "extra": row[6:],
                    }
                )
        return [
            {**f, "corners": corners(f["box"]) if kind == "obb" else f["box"]}
            for f in found
        ]
    every = []
    for row in outputs[0][0].T:
        best = int(np.argmax(row[4 : 4 + CLASSES]))
        if row[4 + best] >= THRESHOLD:
            one = {
                "box": row[:4],
                "score": row[4 + best],
                "class": best,
                "extra": row[4 + CLASSES :],
            }
            every.append({**one, "corners": corners(row[:4])})
    kept: list[dict[str, Any]] = []
    for one in sorted(every, key=lambda r: -r["score"]):
        same = [k for k in kept if k["class"] == one["class"]]
        if not any(overlap(k, one, kind == "obb") > IOU for k in same):
            kept.append(one)
    return kept


def corners(box: Array) -> Array:
    x, y, w, h = box
    return np.array([x - w / 2, y - h / 2, x + w / 2, y + h / 2])


def overlap(a: dict[str, Any], b: dict[str, Any], turned: bool) -> float:
    """Of upright boxes the intersection over the union; of turned ones 1 less the
    Hellinger distance, by matrices.
    """
    if not turned:
        one = a["corners"]
        two = b["corners"]
        w, h = (
            max(0.0, float(min(one[i + 2], two[i + 2]) - max(one[i], two[i])))
            for i in (0, 1)
        )
        areas = [float((c[2] - c[0]) * (c[3] - c[1])) for c in (one, two)]
        return w * h / (sum(areas) - w * h)
    means = []
    matrices = []
    for row in (a, b):
        x, y, w, h = row["box"].astype(np.float64)
        angle = float(row["extra"][0])
        turn = np.array(
            [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        )
        means.append(np.array([x, y]))
        matrices.append(turn @ np.diag([w * w / 12, h * h / 12]) @ turn.T)
    mean = (matrices[0] + matrices[1]) / 2
    apart = means[0] - means[1]
    distance = apart @ np.linalg.inv(mean) @ apart / 8
    distance += (
        np.log(
            np.linalg.det(mean)
            / np.sqrt(np.linalg.det(matrices[0]) * np.linalg.det(matrices[1]))
        )
        / 2
    )
    return float(1 - np.sqrt(max(0.0, 1 - np.exp(-distance))))


def compare(
    found: Boxes, expected: list[dict[str, Any]], kind: str, planes: Array | None
) -> None:
    assert len(found.boxes) == len(expected) > 3
    for box, one in zip(found.boxes, expected, strict=True):
        assert box.index == one["class"]
        assert box.label == f"thing {box.index}"
        assert box.score == pytest.approx(one["score"], abs=1e-5)
        {"detect": upright, "segment": masked, "pose": posed, "obb": turned}[kind](
            box, one, planes
        )


def upright(box: Box, one: dict[str, Any], planes: Array | None = None) -> None:
    x1, y1, x2, y2 = (float(v) for v in one["corners"])
    low = in_frame(x1, y1)
    high = in_frame(x2, y2)
    expected = [np.clip(v, 0, FRAME[i % 2]) for i, v in enumerate((*low, *high))]
    np.testing.assert_allclose(box.corners, expected, atol=1e-3)


def masked(box: Box, one: dict[str, Any], planes: Array | None) -> None:
    """The logits of all pixels of the input, made larger, and cut off where the box
    ends.
    """
    upright(box, one)
    assert box.mask is not None
    assert planes is not None
    logits = np.tensordot(
        one["extra"].astype(np.float64), planes[0].astype(np.float64), 1
    )
    side = logits.shape[0]
    across = [((x + 0.5) * SCALE) * side / SIDE - 0.5 for x in range(FRAME[0])]
    down = [((y + 0.5) * SCALE + ABOVE) * side / SIDE - 0.5 for y in range(FRAME[1])]
    rows = np.array([np.interp(across, range(side), row) for row in logits])
    whole = np.array([np.interp(down, range(side), column) for column in rows.T]).T
    left, top, inside = box.mask.inside(box.corners)
    part = whole[top : top + inside.shape[0], left : left + inside.shape[1]]
    sure = np.abs(part) > 1e-4
    np.testing.assert_array_equal(inside[sure], part[sure] > 0)


def posed(box: Box, one: dict[str, Any], planes: Array | None = None) -> None:
    upright(box, one)
    points = one["extra"].reshape(POINTS, 3)
    np.testing.assert_allclose(
        box.points, [in_frame(x, y) for x, y, _ in points], atol=1e-3
    )
    np.testing.assert_allclose(box.point_scores, points[:, 2], atol=1e-5)


def turned(box: Box, one: dict[str, Any], planes: Array | None = None) -> None:
    x, y, w, h = one["box"]
    angle = float(one["extra"][0])
    assert box.angle == pytest.approx(angle, abs=1e-5)
    expected = []
    for dx, dy in ((-w, -h), (w, -h), (w, h), (-w, h)):
        sine = np.sin(angle)
        cosine = np.cos(angle)
        expected.append(
            in_frame(
                x + (dx * cosine - dy * sine) / 2, y + (dx * sine + dy * cosine) / 2
            )
        )
    np.testing.assert_allclose(box.polygon, expected, atol=2e-3)


def reference(model: Path, inputs: dict[str, Array]) -> list[Array]:
    outputs: list[Array] = ort.InferenceSession(str(model)).run(None, inputs)
    return outputs


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    ("end_to_end", "unknown"),
    [(False, False), (True, False), (True, True)],
    ids=["candidates", "end-to-end", "a head that cannot be read"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_float_model_finds(
    kind: str, end_to_end: bool, unknown: bool, tmp_path: Path
) -> None:
    """Where the head is left out, the same boxes as by the head, from all candidates."""
    whole = yolo(tmp_path / "whole.onnx", kind, end_to_end)
    found, inputs, _ = result(
        yolo(tmp_path / "y.onnx", kind, end_to_end, unknown=unknown), tmp_path
    )
    with Bundle.open(tmp_path / "y.edgec") as bundle:
        assert (bundle.manifest.outputs[0] == "output0") != unknown
    outputs = reference(whole, inputs)
    compare(
        found,
        rows_of(outputs, kind, end_to_end),
        kind,
        outputs[1] if kind == "segment" else None,
    )


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kind", KINDS)
def test_int8_ends_before_the_head(kind: str, tmp_path: Path) -> None:
    """Nearly all of the boxes, where they are in the float model."""
    model = yolo(tmp_path / "y.onnx", kind, True, detections=60)
    found, inputs, _ = result(model, tmp_path, calibrate=PHOTOS, quantize="fast")
    expected = rows_of(reference(model, inputs), kind, True)
    hits = 0
    for one in expected:
        near = [
            b
            for b in found.boxes
            if b.index == one["class"] and abs(b.score - one["score"]) < 0.05
        ]
        if kind == "obb":
            middle = np.array(in_frame(*one["box"][:2]))
            middles = [np.mean(b.polygon, axis=0) for b in near]
        else:
            ends = [in_frame(*one["corners"][:2]), in_frame(*one["corners"][2:])]
            middle = np.clip(ends, 0, FRAME).mean(axis=0)
            middles = [np.reshape(b.corners, (2, 2)).mean(axis=0) for b in near]
        hits += any(np.linalg.norm(m - middle) < 3 for m in middles)
    assert hits >= 0.9 * len(expected) > 3
    assert abs(len(found.boxes) - len(expected)) <= 0.2 * len(expected)


def test_explain_and_compile_say_what_is_left_out(tmp_path: Path) -> None:
    yolo(tmp_path / "y.onnx", "detect", True)
    on = ("--target", "pi4+coral", "--calibrate", PHOTOS)
    said = verb("explain", "y.onnx", "--ops", *on, cwd=tmp_path)
    assert said.code == 0, said
    assert "end-to-end head" in said.out + said.err
    assert "topk" not in said.out
    compiled = verb(
        "compile", "y.onnx", *on, "--quantize", "fast", "-o", "y.edgec", cwd=tmp_path
    )
    assert compiled.code == 0, compiled
    assert "end-to-end head" in compiled.out + compiled.err
    kept = verb("explain", "y.onnx", "--ops", *on, "--keep-head", cwd=tmp_path)
    assert "topk" in kept.out


def test_a_task_that_a_person_gives_keeps_the_head(tmp_path: Path) -> None:
    model = yolo(tmp_path / "y.onnx", "detect", True)
    with pytest.raises(EdgecError, match="output output0"):
        edgec.compile(
            model,
            output=tmp_path / "y.edgec",
            task="yolo26",
            calibrate=PHOTOS,
            quantize="fast",
        )


@pytest.mark.parametrize(
    "said",
    [{"args": "{'batch': 1, 'nms': True}", "end2end": "False"}, {"end2end": "True"}],
)
def test_two_classes_are_no_doubt_where_the_file_says_that_it_picks(
    said: dict[str, str],
) -> None:
    """An RT-DETR of two classes has rows of six numbers, too."""
    told = {"author": "Ultralytics", "task": "detect", "names": "{0: 'a', 1: 'b'}"}
    boxes = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 300, 6])
    found = []
    for more in ({}, said):
        model = helper.make_model(helper.make_graph([], "g", [], [boxes]))
        for key, value in {**told, **more}.items():
            model.metadata_props.add(key=key, value=value)
        found.append(exported(model))
    assert found[0] is None
    assert found[1] is not None
    assert (found[1].picked, found[1].suppresses) == (300, "args" in said)


def test_classification(tmp_path: Path) -> None:
    model = yolo(tmp_path / "y.onnx", "classify", False)
    found, inputs, _ = result(model, tmp_path)
    assert isinstance(found, Classes)
    best = int(np.argmax(reference(model, inputs)[0]))
    assert found.classes[0].label == f"thing {best}"


@pytest.mark.parametrize(
    ("metadata", "shape"),
    [
        ({"end2end": "True"}, False),
        ({"task": "pose"}, False),
        ({"task": "track"}, True),
        ({"names": "{0: 'a'}"}, False),
    ],
    ids=["not-end-to-end", "no-points", "another-task", "another-number-of-names"],
)
def test_what_leaves_a_doubt_is_no_task(
    metadata: dict[str, str], shape: bool, tmp_path: Path
) -> None:
    model = yolo(tmp_path / "y.onnx", "detect", shape, metadata=metadata)
    edgec.compile(model, output=tmp_path / "y.edgec")
    with Bundle.open(tmp_path / "y.edgec") as bundle:
        assert bundle.manifest.task is None


@pytest.mark.parametrize("family", ["yolov8", "yolo26"])
@pytest.mark.parametrize(("kind", "suffix"), [("detect", ""), ("obb", "-obb")])
def test_families_without_metadata(
    family: str, kind: str, suffix: str, tmp_path: Path
) -> None:
    model = yolo(
        tmp_path / "y.onnx", kind, family == "yolo26", metadata={"author": "somebody"}
    )
    found, inputs, _ = result(model, tmp_path, task=family + suffix)
    expected = rows_of(reference(model, inputs), kind, family == "yolo26")
    assert len(found.boxes) == len(expected) > 3
    for box, one in zip(found.boxes, expected, strict=True):
        (turned if kind == "obb" else upright)(box, one)


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_is_told_and_drawn(kind: str, tmp_path: Path) -> None:
    found, _, pixels = result(yolo(tmp_path / "y.onnx", kind, True), tmp_path)
    drawn = found.draw(pixels)
    assert (drawn.shape, drawn.dtype) == (pixels.shape, np.uint8)
    assert (drawn != pixels).any()
    told = found.to_json()["boxes"]
    assert len(found.lines()) == len(told)
    for box, one in zip(found.boxes, told, strict=True):
        if kind == "segment":
            assert box.mask is not None
            flat = np.repeat(
                np.arange(len(one["mask"]["counts"])) % 2 == 1, one["mask"]["counts"]
            )
            whole = flat.reshape(one["mask"]["size"][::-1]).T
            left, top, inside = box.mask.inside(box.corners)
            assert whole.sum() == inside.sum()
            np.testing.assert_array_equal(
                whole[top : top + inside.shape[0], left : left + inside.shape[1]],
                inside,
            )
        assert ("points" in one) == ("point_scores" in one) == (kind == "pose")
        assert ("polygon" in one) == (kind == "obb")
