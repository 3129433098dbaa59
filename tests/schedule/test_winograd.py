"""Winograd's transforms: how exact they are, where they are chosen, and that they take
no more of the arena.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from edgec.emit.c import segment_source
from edgec.float16.convert import to_float16
from edgec.ir import Array, Builder, Graph, KernelCall, TensorType, Value
from edgec.ops.conv import Conv2D
from edgec.schedule.cores import Core, core
from edgec.schedule.gemm_f32.winograd import POINT_SQUARES
from edgec.schedule.steps import DEFAULT, schedule
from edgec.schedule.variant import Rules, Schedule, Variant, legal, preferred
from tests.harness import random_inputs
from tests.schedule.on import WIDTHS, on
from tests.schedule.runner import Case, core_of, run

NAME = "ek_winograd_f32_simd"
A72 = core("cortex_a72")


def _convs(
    h: int, w: int, channels: Sequence[int], spec: Conv2D | None = None, kernel: int = 3
) -> Graph:
    """Convolutions one after the other, with sums near one."""
    rng = np.random.default_rng(0)
    build = Builder("convs")
    x = build.input("x", TensorType((1, h, w, channels[0])))
    for i, (c, o) in enumerate(pairwise(channels)):
        weights = rng.normal(size=(o, kernel, kernel, c)) / np.sqrt(kernel * kernel * c)
        args: list[Value] = [x, build.const(weights.astype(np.float32), f"w{i}")]
        x = build.add(
            spec or Conv2D(pads=(1, 1, 1, 1)),
            [*args, build.const(np.zeros(o, np.float32), f"b{i}")],
            f"y{i}",
        )
    build.graph.outputs = [x]
    return build.graph


def _call(graph: Graph) -> KernelCall:
    return graph.ops[0].spec.calls(graph.ops[0])[0]


def _leads(graph: Graph, on: Core = A72) -> bool:
    best = preferred(_call(graph), on)
    return best is not None and best[0].name == NAME


def _kernels(graph: Graph, rules: Rules = DEFAULT) -> list[str]:
    return [
        call.kernel.name
        for step in schedule(graph, A72, rules).steps
        for call in step.calls
    ]


def _by(m: int, call: KernelCall, on: Core) -> tuple[Variant, Schedule]:
    """The way by tiles of m x m results."""
    return next((v, s) for v, s in legal(call, on) if v.name == NAME and s["m"] == m)


def _others(call: KernelCall, on: Core) -> tuple[Variant, Schedule] | None:
    """The best of the other ways."""
    return next((way for way in legal(call, on) if way[0].name != NAME), None)


def _exactly(graph: Graph, x: Array) -> Array:
    """A convolution with pads of 1, in double precision."""
    w = graph.ops[0].inputs[1].const
    assert w is not None
    h, wide = x.shape[1:3]
    padded = np.pad(x[0].astype(np.float64), ((1, 1), (1, 1), (0, 0)))
    windows = (
        np.tensordot(padded[i : i + h, j : j + wide], w[:, i, j], ((2,), (1,)))
        for i in range(3)
        for j in range(3)
    )
    return np.asarray(sum(windows))[None]


@pytest.mark.parametrize("name", on(*WIDTHS))
def test_error_is_little_more_than_that_of_sums(name: str) -> None:
    graph = _convs(24, 24, (64, 32))
    inputs = random_inputs(graph)
    rules = [Rules(partial(_by, m), spare=False) for m in POINT_SQUARES]
    results = run(name, [Case(graph, inputs, core_of(name), r) for r in rules])
    want = _exactly(graph, inputs["x"])
    for most, got in zip((4e-7, 1.2e-6), results, strict=True):
        assert np.abs(got["y0"] - want).max() / np.ptp(want) < most


@pytest.mark.parametrize(
    "name", ["cortex_a53", "cortex_a72", "cortex_a76", "x86_64_v3", "x86_64_v4_vnni"]
)
def test_chosen_where_it_pays(name: str) -> None:
    for graph in (
        _convs(56, 56, (64, 64)),
        _convs(112, 112, (32, 64)),
        _convs(28, 28, (128, 128)),
    ):
        assert _leads(graph, core(name))


def test_not_chosen_for_few_channels_small_images_or_other_windows() -> None:
    assert not _leads(_convs(224, 224, (3, 16)))
    assert not _leads(_convs(64, 64, (16, 2)))
    assert not _leads(_convs(4, 4, (64, 64)))
    assert not _leads(_convs(64, 64, (64, 64), Conv2D((2, 2), (1, 1, 1, 1))))
    assert not _leads(_convs(64, 64, (64, 64), Conv2D(pads=(2, 2, 2, 2)), kernel=5))


def test_its_scratch_takes_only_what_tensors_leave() -> None:
    """The widest step has no room for it, so it is done in small blocks, or not at all."""
    graph = _convs(40, 40, (16, 64, 64, 16))
    with_room, without = (
        segment_source(graph, "s", A72, rules=Rules(spare=s)).plan.size
        for s in (False, True)
    )
    plain = segment_source(graph, "s", A72, rules=Rules(_others)).plan.size
    assert without <= plain < with_room
    assert NAME in _kernels(graph)


def test_float16_may_be_limited_to_tiles_that_round_less() -> None:
    graph = to_float16(_convs(56, 56, (64, 64)))
    (conv,) = (op for op in graph.ops if op.kind == "conv2d")
    (call,) = conv.calls()
    a76 = core("cortex_a76")

    def sizes(on: Core) -> set[int]:
        return {s["m"] for v, s in legal(call, on) if v.name == NAME}

    assert sizes(a76) == set(POINT_SQUARES)
    assert sizes(replace(a76, winograd_f16=2)) == {2}
    float32 = _call(_convs(56, 56, (64, 64)))
    ways = legal(float32, replace(a76, winograd_f16=2))
    assert {s["m"] for v, s in ways if v.name == NAME} == set(POINT_SQUARES)


def test_rules_can_leave_it_out() -> None:
    graph = _convs(32, 32, (64, 64))
    assert _kernels(graph, Rules(spare=False)) == [NAME]
    assert _kernels(graph, Rules(_others, spare=False)) == ["ek_gemm_f32_simd"]
