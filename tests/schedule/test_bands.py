"""Convolutions that are computed a few rows at a time give what they give one after the
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.boards import Board

from edgec.compiler.lower import lower
from edgec.emit.c import segment_source
from edgec.ir import Builder, Graph, Quant, TensorType, Value, interp
from edgec.ops.activation import Clamp
from edgec.ops.binary import Add
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.options.compile import CompileOptions
from edgec.schedule.bands import join_cascades
from edgec.schedule.cores import core, cores_of
from edgec.schedule.variant import Rules
from tests.harness import assert_agree, random_inputs
from tests.schedule.on import WIDTHS, on
from tests.schedule.runner import run_on

BANDS = "ek_row_bands"
CASES = (
    # image, kernel, stride, pads, dilation, expanded channels, channels after (0: no
    # such convolution), residual add
    ((1, 19, 17, 8), 3, 1, (1, 1, 1, 1), 1, 48, 8, True),
    ((2, 13, 18, 8), 3, 2, (0, 1, 0, 1), 1, 36, 24, False),
    ((1, 23, 21, 6), 3, 1, (2, 2, 2, 2), 2, 20, 6, True),
    ((1, 17, 16, 12), 5, 2, (2, 2, 2, 2), 1, 36, 16, False),
    ((1, 27, 15, 16), 3, 1, (1, 1, 1, 1), 1, 64, 0, False),
    ((1, 30, 12, 40), 3, 1, (1, 1, 1, 1), 1, 0, 24, False),
    ((1, 60, 5, 8), 3, 1, (6, 6, 6, 6), 6, 16, 8, True),
    ((1, 11, 17, 8), 2, 1, (3, 0, 1, 0), 1, 64, 0, False),
)


def _graph(
    case: tuple[tuple[int, ...], int, int, tuple[int, ...], int, int, int, bool],
    seed: int = 0,
) -> Graph:
    image, k, stride, pads, dilation, wide, narrow, residual = case
    rng = np.random.default_rng(seed)
    build = Builder("block")

    def const(name: str, *shape: int) -> Value:
        return build.const(rng.normal(size=shape).astype(np.float32), name)

    y = build.add(Clamp(-9.0, 9.0), [build.input("x", TensorType(image))], "clamped")
    x = y
    c = image[3]
    if wide:
        y = build.add(
            Conv2D(act="relu6"),
            [y, const("we", wide, 1, 1, c), const("be", wide)],
            "expanded",
        )
        c = wide
    top, bottom, left, right = pads
    spec = DepthwiseConv2D(
        (stride, stride), (top, bottom, left, right), (dilation, dilation), "relu6"
    )
    y = build.add(spec, [y, const("wd", 1, k, k, c), const("bd", c)], "deep")
    if narrow:
        y = build.add(
            Conv2D(),
            [y, const("wp", narrow, 1, 1, c), const("bp", narrow)],
            "projected",
        )
    build.graph.outputs = [build.add(Add(), [x, y], "sum") if residual else y]
    return build.graph


def _graph_s8(
    case: tuple[tuple[int, ...], int, int, tuple[int, ...], int, int, int, bool],
    seed: int,
) -> Graph:
    """The same of int8 and larger images, with zero points, and saturating or not."""
    (
        (n, h, w, c),
        k,
        stride,
        (top, bottom, left, right),
        dilation,
        wide,
        narrow,
        residual,
    ) = case
    rng = np.random.default_rng(seed)
    build = Builder("block")
    least = seed % 2 == 0

    def scaled(v: Value, zero: int) -> Value:
        v.type = v.type.with_quant(Quant.per_tensor(1.0, -128 if least else zero))
        return v

    def layer(
        spec: Conv2D | DepthwiseConv2D,
        x: Value,
        shape: tuple[int, ...],
        out: int,
        name: str,
    ) -> Value:
        axis = 3 if isinstance(spec, DepthwiseConv2D) else 0
        gain = (2 if least else 1) / 5000 / (shape[3] if axis == 0 else k * k) ** 0.5
        scales = tuple(float(s) for s in rng.uniform(50, 100, out) * gain)
        quant = Quant(scales, (0,) * out, axis)
        weights = build.const(
            rng.integers(-127, 128, shape).astype(np.int8), f"w_{name}", quant
        )
        bias = build.const(
            rng.integers(-3000, 3000, out).astype(np.int32),
            f"b_{name}",
            Quant.per_tensor(1.0),
        )
        return scaled(build.add(spec, [x, weights, bias], name), 5)

    x = build.input(
        "x", TensorType((n, h + 48, w + 20, c), "int8", Quant.per_tensor(1.0, -3))
    )
    y = scaled(build.add(Clamp(-90.0, 90.0), [x], "clamped"), -3)
    x = y
    if wide:
        y = layer(
            Conv2D(act="none" if least else "relu"),
            y,
            (wide, 1, 1, c),
            wide,
            "expanded",
        )
        c = wide
    spec = DepthwiseConv2D(
        (stride, stride), (top, bottom, left, right), (dilation, dilation)
    )
    y = layer(spec, y, (1, k, k, c), c, "deep")
    if narrow:
        y = layer(Conv2D(), y, (narrow, 1, 1, c), narrow, "projected")
    build.graph.outputs = [
        scaled(build.add(Add(), [x, y], "sum"), 7) if residual else y
    ]
    return build.graph


def _small_cache(monkeypatch: pytest.MonkeyPatch, kib: int = 64) -> None:
    """Let every core have a second cache so small that bands are worth it for small
    images.
    """
    monkeypatch.setattr(
        "edgec.schedule.steps.join_cascades",
        lambda graph, made, on, where: join_cascades(
            graph, made, replace(on, l2=kib << 10), where
        ),
    )


@pytest.mark.parametrize("name", on(*WIDTHS))
@pytest.mark.parametrize("parts", [0, 3])
@pytest.mark.sweep(3)
def test_bands_compute_what_the_layers_do(
    name: str, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _small_cache(monkeypatch)
    graphs = [_graph(case, i) for i, case in enumerate(CASES)]
    _compare(name, graphs, parts)


@pytest.mark.parametrize(
    "name", on("cortex_a53", "cortex_a72", "cortex_a76", "x86_64_v3", "x86_64_v4_vnni")
)
@pytest.mark.parametrize("parts", [0, 3])
@pytest.mark.sweep(3)
def test_bands_of_int8_compute_what_the_layers_do(
    name: str, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _small_cache(monkeypatch, 64)
    graphs = [_graph_s8(case, i) for i, case in enumerate((*CASES, *CASES), 1)]
    _compare(name, graphs, parts)


def _compare(name: str, graphs: Sequence[Graph], parts: int) -> None:
    for graph in graphs:
        assert segment_source(graph, "seg", core(name)).text.count(f"{BANDS}(") == 1
    inputs = [random_inputs(g, i) for i, g in enumerate(graphs)]
    for graph, given, got in zip(
        graphs, inputs, run_on(name, graphs, inputs, parts), strict=True
    ):
        want = interp(graph, given)
        assert all(np.unique(y).size > 20 for y in want.values())
        assert_agree(got, want, of=graph)


@pytest.mark.parametrize("name", on(*WIDTHS))
@pytest.mark.sweep(2)
def test_bands_write_among_the_channels_of_a_concat(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _small_cache(monkeypatch)
    graphs = [_graph(case) for case in CASES if not case[-1]]
    for graph in graphs:
        (y,), build = graph.outputs, Builder(graph)
        graph.outputs = [
            build.add(Concat(3), [y, build.input("other", y.type)], "both")
        ]
        assert segment_source(graph, "seg", core(name)).text.count(f"{BANDS}(") == 1
    inputs = [random_inputs(g) for g in graphs]
    for graph, given, got in zip(
        graphs, inputs, run_on(name, graphs, inputs, 3), strict=True
    ):
        assert_agree(got, interp(graph, given), of=graph)


@pytest.mark.parametrize("name", on(*WIDTHS))
@pytest.mark.sweep(2)
def test_what_is_one_of_the_parts_of_a_concat_is_not_all_that_its_reader_reads(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in FastestDet: depthwise convolutions that write side by side, and a 1x1
    convolution of all.
    """
    _small_cache(monkeypatch)
    rng = np.random.default_rng(0)
    build = Builder("parts")

    def const(label: str, *shape: int) -> Value:
        return build.const(rng.normal(size=shape).astype(np.float32), label)

    c = 32
    kernels = (5, 3)
    x = build.input("x", TensorType((1, 40, 40, c)))
    parts = [
        build.add(
            DepthwiseConv2D((1, 1), (k // 2,) * 4),
            [x, const(f"w{k}", 1, k, k, c), const(f"b{k}", c)],
            f"deep{k}",
        )
        for k in kernels
    ]
    both = build.add(Concat(3), parts, "both")
    build.graph.outputs = [
        build.add(Conv2D(), [both, const("w", 8, 1, 1, 2 * c), const("b", 8)], "y")
    ]
    inputs = random_inputs(build.graph)
    (got,) = run_on(name, [build.graph], [inputs], 0)
    assert_agree(got, interp(build.graph, inputs))


def test_what_lies_between_leaves_the_arena() -> None:
    block = ((1, 128, 128, 24), 3, 1, (1, 1, 1, 1), 1, 144, 24, True)
    graph = _graph(block)
    on = core("cortex_a72")
    banded = segment_source(graph, "seg", on)
    whole = segment_source(graph, "seg", on, rules=Rules(bands=False))
    assert BANDS in banded.text
    assert BANDS not in whole.text
    assert banded.plan.size < whole.plan.size / 4


def test_bands_lower_the_peak_of_the_arena_where_the_cache_does_not_keep_it() -> None:
    """Two tensors of 401,408 bytes between: the Cortex-A72 keeps one of them, not both."""
    graph = _graph_s8(((1, 64, 92, 32), 3, 1, (1, 1, 1, 1), 1, 0, 16, False), 0)
    on = core("cortex_a72")
    banded = segment_source(graph, "seg", on)
    assert banded.text.count(f"{BANDS}(") == 1
    assert (
        banded.plan.size
        < 0.8 * segment_source(graph, "seg", on, rules=Rules(bands=False)).plan.size
    )
    large = replace(on, l2=4 << 20)
    assert BANDS not in segment_source(graph, "seg", large).text


@pytest.mark.shared
@pytest.mark.parametrize("board", ["pi3", "pi4", "pi5"])
def test_arena_of_mobilenet_v2(board: str, shared: Path) -> None:
    """1,505,280 bytes are two of its tensors, of which one is now never whole."""
    (s,) = lower(
        shared / "models" / "mnv2_tf2_i8" / "mnv2_tf2_i8.tflite",
        CompileOptions(target=board),
    ).partition.segments
    plan = segment_source(
        s.graph, "s", cores_of(Board.load(board), Board.load(board).targets[0])[-1]
    ).plan
    assert plan.size == plan.lower_bound < 700_000


def test_the_largest_of_alternating_layers_is_not_whole() -> None:
    """Depthwise and pointwise in turn, as in MobileNet v1: each could be joined with
    either neighbour.
    """
    build = Builder("mobile")
    rng = np.random.default_rng(0)
    y = build.input("x", TensorType((1, 112, 112, 16)))
    c = 16
    y = build.add(Clamp(-9.0, 9.0), [y], "clamped")
    for i, (stride, wide) in enumerate(((1, 32), (2, 32), (1, 32))):
        w = build.const(rng.normal(size=(1, 3, 3, c)).astype(np.float32), f"wd{i}")
        y = build.add(
            DepthwiseConv2D((stride, stride), (1, 1, 1, 1)), [y, w], f"deep{i}"
        )
        y = build.add(
            Conv2D(),
            [
                y,
                build.const(
                    rng.normal(size=(wide, 1, 1, c)).astype(np.float32), f"wp{i}"
                ),
            ],
            f"wide{i}",
        )
        c = wide
    build.graph.outputs = [build.add(Clamp(-9.0, 9.0), [y], "end")]
    for name in ("cortex_a53", "cortex_a76"):
        assert "wide0" not in segment_source(build.graph, "s", core(name)).plan.offsets


def test_layers_whose_results_the_cache_keeps_stay_apart() -> None:
    graph = _graph(CASES[0])
    assert BANDS not in segment_source(graph, "seg", core("cortex_a72")).text


def test_a_result_that_others_read_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    _small_cache(monkeypatch)
    graph = _graph(CASES[5])
    graph.outputs.append(
        next(v for op in graph.ops for v in op.outputs if v.name == "deep")
    )
    assert BANDS not in segment_source(graph, "seg", core("cortex_a72")).text


def test_bands_larger_than_the_cache_gain_nothing() -> None:
    """Taps four rows apart keep 16 rows of 33 x 480 floats."""
    graph = _graph(((1, 33, 33, 80), 3, 1, (4, 4, 4, 4), 4, 480, 80, False))
    assert BANDS not in segment_source(graph, "seg", core("cortex_a72")).text
