"""Work grows as the number of ops does: calls are counted, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.partition import partition

from edgec.emit.memory import plan_offsets
from edgec.ir import Builder, Graph, Quant, TensorType, Value
from edgec.ops.binary import Add
from edgec.ops.conv import Conv2D
from edgec.ops.unary import Relu
from edgec.passes.pipeline import optimize
from edgec.schedule.cores import core
from edgec.schedule.liveness import Lifetime
from edgec.schedule.steps import schedule

SHORT = 40
LONG = 160
"""Blocks of the two networks."""
GROWTH = 1.4 * LONG / SHORT
"""What the longer may take more: nothing that is quadratic stays below."""


def _chain(blocks: int, quantized: bool = False) -> Graph:
    """Convolutions, activations, and a sum with what came before."""
    rng = np.random.default_rng(0)
    b = Builder("chain")
    act = Quant.per_tensor(0.05, 0) if quantized else None
    x = b.input("x", TensorType((1, 6, 6, 4), "int8" if quantized else "float32", act))
    for _ in range(blocks):
        y = _conv(b, x, rng, act)
        y = b.add(Relu(), [y], "r", act) if act else b.add(Relu(), [y], "r")
        if act:
            x = b.add(Add(), [_conv(b, y, rng, act), x], "a", act)
        else:
            x = b.add(Add(), [_conv(b, y, rng, act), x], "a")
    b.graph.outputs = [x]
    return b.graph


def _conv(b: Builder, x: Value, rng: np.random.Generator, act: Quant | None) -> Value:
    spec = Conv2D(pads=(1, 1, 1, 1))
    if act is None:
        return b.add(
            spec,
            [x, b.const(rng.normal(size=(4, 3, 3, 4)).astype(np.float32), "w")],
            "c",
        )
    w = b.const(
        rng.integers(-99, 99, (4, 3, 3, 4)).astype(np.int8), "w", Quant.per_tensor(0.01)
    )
    return b.add(spec, [x, w], "c", act)


def _calls(run: Callable[[], object]) -> int:
    """Lines of Python, and turns of its comprehensions, that run."""
    count = 0

    def line(frame: FrameType, event: str, arg: object) -> object:
        nonlocal count
        count += 1
        return line

    before = sys.gettrace()
    sys.settrace(line)  # type: ignore[arg-type]
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def _grows_no_faster(
    make: Callable[[int], object], run: Callable[[object], object]
) -> None:
    run(make(3))  # what is made once for all
    short, long = (
        _calls(lambda given=given: run(given))  # type: ignore[misc]
        for given in (make(SHORT), make(LONG))
    )
    assert long < GROWTH * short, f"{short} lines for {SHORT} blocks, {long} for {LONG}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "quantized"), [("x86_64_v3", False), ("cortex_a72", True)]
)
def test_scheduling(name: str, quantized: bool) -> None:
    _grows_no_faster(lambda n: _chain(n, quantized), lambda g: schedule(g, core(name)))  # type: ignore[arg-type]


@pytest.mark.slow
def test_passes() -> None:
    _grows_no_faster(_chain, lambda g: optimize(g))  # type: ignore[arg-type]


@pytest.mark.slow
def test_partitioning() -> None:
    cpu = CpuCost(1e-5)
    _grows_no_faster(lambda n: _chain(n, True), lambda g: partition(g, "usb3", cpu))  # type: ignore[arg-type]


def test_placing_buffers() -> None:
    def lives(n: int) -> list[Lifetime]:
        return [Lifetime(str(i), 64 * (1 + i % 7), i, i + 1 + i % 3) for i in range(n)]

    _grows_no_faster(lambda n: lives(4 * n), lambda given: plan_offsets(given))  # type: ignore[arg-type]
