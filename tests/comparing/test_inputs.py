"""Inputs that are constants, or what an output was, are so on both sides of a
comparison.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import edgec
from edgec.cli.main import run_verb
from edgec.errors import InputError
from edgec.options.diff import DiffOptions
from edgec.verbs.diff import diff

pytestmark = pytest.mark.cc


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """m.onnx: y = x * k + h, of a dynamic number of columns, with h_out for the next
    call; x.npz.
    """
    shape = [1, "n"]
    ends = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name in ("x", "h", "y", "h_out")
    }
    k = helper.make_tensor_value_info("k", TensorProto.FLOAT, [1])
    nodes = [
        helper.make_node("Mul", ["x", "k"], ["xk"]),
        helper.make_node("Add", ["xk", "h"], ["y"]),
        helper.make_node("Relu", ["y"], ["h_out"]),
    ]
    graph = helper.make_graph(
        nodes, "m", [ends["x"], k, ends["h"]], [ends["y"], ends["h_out"]]
    )
    onnx.save(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ),
        tmp_path / "m.onnx",
    )
    np.savez(
        tmp_path / "x.npz",
        x=np.random.default_rng(0).normal(size=(3, 1, 6)).astype(np.float32),
    )
    return tmp_path


def test_both_sides_take_them(folder: Path) -> None:
    model = folder / "m.onnx"
    inputs = folder / "x.npz"
    given = {
        "input_shapes": {"x": (1, 6), "h": (1, 6)},
        "fix": {"k": 2.0},
        "state": {"h": "h_out"},
    }
    edgec.compile(model, "host", folder / "m.edgec", **given)  # type: ignore[arg-type]
    words = [
        "--inputs",
        str(inputs),
        "--input-shape",
        "x=1x6",
        "--input-shape",
        "h=1x6",
        "--fix",
        "k=2",
    ]
    for b in (f"onnxruntime:{model}", f"interp:{model}", str(folder / "m.edgec")):
        assert (
            run_verb(
                [
                    "diff",
                    str(model),
                    b,
                    *words,
                    "--state",
                    "h=h_out",
                    "--min-sqnr",
                    "90",
                ]
            )
            == 0
        ), b
    with np.load(inputs) as data:
        assert edgec.diff(
            model,
            f"onnxruntime:{model}",
            inputs,
            **given,  # type: ignore[arg-type]
        ).samples == len(data["x"])
    other = [
        str(model),
        str(folder / "m.edgec"),
        *words[:-1],
        "k=3",
        "--state",
        "h=h_out",
    ]
    assert run_verb(["diff", *other, "--min-sqnr", "90"]) == 1


def test_litert_cannot(folder: Path) -> None:
    (folder / "m.tflite").write_bytes(b"")
    request = DiffOptions(
        f"litert:{folder / 'm.tflite'}",
        f"c:{folder / 'm.tflite'}",
        folder / "x.npz",
        fix={"k": (2.0,)},
    )
    with pytest.raises(InputError, match="with --fix or --state"):
        diff(request)
