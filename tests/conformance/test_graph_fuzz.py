"""A seeded sample of the graph fuzzer (make fuzz), and that it finds, shrinks and keeps
a fault.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from benchmarks import graph_fuzz
from benchmarks.fuzzing.graphs import random_graph, samples
from benchmarks.fuzzing.to_onnx import to_onnx
from benchmarks.fuzzing.ways import PLAIN, WAYS, Manner
from benchmarks.graph_fuzz import Tally, again, fuzz, manner_of, table
from edgec.ir import Builder, KernelCall, Op, TensorType, parse, print_graph
from edgec.ops.arithmetic import Maximum, Minimum
from edgec.ops.binary import Binary
from edgec.ops.shape import Reshape
from tests import builds
from tests.harness import has
from tests.schedule.runner import FEATURES

CORE = "x86_64_v3"
needs_core = pytest.mark.skipif(
    not has(FEATURES[CORE]), reason="this machine has no AVX2"
)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Failures are kept in a folder of the test's own; numpy's warnings of divisions by
    zero are not.
    """
    monkeypatch.setattr(graph_fuzz, "FAILURES", tmp_path / "failures")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield tmp_path / "failures"


def test_all_ways_agree_but_c() -> None:
    tally = Tally()
    found = list(fuzz(1, range(100), list(WAYS), CORE, tally))
    assert not found, "\n".join(found)
    assert tally.cases == 100
    assert len(tally.kinds) > 90


def test_c_is_made_in_many_ways() -> None:
    manners = [manner_of(5, n) for n in range(1000)]
    assert {m.core for m in manners} >= {PLAIN}
    assert {m.level for m in manners} == {"-O0", "-O1"}
    assert sum(m.chance is not None for m in manners) == 500
    assert {m.core for m in manners[:100]} <= {CORE, PLAIN}  # one program has one core
    assert not any(flag.startswith("-mcpu") for flag in Manner(PLAIN, "-O0").command)
    assert manner_of(5, 7) == manners[7]


def test_what_was_reached_is_a_table() -> None:
    tally = Tally()
    assert not list(fuzz(6, range(5), ["text"], CORE, tally))
    rows = list(table(tally.reached))
    assert len(rows) == 2 + len(samples())
    assert f"| {min(tally.kinds)} | {tally.kinds[min(tally.kinds)]} |" in "\n".join(
        rows
    )


def test_graphs_have_odd_scales_dead_channels_odd_names_and_operands_twice() -> None:
    graphs = [random_graph(8, i) for i in range(300)]
    scales = {
        v.type.quant.scale[0]
        for g in graphs
        for v in g.values()
        if v.type.quant is not None
    }
    assert min(scales) < 1e-5
    assert max(scales) > 100
    assert any(v.name == "*/" for g in graphs for v in g.values())
    assert any(
        op.inputs[0] is op.inputs[1]
        for g in graphs
        for op in g.ops
        if op.kind in ("add", "mul", "where")
    )
    weights = [
        op.inputs[1].const for g in graphs for op in g.ops if "weight" in op.spec.roles
    ]
    assert any(
        w is not None and w.ndim and w.size and not w.reshape(len(w), -1).any(1).all()
        for w in weights
    )


def test_networks_are_as_real_files_have_them() -> None:
    """Large, of floats, int8 and uint8; any value may be an output, also twice."""
    graphs = [random_graph(8, i) for i in range(300)]
    borders = {v.type.dtype for g in graphs for v in g.inputs if v.type.size > 10_000}
    assert borders == {"float32", "int8", "uint8"}
    assert any(v.type.dtype == "uint8" for g in graphs for v in g.outputs)
    assert any(v in g.inputs for g in graphs for v in g.outputs)
    assert any(v.const is not None for g in graphs for v in g.outputs)
    assert any(len(set(g.outputs)) < len(g.outputs) for g in graphs)


def test_shapes_in_onnx_files_depend_on_the_batch() -> None:
    build = Builder("batch")
    x = build.input("x", TensorType((1, 2, 3)))
    y = build.add(Reshape((1, 6)), [x], "y")
    anchors = build.const(np.ones((1, 6, 4), np.float32), "anchors")
    build.graph.outputs = [y, anchors, x]
    data = to_onnx(build.graph, open_batch=True)
    assert data is not None
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    got = session.run(None, {"in0": np.zeros((5, 2, 3), np.float32)})
    assert [a.shape for a in got] == [(5, 6), (5, 6, 4), (5, 2, 3)]


@needs_core
@pytest.mark.cc
@pytest.mark.slow
def test_segments_agree() -> None:
    found = list(fuzz(5, range(40), ["edgetpu"], CORE, Tally()))
    assert not found, "\n".join(found)


@needs_core
@pytest.mark.cc
def test_c_agrees() -> None:
    found = list(fuzz(2, range(25), ["c"], CORE, Tally()))
    assert not found, "\n".join(found)


def test_graphs_are_of_every_kind_and_rank_and_the_same_for_a_seed() -> None:
    graphs = [random_graph(3, i) for i in range(400)]
    assert {op.kind for g in graphs for op in g.ops} >= samples().keys()
    assert {v.type.rank for g in graphs for v in g.values()} >= set(range(6))
    assert any(0 in v.type.shape for g in graphs for v in g.inputs)
    assert print_graph(random_graph(3, 7)) == print_graph(graphs[7])


@needs_core
@pytest.mark.cc
@pytest.mark.slow
def test_a_fault_is_found_shrunk_and_kept(
    monkeypatch: pytest.MonkeyPatch, kept: Path
) -> None:
    numbers = [
        n
        for n in range(600)
        if any(op.kind == "maximum" for op in random_graph(3, n).ops)
    ][:4]
    whole = Binary.c

    def wrong(self: Binary, op: Op) -> KernelCall:
        call = whole(self, op)
        return KernelCall.of(Minimum.kernels.of(call.kernel.dtype), *call.operands)

    with monkeypatch.context() as patched:
        patched.setattr(Maximum, "c", wrong)
        said = list(fuzz(3, numbers, ["text", "c"], CORE, Tally()))
        # of the others, what is largest does not matter in the end
        assert len(said) > 1
        for text in said:
            path = Path(text.rsplit("its inputs and this text: ", 1)[1].strip())
            assert path.parent == kept
            printed = text[text.index("graph ") : text.index("its inputs")]
            assert parse(printed) == parse(path.read_text())
            assert [op.kind for op in parse(printed).ops] == ["maximum"]
            assert re.search(r"c: .* is .*, not ", text)
            assert again(path, ["c"])
    assert not again(path, ["c"])


@needs_core
@pytest.mark.cc
def test_what_others_build_stays() -> None:
    """A fuzzer's own folder goes with what was built in it."""
    there = builds.once("what others build", lambda folder: (folder / "a").touch())
    list(fuzz(2, range(2), ["c"], CORE, Tally()))
    assert (
        builds.once(
            "what others build", lambda folder: pytest.fail("it is built again")
        )
        == there
    )
