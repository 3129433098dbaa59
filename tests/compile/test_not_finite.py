"""Models with NaN and infinities: compile says where they are, and goes on or refuses
by the rule of finite.py.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgec.cli.main import run_verb
from edgec.errors import InputError
from edgec.ir import Array
from edgec.quantize.observe.calibration import load_calibration
from tests.harness import sample_graph

pytestmark = pytest.mark.cc


_ATTRIBUTES: dict[str, Any] = {"MaxPool": {"kernel_shape": [2, 2]}}


def _save(
    path: Path, *nodes: tuple[str, dict[str, Array]], shape: tuple[int, ...] = (1, 8)
) -> Path:
    """Ops one after another; each with constants as its other inputs."""
    made = []
    constants = []
    x = "x"
    for i, (kind, given) in enumerate(nodes):
        constants += [numpy_helper.from_array(a, n) for n, a in given.items()]
        made.append(
            helper.make_node(
                kind,
                [x, *given],
                [f"y{i}"],
                name=f"the {kind}",
                **_ATTRIBUTES.get(kind, {}),
            )
        )
        x = f"y{i}"
    ends = [
        helper.make_tensor_value_info("x", 1, shape),
        helper.make_tensor_value_info(x, 1, None),
    ]
    graph = helper.make_graph(made, "g", ends[:1], ends[1:], constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path
    )
    return path


def _weights(**places: float) -> Array:
    found = np.arange(1, 9, dtype=np.float32)
    for at, value in places.items():
        found[int(at[1:])] = value
    return found


def _compile(model: Path, *options: Any) -> int:
    return run_verb(
        [
            "compile",
            str(model),
            "-o",
            str(model.with_suffix(".edgec")),
            "--cc",
            "gcc",
            *map(str, options),
        ]
    )


@pytest.mark.parametrize("verb", ["compile", "explain"])
def test_a_constant_that_is_not_a_number_is_refused(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = _save(
        tmp_path / "m.onnx",
        ("Add", {"b": _weights()}),
        ("Mul", {"w": _weights(_2=np.nan, _3=np.nan)}),
    )
    assert run_verb([verb, str(model)]) == 2
    said = capsys.readouterr().err
    assert "2 NaN of 8 elements of w, which mul (the Mul) reads" in said
    assert "train or export the model again" in said


def test_infinite_constants_are_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mask = _weights(_0=-np.inf, _5=-np.inf)
    model = _save(tmp_path / "m.onnx", ("Add", {"mask": mask}), ("Softmax", {}))
    assert _compile(model) == 0
    said = capsys.readouterr()
    assert (
        "note: infinite constants: 2 infinite of 8 elements of mask, "
        "which add (the Add) reads" in said.out
    )
    assert "Warning" not in said.err


def test_outputs_that_are_not_finite_are_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = _save(tmp_path / "m.onnx", ("Neg", {}), ("Log", {}))
    assert _compile(model) == 0
    said = capsys.readouterr()
    assert "warning: outputs are not finite on noise: first" in said.out
    assert "NaN of 8 elements of y1, which log (the Log) computes" in said.out.replace(
        "\n", " "
    )
    assert "Warning" not in said.err
    with zipfile.ZipFile(tmp_path / "m.edgec") as bundle:
        json.loads(
            bundle.read("manifest.json"),
            parse_constant=lambda name: pytest.fail(f"{name} is no JSON"),
        )


def test_nan_goes_on_in_c_as_in_the_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of noise, half of which has no logarithm."""
    model = _save(
        tmp_path / "m.onnx",
        ("Sub", {"half": np.array([0.5], np.float32)}),
        ("Log", {}),
        ("MaxPool", {}),
        ("Relu", {}),
        ("Softmax", {}),
        shape=(1, 3, 8, 8),
    )
    assert _compile(model) == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert "NaN of 192 elements of y1, which log (the Log) computes" in said


@pytest.mark.arm
def test_nan_times_zero_may_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel for sparse weights has no such products: noise, of which some has no
    logarithm, cannot show that the C is right.
    """
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(32, 128, 1, 1)).astype(np.float32)
    weights[rng.random(weights.shape) < 0.8] = 0
    shape = (1, 128, 8, 8)
    model = _save(
        tmp_path / "m.onnx",
        ("Sub", {"least": np.array([0.0005], np.float32)}),
        ("Log", {}),
        ("Conv", {"w": weights}),
        shape=shape,
    )
    command = ["compile", str(model), "--target", "pi4"]
    command += ["-o", str(tmp_path / "m.edgec")]
    assert run_verb(command) == 2
    said = capsys.readouterr().err
    assert "cannot be verified" in said
    assert "NaN of 8192 elements of y1, which log (the Log) computes" in said
    assert "--validate" in said
    np.savez(tmp_path / "good.npz", x=np.full(shape, 2, np.float32))
    assert run_verb([*command, "--validate", str(tmp_path / "good.npz")]) == 0


def test_no_int8_form_by_samples_that_give_no_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = _save(tmp_path / "m.onnx", ("Log", {}))
    samples = np.full((8, 1, 8), 2, np.float32)
    np.savez(tmp_path / "good.npz", x=samples)
    samples[3, 0, :5] = -1
    np.savez(tmp_path / "bad.npz", x=samples)
    assert (
        _compile(
            model,
            "--calibrate",
            tmp_path / "bad.npz",
            "--quantize",
            "fast",
            "--validate",
            tmp_path / "good.npz",
        )
        == 2
    )
    said = capsys.readouterr().err
    assert "on sample 3 the float model's outputs are not finite" in said
    assert "5 NaN of 8 elements of y0, which log (the Log) computes" in said
    assert (
        _compile(model, "--calibrate", tmp_path / "good.npz", "--quantize", "fast") == 0
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_samples_that_hold_none(value: float, tmp_path: Path) -> None:
    graph = sample_graph(next(iter(_relu().samples())))
    t = graph.inputs[0].type
    array = np.zeros((4, *t.shape))
    array.reshape(4, -1)[2, 0] = value
    np.savez(tmp_path / "a.npz", x=array)
    with pytest.raises(InputError, match="holds NaN or infinite elements, 1 of"):
        load_calibration(tmp_path / "a.npz", graph.inputs)


def _relu() -> Any:
    from edgec.ir import OpDef

    return OpDef.registry["relu"]
