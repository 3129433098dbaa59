"""Random networks, quantized and split, in every way that must agree; the seed names
the failing one.
"""

from __future__ import annotations

import numpy as np
import pytest
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.legalize import legalize
from edgec_partitioner.partition import partition

from edgec.ir import Array, interp, verify
from edgec.passes.pipeline import optimize
from edgec.quantize import compare, quantize
from tests.harness import assert_agree, run_c, run_tflite
from tests.quantize.nets import random_net, samples

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_int8_is_near_float_and_passes_keep_it(seed: int) -> None:
    graph = random_net(seed)
    tries = samples(graph)
    q = quantize(graph, tries)
    for agreement in compare((interp(graph, s), interp(q, s)) for s in tries).values():
        assert agreement.cosine > 0.97
    optimized = optimize(q.copy())
    verify(optimized, "quantized")
    inputs = samples(graph, 1, seed=1)[0]
    for name, y in interp(q, inputs).items():
        np.testing.assert_array_equal(interp(optimized, inputs)[name], y)


@pytest.mark.parametrize("seed", SEEDS)
def test_tflite_and_segments_are_interp(seed: int) -> None:
    graph = random_net(seed)
    q = quantize(graph, samples(graph))
    inputs = samples(graph, 1, seed=1)[0]
    want = interp(q, inputs)
    for name, y in run_tflite(legalize(q, exact=True)[0], inputs).items():
        np.testing.assert_array_equal(y, want[name])
    values: dict[str, Array] = dict(inputs)
    for s in partition(q, "usb3", CpuCost(1e-5)).segments:
        given = {v.name: values[v.name] for v in s.graph.inputs}
        values.update(
            run_tflite(s.graph, given)
            if s.place == "edgetpu"
            else interp(s.graph, given)
        )
    for name, y in want.items():
        np.testing.assert_array_equal(values[name], y)


@pytest.mark.cc
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_c_is_interp(seed: int) -> None:
    graph = random_net(seed)
    q = quantize(graph, samples(graph))
    inputs = samples(graph, 1, seed=1)[0]
    assert_agree(run_c(q, inputs), interp(q, inputs))
