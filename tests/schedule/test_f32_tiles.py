"""Float tiles for what is known of a layer: its windows, what follows its sums, the
width of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from edgec.emit.c import segment_source
from edgec.ir import Builder, Graph, OpDef, TensorType, interp
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.schedule.cores import core
from edgec.schedule.steps import DEFAULT
from tests.harness import assert_agree, random_inputs
from tests.schedule.on import WIDTHS, on
from tests.schedule.runner import Case, core_of, run

Layer = tuple[OpDef, tuple[int, ...], tuple[int, ...]]
SAME = (1, 1, 1, 1)
KNOWN: Sequence[tuple[str, Layer]] = (
    ("_sum_flat8", (Conv2D(), (1, 5, 9, 8), (21, 1, 1, 8))),
    ("_low_flat8", (Conv2D(act="relu"), (2, 3, 7, 8), (5, 1, 1, 8))),
    ("_both_flat16", (Conv2D(act="relu6"), (1, 5, 9, 16), (40, 1, 1, 16))),
    (
        "_both_rgb2",
        (Conv2D((2, 2), (0, 1, 0, 1), act="relu6"), (1, 18, 34, 3), (16, 3, 3, 3)),
    ),
    ("_sum_rgb2", (Conv2D((2, 2), SAME), (1, 17, 33, 3), (24, 3, 3, 3))),
    # On Neon the last panel computes some channels of the one before again.
    ("_sum_rgb2", (Conv2D((2, 2), SAME), (1, 17, 33, 3), (22, 3, 3, 3))),
    ("_low", (Conv2D(act="relu"), (1, 6, 19, 32), (19, 1, 1, 32))),
    ("_low", (Conv2D(pads=SAME, act="relu"), (1, 6, 9, 5), (12, 3, 3, 5))),
    ("_sum_flat16", (TransposeConv2D((2, 2)), (1, 5, 9, 16), (1, 2, 2, 16))),
    ("_low", (TransposeConv2D((2, 3), act="relu"), (1, 4, 7, 12), (3, 4, 3, 12))),
    ("", (Conv2D(act="relu_n1_to_1"), (1, 5, 9, 20), (12, 1, 1, 20))),
)
"""What the names of tiles end in, and a layer."""


def _graph(
    spec: OpDef,
    image: tuple[int, ...],
    weights: tuple[int, ...],
    channels: int,
    seed: int = 0,
) -> Graph:
    rng = np.random.default_rng(seed)
    build = Builder("layer")
    x = build.input("x", TensorType(image))
    w, b = (
        build.const(rng.normal(size=s).astype(np.float32), n)
        for n, s in (("w", weights), ("b", (channels,)))
    )
    build.graph.outputs = [build.add(spec, [x, w, b], "y")]
    return build.graph


def _depthwise(k: int, stride: int, dilation: int, width: int, c: int) -> Graph:
    pad = k // 2 * dilation
    spec = DepthwiseConv2D(
        (stride, stride), (pad, pad, pad, pad), (dilation, dilation), "relu6"
    )
    return _graph(spec, (1, 9, width, c), (1, k, k, c), c, width)


@pytest.mark.parametrize("name", on(*WIDTHS))
def test_tiles_for_known_windows_compute_what_the_layers_do(name: str) -> None:
    graphs = [_graph(*layer, channels=layer[2][0]) for _, layer in KNOWN]
    for graph, (end, _) in zip(graphs, KNOWN, strict=True):
        assert f"x2{end}," in segment_source(graph, "seg", core(name)).text
    given = [random_inputs(g, i) for i, g in enumerate(graphs)]
    cases = [
        Case(g, x, core_of(name), DEFAULT) for g, x in zip(graphs, given, strict=True)
    ]
    for graph, x, got in zip(graphs, given, run(name, cases), strict=True):
        assert_agree(got, interp(graph, x), of=graph)


@pytest.mark.parametrize("name", on(*WIDTHS))
def test_a_phase_of_a_transposed_layer_may_alone_reach_beyond_the_image(
    name: str,
) -> None:
    crossing = (
        TransposeConv2D((3, 3), (0, 0, 1, 1)),
        TransposeConv2D((2, 2), (0, 0, 1, 0)),
    )
    graphs = [
        _graph(spec, (1, 1, 12, 1), (1, 1, spec.stride[1], 1), 1) for spec in crossing
    ]
    given = [random_inputs(g, i) for i, g in enumerate(graphs)]
    cases = [
        Case(g, x, core_of(name), DEFAULT) for g, x in zip(graphs, given, strict=True)
    ]
    for graph, x, got in zip(graphs, given, run(name, cases), strict=True):
        assert_agree(got, interp(graph, x), of=graph)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", on(*WIDTHS))
def test_depthwise_tiles_of_all_widths_compute_what_the_layers_do(name: str) -> None:
    """Channels in several turns and memory that is fetched first too: as the caches of
    these cores are small.
    """
    sizes = [
        (k, stride, 1, width, c)
        for k in (3, 5, 7)
        for stride in (1, 2)
        for width, c in WIDE_AND_DEEP
    ]
    sizes += [
        (3, 1, 2, 19, 52),
        (5, 1, 3, 17, 20),
        (7, 1, 2, 23, 20),
        (3, 1, 6, 13, 24),
    ]
    graphs = [_depthwise(*size) for size in sizes]
    small = replace(core_of(name), l1=8 << 10, l2=16 << 10)
    text = "".join(
        segment_source(g, f"seg{i}", small).text for i, g in enumerate(graphs)
    )
    assert all(
        f"s{stride}x{cols}_both" in text for stride in (1, 2) for cols in range(4, 9)
    )
    assert ".touch = 3" in text
    assert ".chunk = 32" in text
    given = [random_inputs(g, i) for i, g in enumerate(graphs)]
    cases = [Case(g, x, small, DEFAULT) for g, x in zip(graphs, given, strict=True)]
    for graph, x, got in zip(graphs, given, run(name, cases), strict=True):
        assert_agree(got, interp(graph, x), of=graph)


WIDE_AND_DEEP = (
    (4, 8),
    (5, 20),
    (6, 7),
    (7, 12),
    (8, 100),
    (9, 49),
    (10, 16),
    (11, 4),
    (12, 8),
    (14, 33),
    (16, 70),
)
"""Width of the image and channels."""
