"""Legalisation as a whole: it leaves alone what maps, and what no rewrite fits."""

from __future__ import annotations

import numpy as np
import pytest
from edgec_partitioner.legalize import legalize
from edgec_partitioner.verdicts import verdicts

from edgec.ir import Builder, Graph, OpDef, Quant, TensorType, interp
from edgec.ops.conv import Conv2D
from edgec.ops.matmul import FullyConnected
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.quantize import Dequantize
from edgec.ops.transpose_conv import TransposeConv2D
from tests.quantize.nets import NETS, samples

ODD = (1, 1, 1, 1)  # for a 3x3 window at stride 2 on an even size


def pool(spec: OpDef, zero: int) -> Graph:
    build = Builder("pool")
    x = build.input("x", TensorType((1, 8, 8, 4), "int8", Quant.per_tensor(0.1, zero)))
    build.graph.outputs = [build.add(spec, [x])]
    return build.graph


def test_pools_that_no_pad_replaces_stay_on_the_cpu() -> None:
    for spec, zero in (
        (MaxPool2D((3, 3), (2, 2), ODD), -127),
        (AveragePool2D((3, 3), (2, 2), ODD), 0),
    ):
        graph = pool(spec, zero)
        legal, applied = legalize(graph, exact=True)
        assert legal == graph
        assert not applied
        (refusal,) = verdicts(graph)[graph.ops[0]].refusals
        assert refusal.rule == "same_or_valid_padding"


def test_what_maps_stays() -> None:
    graph = NETS["residual"]()
    assert legalize(graph, exact=True)[0] == graph


def test_a_rewrite_can_be_left_out() -> None:
    graph = pool(MaxPool2D((3, 3), (2, 2), ODD), -128)
    assert len(legalize(graph, exact=True)[1]) == 1
    assert not legalize(graph, exact=True, disabled=["odd_pads"])[1]
    assert not legalize(graph, exact=True, skip=[("odd_pads", graph.outputs[0].name)])[
        1
    ]


def test_float_convolutions_are_padded_with_zero() -> None:
    graph = NETS["odd_pads"]()
    legal, applied = legalize(graph, exact=True)
    assert [a.rewrite for a in applied] == ["odd_pads", "odd_pads"]
    assert [op.kind for op in legal.ops] == [
        "pad",
        "conv2d",
        "pad",
        "depthwise_conv2d",
        "conv2d",
    ]
    assert any(isinstance(op.spec, Conv2D) and any(op.spec.pads) for op in graph.ops)
    inputs = samples(graph, 1)[0]
    for name, y in interp(graph, inputs).items():
        np.testing.assert_allclose(interp(legal, inputs)[name], y, rtol=1e-6)


def test_what_the_rules_of_an_op_say_comes_first() -> None:
    build = Builder("border")
    x = build.input("x", TensorType((1, 4), "int8", Quant.per_tensor(0.1)))
    build.graph.outputs = [build.add(Dequantize(), [x])]
    (verdict,) = verdicts(build.graph).values()
    assert verdict.place() == "cpu"
    assert verdict.refusals[0].rule == "supported_op"


@pytest.mark.parametrize("channels", [1, 4])
def test_what_is_empty_has_no_parts(channels: int) -> None:
    """A detector that found nothing, as a file with a batch of 0 has it."""
    build = Builder("empty")
    q = Quant.per_tensor(0.1)
    x = build.input("x", TensorType((0, 5, 1, 3), "int8", q))
    w = build.const(np.ones((channels, 3), np.int8), "w", Quant.per_tensor(0.01))
    spec = FullyConnected(keep_dims=True)
    build.graph.outputs = [build.add(spec, [x, w], quant=q)]
    legal, applied = legalize(build.graph, exact=True)
    assert legal == build.graph
    assert not applied


def test_an_image_without_rows_has_no_parts() -> None:
    """A transposed convolution of it has elements: those of its border."""
    build = Builder("rows")
    q = Quant.per_tensor(0.1)
    x = build.input("x", TensorType((1, 0, 1, 1), "int8", q))
    w = build.const(np.ones((9, 17, 17, 1), np.int8), "w", Quant.per_tensor(0.02))
    b = build.const(np.ones(9, np.int32), "b", Quant.per_tensor(0.002))
    spec = TransposeConv2D((2, 2), (0, 0, 0, 0))
    build.graph.outputs = [build.add(spec, [x, w, b], quant=q)]
    assert build.graph.outputs[0].type.size
    legal, applied = legalize(build.graph, exact=True)
    assert legal == build.graph
    assert not applied
