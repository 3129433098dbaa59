"""Weights that are rounded to float16 by what their layers read."""

from __future__ import annotations

from functools import partial

import numpy as np

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.float16.weights import rounded_weights
from edgec.ir import Array, Builder, Graph, Op, TensorType, Value, interp
from edgec.ir.interp import run_op
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.matmul import FullyConnected

SIZE = 16
CHANNELS = 4


def _flat(seed: int) -> dict[str, Array]:
    """A picture of few contrasts: the pixels of a window are nearly alike."""
    rng = np.random.default_rng(seed)
    means = rng.uniform(1, 3, CHANNELS)
    noise = rng.normal(scale=0.05, size=(1, SIZE, SIZE, CHANNELS))
    return {"x": (means + noise).astype(np.float32)}


def _net() -> Graph:
    """A dense and a depthwise convolution, and a layer whose bias is computed."""
    rng = np.random.default_rng(1)
    build = Builder("net")
    x = build.input("x", TensorType((1, SIZE, SIZE, CHANNELS)))

    def constant(name: str, *shape: int) -> Value:
        values = rng.normal(size=shape).astype(np.float32)
        return build.const(values, name)

    dense = [x, constant("w", 8, 3, 3, CHANNELS), constant("b", 8)]
    deep = [x, constant("v", 1, 3, 3, CHANNELS), constant("c", CHANNELS)]
    bias = build.input("bias", TensorType((5,)))
    full = [x, constant("u", 5, SIZE * SIZE * CHANNELS // 4), bias]
    build.graph.outputs = [
        build.add(Conv2D(), dense, "dense"),
        build.add(DepthwiseConv2D(), deep, "deep"),
        build.add(FullyConnected(keep_dims=False), full, "full"),
    ]
    return build.graph


def _halves(graph: Graph) -> dict[str, Array]:
    bias = {"bias": np.ones(5, np.float32)}
    samples = [{**_flat(seed), **bias} for seed in range(4)]
    return rounded_weights(graph.ops, partial(interp, graph), samples)


def _result(op: Op, x: Array, constants: list[Array]) -> Array:
    """The result of an op, exact but for its constants."""
    arrays = [x, *constants]
    env = dict(zip(op.inputs, arrays, strict=True))
    for v in op.inputs:
        v.const = None
    return run_op(op, env)[0]


def test_each_weight_is_one_of_its_two_neighbours() -> None:
    graph = _net()
    halves = _halves(graph)
    assert set(halves) == {"w", "b", "v", "c", "u"}
    for v in graph.values():
        if v.const is None:
            continue
        half = halves[v.name]
        assert half.dtype == np.float16
        assert half.shape == v.type.shape
        spacing = np.spacing(np.abs(v.const).astype(np.float16)).astype(np.float32)
        assert (np.abs(half.astype(np.float32) - v.const) <= 1.01 * spacing).all()
        assert not np.array_equal(half, v.const.astype(np.float16))


def test_errors_cancel_where_pixels_are_alike_on_a_picture_that_was_no_sample() -> None:
    halves = _halves(_net())
    unseen = _flat(99)["x"]
    for i in range(2):
        op = _net().ops[i]
        exact = [v.const for v in op.inputs[1:] if v.const is not None]
        nearest = [c.astype(np.float16).astype(np.float32) for c in exact]
        chosen = [halves[v.name].astype(np.float32) for v in op.inputs[1:]]
        want = _result(op, unseen, exact)
        by_nearest = np.square(_result(op, unseen, nearest) - want).mean()
        by_choice = np.square(_result(op, unseen, chosen) - want).mean()
        assert by_choice < by_nearest / 4
