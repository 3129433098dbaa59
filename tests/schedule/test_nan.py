"""From float to int8, NaN is the zero point and infinities are the ends of the range,
on every core.
"""

from __future__ import annotations

import numpy as np
import pytest

from edgec.ir import Builder, Graph, Quant, TensorType, interp
from edgec.ops.quantize import Quantize
from tests.schedule.on import on
from tests.schedule.runner import run_on

VALUES = np.array(
    [np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, -0.0, 0.03], np.float32
)
WANTED = {
    -3: [-3, 127, -128, 127, -128, -3, -3, -1],
    7: [7, 127, -128, 127, -128, 7, 7, 9],
}


def _graph(zero: int, n: int) -> Graph:
    build = Builder("quantize")
    x = build.input("x", TensorType((1, n)))
    y = build.add(Quantize(), [x], "y", Quant.per_tensor(0.02, zero))
    build.graph.outputs = [y]
    return build.graph


@pytest.mark.parametrize("zero", WANTED)
def test_the_law(zero: int) -> None:
    (y,) = interp(_graph(zero, 8), {"x": VALUES[None]}).values()
    assert y[0].tolist() == WANTED[zero]


@pytest.mark.parametrize("name", on())
def test_every_core(name: str) -> None:
    """Of few elements and of many, which vectors take."""
    graphs = [_graph(zero, n) for zero in WANTED for n in (8, 512, 517)]
    given = [
        {v.name: np.resize(VALUES, v.type.shape) for v in g.inputs} for g in graphs
    ]
    for graph, x, got in zip(graphs, given, run_on(name, graphs, given), strict=True):
        np.testing.assert_array_equal(got["y"], interp(graph, x)["y"])
