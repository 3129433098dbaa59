"""Every sample of every registered op: interp, generated C and the emitted TFLite
agree.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.emit.c import CSource, segment_source
from edgec.errors import InternalError
from edgec.ir import Graph, OpDef, Sample, interp, parse, print_graph, verify
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
    run_c,
    run_segment,
    run_tflite,
    sample_graph,
)


def _label(i: int, sample: Sample) -> str:
    return sample.label or str(i)


def _cases() -> list[object]:
    return [
        pytest.param(kind, sample, id=f"{kind}-{_label(i, sample)}")
        for kind, cls in sorted(OpDef.registry.items())
        for i, sample in enumerate(cls.samples())
    ]


@pytest.mark.parametrize(("kind", "sample"), _cases())
def test_text_form_parses_back(kind: str, sample: Sample) -> None:
    graph = sample_graph(sample)
    verify(graph, "imported")
    assert parse(print_graph(graph)) == graph


@cache
def _sources(kind: str) -> list[tuple[Graph, CSource]]:
    """All samples of a kind, and their C."""
    graphs = [sample_graph(sample) for sample in OpDef.registry[kind].samples()]
    return [(graph, segment_source(graph, f"seg{i}")) for i, graph in enumerate(graphs)]


@cache
def _library(kind: str) -> Path | None:
    """One library of them, since starting a compiler takes longer than its work; None
    where it cannot be built.
    """
    sources = [source for _, source in _sources(kind)]
    whole = joined(sources)
    gcc = Compiler.native("gcc")
    try:
        return (
            builds.once(whole, lambda folder: build_library(whole, folder, gcc))
            / LIBRARY
        )
    except InternalError:
        return None


@pytest.mark.cc
@pytest.mark.parametrize(("kind", "sample"), _cases())
def test_c_is_interp(kind: str, sample: Sample) -> None:
    graph = sample_graph(sample)
    inputs = random_inputs(graph)
    want = interp(graph, inputs)
    library = _library(kind)
    if library is None:  # alone, only the samples that are to blame fail
        assert_agree(run_c(graph, inputs), want, of=graph)
        return
    source = next(source for other, source in _sources(kind) if other == graph)
    assert_agree(run_segment(library, source, graph, inputs), want, of=graph)


@pytest.mark.cc
@pytest.mark.parametrize(("kind", "sample"), _cases())
def test_c_is_interp_where_inputs_are_extreme(kind: str, sample: Sample) -> None:
    graph = sample_graph(sample)
    library = _library(kind)
    source = next(source for other, source in _sources(kind) if other == graph)
    for name, inputs in {**extreme_inputs(graph), **nan_inputs(graph)}.items():
        with np.errstate(all="ignore"):
            want = interp(graph, inputs)
        assert library is not None
        assert_near(
            graph,
            run_segment(library, source, graph, inputs),
            want,
            f"{kind} {sample.spec} of {name} inputs",
        )


@pytest.mark.parametrize(("kind", "sample"), _cases())
def test_tflite_is_interp(kind: str, sample: Sample) -> None:
    graph = sample_graph(sample)
    if any(op.spec.to_tflite(op) is None for op in graph.ops):
        pytest.skip("TFLite has no such operator")
    if any(op.spec.as_tflite() != op.spec for op in graph.ops):
        pytest.skip("TFLite rounds otherwise")
    inputs = random_inputs(graph)
    assert_agree(run_tflite(graph, inputs), interp(graph, inputs), of=graph)


@pytest.mark.cc
def test_a_sample_that_does_not_compile_spoils_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, *_ = _sources("relu")
    broken = second[0], replace(second[1], text=f"{second[1].text}\n#error broken\n")
    monkeypatch.setattr(
        "tests.conformance.test_ops._sources", lambda kind: [first, broken]
    )
    monkeypatch.setattr("tests.conformance.test_ops._library", _library.__wrapped__)
    assert _library("relu") is None
    test_c_is_interp("relu", next(iter(OpDef.registry["relu"].samples())))


@pytest.mark.cc
def test_samples_of_a_kind_are_one_library() -> None:
    assert all(_library(kind) for kind in ("conv2d", "add", "resize_bilinear"))
