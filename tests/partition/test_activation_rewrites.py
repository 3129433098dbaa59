"""Rewrites of activations and means, where random graphs do not reach: all inputs, and
when nothing is done.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from edgec_partitioner.legalize import legalize, rewrites

from edgec.ir import Builder, Graph, OpDef, Quant, TensorType, interp
from edgec.ops.activation import Elu, Gelu, HardSigmoid, LeakyRelu, Selu
from edgec.ops.reduce import Mean
from edgec.ops.unary import Abs, HardSwish, Mish, Softplus, Unary
from edgec.quantize.change.params import activation_quant


def one(spec: OpDef, x: TensorType, y: Quant | None = None) -> Graph:
    """A graph of one op."""
    build = Builder("one")
    build.graph.outputs = [build.add(spec, [build.input("x", x)], "y", quant=y)]
    return build.graph


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("gelu", Gelu()),
        ("gelu", Gelu(True)),
        ("hard_sigmoid", HardSigmoid(1 / 6)),
        ("hard_swish", HardSwish()),
        ("tanh_polynomial", Elu()),
        ("tanh_polynomial", Elu(0.5, 2.0)),
        ("tanh_polynomial", Selu()),
        ("tanh_polynomial", Softplus()),
        ("tanh_polynomial", Mish()),
    ],
    ids=lambda v: v if isinstance(v, str) else repr(v),
)
def test_the_bound_holds_over_all_inputs(name: str, spec: OpDef) -> None:
    x = np.linspace(-30, 30, 60001, dtype=np.float32).reshape(1, 1, 1, -1)
    graph = one(spec, TensorType(x.shape))
    result, applied = legalize(graph, exact=False)
    assert [a.rewrite for a in applied] == [name]
    got = interp(result, {"x": x})["y"]
    want = interp(graph, {"x": x})["y"]
    limit = rewrites()[name].bound * np.maximum(1, np.abs(want))
    assert (np.abs(got - want) <= limit).all(), float(np.abs(got - want).max())


@pytest.mark.parametrize(
    "spec",
    [LeakyRelu(0.1), LeakyRelu(0.0), LeakyRelu(2.0), LeakyRelu(-0.25), Abs()],
    ids=repr,
)
def test_two_slopes_fit_every_calibrated_scale(spec: Unary) -> None:
    """Its comparison of all inputs declines none of the scales that the quantizer
    chooses.
    """
    rng = np.random.default_rng(0)
    every = np.arange(-128, 128).astype(np.int8)
    for _ in range(50):
        low = -float(rng.uniform(0.01, 20))
        high = float(rng.uniform(0.01, 20))
        y = spec.f(np.linspace(low, high, 200, dtype=np.float32))
        quants = (
            activation_quant((low, high)),
            activation_quant((float(y.min()), float(y.max()))),
        )
        graph = one(spec, TensorType((256,), "int8", quants[0]), quants[1])
        result, applied = legalize(graph, exact=True)
        assert [a.rewrite for a in applied] == ["two_slopes"]
        np.testing.assert_array_equal(
            interp(result, {"x": every})["y"], interp(graph, {"x": every})["y"]
        )


def test_an_op_that_stayed_float_in_an_int8_graph_is_left_alone() -> None:
    for spec in (LeakyRelu(0.1), Abs()):
        _, applied = legalize(one(spec, TensorType((1, 2, 2, 4))), exact=True)
        assert not applied


def test_a_mean_is_cut_into_as_few_slices_of_whole_lanes_as_map() -> None:
    """A segmentation network's mean over 72 x 128 pixels: six channels would map, four
    are a whole lane.
    """
    x = TensorType((1, 72, 128, 18), "int8", Quant.per_tensor(0.1))
    result, _ = legalize(one(Mean((1, 2)), x, Quant.per_tensor(0.05)), exact=True)
    assert [op.output.type.shape[3] for op in result.ops if op.kind == "mean"] == [
        4,
        4,
        4,
        4,
        2,
    ]


def test_a_mean_of_many_slices_is_pooled_first_where_rounding_is_allowed() -> None:
    """44 x 44 x 1280: 41 slices are more than any join seen mapped.

    Not for int8 files: a pool rounds.
    """
    x = TensorType((1, 44, 44, 1280))
    result, _ = legalize(one(Mean((1, 2)), x), exact=False)
    assert [op.kind for op in result.ops] == ["average_pool2d", "mean"]
    int8 = replace(x, dtype="int8", quant=Quant.per_tensor(0.1))
    result, _ = legalize(one(Mean((1, 2)), int8, Quant.per_tensor(0.05)), exact=True)
    assert [op.kind for op in result.ops].count("mean") > 6
