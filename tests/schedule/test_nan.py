"""NaN in the inputs of every op becomes what `interp` makes of it, on every core.

From float to int8 it is the zero point, and infinities are the ends of the range.
"""

from __future__ import annotations

import numpy as np
import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.comparing.measure import FLOAT16_LAW
from edgec.emit.c import segment_source
from edgec.ir import Builder, Graph, OpDef, Quant, TensorType, interp
from edgec.ops.det import Det
from edgec.ops.quantize import Quantize
from edgec.ops.roi_align import RoiAlign
from tests.harness import (
    FLOAT_TOLERANCE,
    assert_agree,
    but_for_nan_of_zeros,
    float16_graph,
    nan_inputs,
    run_c,
    sample_graph,
)
from tests.schedule.on import on
from tests.schedule.runner import core_of, nan_of, run_on

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


@pytest.mark.sweep(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", on("cortex_a72", "cortex_a76", "x86_64_v3", "x86_64_v4_vnni")
)
def test_every_op_passes_nan_on(name: str) -> None:
    """Every sample, by the kernels of a core and as plain C where it has none; in
    float16 too where there are kernels.
    """
    graphs = []
    for kind in sorted(OpDef.registry):
        for sample in OpDef.registry[kind].samples():
            graph = sample_graph(sample)
            if nan_inputs(graph):
                half = float16_graph(graph)
                graphs += [graph] if half is None else [graph, half]
    assert len(graphs) > 600
    nan = nan_of(name)
    given = [nan_inputs(graph, nan)["some NaN"] for graph in graphs]
    for graph, x, got in zip(graphs, given, run_on(name, graphs, given), strict=True):
        is_half = any(v.type.dtype == "float16" for v in graph.values())
        text = segment_source(graph, "seg", core_of(name)).text
        want = {
            output: but_for_nan_of_zeros(graph, [text], got[output], y)
            for output, y in interp(graph, x).items()
        }
        assert_agree(got, want, FLOAT16_LAW if is_half else FLOAT_TOLERANCE, of=graph)


def _determinant() -> Graph:
    build = Builder("determinant")
    build.graph.outputs = [build.add(Det(), [build.input("x", TensorType((2, 2)))])]
    return build.graph


def _box(ratio: int) -> Graph:
    """A box of so many samples a side, or as many as it has pixels."""
    build = Builder("box")
    image = build.const(np.ones((1, 3, 3, 1), np.float32))
    box = build.input("x", TensorType((1, 4)))
    index = build.const(np.zeros(1, np.int64))
    build.graph.outputs = [build.add(RoiAlign((1, 1), 1.0, ratio), [image, box, index])]
    return build.graph


@pytest.mark.cc
@pytest.mark.parametrize(
    ("graph", "x", "want"),
    [
        (_determinant(), [[0, np.nan], [0, 1]], np.nan),
        (_box(0), [[0, 0, np.nan, 2]], 0),
        (_box(0), [[0, 0, np.inf, -1]], 0),
        (_box(2), [[0, 0, np.nan, 2]], 0),
    ],
)
def test_nan_beside_a_zero(graph: Graph, x: list[list[float]], want: float) -> None:
    """A pivot of zero makes no number of it; a box of NaN lies outside."""
    inputs = {"x": np.array(x, np.float32)}
    for outputs in (interp(graph, inputs), run_c(graph, inputs)):
        (y,) = outputs.values()
        np.testing.assert_array_equal(y.reshape(-1), [want])
