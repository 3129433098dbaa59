"""Ops of files that ONNX quantized round as onnxruntime on the CPU, and as TFLite where
the Edge TPU runs them.
"""

from __future__ import annotations

import numpy as np
from edgec_partitioner.choice import Wishes
from edgec_partitioner.partition import partition
from edgec_partitioner.rounding import as_chip, as_tflite
from hypothesis import given
from hypothesis import strategies as st

from edgec.ir import (
    Array,
    Builder,
    Graph,
    Op,
    Quant,
    Rounding,
    TensorType,
    Value,
    interp,
)
from edgec.ir.interp import run_op
from edgec.ops.binary import Add, Mul
from edgec.ops.conv import Conv2D
from edgec.ops.edgetpu_law import LOGISTIC, TANH
from edgec.ops.pool import AveragePool2D
from edgec.ops.quantize import Quantize
from edgec.ops.resize import ResizeBilinear
from edgec.ops.unary import LOGISTIC_QUANT, TANH_QUANT, Logistic, Relu6, Tanh
from tests.harness import assert_agree, random_inputs, run_tflite


def _network() -> Graph:
    """Convolutions, and a sum of two of them."""
    rng = np.random.default_rng(3)
    build = Builder("even")
    scale = Quant.per_tensor(0.02, -3)
    x = build.input("x", TensorType((1, 56, 56, 64), "int8", scale))
    ends = []
    for i in range(2):
        w = build.const(
            rng.integers(-99, 99, (64, 3, 3, 64)).astype(np.int8),
            f"w{i}",
            Quant.per_tensor(0.003),
        )
        ends.append(
            build.add(
                Conv2D(pads=(1, 1, 1, 1), rounding=Rounding.ONNXRUNTIME),
                [x, w],
                f"y{i}",
                scale,
            )
        )
    build.graph.outputs = [
        build.add(Add(rounding=Rounding.ONNXRUNTIME_UINT8), ends, "y", scale)
    ]
    return build.graph


def _follows_onnxruntime(op: Op) -> bool:
    """Return whether an op rounds as onnxruntime does."""
    assert isinstance(op.spec, (Add, Conv2D))
    return op.spec.rounding.is_onnxruntime


def test_what_the_edge_tpu_runs_rounds_as_tflite() -> None:
    graph = _network()
    parts = partition(graph, "usb3", wishes=Wishes(everything=True))
    kinds = {
        (s.place, op.kind, _follows_onnxruntime(op))
        for s in parts.segments
        for op in s.graph.ops
    }
    assert kinds == {("edgetpu", "conv2d", False), ("edgetpu", "add", False)}
    # the graph that was given stays as it is
    assert all(_follows_onnxruntime(op) for op in graph.ops)


def test_on_the_cpu_it_rounds_as_onnxruntime() -> None:
    (segment,) = partition(_network(), None).segments
    assert all(_follows_onnxruntime(op) for op in segment.graph.ops)


def test_beside_what_only_uint8_kernels_compute_all_is_as_they_compute_it() -> None:
    """A file has one element type: with weights that have a zero point it is uint8, in
    which averages and resizes round as in no file of int8.
    """
    rng = np.random.default_rng(3)
    build = Builder("uint8 weights")
    scale = Quant.per_tensor(0.02, -3)
    x = build.input("x", TensorType((1, 24, 24, 8), "int8", scale))
    w = rng.integers(-99, 99, (8, 3, 3, 8)).astype(np.int8)
    for zero_point in (0, 11):
        quant = Quant.per_tensor(0.003, zero_point)
        weights = build.const(w, f"w{zero_point}", quant)
        conv = Conv2D(pads=(1, 1, 1, 1), rounding=Rounding.ONNXRUNTIME)
        x = build.add(conv, [x, weights], f"conv{zero_point}", scale)
        pool = AveragePool2D((2, 2), (2, 2), rounding=Rounding.ONNXRUNTIME_UINT8)
        x = build.add(pool, [x], quant=scale)
        x = build.add(ResizeBilinear((24, 24), rounding=Rounding.ONNXRUNTIME), [x])
    build.graph.outputs = [x]
    parts = partition(build.graph, "usb3", wishes=Wishes(everything=True))
    (segment,) = parts.segments
    assert segment.place == "edgetpu"
    inputs = random_inputs(segment.graph)
    want = interp(segment.graph, inputs)
    assert_agree(run_tflite(segment.graph, inputs), want)


