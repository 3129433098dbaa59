"""The pipeline: order, switches, dumps, and what it does to quantized models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgec.compiler.lower import lower
from edgec.errors import InputError, InternalError
from edgec.frontends import read_model
from edgec.ir import Graph, interp, parse, print_graph
from edgec.ops.binary import Add
from edgec.ops.unary import Relu, Tanh
from edgec.options.compile import CompileOptions
from edgec.passes import pipeline
from edgec.passes.pipeline import ORDER, Pass, available, optimize
from tests.passes.chain import Chain

PASSES = available()


def graph() -> Graph:
    b = Chain()
    x = b.x(1, 2, 3, 4)
    return b.done(
        b.add(Relu(), [b.add(Add(), [b.add(Tanh(), [x]), b.number(0.0)])], "y")
    ).graph


def test_every_pass_has_its_place() -> None:
    assert {name for group in ORDER for name in group.names} == set(available())


def test_every_pass_says_what_it_does() -> None:
    import importlib

    for name in available():
        assert importlib.import_module(f"edgec.passes.{name}").__doc__


def test_passes_can_be_switched_off() -> None:
    assert [op.kind for op in optimize(graph()).ops] == ["tanh", "relu"]
    assert [op.kind for op in optimize(graph(), ["algebraic"]).ops] == ["tanh", "add"]
    assert [op.kind for op in optimize(graph(), list(available())).ops] == [
        "tanh",
        "add",
        "relu",
    ]


def test_an_unknown_pass(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        lower(tmp_path / "model.onnx", CompileOptions(disable=["fuse_activations"]))
    text = str(caught.value)
    assert (
        "error: there is no pass or rewrite fuse_activations; "
        'did you mean "fuse_activation"?' in text
    )
    assert "at: --disable-pass" in text
    assert "hint: there are: algebraic, cancel_transposes," in text


def test_dumps_follow_each_change() -> None:
    seen: list[tuple[str, str]] = []
    final = optimize(graph(), (), lambda name, g: seen.append((name, print_graph(g))))
    assert [name for name, _ in seen] == ["algebraic"]
    assert parse(seen[-1][1]) == final


def test_passes_that_never_settle_are_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        pipeline,
        "available",
        lambda: {name: Pass(name, lambda g: True) for name in PASSES},
    )
    with pytest.raises(InternalError, match="do not settle on test"):
        optimize(graph())


def test_an_error_names_the_passes_that_ran_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pass that leaves an op's input without a producer breaks a rule of the graph."""

    def tear(graph: Graph) -> bool:
        del graph.ops[0]
        return True

    passes = {**PASSES, "simplify_reshapes": Pass("simplify_reshapes", tear)}
    monkeypatch.setattr(pipeline, "available", lambda: passes)
    with pytest.raises(InternalError) as caught:
        optimize(graph())
    assert "the pass simplify_reshapes fails on test: " in str(caught.value)
    assert "which nothing has written" in str(caught.value)
    assert "changed the graph before: algebraic" in str(caught.value)


INT8 = [
    "resnet8_i8",
    "vww96_i8",
    "mnv1_025_128_u8",
    "person_detect_i8",
    "omv_blazeface_i8",
    "omv_facelandmarks_i8",
]
SLOW = ["mnv2_tf2_i8", "prisma_i8", "deeplab_dm05_u8"]


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", [*INT8, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)]
)
def test_quantized_models_keep_every_bit(shared: Path, name: str) -> None:
    imported = read_model(shared / "models" / name / f"{name}.tflite")
    optimized = optimize(imported.copy())
    assert len(optimized.ops) <= len(imported.ops)
    data = np.load(shared / "models" / name / "ref.npz")
    inputs = {v.name: data[f"in0_{i}"] for i, v in enumerate(imported.inputs)}
    want = interp(imported, inputs)
    for output, y in interp(optimized, inputs).items():
        np.testing.assert_array_equal(y, want[output])
