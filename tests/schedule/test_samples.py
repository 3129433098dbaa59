"""The samples of all ops, and more at which vectors end, saturate or tie: on each core
what the ops mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.ir import Array, Builder, Graph, OpDef, Sample, TensorType, interp
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.matmul import FullyConnected
from edgec.ops.norm import InstanceNorm
from edgec.ops.reduce import Mean
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.schedule.cores import Core, core
from edgec.schedule.gemm_s8.avx2 import AVX2
from edgec.schedule.gemm_s8.dot import DOT
from edgec.schedule.gemm_s8.neon import LANES
from edgec.schedule.gemm_s8.panels import FAST, Requant, pack
from edgec.schedule.gemm_s8.vnni import VNNI
from edgec.schedule.gemm_s8.windows import GemmS8Shape
from edgec.schedule.variant import preferred
from tests.harness import (
    assert_agree,
    assert_near,
    extreme_inputs,
    random_inputs,
    sample_graph,
)
from tests.schedule.on import on
from tests.schedule.runner import core_of, run_on
from tests.schedule.samples import edges

INT8 = (Conv2D, DepthwiseConv2D, TransposeConv2D, FullyConnected)


def _samples() -> Iterator[Sample]:
    for kind in sorted(OpDef.registry):
        yield from OpDef.registry[kind].samples()
    yield from edges()


def _is_taken(graph: Graph, on: Core) -> bool:
    """Whether a variant computes a sample."""
    (op,) = graph.ops
    return op.kind != "opaque" and any(
        preferred(call, on) for call in op.spec.calls(op)
    )


def _with_inputs(sample: Sample) -> tuple[Graph, dict[str, Array]]:
    graph = sample_graph(sample)
    data = random_inputs(graph, len(graph.ops[0].inputs))
    for i, arg in enumerate(sample.args):
        if arg.data is not None and not arg.const:
            data[f"x{i}"] = arg.data
    return graph, data


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", on())
def test_samples_agree_with_the_reference(name: str) -> None:
    pairs = [
        (graph, x)
        for graph, x in map(_with_inputs, _samples())
        if _is_taken(graph, core_of(name))
    ]
    assert len(pairs) > 350
    graphs = [g for g, _ in pairs]
    inputs = [x for _, x in pairs]
    for graph, given, got in zip(
        graphs, inputs, run_on(name, graphs, inputs), strict=True
    ):
        assert_agree(got, interp(graph, given), of=graph)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", on())
def test_extreme_inputs_agree_with_the_reference(name: str) -> None:
    """Each sample has one kind of extreme inputs, in turn; norms, whose sums are the
    hardest, have all.
    """
    cases = []
    for number, sample in enumerate(_samples()):
        graph = sample_graph(sample)
        if _is_taken(graph, core_of(name)):
            every = list(extreme_inputs(graph).items())
            turn = number % len(every) if every else 0
            if isinstance(sample.spec, (InstanceNorm, Mean)):
                chosen = every
            else:
                chosen = every[turn : turn + 1]
            cases += [
                (graph, x, f"{sample.spec.kind} {sample.label} of {what} inputs")
                for what, x in chosen
            ]
    assert len(cases) > 150
    results = run_on(name, [graph for graph, _, _ in cases], [x for _, x, _ in cases])
    for (graph, given, case), got in zip(cases, results, strict=True):
        with np.errstate(all="ignore"):
            want = interp(graph, given)
            of_flushed = interp(graph, _flushed(given))
        # A processor that flushes numbers below the normal ones takes them for zeros.
        try:
            assert_near(graph, got, want, case)
        except AssertionError:
            assert_near(graph, got, of_flushed, case)


def _flushed(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return inputs whose floats below the normal ones are zero."""
    flushed = dict(inputs)
    for name, x in inputs.items():
        if x.dtype == np.float32:
            is_normal = np.abs(x) >= np.finfo(np.float32).tiny
            flushed[name] = np.where(is_normal, x, x * np.float32(0))
    return flushed


@pytest.mark.parametrize(
    "name", ["cortex_a53", "cortex_a76", "x86_64_v3", "x86_64_v4_vnni"]
)
def test_every_int8_layer_is_taken(name: str) -> None:
    graphs = [
        sample_graph(s)
        for op in INT8
        for s in op.samples()
        if s.args[0].type.dtype == "int8"
    ]
    assert len(graphs) > 40
    assert [str(g.ops[0].spec) for g in graphs if not _is_taken(g, core(name))] == []