def _all_laws() -> Graph:
    """A network with each operation whose arithmetic on the Edge TPU is known."""
    rng = np.random.default_rng(5)
    build = Builder("laws")
    quant = Quant.per_tensor(0.0234, -7)
    x = build.input("x", TensorType((1, 9, 9, 8), "int8", quant))
    w = build.const(
        rng.integers(-99, 99, (8, 3, 3, 8)).astype(np.int8),
        "w",
        Quant.per_tensor(0.0031),
    )
    pads = (1, 1, 1, 1)
    conv = build.add(Conv2D(pads=pads, act="relu6"), [x, w], quant=quant)
    other = Quant.per_tensor(0.0417, 12)
    total = build.add(Add(act="relu"), [x, conv], quant=other)
    gate = build.add(Logistic(), [total], quant=LOGISTIC_QUANT)
    product = build.add(Mul(), [total, gate], quant=quant)
    bent = build.add(Tanh(), [product], quant=TANH_QUANT)
    again = build.add(Quantize(), [bent], quant=quant)
    short = build.add(Relu6(), [again], quant=quant)
    build.graph.outputs = [build.add(AveragePool2D((9, 9), (1, 1)), [short])]
    return build.graph


def test_the_chips_arithmetic_and_back() -> None:
    graph = _all_laws()
    chip = as_chip(graph)
    pairs = zip(graph.ops, chip.ops, strict=True)
    assert all(op.spec != on_chip.spec for op, on_chip in pairs)
    assert as_tflite(chip) == graph
    wanted: dict[str, Array] = {}

    def observe(v: Value, array: Array) -> None:
        wanted[v.name] = array

    inputs = random_inputs(graph)
    interp(graph, inputs, observe)
    wanted.update(inputs)
    # From the same integers an operation is a step apart at most.
    values = {v: wanted[v.name] for v in chip.values() if v.const is None}
    for op in chip.ops:
        (got,) = run_op(op, values)
        steps = np.abs(got.astype(np.int32) - wanted[op.output.name])
        assert steps.max() <= 1, op


def test_segments_have_the_chips_arithmetic_on_request() -> None:
    graph = _all_laws()
    wishes = Wishes(everything=True, as_chip=True)
    segments = partition(graph, "usb3", wishes=wishes).segments
    on_chip = [s for s in segments if s.place == "edgetpu"]
    assert on_chip
    for segment in on_chip:
        assert segment.graph != segment.in_tflite
        inputs = random_inputs(segment.graph)
        want = interp(segment.in_tflite, inputs)
        assert_agree(run_tflite(segment.in_tflite, inputs), want)


@given(st.floats(-12, 12, width=32))
def test_curves(x: float) -> None:
    """The polynomials are within a hundredth of a step of the functions, as others found."""
    real = np.array([x], np.float32)
    logistic = 1 / (1 + np.exp(-real.astype(np.float64)))
    assert abs(LOGISTIC(real) - logistic).max() * 256 < 0.02
    assert abs(TANH(real) - np.tanh(real.astype(np.float64))).max() * 128 < 0.05


def test_a_sum_by_the_formula() -> None:
    """ADD by hand: integer weights, one float32 factor, ties to even."""
    a, b, y = (Quant.per_tensor(s, z) for s, z in ((0.3, 4), (0.09, -9), (0.5, -2)))
    build = Builder("sum")
    u = build.input("u", TensorType((256, 1), "int8", a))
    v = build.input("v", TensorType((1, 256), "int8", b))
    total = build.add(Add(rounding=Rounding.EDGETPU), [u, v], "y", y)
    build.graph.outputs = [total]
    steps = np.arange(-128, 128).astype(np.int8)
    got = interp(build.graph, {"u": steps[:, None], "v": steps[None, :]})["y"]
    u_steps, v_steps = (steps.astype(np.int64) - z for z in (4, -9))
    exact = 10 * u_steps[:, None] + 3 * v_steps[None, :]
    third = np.float32(np.float32(0.3) / np.float32(10)) * np.float32(
        np.float32(1) / np.float32(0.5)
    )
    real = exact.astype(np.float32) * third
    np.testing.assert_array_equal(got, np.clip(np.rint(real) - 2, -128, 127))
