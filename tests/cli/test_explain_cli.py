"""`edgec explain` as a person types it: what it prints, where, and the exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from click.testing import CliRunner, Result
from edgec_partitioner.legalize import rewrites

import edgec as package
from edgec.cli.main import cli
from edgec.emit.tflite import write_tflite
from edgec.errors import InputError
from edgec.ir import Builder, Quant, TensorType
from edgec.ops.activation import LeakyRelu
from edgec.ops.binary import Add
from edgec.ops.conv import Conv2D
from edgec.ops.division import Div
from edgec.ops.unary import Relu
from edgec.verbs.requirements import FIGURES
from tests.conftest import SHARED

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
SCHEMA = ROOT / "docs" / "explain-schema.md"
AS_IS = [text for name in rewrites() for text in ("--disable-pass", name)]
IMAGE = TensorType((1, 64, 64, 8), "int8", Quant.per_tensor(0.1, 3))


def edgec(*args: object) -> Result:
    return CliRunner().invoke(cli, ["explain", *map(str, args)], standalone_mode=False)


def code(result: Result) -> int:
    """The exit code that main() makes of it."""
    if isinstance(result.exception, InputError):
        return result.exception.exit_code
    return int(result.return_value or 0)


def as_json(*args: object) -> dict[str, Any]:
    result = edgec(*args, "--json")
    assert result.exception is None, result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def leaky(tmp_path: Path) -> Path:
    """RELU, LEAKY_RELU (refused), RELU."""
    build = Builder("leaky")
    y = build.input("x", IMAGE)
    for i, spec in enumerate((Relu(), LeakyRelu(0.1), Relu())):
        y = build.add(spec, [y], f"y{i}", IMAGE.quant)
    build.graph.outputs = [y]
    path = tmp_path / "leaky.tflite"
    path.write_bytes(write_tflite(build.graph))
    return path


@pytest.fixture
def custom(leaky: Path) -> Path:
    """The same with a custom operator in the middle."""
    model = schema.ModelT.InitFromPackedBuf(leaky.read_bytes())
    for c in model.operatorCodes:
        if (
            max(c.builtinCode, c.deprecatedBuiltinCode)
            == schema.BuiltinOperator.LEAKY_RELU
        ):
            c.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
            c.builtinCode = c.deprecatedBuiltinCode
            c.customCode = "Thing"
    model.subgraphs[0].operators[1].builtinOptions = None
    model.subgraphs[0].operators[1].builtinOptionsType = 0
    builder = flatbuffers.Builder(256)
    builder.Finish(model.Pack(builder), b"TFL3")
    leaky.write_bytes(bytes(builder.Output()))
    return leaky


def test_source_ops_are_the_files_operators_in_its_order(leaky: Path) -> None:
    data = as_json(leaky, "--target", "pi4+coral", *AS_IS)
    rows = data["source_ops"]
    assert [r["index"] for r in rows] == [0, 1, 2]
    assert [r["opcode"] for r in rows] == ["RELU", "LEAKY_RELU", "RELU"]
    assert [r["verdict"] for r in rows] == ["edgetpu", "cpu", "edgetpu"]
    assert [r["stock"] for r in rows] == ["mapped", "cpu", "cpu"]  # the first set alone
    assert all(
        r["rule"] and r["seen"] and r["fix"] != ""
        for r in rows
        if r["verdict"] == "cpu"
    )
    assert all(
        r["rule"] == r["seen"] == "" and r["fix"] is None
        for r in rows
        if r["verdict"] == "edgetpu"
    )
    comparison = data["comparison"]
    assert comparison["basis"] == "file"
    assert comparison["stock"]["tpu_ops"] == 1
    assert comparison["stock_every_set"]["tpu_ops"] == 2
    assert (
        comparison["stock"]["est_ms"]
        == comparison["stock"]["tpu_ms"] + comparison["stock"]["cpu_ms"]
    )


def test_each_row_of_source_ops_is_as_documented(leaky: Path) -> None:
    section = (
        SCHEMA.read_text()
        .partition("Each of `source_ops`")[2]
        .partition("\nEach of")[0]
    )
    keys = {
        k
        for line in section.splitlines()
        if line.startswith("| `")
        for k in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert all(
        set(r) == keys for r in as_json(leaky, "--target", "pi4+coral")["source_ops"]
    )


def test_what_edgec_cannot_compile_is_explained(custom: Path) -> None:
    data = as_json(custom, "--target", "pi4+coral")
    assert [r["opcode"] for r in data["source_ops"]] == ["RELU", "CUSTOM:Thing", "RELU"]
    assert [r["verdict"] for r in data["source_ops"]] == ["edgetpu", "cpu", "edgetpu"]
    assert "Thing" in data["obstacle"]
    assert (
        "edgec cannot compile this model yet"
        in edgec(custom, "--target", "pi4+coral").stdout
    )
    assert as_json(custom, "--target", "pi4")["link"] is None


def test_a_float_model_is_compared_on_an_int8_form(tmp_path: Path) -> None:
    data = as_json(DIGITS, "--target", "pi4+coral")
    assert data["comparison"]["basis"] == "int8"
    assert data["source_ops"] == []
    build = Builder("float")
    build.graph.outputs = [
        build.add(Relu(), [build.input("x", TensorType((1, 8, 8, 4)))])
    ]
    path = tmp_path / "float.tflite"
    path.write_bytes(write_tflite(build.graph))
    data = as_json(path, "--target", "pi4+coral")
    assert data["comparison"]["basis"] == "int8"
    assert [(r["verdict"], r["stock"], r["rule"]) for r in data["source_ops"]] == [
        ("cpu", "cpu", "int8_tensors")
    ]


def test_all_that_can_goes_to_the_edge_tpu_on_request() -> None:
    """The digits are so small that the CPU is faster than a call over USB; who wants it
    free has it so.
    """
    said = " ".join(edgec(DIGITS, "--target", "pi4+coral").stdout.split())
    assert (
        "must save more time than its transfers take; --edgetpu all puts it there"
        in said
    )
    auto, every = (
        as_json(DIGITS, "--target", "pi4+coral", "--edgetpu", share)
        for share in ("auto", "all")
    )
    assert (
        auto["comparison"]["edgec"]["tpu_ops"],
        every["comparison"]["edgec"]["tpu_ops_share"],
    ) == (0, 1)
    assert every["bound_ms"] is None
    assert (
        auto["comparison"]["edgec"]["est_ms"] < every["comparison"]["edgec"]["est_ms"]
    )
    assert (
        "note: --edgetpu all:"
        in edgec(DIGITS, "--target", "pi4+coral", "--edgetpu", "all").stdout
    )
    assert (
        "note: --edgetpu all:"
        not in edgec(DIGITS, "--target", "pi4", "--edgetpu", "all").stdout
    )


def test_the_first_screen_is_the_summary(leaky: Path) -> None:
    summary = edgec(leaky, "--target", "pi4+coral").stdout
    full = edgec(leaky, "--target", "pi4+coral", "--ops").stdout
    assert all(len(line) <= 120 for line in full.splitlines())
    assert "op  kind" in full
    assert "op  kind" not in summary
    assert "explain --ops" in summary
    head = "\n".join(full.splitlines()[:12])
    assert all(
        word in head
        for word in (
            "CPU only",
            "stock compiler",
            "edgec",
            "gain",
            "estimated ms, together",
        )
    )


def test_requirements(leaky: Path) -> None:
    args = (leaky, "--target", "pi4+coral", "--optimistic")
    held = edgec(*args, "--require", "segments>=1", "--require", "ms<1000ms")
    assert code(held) == 0
    assert held.stdout.rstrip().splitlines()[-2].startswith("holds   segments>=1: ")
    missed = edgec(*args, "--require", "segments>=1", "--require", "cpu.ms<0ms")
    assert code(missed) == 1
    assert missed.stdout.rstrip().splitlines()[-1].startswith("MISSED  cpu.ms<0ms: ")
    in_json = edgec(*args, "--require", "ms<0", "--json")
    assert code(in_json) == 1
    (outcome,) = json.loads(in_json.stdout)["requirements"]
    assert outcome["holds"] is False
    interval = outcome["interval"]
    assert interval["judged"] == "upper"
    assert interval["low"] < outcome["measured"] < interval["high"]
    assert outcome["margin"] == -interval["high"]
    assert in_json.stderr.startswith("MISSED  ms<0: ")


def test_the_op_that_stands_in_the_way_is_named(leaky: Path) -> None:
    result = edgec(leaky, "--target", "pi4+coral", "--require", "tpu=100%", *AS_IS)
    assert code(result) == 1
    assert re.search(
        r"MISSED  tpu=100%: .* %, margin -.* %; in the way: op \d+ \w+ \(.+\), [\w ]+: ",
        result.stdout,
    )


def test_a_mistyped_requirement_is_refused_before_any_work(tmp_path: Path) -> None:
    result = edgec(tmp_path / "nosuch.onnx", "--require", "tpu.mac>=95%")
    assert code(result) == 2
    assert 'did you mean "tpu.macs"' in str(result.exception)


@pytest.mark.parametrize(
    "text", ["tpu.macs>=95", "tpu=100", "tpu.ops>=90", "cpu.macs<=5"]
)
def test_a_bare_number_against_a_percentage_is_refused(
    tmp_path: Path, text: str
) -> None:
    result = edgec(tmp_path / "nosuch.onnx", "--require", text)
    assert code(result) == 2
    assert f"write {text.replace('tpu=', 'tpu.ops=')}%" in str(result.exception)


def test_counts_need_no_percent(leaky: Path) -> None:
    assert (
        code(
            edgec(
                leaky,
                "--target",
                "pi4+coral",
                "--require",
                "cpu.ops<=3,tpu.segments<=3,cpu.macs==0",
            )
        )
        == 0
    )


def test_nothing_is_printed_where_nothing_helps(leaky: Path, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    args = (leaky, "--target", "pi4+coral", *AS_IS)
    text = edgec(*args, "--html", page).stdout
    data = as_json(*args)
    found = [r for op in data["ops"] for r in op["refusals"]]
    assert any(r["fix"] is None for r in found)
    assert "none needed" not in text + page.read_text() + json.dumps(data)
    assert text.count("  fix:  ") == len({r["rule"] for r in found if r["fix"]})


def test_calibration_data_is_not_asked_for_when_it_is_there(tmp_path: Path) -> None:
    """Of an op that stays float in a model that edgec quantizes, and of the operators
    of the float file.
    """
    build = Builder("mixed")
    x = build.input("x", TensorType((1, 16, 16, 4)))
    weight = build.const(np.ones((8, 3, 3, 4), np.float32), "w")
    y = build.add(Conv2D(), [x, weight, build.const(np.zeros(8, np.float32), "b")])
    ratio = build.add(Div(), [y, y])  # float, and so is the addition behind it
    build.graph.outputs = [build.add(Add(), [ratio, ratio])]
    path = tmp_path / "mixed.tflite"
    samples = tmp_path / "samples.npz"
    path.write_bytes(write_tflite(build.graph))
    np.savez(samples, x=np.random.default_rng(0).random((2, 16, 16, 4), np.float32))
    args = (path, "--target", "pi4+coral")
    given = as_json(*args, "--calibrate", samples, "--quantize", "fast")
    assert any(
        r["rule"] == "int8_tensors" for op in given["ops"] for r in op["refusals"]
    )
    assert "--calibrate" not in json.dumps(given)
    assert any(
        op["fix"] and "--calibrate" in op["fix"] for op in as_json(*args)["source_ops"]
    )


def test_all_figures_are_documented() -> None:
    section = SCHEMA.read_text().partition("## Figures for `--require`")[2]
    rows = [
        line.split("|")[1] for line in section.splitlines() if line.startswith("| `")
    ]
    assert {name for row in rows for name in re.findall(r"`([\w.]+)`", row)} == set(
        FIGURES
    )


def test_the_page(leaky: Path, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    assert code(edgec(leaky, "--target", "pi4+coral", "--html", page)) == 0
    assert "leaky for pi4+coral" in page.read_text()
    assert code(edgec(leaky, "--html", tmp_path / "no" / "out.html")) == 2
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(b"\0\0\0\0TFL3" + bytes(64))
    assert code(edgec(broken, "--html", tmp_path / "broken.html")) == 2
    assert not (tmp_path / "broken.html").exists()


@pytest.mark.shared
@pytest.mark.parametrize("name", ["mnist_lstm_i8", "ssd_mnv1_coco_u8", "kws_dscnn_f32"])
def test_real_files(name: str) -> None:
    path = SHARED / "models" / name / f"{name}.tflite"
    for target in ("pi4+coral", "host"):
        data = as_json(path, "--target", target)
        model = schema.ModelT.InitFromPackedBuf(path.read_bytes())
        assert [r["index"] for r in data["source_ops"]] == list(
            range(len(model.subgraphs[0].operators))
        )
        assert {r["place"] for r in data["source_ops"]} <= {
            "edgetpu",
            "cpu",
            "mixed",
            "none",
        }


def test_the_python_function_can_be_called_again(leaky: Path) -> None:
    """No module of the same name takes its place."""
    first = package.explain(leaky, "pi4+coral")
    assert package.explain(leaky, "pi4+coral") == first
