"""Copies of operations in the segments that need their results."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain, combinations

import numpy as np
import pytest
from edgec_partitioner.choice import Wishes, best_choice
from edgec_partitioner.cost import LINKS, padded_bytes
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.partition import Partition, partition
from edgec_partitioner.recomputation import (
    NAME,
    Repeated,
    repeated,
    without_idle,
    worth_repeating,
)
from edgec_partitioner.regions import Costs, Places, late, stages
from edgec_partitioner.verdicts import Place
from hypothesis import given, settings
from hypothesis import strategies as st

from edgec.ir import Builder, Graph, Op, Quant, Refusal, TensorType, Value, interp
from edgec.ops.binary import Add
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D
from edgec.ops.pool import MaxPool2D
from edgec.ops.resize import ResizeNearest
from edgec.ops.unary import Relu
from tests.partition.test_cuts import Case, cases
from tests.partition.test_regions import chained

Q = Quant.per_tensor(0.1, 3)
COSTS = Costs(LINKS["usb3"], CpuCost(1e-3))
"""A CPU so slow that all that can runs on the Edge TPU."""


def conv(build: Builder, x: Value, channels: int, name: str) -> Value:
    """A convolution of 3 x 3, with RELU."""
    rng = np.random.default_rng(len(name))
    shape = (channels, 3, 3, x.type.shape[-1])
    weights = rng.integers(-100, 100, shape).astype(np.int8)
    w = build.const(weights, f"{name}_w", Quant.per_tensor(0.002, 0))
    spec = Conv2D((1, 1), (1, 1, 1, 1), act="relu")
    return build.add(spec, [x, w], name, quant=Q)


def unet() -> Graph:
    """A skip connection around an operation for the CPU.

    `skip` has 16 channels, `image` has 3: the segment behind the CPU gets it cheaper
    from the image.
    """
    build = Builder("unet")
    image = build.input("image", TensorType((1, 64, 64, 3), "int8", Q))
    skip = conv(build, image, 16, "skip")
    small = build.add(MaxPool2D((4, 4), (4, 4)), [skip], "small", quant=Q)
    bent = build.add(Relu(), [conv(build, small, 8, "deep")], "bent", quant=Q)
    up = ResizeNearest((64, 64), "asymmetric")
    large = build.add(up, [conv(build, bent, 16, "shallow")], "large", quant=Q)
    joined = build.add(Concat(3), [large, skip], "joined", quant=Q)
    build.graph.outputs = [conv(build, joined, 4, "picture")]
    return build.graph


REFUSAL = Refusal("edgetpu_compiler", "no", "no", None)


def placed(
    graph: Graph, ghz: float, copies: bool = True, refused: Collection[str] = ()
) -> Partition:
    """The partition for USB 3 with `bent`, and more, on the CPU."""
    wishes = Wishes(
        disabled=[] if copies else [NAME],
        refused=dict.fromkeys(["bent", *refused], REFUSAL),
    )
    return partition(graph, "usb3", CpuCost(ghz), wishes)


def total_ms(parts: Partition) -> float:
    assert parts.cuts is not None
    return parts.cuts.total_ms


def same_results(graph: Graph, parts: Partition) -> None:
    """Check that the segments compute what the graph does, bit for bit."""
    rng = np.random.default_rng(0)
    inputs = {
        v.name: rng.integers(-128, 128, v.type.shape).astype(np.int8)
        for v in graph.inputs
    }
    got = chained(list(parts.segments), inputs)
    for name, y in interp(graph, inputs).items():
        np.testing.assert_array_equal(got[name], y)


def names(ops: Mapping[Op, object] | list[Op]) -> set[str]:
    return {op.outputs[0].name for op in ops}


def test_a_segment_repeats_what_is_cheaper_than_its_transfer() -> None:
    graph = unet()
    plain = placed(graph, 1e-3, copies=False)
    parts = placed(graph, 1e-3)
    assert {a.made for a in parts.applied if a.rewrite == NAME} == {("skip_again",)}

    # The skip connection is neither read back nor sent.
    crossing = {v.name for s in parts.segments for v in s.graph.inputs}
    assert crossing == {"image", "deep", "bent"}
    assert "skip" in {v.name for s in plain.segments for v in s.graph.inputs}
    saved = COSTS.transfer_ms(64 * 64 * 13, 64 * 64 * 16)
    assert total_ms(plain) - total_ms(parts) == pytest.approx(saved, rel=0.1)
    for each in (plain, parts):
        same_results(graph, each)


def test_what_would_stay_on_the_cpu_for_its_transfers_leaves_it() -> None:
    """Without copies the two readers of `skip` pay for its transfers on either side,
    and this CPU is fast enough to make it.
    """
    graph = unet()
    plain = placed(graph, 0.5, copies=False)
    parts = placed(graph, 0.5)

    def place(p: Partition, name: str) -> Place:
        (op,) = (op for op in p.graph.ops if op.outputs[0].name == name)
        return p.segment_of[op].place

    assert place(plain, "skip") == "cpu"
    assert place(parts, "skip") == "edgetpu"
    assert place(parts, "skip_again") == "edgetpu"
    assert total_ms(parts) < total_ms(plain)


def test_a_copy_that_the_compiler_refuses_is_not_made() -> None:
    graph = unet()
    parts = placed(graph, 1e-3, refused=["skip_again"])
    on_tpu = [op for op, s in parts.segment_of.items() if s.place == "edgetpu"]
    assert "skip_again" not in names(on_tpu)
    same_results(graph, parts)


@pytest.mark.parametrize("link", LINKS)
def test_copies_never_make_it_slower(link: str) -> None:
    graph = unet()
    refused = {"bent": REFUSAL}
    for ghz in (1e-3, 0.1, 0.5, 1.0, 2.0, 8.0):
        costs = Costs(LINKS[link], CpuCost(ghz))
        plain = best_choice(graph, costs, Wishes(disabled=[NAME], refused=refused))
        both = best_choice(graph, costs, Wishes(refused=refused))
        assert both.total_ms <= plain.total_ms


def subsets(ops: list[Op]) -> Iterator[tuple[Op, ...]]:
    return chain.from_iterable(combinations(ops, n) for n in range(len(ops) + 1))


def cost_of(
    graph: Graph,
    stage: Mapping[Op, int],
    number: int,
    again: tuple[Op, ...],
    costs: Costs,
) -> float:
    """What a segment pays for its inputs if it repeats some ops, by the definition."""
    producer = graph.producers()
    users = graph.users()
    inside = {op for op in graph.ops if stage[op] == number} | set(again)
    total = sum(costs.tpu_op_ms(op) for op in again)
    read = {v for op in inside for v in op.inputs if producer.get(v) not in inside}
    for v in read:
        total += costs.transfer_ms(v.type.nbytes, 0)
        from_tpu = v in producer and stage[producer[v]] % 2 == 1
        on_cpu = any(stage[user] % 2 == 0 for user in users[v])
        if from_tpu and not on_cpu and v not in graph.outputs:
            total += costs.transfer_ms(0, padded_bytes(v))
    return total


@given(cases(most=6))
@settings(max_examples=60, deadline=None)
def test_no_other_set_of_ops_is_cheaper_to_repeat(case: Case) -> None:
    graph, allowed, costs = case
    stage = stages(graph, allowed)
    for number in {s for s in stage.values() if s % 2 == 1}:
        earlier = [op for op in graph.ops if stage[op] < number]
        able = [op for op in earlier if allowed[op] == "edgetpu"]
        best = min(cost_of(graph, stage, number, s, costs) for s in subsets(able))
        found = tuple(worth_repeating(graph, stage, number, allowed, costs))
        assert set(found) <= set(able)
        got = cost_of(graph, stage, number, found, costs)
        assert got == pytest.approx(best, abs=1e-4)


@st.composite
def repetitions(draw: st.DrawFn) -> tuple[Graph, Repeated, dict[Op, int]]:
    """A graph, its form with copies, and stages for that."""
    graph, allowed, _ = draw(cases(most=8))
    # Reading back is so slow that much is repeated.
    slow = Costs(LINKS["usb2"], CpuCost())
    found = repeated(graph, stages(graph, allowed), allowed, slow)
    if found is None:
        found = Repeated(graph, {})
    places: dict[Op, Place] = {}
    for op in found.graph.ops:
        places[op] = draw(st.sampled_from(["cpu", "edgetpu"]))
    stage = stages(found.graph, places)
    return graph, found, late(found.graph, stage, found.original)


@given(repetitions())
@settings(max_examples=60, deadline=None)
def test_copies_compute_the_same(case: tuple[Graph, Repeated, dict[Op, int]]) -> None:
    graph, found, stage = case
    rng = np.random.default_rng(0)
    inputs = {
        v.name: rng.integers(-128, 128, v.type.shape).astype(np.int8)
        for v in graph.inputs
    }
    want = interp(graph, inputs)
    left: Repeated | None = found
    while left is not None:
        got = interp(left.graph, inputs)
        for name, y in want.items():
            np.testing.assert_array_equal(got[name], y)
        # Every op can be in its stage.
        producer = left.graph.producers()
        for op in left.graph.ops:
            for v in op.inputs:
                assert v not in producer or stage[producer[v]] <= stage[op]
        left = without_idle(left, stage)


def two_readers() -> tuple[Graph, Places]:
    """`x` is read before and after `cpu`, and `x` is small to make."""
    build = Builder("two")
    a = build.input("a", TensorType((1, 64, 64, 4), "int8", Q))
    x = build.add(Concat(3), [a] * 6, "x", quant=Q)
    y = build.add(MaxPool2D((4, 4), (4, 4)), [x], "y", quant=Q)
    z = build.add(Relu(), [y], "cpu", quant=Q)
    large = build.add(ResizeNearest((64, 64), "asymmetric"), [z], "large", quant=Q)
    build.graph.outputs = [build.add(Add(), [x, large], "sum", quant=Q)]
    places: dict[Op, Place] = dict.fromkeys(build.graph.ops, "edgetpu")
    places[build.graph.producers()[z]] = "cpu"
    return build.graph, places


def test_a_copy_beside_its_original_is_taken_out() -> None:
    graph, allowed = two_readers()
    found = repeated(graph, stages(graph, allowed), allowed, COSTS)
    assert found is not None
    assert names(found.original) == {"x_again"}
    for place in ("cpu", "edgetpu"):
        # The first call in the loop edits the graph.
        twin = found.copy()
        together = stages(twin.graph, dict.fromkeys(twin.graph.ops, place))
        left = without_idle(twin, together)
        assert left is not None
        assert names(left.graph.ops) == names(graph.ops)
        assert not left.original
    apart = late(
        found.graph, stages(found.graph, _with(found, allowed)), found.original
    )
    assert without_idle(found, apart) is None


def _with(found: Repeated, allowed: Places) -> Places:
    """The places of a graph, for its form with copies."""
    by_name = {op.outputs[0].name: place for op, place in allowed.items()}
    return {
        op: by_name[op.outputs[0].name.removesuffix("_again")] for op in found.graph.ops
    }


def test_a_late_op_is_in_the_segment_of_its_reader() -> None:
    graph, allowed = two_readers()
    found = repeated(graph, stages(graph, allowed), allowed, COSTS)
    assert found is not None
    early = stages(found.graph, _with(found, allowed))
    stage = late(found.graph, early, found.original)
    by_name = {op.outputs[0].name: s for op, s in stage.items()}
    assert by_name == {"x": 1, "x_again": 3, "y": 1, "cpu": 2, "large": 3, "sum": 3}
    (copy,) = found.original
    assert early[copy] == 1
