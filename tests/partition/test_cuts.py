"""The choice of cuts, against all that there are on small random graphs, and against
the greedy one on real models.
"""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from edgec_partitioner.cost import LINKS, Link
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.cuts import choose
from edgec_partitioner.greedy import connected, greedy
from edgec_partitioner.partition import WORTHWHILE, partition
from edgec_partitioner.regions import Costs, Places, regions, staged
from edgec_partitioner.stage_model import relaxed
from edgec_partitioner.stage_problem import problem
from edgec_partitioner.verdicts import Place, verdicts
from hypothesis import given, settings
from hypothesis import strategies as st

from edgec.compiler.lower import lower
from edgec.compiler.place import cpu_cost
from edgec.ir import Builder, Graph, Op, OpDef, Quant, TensorType, Value
from edgec.ops.binary import Add
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D
from edgec.ops.matmul import FullyConnected
from edgec.ops.pad import Pad
from edgec.ops.pool import MaxPool2D
from edgec.ops.resize import ResizeNearest
from edgec.ops.slice import Slice
from edgec.options.compile import CompileOptions
from edgec.quantize import quantize
from tests.quantize.nets import NETS, samples

Q = Quant.per_tensor(0.1, 3)
PLACES: tuple[Place, Place] = ("cpu", "edgetpu")


@dataclass(frozen=True)
class GivenCost(CpuCost):
    """A CPU on which each op takes a time of its own, by the name of what it writes."""

    ms: tuple[tuple[str, float], ...] = ()

    def op_ms(self, op: Op) -> float:
        return dict(self.ms)[op.outputs[0].name]


Case = tuple[Graph, dict[Op, Place], Costs]


@st.composite
def cases(draw: st.DrawFn, most: int = 5) -> Case:
    """A graph of values of many sizes, what the rules allow, and costs in which
    everything counts.
    """
    build = Builder("dag")
    known: list[Value] = [
        build.input(n, TensorType((1, 4, 4, c), "int8", Q))
        for n, c in (("a", 3), ("b", 8))
    ]
    for _ in range(draw(st.integers(1, most))):
        pair = [draw(st.sampled_from(known)) for _ in range(2)]
        same = pair[0].type.shape == pair[1].type.shape and draw(st.booleans())
        known.append(build.add(Add() if same else Concat(3), pair, quant=Q))
    build.graph.outputs = draw(
        st.lists(st.sampled_from(known[2:]), min_size=1, max_size=2, unique=True)
    )
    graph = build.graph
    allowed: dict[Op, Place] = {
        op: draw(st.sampled_from(["cpu", "edgetpu", "edgetpu"])) for op in graph.ops
    }
    price = st.floats(0, 3)
    link = Link("drawn", draw(price), 1e3 * draw(price), 1e3 * draw(price), 1.0)
    ms = tuple((op.outputs[0].name, draw(price)) for op in graph.ops)
    return graph, allowed, Costs(link, GivenCost(ms=ms))


def all_stages(graph: Graph, allowed: Places, most: int) -> Iterator[dict[Op, int]]:
    """Every way of giving each op a stage that its place and what it reads allow."""
    producer = graph.producers()
    for numbers in itertools.product(range(most), repeat=len(graph.ops)):
        stage = dict(zip(graph.ops, numbers, strict=True))
        if all(
            s % 2 == 0 or allowed[op] == "edgetpu" for op, s in stage.items()
        ) and all(
            stage[producer[v]] <= stage[op]
            for op in graph.ops
            for v in op.inputs
            if v in producer
        ):
            yield stage


