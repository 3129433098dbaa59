"""Every sample of every registered op: interp, generated C and the emitted TFLite
agree.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.emit.c import CSource, segment_source
from edgec.ir import Graph, OpDef, interp, parse, print_graph, verify
from edgec.toolchain.cc import Compiler
from tests import builds
from tests.harness import (
    LIBRARY,
    assert_agree,
    assert_near,
    build_library,
    extreme_inputs,
    joined,
    nan_inputs,
    random_inputs,
    run_segment,
    run_tflite,
    sample_graph,
)

KINDS = sorted(kind for kind, cls in OpDef.registry.items() if any(cls.samples()))


@cache
def _graphs(kind: str) -> list[Graph]:
    """The graphs of all samples of a kind."""
    return [sample_graph(sample) for sample in OpDef.registry[kind].samples()]


@cache
def _sources(kind: str) -> list[CSource]:
    return [segment_source(g, f"seg{i}") for i, g in enumerate(_graphs(kind))]


def _library(kind: str) -> Path:
    """One library of all samples: starting a compiler takes longer than its work."""
    whole = joined(_sources(kind))
    gcc = Compiler.native("gcc")
    return builds.once(whole, lambda to: build_library(whole, to, gcc)) / LIBRARY


@pytest.mark.parametrize("kind", KINDS)
def test_text_form_parses_back(kind: str) -> None:
    for graph in _graphs(kind):
        verify(graph, "imported")
        assert parse(print_graph(graph)) == graph


@pytest.mark.cc
@pytest.mark.parametrize("kind", KINDS)
def test_c_is_interp(kind: str) -> None:
    library = _library(kind)
    for graph, source in zip(_graphs(kind), _sources(kind), strict=True):
        inputs = random_inputs(graph)
        got = run_segment(library, source, graph, inputs)
        assert_agree(got, interp(graph, inputs), of=graph)


@pytest.mark.cc
@pytest.mark.parametrize("kind", KINDS)
def test_c_is_interp_where_inputs_are_extreme(kind: str) -> None:
    library = _library(kind)
    for graph, source in zip(_graphs(kind), _sources(kind), strict=True):
        for name, inputs in {**extreme_inputs(graph), **nan_inputs(graph)}.items():
            with np.errstate(all="ignore"):
                want = interp(graph, inputs)
            got = run_segment(library, source, graph, inputs)
            assert_near(graph, got, want, f"{graph.ops} of {name} inputs")


@pytest.mark.parametrize("kind", KINDS)
def test_tflite_is_interp(kind: str) -> None:
    """Where TFLite has such an operator, and rounds as edgec does."""
    graphs = [
        graph
        for graph in _graphs(kind)
        if all(op.spec.to_tflite(op) is not None for op in graph.ops)
        and all(op.spec.as_tflite() == op.spec for op in graph.ops)
    ]
    if not graphs:
        pytest.skip("TFLite has no such operator")
    for graph in graphs:
        inputs = random_inputs(graph)
        assert_agree(run_tflite(graph, inputs), interp(graph, inputs), of=graph)
