"""TFLite_Detection_PostProcess: detections as LiteRT's operator gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from flatbuffers import flexbuffers

from edgec.errors import UnsupportedError
from edgec.frontends import read_model
from edgec.ir import Array, interp
from tests.frontends.tflite_operators import Given, const, model_of, packed, reference
from tests.harness import assert_agree, run_c

_RNG = np.random.default_rng(5)
ANCHORS = np.concatenate(
    [_RNG.random((60, 2)), 0.2 + 0.2 * _RNG.random((60, 2))], 1
).astype(np.float32)
OPTIONS = {
    "max_detections": 10,
    "max_classes_per_detection": 1,
    "num_classes": 4,
    "nms_score_threshold": 0.2,
    "nms_iou_threshold": 0.5,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}
OUTPUTS = [((), np.float32)] * 4


def detector(boxes: Given, scores: Given, **options: Any) -> bytes:
    anchors = Given(ANCHORS, True)
    if boxes.quant is not None:
        anchors = Given(
            np.round(ANCHORS * 250).astype(np.uint8), True, ([1 / 250], [0], 0)
        )
    stored = bytes(flexbuffers.Dumps({**OPTIONS, **options}))
    return packed(
        model_of(
            "TFLite_Detection_PostProcess", stored, [boxes, scores, anchors], OUTPUTS
        )
    )


def boxes() -> Given:
    return Given(_RNG.normal(size=(1, 60, 4)).astype(np.float32))


def there(found: dict[str, Any]) -> dict[str, Any]:
    """LiteRT's outputs with zeros behind the last detection, where it leaves whatever
    the memory held.
    """
    *outputs, last = found
    count = int(found[last][0])
    for name in outputs:
        found[name][0, count:] = 0
    return found


@pytest.mark.parametrize(
    ("classes", "options"),
    [
        (5, {}),
        (4, {"max_detections": 50, "nms_score_threshold": 0.0}),
        (5, {"nms_iou_threshold": 0.1, "max_detections": 25}),
        (5, {"nms_score_threshold": 0.99}),
    ],
)
@pytest.mark.parametrize("steps", [0, 5])
def test_detections_are_litert(
    classes: int, options: dict[str, Any], steps: int, tmp_path: Path
) -> None:
    """steps: of the scores, so that many are equal."""
    given = _RNG.random((1, 60, classes))
    scores = Given(
        (np.round(given * steps) / steps if steps else given).astype(np.float32)
    )
    path = tmp_path / "m.tflite"
    of = boxes()
    path.write_bytes(detector(of, scores, **options))
    fed = {"x0": of.data, "x1": scores.data}
    graph = read_model(path)
    want = there(reference(path.read_bytes(), fed, builtin=True))
    assert_agree(interp(graph, fed), want)
    assert_agree(run_c(graph, fed), want)


def test_quantized_detections_are_litert(tmp_path: Path) -> None:
    of = Given(
        _RNG.integers(0, 256, (1, 60, 4)).astype(np.uint8), quant=([0.05], [128], 0)
    )
    scores = Given(
        _RNG.integers(0, 256, (1, 60, 5)).astype(np.uint8), quant=([1 / 256], [0], 0)
    )
    path = tmp_path / "m.tflite"
    path.write_bytes(detector(of, scores))
    fed = {"x0": of.data, "x1": scores.data}
    assert_agree(
        interp(read_model(path), fed),
        there(reference(path.read_bytes(), fed, builtin=True)),
    )


@pytest.mark.parametrize(
    "options", [{"use_regular_nms": True}, {"max_classes_per_detection": 3}]
)
def test_other_suppressions_are_refused(
    options: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(
        detector(boxes(), Given(np.zeros((1, 60, 5), np.float32)), **options)
    )
    with pytest.raises(UnsupportedError, match="use_regular_nms"):
        read_model(path)


@pytest.mark.shared
def test_a_whole_detector_is_litert(shared: Path) -> None:
    folder = shared / "models" / "ssd_mnv1_coco_u8"
    graph = read_model(folder / "ssd_mnv1_coco_u8.tflite")
    ref = dict(np.load(folder / "ref.npz"))
    interpreter = Interpreter(
        str(folder / "ssd_mnv1_coco_u8.tflite"),
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], ref["in0_0"])
    interpreter.invoke()
    got = interp(graph, {graph.inputs[0].name: ref["in0_0"]})
    details = interpreter.get_output_details()
    want = {
        v.name: interpreter.get_tensor(d["index"])
        for v, d in zip(graph.outputs, details, strict=True)
    }
    assert_agree(got, there(want))


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("most", "overlap", "score"), [(10, 0.3, 0.2), (60, 0.9, 0.9), (3, 0.0, 0.0)]
)
def test_suppression_of_boxes_that_overlap(
    version: int, most: int, overlap: float, score: float, tmp_path: Path
) -> None:
    rng = np.random.default_rng(version)
    first = rng.random((80, 2), np.float32)
    boxes = np.concatenate(
        [first, first + rng.random((80, 2), np.float32) * 0.5 - 0.1], 1
    ).astype(np.float32)
    limits = [
        const(most),
        const(overlap, np.float32),
        const(score, np.float32),
        *([const(0, np.float32)] * (version - 4)),
    ]
    scores = rng.permutation(80).astype(np.float32) / 80
    outputs: list[Any] = [
        ((most,), np.int32),
        *([((most,), np.float32)] * (version - 4)),
        ((), np.int32),
    ]
    table = (f"NonMaxSuppressionV{version}Options", dict[str, Any]())
    model = model_of(
        f"NON_MAX_SUPPRESSION_V{version}",
        table,
        [Given(boxes), Given(scores), *limits],
        outputs,
    )
    path = tmp_path / "m.tflite"
    fed = dict[str, Array](x0=boxes, x1=scores)
    path.write_bytes(packed(model))
    graph = read_model(path)
    want = reference(packed(model), fed, builtin=True)
    for got in (interp(graph, fed), run_c(graph, fed)):
        for name, y in want.items():
            np.testing.assert_array_equal(got[name], y)
