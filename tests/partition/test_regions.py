"""Regions of random graphs with random verdicts, and segments that compute what the
whole graph does.
"""

from __future__ import annotations

import numpy as np
import pytest
from edgec_partitioner.choice import Wishes
from edgec_partitioner.cost import LINKS
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.partition import partition
from edgec_partitioner.regions import regions, staged, stages
from edgec_partitioner.segments import Segment, split
from edgec_partitioner.verdicts import Place
from hypothesis import given, settings
from hypothesis import strategies as st

from edgec.ir import Array, Builder, Graph, Op, Quant, TensorType, Value, interp
from edgec.ops.binary import Add
from edgec.quantize import quantize
from tests.quantize.nets import NETS, samples

Q = Quant.per_tensor(0.1, 3)


@st.composite
def dags(draw: st.DrawFn) -> tuple[Graph, dict[Op, Place]]:
    """Additions that read any two earlier values, a place for each, and any values as
    outputs.
    """
    build = Builder("dag")
    t = TensorType((1, 2, 2, 4), "int8", Q)
    known: list[Value] = [build.input("a", t), build.input("b", t)]
    for _ in range(draw(st.integers(1, 12))):
        pair = [known[draw(st.integers(0, len(known) - 1))] for _ in range(2)]
        known.append(build.add(Add(), pair, quant=Q))
    build.graph.outputs = draw(
        st.lists(st.sampled_from(known[2:]), min_size=1, max_size=3, unique=True)
    )
    places: list[Place] = ["cpu", "edgetpu"]
    return build.graph, {op: draw(st.sampled_from(places)) for op in build.graph.ops}


def chained(segments: list[Segment], inputs: dict[str, Array]) -> dict[str, Array]:
    """Run segments one after the other."""
    values = dict(inputs)
    for s in segments:
        values.update(interp(s.graph, {v.name: values[v.name] for v in s.graph.inputs}))
    return values


@given(dags())
@settings(max_examples=150, deadline=None)
def test_regions_are_an_order_of_convex_parts(
    case: tuple[Graph, dict[Op, Place]],
) -> None:
    graph, places = case
    parts = regions(graph, places)
    assert sorted(map(id, (op for r in parts for op in r.ops))) == sorted(
        map(id, graph.ops)
    )
    where = {op: i for i, r in enumerate(parts) for op in r.ops}
    assert all(places[op] == r.place for r in parts for op in r.ops)
    producer = graph.producers()
    for op in graph.ops:
        for v in op.inputs:
            if v in producer:
                assert where[producer[v]] <= where[op]
    ready = set(graph.inputs)
    for r in parts:
        assert set(r.inputs) <= ready
        ready |= set(r.outputs)
    assert set(graph.outputs) <= ready


@given(dags())
@settings(max_examples=150, deadline=None)
def test_stages_count_the_changes_of_place(case: tuple[Graph, dict[Op, Place]]) -> None:
    graph, places = case
    stage = stages(graph, places)
    producer = graph.producers()
    for op in graph.ops:
        assert stage[op] % 2 == (places[op] == "edgetpu")
        above = [producer[v] for v in op.inputs if v in producer]
        needed = max((stage[a] + (places[a] != places[op]) for a in above), default=0)
        assert stage[op] in (needed, 1)


@given(dags())
@settings(max_examples=60, deadline=None)
def test_chained_segments_are_the_graph(case: tuple[Graph, dict[Op, Place]]) -> None:
    graph, places = case
    rng = np.random.default_rng(0)
    inputs = {
        v.name: rng.integers(-128, 128, v.type.shape).astype(np.int8)
        for v in graph.inputs
    }
    got = chained(split(graph, places), inputs)
    for name, y in interp(graph, inputs).items():
        np.testing.assert_array_equal(got[name], y)


