"""Every sample of every registered op: interp, generated C and the emitted TFLite agree."""

from __future__ import annotations

import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.ir import OpDef, Sample, interp, parse, print_graph, verify
from tests.harness import assert_agree, random_inputs, run_c, run_tflite, sample_graph


def _cases() -> list[object]:
    return [
        pytest.param(sample, id=f"{kind}-{sample.label or i}")
        for kind, cls in sorted(OpDef.registry.items())
        for i, sample in enumerate(cls.samples())
    ]


@pytest.mark.parametrize("sample", _cases())
def test_text_form_parses_back(sample: Sample) -> None:
    graph = sample_graph(sample)
    verify(graph, "imported")
    assert parse(print_graph(graph)) == graph


@pytest.mark.cc
@pytest.mark.parametrize("sample", _cases())
def test_c_is_interp(sample: Sample) -> None:
    graph = sample_graph(sample)
    inputs = random_inputs(graph)
    assert_agree(run_c(graph, inputs), interp(graph, inputs))


@pytest.mark.parametrize("sample", _cases())
def test_tflite_is_interp(sample: Sample) -> None:
    graph = sample_graph(sample)
    if any(op.spec.to_tflite(op) is None for op in graph.ops):
        pytest.skip("TFLite has no such operator")
    inputs = random_inputs(graph)
    assert_agree(run_tflite(graph, inputs), interp(graph, inputs))
