"""1x1 convolutions of pruned networks, of which only the weights that are not zero are
multiplied.
"""

from __future__ import annotations

import numpy as np
import pytest

from edgec.emit.c import segment_source
from edgec.ir import Builder, Graph, TensorType, interp
from edgec.ops.conv import Conv2D
from edgec.schedule.cores import core
from tests.harness import assert_agree, random_inputs
from tests.schedule.layers import Pick
from tests.schedule.layers_f32 import followed
from tests.schedule.on import on
from tests.schedule.runner import run_on

SPARSE = "ek_sparse_f32_simd("
CASES = (
    # image, channels of the result, zeros, act, what follows
    ((1, 8, 8, 128), 32, 0.75, "relu6", ""),
    ((1, 7, 9, 130), 33, 0.75, "none", "add"),
    ((2, 5, 5, 256), 7, 0.9, "relu", ""),
    ((1, 1, 33, 100), 18, 0.7, "none", "prelu"),
    ((1, 6, 6, 97), 12, 0.65, "none", "logistic"),
    ((1, 6, 7, 97), 12, 0.65, "none", "concat"),
)
Case = tuple[tuple[int, ...], int, float, str, str]


def _graph(case: Case) -> Graph:
    image, channels, zeros, act, then = case
    rng = np.random.default_rng(channels)
    build = Builder("sparse")
    weights = rng.normal(size=(channels, 1, 1, image[3])).astype(np.float32) / 8
    weights[rng.random(weights.shape) < zeros] = 0
    bias = build.const(rng.normal(size=channels).astype(np.float32))
    y = build.add(
        Conv2D(act=act),
        [build.input("x", TensorType(image)), build.const(weights), bias],
        "y",
    )
    if then:
        y = followed(Pick(rng), build, y, then)
    build.graph.outputs = [y]
    return build.graph


def _is_sparse(graph: Graph, name: str) -> bool:
    return SPARSE in segment_source(graph, "seg", core(name)).text


@pytest.mark.parametrize("name", on("cortex_a72", "sanitized_a76"))
@pytest.mark.parametrize("parts", [0, 3])
def test_what_is_zero_is_left_out(name: str, parts: int) -> None:
    graphs = [_graph(case) for case in CASES]
    for graph in graphs:
        assert _is_sparse(graph, "cortex_a72")
    inputs = [random_inputs(g, i) for i, g in enumerate(graphs)]
    for graph, given, got in zip(
        graphs, inputs, run_on(name, graphs, inputs, parts), strict=True
    ):
        assert_agree(got, interp(graph, given), of=graph)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (((1, 8, 8, 128), 32, 0.5, "none", ""), "cortex_a72"),  # too few zeros
        (
            ((1, 8, 8, 64), 32, 0.75, "none", ""),
            "cortex_a72",
        ),  # too few products in a sum
        (
            ((1, 56, 56, 144), 32, 0.75, "none", ""),
            "cortex_a76",
        ),  # bands keep such images out of memory
        (((1, 8, 8, 128), 32, 1.0, "none", ""), "cortex_a72"),  # nothing is left
        (
            ((1, 8, 8, 128), 32, 0.75, "none", ""),
            "cortex_a53",
        ),  # whose loads take as long as products
        (((1, 8, 8, 128), 32, 0.75, "none", ""), "x86_64_v3"),
    ],
)
def test_where_all_are_multiplied(case: Case, name: str) -> None:
    assert not _is_sparse(_graph(case), name)


@pytest.mark.parametrize("stride", [1, 2])
def test_windows_whose_weights_are_mostly_zeros_stay_dense(stride: int) -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(5, 3, 3, 3)).astype(np.float32)
    weights[2:] = 0
    build = Builder("windows")
    x = build.input("x", TensorType((1, 8, 8, 3)))
    spec = Conv2D((stride, stride), (0, 1, 0, 1), act="relu6")
    build.graph.outputs = [build.add(spec, [x, build.const(weights)])]
    for name in ("cortex_a53", "cortex_a72", "cortex_a76"):
        assert not _is_sparse(build.graph, name)
