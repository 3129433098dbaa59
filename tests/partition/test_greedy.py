"""What a move changes, looked at in its surroundings alone, against the whole; and how
the work grows with the ops.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from edgec_partitioner import regions as regions_module
from edgec_partitioner.cost import LINKS, OpWork, op_work
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.cuts import choose
from edgec_partitioner.greedy import Surroundings, blocks, connected, greedy
from edgec_partitioner.partition import partition
from edgec_partitioner.regions import PLACES, Costs, regions
from edgec_partitioner.stage_model import relaxed
from edgec_partitioner.stage_problem import problem
from edgec_partitioner.verdicts import Place, verdicts
from hypothesis import given, settings

from edgec.ir import Builder, Graph, Op, Quant, TensorType, Value
from edgec.ops.binary import Add
from edgec.ops.conv import Conv2D
from edgec.ops.shape import Reshape
from edgec.ops.unary import Neg, Relu
from edgec.quantize.change import scales
from edgec.quantize.change.scales import activation_scales
from tests.partition.test_cuts import Case, all_stages, cases

Q = Quant.per_tensor(0.05, 0)


def chain(count: int, every: int, seed: int = 0) -> Graph:
    """int8 ops one after the other; each `every`-th is one that only the CPU runs."""
    rng = np.random.default_rng(seed)
    build = Builder("chain")
    x = build.input("x", TensorType((1, 16, 16, 32), "int8", Q))
    weight = build.const(
        rng.integers(-127, 128, (32, 1, 1, 32)).astype(np.int8),
        "w",
        Quant.per_tensor(0.01),
    )
    for i in range(count):
        if i % every == every - 1:
            x = build.add(Neg(), [x], quant=Q)
        else:
            if rng.integers(2):
                x = build.add(Conv2D(), [x, weight], quant=Q)
            else:
                x = build.add(Relu(), [x], quant=Q)
    build.graph.outputs = [x]
    return build.graph


def residuals(seed: int) -> tuple[Graph, dict[Op, Place]]:
    """Blocks of a few branches, one after the other, and places drawn for them."""
    rng = np.random.default_rng(seed)
    build = Builder("residuals")
    x = build.input("x", TensorType((1, 8, 8, 8), "int8", Q))
    for _ in range(int(rng.integers(2, 7))):
        known: list[Value] = [x]
        for _ in range(int(rng.integers(1, 4))):
            known.append(
                build.add(Relu(), [known[int(rng.integers(len(known)))]], quant=Q)
            )
        x = known[1]
        for other in known[2:]:
            x = build.add(Add(), [x, other], quant=Q)
    build.graph.outputs = [x]
    graph = build.graph
    return graph, {op: ("cpu", "edgetpu")[int(rng.integers(2))] for op in graph.ops}


@pytest.mark.parametrize("seed", range(40))
def test_a_move_changes_the_total_by_what_its_surroundings_say(seed: int) -> None:
    graph, places = residuals(seed)
    costs = Costs(LINKS["usb3"], CpuCost())
    look = Surroundings(graph, costs)
    producer = graph.producers()
    before = costs.total_ms(regions(graph, places))
    for place, other in (PLACES, PLACES[::-1]):
        for ops in connected([op for op in graph.ops if places[op] == place], producer):
            after = costs.total_ms(
                regions(graph, {**places, **dict.fromkeys(ops, other)})
            )
            assert look.change(places, ops, other) == pytest.approx(
                after - before, abs=1e-9
            )


@given(cases(most=7))
@settings(max_examples=60)
def test_so_it_does_in_any_graph(case: Case) -> None:
    graph, places, costs = case
    before = costs.total_ms(regions(graph, places))
    for op in graph.ops:
        other: Place = "cpu" if places[op] == "edgetpu" else "edgetpu"
        after = costs.total_ms(regions(graph, {**places, op: other}))
        assert Surroundings(graph, costs).change(places, [op], other) == pytest.approx(
            after - before, abs=1e-9
        )


@given(cases())
@settings(max_examples=60)
def test_the_bound_with_overheads_holds(case: Case) -> None:
    graph, allowed, costs = case
    sure = relaxed(problem(graph, allowed, costs), overheads=True).bound_ms
    for stage in all_stages(graph, allowed, 6):
        assert costs.total_ms(regions_module.staged(graph, stage)) >= sure - 1e-4


def test_a_chain_is_proven_without_the_staged_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("edgec_partitioner.cuts.solve", None)
    for every in (2, 13):
        graph = chain(130, every)
        allowed = {op: v.place() for op, v in verdicts(graph).items()}
        assert choose(graph, allowed, Costs(LINKS["usb3"], CpuCost())).gap == 0


def test_blocks_end_where_one_value_is_handed_on() -> None:
    graph = chain(12, 4)
    assert blocks(graph) == [[op] for op in graph.ops]
    for seed in range(10):
        graph, _ = residuals(seed)
        found = blocks(graph)
        assert [op for block in found for op in block] == graph.ops
        assert len(found) > 1
        for before in (found[:i] for i in range(1, len(found))):
            inside = {op for block in before for op in block}
            made = {v for op in inside for v in op.outputs}
            behind = {v for op in graph.ops if op not in inside for v in op.inputs}
            assert len(made & behind) == 1
            assert not behind & set(graph.inputs)


@pytest.mark.parametrize("every", [2, 5, 13])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_work_grows_with_the_ops(
    monkeypatch: pytest.MonkeyPatch, every: int, seed: int
) -> None:
    """Twice the ops are twice the calls of op_work, and at most a little more than
    twice the ops looked at.
    """
    calls = 0

    def counted(op: Op) -> OpWork:
        nonlocal calls
        calls += 1
        return op_work(op)

    seen: list[Surroundings] = []
    start = Surroundings.__init__

    def kept(self: Surroundings, graph: Graph, costs: Costs) -> None:
        start(self, graph, costs)
        seen.append(self)

    monkeypatch.setattr(regions_module, "op_work", counted)
    monkeypatch.setattr(Surroundings, "__init__", kept)
    found = []
    for count in (130, 260):
        calls = 0
        seen.clear()
        partition(chain(count, every, seed), "usb3")
        found.append((calls, sum(s.ops_seen for s in seen)))
    (calls_1, seen_1), (calls_2, seen_2) = found
    assert calls_1 == 130
    assert calls_2 == 260
    assert seen_2 < 2.6 * seen_1


@pytest.mark.parametrize("build", [lambda n: _zeros(n), lambda n: _joined(n)])
def test_scales_are_found_in_one_go(
    monkeypatch: pytest.MonkeyPatch, build: Callable[[int], Graph]
) -> None:
    """Twice the ops ask for the scale of a group twice as often, though each raises
    that of the next.
    """
    asked = 0
    quant = scales._Group.quant

    def counted(self: scales._Group) -> Quant:
        nonlocal asked
        asked += 1
        return quant(self)

    monkeypatch.setattr(scales._Group, "quant", counted)
    found = []
    for count in (50, 100):
        graph = build(count)
        asked = 0
        ranges = {
            v: (0.0, 0.0) if v in graph.producers() else (-1.0, 1.0)
            for v in graph.values()
        }
        got = activation_scales(graph, set(graph.ops), ranges)
        assert len(got) >= count
        found.append(asked)
    assert found[1] < 2.5 * found[0]


def _zeros(count: int) -> Graph:
    """Additions of which every result is always zero: each takes its scale from the one
    before.
    """
    build = Builder("zeros")
    x = build.input("x", TensorType((1, 4)))
    for _ in range(count):
        x = build.add(Add(), [x, x])
    build.graph.outputs = [x]
    return build.graph


def _joined(count: int) -> Graph:
    """Additions whose result has the scale of what comes after a reshape."""
    build = Builder("joined")
    x = build.input("x", TensorType((1, 4)))
    for _ in range(count // 2):
        x = build.add(Reshape((1, 4)), [build.add(Add(), [x, x])])
    build.graph.outputs = [x]
    return build.graph


def test_the_greedy_choice_keeps_to_what_is_allowed() -> None:
    graph = chain(60, 3)
    allowed = {op: v.place() for op, v in verdicts(graph).items()}
    stage = greedy(graph, allowed, Costs(LINKS["usb3"], CpuCost()))
    assert all(s % 2 == 0 or allowed[op] == "edgetpu" for op, s in stage.items())
