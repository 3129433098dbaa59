"""Ops of files that ONNX quantized round as onnxruntime on the CPU, and as TFLite where
the Edge TPU runs them.
"""

from __future__ import annotations

import numpy as np
from edgec_partitioner.choice import Wishes
from edgec_partitioner.partition import partition

from edgec.ir import Builder, Graph, Op, Quant, Rounding, TensorType, interp
from edgec.ops.binary import Add
from edgec.ops.conv import Conv2D
from edgec.ops.pool import AveragePool2D
from edgec.ops.resize import ResizeBilinear
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
