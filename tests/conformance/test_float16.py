"""Every sample of every op that csrc computes with float16: generated C and interp agree,
by plain kernels and by the vectors of each core that has any for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.comparing.measure import FLOAT16_LAW
from edgec.emit.c import segment_source
from edgec.ir import (
    Array,
    Builder,
    Graph,
    KernelFamily,
    OpDef,
    TensorType,
    interp,
)
from edgec.ops.matmul import FullyConnected
from edgec.schedule.cores import core
from edgec.toolchain.cc import Compiler
from tests import builds
from tests.harness import (
    LIBRARY,
    assert_agree,
    build_library,
    float16_graph,
    joined,
    random_inputs,
    run_segment,
    sample_graph,
)
from tests.schedule.on import on
from tests.schedule.runner import run_on

FEW_TERMS = 2.0**-9
"""The allowed error of a sample's result, as a part of its range: four roundings to the
11 bits of a float16. Samples have few terms, longer sums have FLOAT16_LAW.
"""
VECTORS = ("x86_64_v3", "x86_64_v4_vnni", "cortex_a76")
"""Builds of the cores with vectors for float16."""


@cache
def _graphs() -> tuple[Graph, ...]:
    """Every sample that has kernels for float16, in the order of the kinds."""
    graphs: list[Graph] = []
    for kind in sorted(OpDef.registry):
        for sample in OpDef.registry[kind].samples():
            half = float16_graph(sample_graph(sample))
            graphs += [half] if half is not None else []
    return tuple(graphs)


def _families(graph: Graph) -> Iterator[str]:
    """The families of the plain kernels that a graph calls."""
    for op in graph.ops:
        for call in op.calls():
            yield call.kernel.family


def test_every_family_with_float16_has_a_sample() -> None:
    tried = {family for graph in _graphs() for family in _families(graph)}
    there = {name for name, f in KernelFamily.registry.items() if f.has_float16}
    assert there - tried == set()


@pytest.mark.cc
def test_plain_kernels_agree_with_the_reference() -> None:
    graphs = _graphs()
    sources = [segment_source(graph, f"seg{i}") for i, graph in enumerate(graphs)]
    text = joined(sources)
    gcc = Compiler.native("gcc")
    folder = builds.once(text, lambda into: build_library(text, into, gcc))
    for graph, source in zip(graphs, sources, strict=True):
        inputs = random_inputs(graph)
        got = run_segment(folder / LIBRARY, source, graph, inputs)
        assert_agree(got, interp(graph, inputs), FEW_TERMS, of=graph)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", on(*VECTORS))
def test_vectors_agree_with_the_reference(name: str) -> None:
    graphs = _graphs()
    inputs = [random_inputs(graph) for graph in graphs]
    results = run_on(name, graphs, inputs)
    for graph, given, got in zip(graphs, inputs, results, strict=True):
        assert_agree(got, interp(graph, given), FEW_TERMS, of=graph)


@pytest.mark.sweep(1)
@pytest.mark.slow
@pytest.mark.parametrize("third", range(3))
@pytest.mark.parametrize("name", on("sanitized"))
def test_vectors_run_clean_in_parts(name: str, third: int) -> None:
    """Sanitizers see samples in three parts, between pages that nobody may touch."""
    graphs = _graphs()[third::3]
    inputs = [random_inputs(graph, seed=2) for graph in graphs]
    results = run_on(name, graphs, inputs, parts=3)
    for graph, given, got in zip(graphs, inputs, results, strict=True):
        assert_agree(got, interp(graph, given), FEW_TERMS, of=graph)


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_compute_float16(name: str) -> None:
    """The comparison above is one of vectors: the kernels for them are in the C."""
    headers: set[str] = set()
    for graph in _graphs():
        headers |= set(segment_source(graph, "seg", core(name)).headers)
    families = (
        "binary",
        "dwconv2d",
        "gemm",
        "norm",
        "resize",
        "rows",
        "softmax",
        "unary",
    )
    assert headers >= {f"simd/ek_{family}_f16_simd.h" for family in families}


@pytest.mark.parametrize("name", on(*VECTORS))
def test_long_sums_stay_within_the_law(name: str) -> None:
    """1,000 to 4,000 terms: partial sums of 32 keep the error far from that of one sum
    in halves.
    """
    graphs = [_long_sum(terms) for terms in (1000, 4000)]
    rng = np.random.default_rng(3)
    inputs: list[Mapping[str, Array]] = []
    for graph in graphs:
        (x,) = graph.inputs
        inputs.append({x.name: rng.random(x.type.shape).astype(np.float16)})
    results = run_on(name, graphs, inputs)
    for graph, given, got in zip(graphs, inputs, results, strict=True):
        assert_agree(got, interp(graph, given), FLOAT16_LAW / 4, of=graph)


def _long_sum(terms: int) -> Graph:
    """A fully connected layer of so many positive terms, whose sums are near 100."""
    rng = np.random.default_rng(terms)
    build = Builder("sum")
    x = build.input("x", TensorType((3, terms)))
    weights = rng.random((20, terms)) * 400 / terms
    w = build.const(weights.astype(np.float32), "w")
    b = build.const(np.zeros(20, np.float32), "b")
    build.graph.outputs = [build.add(FullyConnected(), [x, w, b], "y")]
    half = float16_graph(build.graph)
    assert half is not None
    return half
