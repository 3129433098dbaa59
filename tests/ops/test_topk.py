"""The best elements of many, among equal ones and NaN."""

from __future__ import annotations

import numpy as np
import pytest

from edgec.ir import Sample, TensorType, interp
from edgec.ir.opdef import Arg
from edgec.ops.scan import TopK
from tests.harness import assert_agree, run_c, sample_graph


@pytest.mark.cc
@pytest.mark.parametrize("k", [1, 2, 299, 300, 1000])
@pytest.mark.parametrize("largest", [True, False])
def test_the_best_of_many_in_order(k: int, largest: bool) -> None:
    """Of equal elements the first comes first; NaN is larger than all numbers."""
    rng = np.random.default_rng(k)
    x = rng.normal(0, 3, (2, 1000, 2)).round().astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    image = Arg(TensorType(x.shape))
    graph = sample_graph(Sample(TopK(k, 1, largest), (image,)))
    inputs = {"x0": x}
    got = run_c(graph, inputs)
    assert_agree(got, interp(graph, inputs))

    # NaN equals nothing, so equal indices are what tells the order.
    _, index = (got[v.name] for v in graph.outputs)
    key = np.where(np.isnan(x), np.inf, x) * (-1 if largest else 1)
    np.testing.assert_array_equal(index, np.argsort(key, 1, kind="stable")[:, :k])
