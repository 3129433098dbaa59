"""Channels that can have no factor get tensors of their own."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgec.analysis.splittable import splittable_paths
from edgec.ir import Graph, interp, verify
from edgec.ops.unary import HardSwish, Relu
from edgec.quantize.change.channel_groups import part, whole
from edgec.quantize.change.domains import int8_ops
from edgec.quantize.change.steps.equalize import Equalize
from edgec.quantize.change.steps.minmax import MinMaxRanges
from edgec.quantize.change.steps.precision import Precision
from edgec.quantize.change.steps.separate import Separate
from edgec.quantize.float_ops.op_groups import op_groups
from edgec.schedule.kernels.dwconv2d import BLOCK
from tests.quantize.nets import Net, db, samples, swish, worked


def alike(one: Graph, other: Graph) -> None:
    """The same function, but for the order of sums."""
    for s in samples(one, 3):
        for name, y in interp(one, s).items():
            np.testing.assert_allclose(
                interp(other, s)[name], y, rtol=1e-4, atol=1e-4 * float(np.abs(y).max())
            )


def test_channels_that_reach_as_far_are_together_and_the_function_is_the_same() -> None:
    graph = swish()
    work = worked(graph, Separate())
    (parts,) = work.parts.values()
    assert 1 < len(parts) <= 3
    assert all(len(p) % 4 == 0 for p in parts)
    w = graph.ops[0].inputs[1].const
    assert w is not None
    sizes = np.abs(w).max((1, 2, 3))
    assert all(sizes[a].max() < 3 * sizes[b].min() for a, b in pairwise(parts))
    verify(work.graph, "imported")
    alike(graph, work.graph)


def test_what_equalizing_cannot_do_is_worth_much() -> None:
    graph = swish(sizes=(0.02, 20.0))
    equalized = db(worked(graph, Equalize(power=1.0), MinMaxRanges()), graph)
    assert (
        db(worked(graph, Separate(), Equalize(power=1.0), MinMaxRanges()), graph)
        > equalized + 6
    )


@given(st.permutations(range(16)), st.integers(1, 3), st.booleans())
def test_any_parts_of_a_path_compute_what_it_did(
    order: list[int], count: int, gate: bool
) -> None:
    graph = swish(gate=gate)
    twin = graph.copy()
    (path,) = splittable_paths(twin)
    orders = part(twin, path, np.array_split(np.array(order), count))
    assert orders is not None
    verify(twin, "imported")
    alike(graph, twin)


def test_kernels_get_no_fewer_channels_than_they_compute_at_once() -> None:
    graph = swish(16, (0.02, 20.0))
    work = worked(graph, Separate())
    (parts,) = work.parts.values()
    assert min(map(len, parts)) == 4
    made = [
        op.output.type.shape[3]
        for op in work.graph.ops
        if op.kind == "depthwise_conv2d"
    ]
    assert made == [max(BLOCK, len(p)) for p in parts]
    alike(graph, work.graph)


def test_what_is_parted_is_not_parted_again() -> None:
    graph = swish(48, (0.02, 20.0))
    once = worked(graph, Separate(worth=3.0))
    twice = worked(graph, Separate(worth=3.0), Separate(worth=1.01))
    assert once.parts
    assert {*twice.parts} == {*once.parts}
    assert twice.graph == once.graph


def returned() -> Graph:
    """What the depthwise convolution writes is an output: its order is not ours to
    choose.
    """
    graph = swish()
    graph.outputs = [
        *graph.outputs,
        next(op.output for op in graph.ops if op.kind == "depthwise_conv2d"),
    ]
    return graph


def read_by_all() -> Graph:
    """No depthwise convolution reads it."""
    net = Net("dense", 3)
    return net.done(
        net.conv(
            net.op(HardSwish(), net.conv(net.input(1, 16, 16, 3), 16, act="none")),
            6,
            act="none",
        )
    )


def with_a_factor() -> Graph:
    """Through a relu, factors do."""
    net = Net("relu", 3)
    return net.done(
        net.conv(
            net.depthwise(
                net.op(Relu(), net.conv(net.input(1, 16, 16, 3), 16, act="none"))
            ),
            4,
        )
    )


@pytest.mark.parametrize(
    "graph",
    [returned(), read_by_all(), with_a_factor(), swish(sizes=(1.0, 1.1)), swish(4)],
)
def test_others_stay_as_they_are(graph: Graph) -> None:
    work = worked(graph, Separate())
    assert not work.parts
    assert work.graph == graph


def test_of_few_vectors_nothing_is_known() -> None:
    assert not worked(swish(), Separate(), count=0).parts


def test_parts_are_called_by_the_name_of_the_whole() -> None:
    graph = swish()
    names = tuple(op.output.name for op in graph.ops[:3])
    work = worked(graph, Separate(), Precision(names))
    floats = {op.output.name for op in work.precision}
    assert {whole(name) for name in floats} == {*names}
    parts = next(iter(work.parts.values()))
    # and what joins them
    assert len(floats) == 3 * len(parts) + sum(len(p) < 8 for p in parts) + 1
    one = next(name for name in floats if name != whole(name))
    assert [
        op.output.name for op in worked(graph, Separate(), Precision((one,))).precision
    ] == [one]
    every = op_groups(work.graph, int8_ops(work.graph, work.extremes()))
    assert len([u for u in every if names[0] in u.names]) == 1
    assert sorted(n for u in every for n in u.names) == sorted(
        {n for u in every for n in u.names}
    )
