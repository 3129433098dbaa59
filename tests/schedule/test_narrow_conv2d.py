"""Convolutions to few channels, whose columns are computed as channels, give what the
plain ones do.
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
from tests.schedule.on import WIDTHS, on
from tests.schedule.runner import run_on

NARROW = "ek_narrow_conv2d_f32_simd("
CASES = (
    # image, channels of the result, kernel, stride down, pads (top, bottom, left,
    # right), dilation, act, what follows
    ((1, 30, 40, 16), 1, (9, 9), 1, (4, 4, 4, 4), 1, "none", "logistic"),
    ((2, 20, 33, 16), 1, (3, 5), 2, (1, 1, 3, 7), 1, "relu6", ""),
    ((1, 20, 300, 8), 2, (3, 3), 1, (1, 1, 1, 1), 1, "relu", ""),
    ((1, 15, 17, 20), 2, (3, 3), 1, (0, 1, 9, 9), 2, "none", "concat"),
    ((1, 1, 50, 64), 5, (1, 7), 1, (0, 0, 3, 3), 1, "none", ""),
)


def _graph(
    case: tuple[
        tuple[int, ...], int, tuple[int, int], int, tuple[int, ...], int, str, str
    ],
) -> Graph:
    image, channels, kernel, down, (top, bottom, left, right), dilation, act, then = (
        case
    )
    rng = np.random.default_rng(channels)
    build = Builder("narrow")
    w = build.const(
        rng.normal(size=(channels, *kernel, image[3])).astype(np.float32)
        / kernel[0]
        / 4
    )
    bias = build.const(rng.normal(size=channels).astype(np.float32))
    spec = Conv2D((down, 1), (top, bottom, left, right), (dilation, dilation), act)
    y = build.add(spec, [build.input("x", TensorType(image)), w, bias], "y")
    if then:
        y = followed(Pick(rng), build, y, then)
    build.graph.outputs = [y]
    return build.graph


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", on(*WIDTHS))
@pytest.mark.parametrize("parts", [0, 3])
def test_columns_as_channels_give_the_same_results(name: str, parts: int) -> None:
    graphs = [_graph(case) for case in CASES]
    for graph in graphs:
        assert NARROW in segment_source(graph, "seg", core(name)).text
    inputs = [random_inputs(g, i) for i, g in enumerate(graphs)]
    for graph, given, got in zip(
        graphs, inputs, run_on(name, graphs, inputs, parts), strict=True
    ):
        assert_agree(got, interp(graph, given), of=graph)


def test_vectors_that_are_full_stay_as_they_are() -> None:
    graph = _graph(((1, 20, 20, 16), 16, (3, 3), 1, (1, 1, 1, 1), 1, "none", ""))
    assert NARROW not in segment_source(graph, "seg", core("x86_64_v4_vnni")).text


def test_a_border_around_nothing_has_no_products() -> None:
    graph = _graph(((3, 20, 0, 9), 2, (2, 2), 1, (2, 2, 2, 2), 2, "none", ""))
    assert graph.outputs[0].type.size
    assert NARROW not in segment_source(graph, "seg", core("x86_64_v3")).text
