"""Rewrites before emission are bit-exact, and leave what TFLite can express alone."""

from __future__ import annotations

import numpy as np
import pytest
from edgec_partitioner.legalize import legalize
from edgec_partitioner.verdicts import verdicts

from edgec.ir import Builder, Graph, OpDef, Quant, TensorType, interp
from edgec.ops.conv import Conv2D
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.quantize import Dequantize
from tests.harness import random_inputs, run_tflite
from tests.quantize.nets import NETS, samples

ODD = (1, 1, 1, 1)  # for a 3x3 window at stride 2 on an even size


def pool(spec: OpDef, zero: int) -> Graph:
    build = Builder("pool")
    x = build.input("x", TensorType((1, 8, 8, 4), "int8", Quant.per_tensor(0.1, zero)))
    build.graph.outputs = [build.add(spec, [x])]
    return build.graph


@pytest.mark.parametrize(
    ("spec", "zero"),
    [
        (MaxPool2D((3, 3), (2, 2), ODD), -128),
        (AveragePool2D((3, 3), (2, 2), ODD, count_pads=True), -5),
        (AveragePool2D((3, 3), (1, 1), ODD, count_pads=True), 3),
    ],
)
def test_pools_with_pads_of_their_own(spec: OpDef, zero: int) -> None:
    graph = pool(spec, zero)
    legal = legalize(graph)
    assert [op.kind for op in legal.ops] == ["pad", graph.ops[0].kind]
    assert verdicts(graph)[graph.ops[0]].place == "edgetpu"
    inputs = random_inputs(graph)
    (name,) = (v.name for v in graph.outputs)
    np.testing.assert_array_equal(interp(legal, inputs)[name], interp(graph, inputs)[name])
    np.testing.assert_array_equal(run_tflite(legal, inputs)[name], interp(graph, inputs)[name])


def test_pools_that_no_pad_replaces_stay_on_the_cpu() -> None:
    for spec, zero in ((MaxPool2D((3, 3), (2, 2), ODD), -127), (AveragePool2D((3, 3), (2, 2), ODD), 0)):
        graph = pool(spec, zero)
        assert [op.kind for op in legalize(graph).ops] == [graph.ops[0].kind]
        (refusal,) = verdicts(graph)[graph.ops[0]].refusals
        assert refusal.rule == "same_or_valid_padding"


def test_same_and_valid_pads_stay() -> None:
    graph = NETS["residual"]()
    assert legalize(graph) == graph


def test_float_convolutions_are_padded_with_zero() -> None:
    graph = NETS["odd_pads"]()
    legal = legalize(graph)
    assert [op.kind for op in legal.ops] == ["pad", "conv2d", "pad", "depthwise_conv2d", "conv2d"]
    assert any(isinstance(op.spec, Conv2D) and any(op.spec.pads) for op in graph.ops)
    inputs = samples(graph, 1)[0]
    for name, y in interp(graph, inputs).items():
        np.testing.assert_allclose(interp(legal, inputs)[name], y, rtol=1e-6)


def test_what_the_rules_of_an_op_say_comes_first() -> None:
    build = Builder("border")
    x = build.input("x", TensorType((1, 4), "int8", Quant.per_tensor(0.1)))
    build.graph.outputs = [build.add(Dequantize(), [x])]
    (verdict,) = verdicts(build.graph).values()
    assert verdict.place == "cpu"
    assert verdict.refusals[0].rule == "supported_op"
