"""Every rewrite, found by name, on random graphs that it fits: equal results, and what
it makes maps.
"""

from __future__ import annotations

import numpy as np
import pytest
from edgec_partitioner.legalize import legalize, rewrites
from edgec_partitioner.verdicts import refusals
from hypothesis import given, settings
from hypothesis import strategies as st

from edgec.ir import Graph, interp
from edgec.passes.pipeline import optimize
from edgec.quantize import quantize
from tests.harness import random_inputs, run_tflite
from tests.quantize.nets import samples

EXAMPLES = 25
LARGE = ("large_tensor", "transpose_conv_channels")
"""Rewrites whose examples take long."""
EACH = [
    pytest.param(name, marks=pytest.mark.slow if name in LARGE else ())
    for name in sorted(rewrites())
]
SEEDED = [
    pytest.param(seed, name, marks=pytest.mark.slow if name in LARGE and seed else ())
    for seed in range(4)
    for name in sorted(rewrites())
]


def rewritten(name: str, seed: int) -> tuple[Graph, Graph]:
    """A random graph that the rewrite fits, and what it makes of it; no other rewrite
    takes part.
    """
    graph = rewrites()[name].example(np.random.default_rng(seed))
    others = set(rewrites()) - {name}
    result, applied = legalize(
        graph, exact=rewrites()[name].bound == 0, disabled=others
    )
    assert applied, f"{name} does not rewrite its example of seed {seed}"
    assert {a.rewrite for a in applied} == {name}
    return graph, result


@pytest.mark.parametrize("name", EACH)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
def test_results_are_equal_or_within_the_stated_bound(name: str, seed: int) -> None:
    graph, result = rewritten(name, seed)
    assert [(v.name, v.type) for v in result.outputs] == [
        (v.name, v.type) for v in graph.outputs
    ]
    inputs = random_inputs(graph, seed)
    got = interp(result, inputs)
    for output, want in interp(graph, inputs).items():
        if rewrites()[name].bound == 0:
            np.testing.assert_array_equal(got[output], want)
        else:
            limit = rewrites()[name].bound * float(np.abs(want).max(initial=0))
            np.testing.assert_allclose(got[output], want, rtol=0, atol=limit)


@pytest.mark.parametrize(("seed", "name"), SEEDED)
def test_what_is_made_maps_whole_and_runs_bit_exactly_on_tflite(
    seed: int, name: str
) -> None:
    graph, result = rewritten(name, seed)
    if rewrites()[name].bound:
        result = optimize(quantize(result, samples(result)), ["recognize_activations"])
        ops = [op for op in result.ops if op.kind not in ("quantize", "dequantize")]
    else:
        ops = result.ops
    for op in ops:
        assert not refusals(op), f"{op!r}: {refusals(op)}"
    inputs = random_inputs(graph, seed)
    got = run_tflite(result, inputs)
    for output, want in interp(result, inputs).items():
        np.testing.assert_array_equal(got[output], want)


def test_every_rewrite_says_what_it_does() -> None:
    for rewrite in rewrites().values():
        for word in ("Pattern:", "Replacement:", "Proof:", "Pays"):
            assert word in rewrite.doc, f"{rewrite.name} does not say its {word}"
