"""What a compile says of its accuracy: on which samples, a warning where it is low, and
where it was lost.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from edgec_runtime import Bundle
from onnx import TensorProto, helper, numpy_helper

import edgec
from edgec.errors import EdgecError, InputError
from tests.cli.verbs import edgec as verb

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits"

pytestmark = pytest.mark.slow


def planted(path: Path, offset: float) -> Path:
    """Two convolutions; between them `offset` is added, clipped at 0, and taken away
    again: int8 keeps little of it.
    """
    rng = np.random.default_rng(4)
    arrays = {
        "w1": rng.normal(size=(8, 3, 3, 3)) / 5,
        "b1": np.full(8, offset),
        "offset": np.full((1, 8, 1, 1), offset),
        "w2": rng.normal(size=(4, 8, 3, 3)) / 8,
    }
    nodes = [
        helper.make_node(
            "Conv", ["x", "w1", "b1"], ["a"], name="/planted", pads=[1] * 4
        ),
        helper.make_node("Relu", ["a"], ["b"], name="/relu"),
        helper.make_node("Sub", ["b", "offset"], ["c"], name="/back"),
        helper.make_node("Conv", ["c", "w2"], ["y"], name="/last", pads=[1] * 4),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 16, 16])],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path
    )
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.npz"
    np.savez(
        path, x=np.random.default_rng(5).normal(size=(12, 3, 16, 16)).astype(np.float32)
    )
    return path


def test_low_accuracy_is_a_warning_with_the_op_that_lost_it(
    tmp_path: Path, data: Path
) -> None:
    model = planted(tmp_path / "m.onnx", 400)
    target = ("--target", "pi4+coral", "--quantize", "fast")
    done = verb(
        "compile",
        model,
        *target,
        "--calibrate",
        data,
        "--min-cosine",
        0.1,
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    assert "calibrated on 9 samples\n" in done.out
    assert (
        "accuracy against the float model, on 3 samples of data.npz, "
        "held back from calibration:" in done.out
    )
    assert "warning: low accuracy: output y: SQNR " in done.out
    assert "below 15; cosine 0." in done.out
    assert "hint: give --quantize best" in done.out
    assert "verified output" not in done.out
    assert max(map(len, done.out.splitlines())) <= 120
    with Bundle.open(tmp_path / "m.edgec") as bundle:
        record = bundle.manifest.verification
    assert (
        record["samples"],
        record["calibration_samples"],
        record["seen_by_calibration"],
    ) == (3, 9, False)
    assert record["whole"]["y"]["sqnr_db"] < record["marks"]["sqnr_db"]
    assert list(record["low"]) == ["y"]
    assert "/planted" in record["worst_layer"]["source"]
    assert "/planted" in done.out.split("largest loss in one op")[1]


def test_a_good_model_has_no_warning(tmp_path: Path, data: Path) -> None:
    done = edgec.compile(
        planted(tmp_path / "m.onnx", 0.5),
        "pi4",
        tmp_path / "m.edgec",
        calibrate=data,
        quantize="fast",
    )
    assert done.network.verification.low() == {}
    assert "warning" not in done.summary()
    assert (
        "as C it runs as the reference does, bit for bit (2 samples)" in done.summary()
    )


def test_below_min_cosine_there_is_no_bundle(tmp_path: Path, data: Path) -> None:
    model = planted(tmp_path / "m.onnx", 3000)
    with pytest.raises(EdgecError, match=r"0\.9 needed") as e:
        edgec.compile(
            model, "pi4", tmp_path / "m.edgec", calibrate=data, quantize="fast"
        )
    assert e.value.exit_code == 1
    assert "--quantize best" in (e.value.hint or "")
    with pytest.raises(EdgecError, match="1 needed") as e:
        edgec.compile(model, "pi4", tmp_path / "m.edgec", calibrate=data, min_cosine=1)
    assert "--calibrate more photos" in (e.value.hint or "")
    assert not (tmp_path / "m.edgec").exists()


def test_validate_gives_other_samples(tmp_path: Path, data: Path) -> None:
    other = tmp_path / "other.npz"
    np.savez(
        other, x=np.random.default_rng(6).normal(size=(5, 3, 16, 16)).astype(np.float32)
    )
    model = planted(tmp_path / "m.onnx", 0.5)
    done = edgec.compile(
        model,
        "pi4",
        tmp_path / "m.edgec",
        calibrate=data,
        quantize="fast",
        validate=other,
    ).network.verification
    assert (done.samples, done.calibrated, done.source, done.seen) == (
        5,
        12,
        "other.npz",
        False,
    )
    plain = edgec.compile(
        model, "pi4", tmp_path / "m.edgec", validate=other
    ).network.verification
    assert (plain.quantized, plain.samples, plain.source) == (False, 2, "other.npz")


def test_too_few_to_hold_back_are_said_to_be_seen(tmp_path: Path) -> None:
    few = tmp_path / "few.npz"
    np.savez(
        few, x=np.random.default_rng(5).normal(size=(3, 3, 16, 16)).astype(np.float32)
    )
    done = edgec.compile(
        planted(tmp_path / "m.onnx", 0.5),
        "pi4",
        tmp_path / "m.edgec",
        calibrate=few,
        quantize="fast",
    )
    assert done.network.verification.seen
    assert "on 3 samples of few.npz, the same as for calibration" in done.summary()


def test_calibrated_bundles_are_the_same_bytes(tmp_path: Path, data: Path) -> None:
    model = planted(tmp_path / "m.onnx", 0.5)
    for name in ("a", "b"):
        edgec.compile(
            model, "pi4", tmp_path / f"{name}.edgec", calibrate=data, quantize="fast"
        )
    assert (tmp_path / "a.edgec").read_bytes() == (tmp_path / "b.edgec").read_bytes()


def test_a_float_model_for_the_edge_tpu_is_refused(tmp_path: Path) -> None:
    model = planted(tmp_path / "m.onnx", 0.5)
    target = ("--target", "pi4+coral")
    refused = verb("compile", model, *target, cwd=tmp_path)
    assert refused.code == 2
    assert refused.err.startswith("error: m.onnx is a float model")
    assert "--calibrate FOLDER" in refused.err
    assert "--allow-float" in refused.err
    assert not (tmp_path / "m.edgec").exists()
    with pytest.raises(InputError, match="float model"):
        edgec.compile(model, "pi4+coral", tmp_path / "m.edgec")
    allowed = verb("compile", model, *target, "--allow-float", cwd=tmp_path)
    assert allowed.code == 0, allowed.err
    assert (
        "in float: all on the CPU, nothing on the Edge TPU"
        in allowed.out.splitlines()[0]
    )
    done = edgec.compile(model, "pi4+coral", tmp_path / "m.edgec", allow_float=True)
    assert {s.place for s in done.network.lowered.partition.segments} == {"cpu"}


def test_explain_says_first_that_scales_are_assumed_and_agrees_with_what_compiles(
    tmp_path: Path, data: Path
) -> None:
    model = planted(tmp_path / "m.onnx", 0.5)
    target = ("--target", "pi4+coral")
    assumed = verb("explain", model, *target, cwd=tmp_path).out.splitlines()[0]
    assert assumed.startswith("assumed: ")
    assert "int8 scales" in assumed
    told = verb(
        "explain",
        model,
        *target,
        "--calibrate",
        data,
        "--quantize",
        "fast",
        cwd=tmp_path,
    ).out
    assert "made-up" not in told.splitlines()[0]
    left = edgec.explain(model, "pi4+coral", allow_float=True).report
    assert not left.assumed_quantization
    assert {s.place for s in left.segments} == {"cpu"}


def test_verifying_with_what_calibration_saw_is_said(
    tmp_path: Path, data: Path
) -> None:
    done = edgec.compile(
        planted(tmp_path / "m.onnx", 4),
        "pi4+coral",
        tmp_path / "m.edgec",
        calibrate=data,
        quantize="fast",
        validate=data,
    )
    assert done.network.verification.source == "data.npz, the same as for calibration"