@given(cases())
@settings(max_examples=40)
def test_no_other_choice_is_better(case: Case) -> None:
    graph, allowed, costs = case
    cuts = choose(graph, allowed, costs)
    best = min(
        costs.total_ms(staged(graph, s))
        for s in all_stages(graph, allowed, 2 * -(-len(graph.ops) // 2) + 1)
    )
    assert cuts.total_ms == pytest.approx(best, abs=1e-4)
    assert cuts.bound_ms == pytest.approx(best, abs=1e-4)
    assert cuts.gap == 0


@given(cases(most=9))
@settings(max_examples=60)
def test_a_choice_is_legal_and_never_worse_than_the_greedy_one(case: Case) -> None:
    graph, allowed, costs = case
    cuts = choose(graph, allowed, costs)
    parts = staged(graph, cuts.stages)
    assert cuts.total_ms == costs.total_ms(parts)
    assert (
        cuts.bound_ms
        <= cuts.total_ms
        <= costs.total_ms(staged(graph, greedy(graph, allowed, costs)))
    )
    producer = graph.producers()
    for op in graph.ops:
        assert cuts.places[op] == "cpu" or allowed[op] == "edgetpu"
        assert all(
            cuts.stages[producer[v]] <= cuts.stages[op]
            for v in op.inputs
            if v in producer
        )
    demoted = {op for group in cuts.demoted for op in group.ops}
    assert demoted == {op for op in graph.ops if allowed[op] != cuts.places[op]}
    assert all(group.lost_ms >= 0 for group in cuts.demoted)
    assert [r.place for r in parts] == [
        PLACES[s % 2] for s in sorted(set(cuts.stages.values()))
    ]


@given(cases())
@settings(max_examples=60)
def test_the_bound_for_any_number_of_segments_holds(case: Case) -> None:
    graph, allowed, costs = case
    floor = relaxed(problem(graph, allowed, costs)).bound_ms
    overhead = costs.link.invoke
    for stage in all_stages(graph, allowed, 4):
        parts = staged(graph, stage)
        segments = sum(r.place == "edgetpu" for r in parts)
        assert costs.total_ms(parts) - segments * overhead >= floor - 1e-4


def test_an_op_waits_for_a_segment_that_it_can_share() -> None:
    """`late` could run first, with `one`, but only `two` reads it: in its segment
    nothing of it is transferred.
    """
    build = Builder("delay")
    t = TensorType((1, 8, 8, 8), "int8", Q)
    a = build.input("a", t)
    b = build.input("b", t)
    one = build.add(Add(), [a, a], "one", quant=Q)
    cpu = build.add(Add(), [one, one], "cpu", quant=Q)
    late = build.add(Add(), [b, b], "late", quant=Q)
    build.graph.outputs = [build.add(Add(), [cpu, late], "two", quant=Q)]
    graph = build.graph
    allowed: dict[Op, Place] = {
        op: PLACES[op.outputs[0].name != "cpu"] for op in graph.ops
    }
    costs = Costs(LINKS["usb3"], CpuCost(1e-6))
    cuts = choose(graph, allowed, costs)
    stage = {op.outputs[0].name: s for op, s in cuts.stages.items()}
    assert stage == {"one": 1, "cpu": 2, "late": 3, "two": 3}
    assert cuts.total_ms < costs.total_ms(regions(graph, allowed))


def test_nothing_may_pay() -> None:
    graph = NETS["chain"]()
    q = quantize(graph, samples(graph))
    allowed = {op: v.place() for op, v in verdicts(q).items()}
    costs = Costs(LINKS["usb2"], CpuCost())
    cuts = choose(q, allowed, costs)
    assert set(cuts.places.values()) == {"cpu"}
    (group,) = cuts.demoted
    forced = costs.total_ms(regions(q, allowed))
    assert group.lost_ms == pytest.approx(forced - cuts.total_ms)


def test_parameters_beyond_the_cache_are_weighed() -> None:
    """Of two layers of 4 MB one streams, and over USB 2 that takes longer than the CPU
    does.
    """
    build = Builder("dense")
    t = TensorType((1, 2000), "int8", Q)
    x = build.input("x", t)
    weights = np.ones((2000, 2000), np.int8)
    for name in ("first", "second"):
        w = build.const(weights, f"{name}_w", Quant.per_tensor(0.1, 0))
        x = build.add(FullyConnected(), [x, w], name, quant=Q)
    build.graph.outputs = [x]
    allowed: dict[Op, Place] = dict.fromkeys(build.graph.ops, "edgetpu")
    slow = choose(build.graph, allowed, Costs(LINKS["usb2"], CpuCost(0.01)))
    fast = choose(build.graph, allowed, Costs(LINKS["usb2"], CpuCost(0.4)))
    assert list(slow.places.values()) == ["edgetpu", "edgetpu"]
    assert sorted(fast.places.values()) == ["cpu", "edgetpu"]


def test_what_depends_on_what_takes_little_memory() -> None:
    """A set of Python's for each node of a long network would take gigabytes: 67 MB for
    these.
    """
    build = Builder("long")
    x = build.input("x", TensorType((1, 4, 4, 8), "int8", Q))
    for _ in range(1500):
        x = build.add(Add(), [x, x], quant=Q)
    build.graph.outputs = [x]
    tracemalloc.start()
    p = problem(
        build.graph,
        dict.fromkeys(build.graph.ops, "edgetpu"),
        Costs(LINKS["usb3"], CpuCost()),
    )
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    first = p.nodes[0]
    last = p.nodes[-1]
    assert (
        len(p.later[first]),
        len(p.earlier[first]),
        len(p.later[last]),
        len(p.earlier[last]),
    ) == (1499, 0, 0, 1499)
    assert most < 20e6


def test_connected_parts() -> None:
    graph = NETS["joined"]()
    assert len(list(connected(graph.ops, graph.producers()))) == 1
    ends = [graph.ops[0], graph.ops[-1]]
    assert len(list(connected(ends, graph.producers()))) == 2


REAL = (
    "movenet_lightning_i8/movenet_lightning_i8.tflite",
    "omv_blazeface_i8/omv_blazeface_i8.tflite",
)


@pytest.mark.shared
@pytest.mark.parametrize("file", REAL)
def test_real_models_are_cut_better_than_by_greed(shared: Path, file: str) -> None:
    lowered = lower(shared / "models" / file, CompileOptions(target="pi4+coral"))
    parts = lowered.partition
    assert parts.cuts is not None
    assert parts.link is not None
    costs = Costs(parts.link, cpu_cost(lowered.target).within(parts.graph))
    allowed: dict[Op, Place] = {
        op: PLACES[all(r.rule == WORTHWHILE for r in verdict.refusals)]
        for op, verdict in parts.verdicts.items()
    }
    by_greed = costs.total_ms(staged(parts.graph, greedy(parts.graph, allowed, costs)))
    assert parts.cuts.total_ms < by_greed
    assert parts.cuts.gap < 0.01
    assert costs.total_ms(parts.regions) == pytest.approx(parts.cuts.total_ms)


def crop(x: TensorType) -> OpDef:
    """The upper left quarter of an image."""
    _, h, w, c = x.shape
    return Slice((0, 0, 0, 0), (1, h // 2, w // 2, c), (1, 1, 1, 1))


def enlarged(x: TensorType) -> OpDef:
    _, h, w, _ = x.shape
    return ResizeNearest((2 * h, 2 * w), "asymmetric")


def pooled(_: TensorType) -> OpDef:
    return MaxPool2D((2, 2), (2, 2))


def bordered(x: TensorType) -> OpDef:
    _, h, w, _ = x.shape
    return Pad(((0, 0), (h // 2, h // 2), (w // 2, w // 2), (0, 0)))


@pytest.mark.parametrize(
    ("make", "sides"),
    [
        (crop, ("cpu", "edgetpu")),
        (pooled, ("cpu", "edgetpu")),
        (enlarged, ("edgetpu", "cpu")),
        (bordered, ("edgetpu", "cpu")),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
@pytest.mark.parametrize("link", ["usb2", "usb3"])
def test_a_segment_has_its_borders_where_few_bytes_cross(
    make: Callable[[TensorType], OpDef], sides: tuple[Place, Place], link: str
) -> None:
    """What shrinks an image comes before a segment and at its end, what enlarges it at
    its beginning and behind it: these ops cost the CPU less than their bytes the link.
    """
    build = Builder("border")
    x = build.input("x", TensorType((1, 64, 64, 12), "int8", Q))
    x = build.add(make(x.type), [x], "first", quant=Q)
    w = build.const(np.ones((12, 3, 3, 12), np.int8), "w", Quant.per_tensor(0.01, 0))
    # Work that pays for the way there and back.
    layers = {"usb2": 48, "usb3": 24}[link]
    for i in range(layers):
        x = build.add(Conv2D((1, 1), (1, 1, 1, 1)), [x, w], f"layer{i}", quant=Q)
    build.graph.outputs = [build.add(make(x.type), [x], "last", quant=Q)]

    allowed = {op: v.place() for op, v in verdicts(build.graph).items()}
    assert set(allowed.values()) == {"edgetpu"}
    cuts = choose(build.graph, allowed, Costs(LINKS[link], CpuCost()))
    assert cuts.gap == 0
    places = {op.outputs[0].name: place for op, place in cuts.places.items()}
    assert {places[f"layer{i}"] for i in range(layers)} == {"edgetpu"}
    assert (places["first"], places["last"]) == sides


def test_floats_never_cross_the_link() -> None:
    """A conversion is on the CPU's side, so that int8 is sent, a quarter of the bytes."""
    for name in NETS:
        graph = NETS[name]()
        parts = partition(quantize(graph, samples(graph)), "usb3", CpuCost(1e-5))
        for s in parts.segments:
            if s.place == "edgetpu":
                crossing = (*s.graph.inputs, *s.graph.outputs)
                assert {v.type.dtype for v in crossing} == {"int8"}