@given(dags())
@settings(max_examples=60, deadline=None)
def test_given_stages_are_the_regions(case: tuple[Graph, dict[Op, Place]]) -> None:
    """Doubled numbers leave gaps and say the same; an op that is moved to a later stage
    takes its values there.
    """
    graph, places = case
    stage = stages(graph, places)
    assert staged(graph, {op: s + 2 * (s // 2) for op, s in stage.items()}) == regions(
        graph, places
    )
    last = graph.ops[-1]
    late = staged(graph, {**stage, last: stage[last] + 2 * len(graph.ops)})
    assert late[-1].ops == (last,)
    assert set(late[-1].inputs) == set(last.inputs)


@pytest.mark.parametrize("link", [None, *LINKS])
@pytest.mark.parametrize("name", NETS)
def test_a_partitioned_net_is_the_net(name: str, link: str | None) -> None:
    graph = NETS[name]()
    q = quantize(graph, samples(graph))
    parts = partition(q, link, CpuCost(1e-5))  # a CPU so slow that everything pays
    assert [s.name for s in parts.segments] == [
        f"seg{i}" for i in range(len(parts.segments))
    ]
    inputs = samples(graph, 1, seed=5)[0]
    got = chained(list(parts.segments), inputs)
    for key, y in interp(q, inputs).items():
        np.testing.assert_array_equal(got[key], y)
    if link is None:
        assert len(parts.segments) == 1
        return
    assert {op.kind for op, s in parts.segment_of.items() if s.place == "cpu"} <= {
        "quantize",
        "dequantize",
    }
    for s in parts.segments:
        assert (s.place == "edgetpu") == (s.est is not None)
        if s.place == "edgetpu":
            assert all(
                v.type.dtype == "int8" for v in (*s.graph.inputs, *s.graph.outputs)
            )


def test_a_region_that_does_not_pay_stays_on_the_cpu() -> None:
    graph = NETS["chain"]()
    parts = partition(quantize(graph, samples(graph)), "usb2")
    assert [s.place for s in parts.segments] == ["cpu"]
    assert {v.refusals[0].rule for v in parts.verdicts.values()} >= {"worthwhile"}


def test_everything_goes_to_the_edge_tpu_if_that_is_wished() -> None:
    graph = NETS["chain"]()
    q = quantize(graph, samples(graph))
    parts = partition(q, "usb2", wishes=Wishes(everything=True))
    assert parts.cuts is None
    assert {op for op, v in parts.verdicts.items() if v.place() == "edgetpu"} == {
        op for op, s in parts.segment_of.items() if s.place == "edgetpu"
    }
    assert "worthwhile" not in {
        r.rule for v in parts.verdicts.values() for r in v.refusals
    }
    slow = partition(q, "usb2", CpuCost(1e-5))  # where all pays anyhow
    assert [(s.place, len(s.graph.ops)) for s in parts.segments] == [
        (s.place, len(s.graph.ops)) for s in slow.segments
    ]


def test_float_graphs_stay_on_the_cpu() -> None:
    parts = partition(NETS["residual"](), "usb3")
    assert [s.place for s in parts.segments] == ["cpu"]
    assert all(v.refusals[0].rule == "int8_tensors" for v in parts.verdicts.values())


def test_a_constant_output_is_written_by_a_segment() -> None:
    graph = NETS["chain"]()
    answer = Value("answer", TensorType((2,)), np.array([4, 2], np.float32))
    graph.outputs += [answer, answer]
    names = [v.name for v in graph.outputs]
    for link in (None, "usb3"):
        parts = partition(graph, link)
        assert [v.name for v in parts.graph.outputs] == names
        got = chained(list(parts.segments), samples(graph)[0])
        assert got["answer"].tolist() == [4, 2]


def test_a_graph_without_ops_is_one_segment() -> None:
    build = Builder("empty")
    build.graph.outputs = [build.input("x", TensorType((2,)))]
    for link in (None, "usb3"):
        (only,) = partition(build.graph, link).segments
        assert [v.name for v in only.graph.inputs] == ["x"]
        # the model's output is its input, which nothing writes a second time
        assert not only.graph.outputs