@pytest.mark.parametrize("name", ["cortex_a53", "x86_64_v3"])
def test_layers_with_computed_weights_are_products(name: str) -> None:
    """Attention comes so from files: vittrack's took 97 % of its time as plain code."""
    build = Builder("attention")
    values = [
        build.input(n, TensorType(shape))
        for n, shape in (("x", (1, 20, 48)), ("w", (20, 48)))
    ]
    build.graph.outputs = [build.add(FullyConnected(), values, "y")]
    (call,) = build.graph.ops[0].spec.calls(build.graph.ops[0])
    best = preferred(call, core(name))
    assert best is not None
    assert best[0].name == "ek_batch_matmul_f32_simd"


def test_groups_of_fewer_channels_than_lanes_have_tiles() -> None:
    """A convolution of 2 groups of 12 channels took 18 times as long as plain code on a
    core of 16 lanes.
    """
    build = Builder("groups")
    rng = np.random.default_rng(0)
    w, bias = (
        build.const(rng.normal(size=s).astype(np.float32), "c")
        for s in ((24, 1, 1, 24), (24,))
    )
    build.graph.outputs = [
        build.add(Conv2D(), [build.input("x", TensorType((1, 8, 8, 48))), w, bias], "y")
    ]
    (call,) = build.graph.ops[0].spec.calls(build.graph.ops[0])
    best = preferred(call, core("x86_64_v4_vnni"))
    assert best is not None
    assert best[0].name == "ek_gemm_f32_simd"


@pytest.mark.parametrize("name", ["cortex_a53", "x86_64_v3"])
def test_no_sum_of_bytes_is_plain(name: str) -> None:
    taken = {}
    for sample in edges():
        if sample.spec.kind in ("add", "sub") and sample.label.startswith(
            sample.spec.kind
        ):
            op = sample_graph(sample).ops[0]
            (call,) = op.spec.calls(op)
            best = preferred(call, core(name))
            if op.output.type.shape == (256, 256):
                taken[sample.label] = best[0].name if best else call.kernel
    assert set(taken.values()) == {"ek_sum_s8_simd", "ek_law_s8_simd"}, taken
    assert taken["add7none"] == "ek_sum_s8_simd"  # factors of 0.78 and 2.1
    assert taken["add9none"] == "ek_law_s8_simd"


def test_a_channel_that_no_input_changes_leaves_the_others_the_fast_way() -> None:
    """One whose bias of 2^30 drowns its sums: vww96_i8 has layers with many of them."""
    windows = GemmS8Shape(1, 1, 4, 8, 1, 4, 2)
    w = np.full((2, 1, 1, 8), 3, np.int8)
    q = Requant(
        -128, 0, -128, -128, 127, np.array([1 << 30, 1 << 30]), np.array([-7, -27])
    )
    bias = np.array([100, -(1 << 30)])
    for tiles in (DOT, VNNI, AVX2):
        assert pack(windows, w, bias, q, tiles, tiles.tiles[-1]).finish == FAST


def test_short_windows_have_channels_along_lanes() -> None:
    """Those that pieces of 16 elements fit badly, the more so with a zero point."""
    plain = Requant(0, 0, -128, -128, 127)
    a53 = core("cortex_a53")
    a72 = core("cortex_a72")

    def takes(depth: int, on: Core, q: Requant = plain) -> bool:
        return LANES.accepts(GemmS8Shape(1, 8, 8, depth, 8, 8, 16), q, on)

    assert [k for k in (8, 16, 24, 32, 64, 96, 128) if takes(k, a53)] == [
        8,
        24,
        32,
        64,
        96,
    ]
    assert [
        k for k in (8, 16, 24, 32, 64, 96) if takes(k, a53, replace(plain, w_zero=3))
    ] == [8, 16, 24, 32, 64]
    assert not takes(8, a72)
    assert takes(8, a72, replace(plain, w_zero=3))
    first = GemmS8Shape(1, 9, 9, 3, 4, 4, 8, 3, 3, 2, 2)
    assert LANES.accepts(first, plain, a53)  # its windows are gathered
    assert not LANES.accepts(replace(first, ic=16), plain, a53)
