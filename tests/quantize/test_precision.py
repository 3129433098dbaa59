"""Precision per op: what stays in float, by name or by a plan, and what a plan gains."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgec.errors import EdgecError, InputError
from edgec.ir import Graph, Op, interp, print_graph, verify
from edgec.measure.agreement import Agreement, tally
from edgec.ops.conv import Conv2D
from edgec.ops.shape import Reshape
from edgec.quantize import quantize
from edgec.quantize.change.pipeline import StepPipeline
from edgec.quantize.change.recipe import Candidate, Recipe
from edgec.quantize.change.simulate import Simulation
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.change.steps.lower import Lower
from edgec.quantize.change.steps.minmax import MinMaxRanges
from edgec.quantize.change.steps.precision import Precision
from edgec.quantize.float_ops.limits import AccuracyGoal, CostBudget, PlanLimits, Price
from edgec.quantize.float_ops.op_groups import OpGroup, neighbour_runs, op_groups
from edgec.quantize.float_ops.plan import Plan
from edgec.quantize.float_ops.thorough_search import ThoroughSearch
from edgec.quantize.select.apply import QuantizedModel, apply_recipe
from tests.quantize.nets import NETS, Net, random_net, samples

FAST = Recipe.load("fast")


def left(graph: Graph, *names: str) -> QuantizationState:
    return (
        QuantizationState(graph, samples(graph))
        .after(Lower())
        .after(MinMaxRanges())
        .after(Precision(names))
    )


def names(ops: list[Op]) -> list[str]:
    return [op.outputs[0].name for op in ops]


# ---- by name
# --------------------------------------------------------------------------------------


def test_named_ops_stay_float_between_conversions() -> None:
    graph = NETS["chain"]()
    (first, middle, last) = names(graph.ops)
    made = left(graph, middle).int8().graph
    verify(made, "quantized")
    assert [(op.kind, op.output.type.dtype) for op in made.ops] == [
        ("quantize", "int8"),
        ("conv2d", "int8"),
        ("dequantize", "float32"),
        ("depthwise_conv2d", "float32"),
        ("quantize", "int8"),
        ("conv2d", "int8"),
        ("dequantize", "float32"),
    ]
    assert last == graph.outputs[0].name
    assert first in {v.name for v in made.values()}


@pytest.mark.parametrize("name", [*NETS, "random3", "random5"])
def test_ops_that_are_not_named_keep_their_integers(name: str) -> None:
    """And the graph runs as near to float as without; with all named it is the float
    model.
    """
    graph = NETS[name]() if name in NETS else random_net(int(name[-1]))
    tries = samples(graph)
    before = QuantizationState(graph, tries).after(MinMaxRanges())
    convs = [op for op in graph.ops if isinstance(op.spec, Conv2D)]
    after = before.after(Precision((convs[0].output.name,)))
    old = before.int8().twins
    new = after.int8().twins
    assert convs[0] in old
    assert convs[0] not in new
    for op in {*convs[1:]} & new.keys():
        for a, b in zip(old[op].inputs[1:], new[op].inputs[1:], strict=True):
            if a.type.quant == b.type.quant:  # what feeds it may be rounded no longer
                np.testing.assert_array_equal(a.const, b.const)
        np.testing.assert_array_equal(old[op].inputs[1].const, new[op].inputs[1].const)
    whole = before.after(Precision(("*",))).int8().graph
    for want, got in zip(
        interp(graph, tries[0]).values(), interp(whole, tries[0]).values(), strict=True
    ):
        np.testing.assert_array_equal(want, got)


def test_a_name_is_of_a_result_or_a_node_or_a_pattern() -> None:
    graph = NETS["chain"]()
    for op, source in zip(
        graph.ops, ["/stem/conv", "/body/dw+/body/relu", "/body/pw"], strict=True
    ):
        op.source = source
    assert names([*left(graph, graph.ops[1].output.name).precision]) == [
        graph.ops[1].output.name
    ]
    assert names([*left(graph, "/body/relu").precision]) == [graph.ops[1].output.name]
    assert names([*left(graph, "/body/*").precision]) == names(graph.ops[1:])
    with pytest.raises(
        InputError, match=r"no operation is called /body/pv.*did you mean .*/body/pw"
    ):
        left(graph, "/body/pv")


def test_precision_is_decided_before_weights_and_biases_are(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    graph = NETS["chain"]()
    step = f'{{ step = "precision", floats = ["{graph.ops[0].output.name}"] }}'
    path.write_text(f'[[candidate]]\nname = "a"\nsteps = ["minmax", {step}, "bias"]\n')
    found = apply_recipe(Recipe.load(str(path)), graph, samples(graph))
    assert found.float_ops == (graph.ops[0].output.name,)
    assert Recipe.of(found.recipe.to_json(), "b").candidates == found.recipe.candidates
    path.write_text(f'[[candidate]]\nname = "a"\nsteps = ["minmax", "bias", {step}]\n')
    with pytest.raises(InputError, match="ranges, then precision, then weights"):
        Recipe.load(str(path))


# ---- the simulation
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("part", [1, 2])
def test_the_simulation_loses_what_the_int8_model_loses(name: str, part: int) -> None:
    """All in int8, and every second op."""
    graph = NETS[name]()
    tries = samples(graph, 4)
    work = QuantizationState(graph, tries).after(MinMaxRanges())
    simulation = Simulation(work)
    some = [op for op in graph.ops if op in simulation.ops][::part]
    real = simulation.graph(some)
    run = simulation.run(some)
    before = [{k: x.copy() for k, x in s.items()} for s in tries]
    for s, old in zip(tries, before, strict=True):
        want = interp(graph, s)
        got = interp(real, s)
        near = run(s, None)
        for k, y in want.items():
            real_db = tally(y, got[k]).sqnr_db()
            near_db = tally(y, near[k]).sqnr_db()
            assert (
                near_db == pytest.approx(real_db, abs=2.5) or min(near_db, real_db) > 45
            )
        assert all(np.array_equal(s[k], x) for k, x in old.items()), (
            "the sample itself was rounded"
        )


def test_a_view_of_the_input_is_rounded_and_the_sample_is_not() -> None:
    """The reshape stays float, so that its result is the first to be rounded."""
    net = Net("view")
    y = net.op(Reshape((1, 6, 6, 4)), net.input(1, 144))
    graph = net.done(net.conv(y, 8))
    tries = samples(graph, 2)
    run = Simulation(QuantizationState(graph, tries).after(MinMaxRanges())).run(
        graph.ops[1:]
    )
    before = tries[0]["x"].copy()
    near = run(tries[0], None)
    np.testing.assert_array_equal(tries[0]["x"], before)
    exact = interp(graph, tries[0])
    assert all((near[k] != y).any() for k, y in exact.items())


def test_nothing_in_int8_is_the_float_model() -> None:
    graph = NETS["residual"]()
    run = Simulation(
        QuantizationState(graph, samples(graph)).after(MinMaxRanges())
    ).run(())
    for want, got in zip(
        interp(graph, samples(graph)[0]).values(),
        run(samples(graph)[0], None).values(),
        strict=True,
    ):
        np.testing.assert_array_equal(want, got)


# ---- units and runs
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_units_hold_every_op_once_and_one_product_at_most(name: str) -> None:
    graph = NETS[name]()
    found = op_groups(graph, graph.ops)
    assert sorted(names([op for u in found for op in u.ops])) == sorted(
        names(graph.ops)
    )
    assert all(sum(op.spec.macs(op) > 0 for op in u.ops) <= 1 for u in found)


def test_runs_are_neighbours_of_all_lengths() -> None:
    graph = NETS["chain"]()
    every = [OpGroup((op,)) for op in graph.ops]
    found = [*neighbour_runs(every, every)]
    assert {len(r) for r in found} == {1, 2, 3}
    assert [*neighbour_runs(every, every[:1] + every[2:])].count(
        [every[0], every[2]]
    ) == 1, "around what is gone"


# ---- plans
# --------------------------------------------------------------------------------------


def planted() -> Graph:
    """Seven convolutions.

    One channel of the third is 200 times as large as the others, and the fourth makes
    up for it: in int8 the others lose seven bits between the two.
    """
    net = Net("planted", 7)
    y = net.input(1, 12, 12, 4)
    for i in range(7):
        y = net.conv(y, 8, act="none" if i in (2, 6) else "relu6")
        w, b = (v.const for v in net.build.graph.ops[-1].inputs[1:])
        assert w is not None
        assert b is not None
        if i == 2:
            w[0], b[0] = 200 * w[0], 200 * b[0]
        if i == 3:
            w[..., 0] /= 200
    return net.done(y)


def priced(each: float = 1.0) -> Callable[[Graph], Price]:
    """So many ms for a float convolution, a tenth for an int8 one."""

    def price(graph: Graph) -> Price:
        convs = [op for op in graph.ops if isinstance(op.spec, Conv2D)]
        floats = sum(op.output.type.dtype == "float32" for op in convs)
        return Price(
            each * (floats + 0.1 * (len(convs) - floats)), 1 - floats / len(convs)
        )

    return price


def planned(
    graph: Graph,
    goal: AccuracyGoal | None = None,
    budget: CostBudget | None = None,
) -> QuantizedModel:
    limits = PlanLimits(goal or AccuracyGoal(), budget or CostBudget(), priced())
    return apply_recipe(FAST, graph, samples(graph, 12), limits=limits)


def test_without_limits_nothing_is_left_in_float() -> None:
    graph = NETS["chain"]()
    for limits in (None, PlanLimits(price=priced())):
        found = apply_recipe(FAST, graph, samples(graph), limits=limits)
        assert found.plan is None
        assert found.float_ops == ()
        assert print_graph(found.int8_graph) == print_graph(
            quantize(graph, samples(graph))
        )


def test_what_is_accurate_enough_stays_int8() -> None:
    found = planned(NETS["chain"](), AccuracyGoal(min_sqnr=10))
    assert found.plan is not None
    assert len(found.plan.rows) == 1
    assert found.float_ops == ()


def test_the_op_that_loses_most_is_left_in_float() -> None:
    """With its neighbour, for a third of what all of them cost."""
    graph = planted()
    without = planned(graph, AccuracyGoal(min_sqnr=1))
    assert without.plan is not None
    start = without.plan.rows[0].outputs[graph.outputs[0].name].sqnr_db
    found = planned(graph, AccuracyGoal(min_sqnr=start + 6))
    assert found.plan is not None
    assert {*names(graph.ops[2:4])} <= {*found.float_ops}
    assert len(found.float_ops) <= 3
    last = found.plan.rows[-1]
    assert last.outputs[graph.outputs[0].name].sqnr_db >= start + 6
    assert last.price is not None
    assert last.price.ms < 4
    assert found.candidate.steps[-1] == Precision(found.float_ops), (
        "the step that makes it again"
    )
    assert (
        apply_recipe(Recipe("r", found.candidate), graph, samples(graph, 12)).int8_graph
        == found.int8_graph
    )


def test_a_budget_alone_is_spent_on_what_buys_most() -> None:
    graph = planted()
    found = planned(graph, budget=CostBudget(max_ms=2.6))  # two of seven
    assert found.plan is not None
    assert names(
        [op for op in graph.ops if op.output.name in found.float_ops]
    ) == names(graph.ops[2:4])
    dbs = [row.db for row in found.plan.rows]
    assert dbs == sorted(dbs)
    held = planned(graph, budget=CostBudget(min_tpu_share=1.0))
    assert held.float_ops == ()


def test_a_goal_out_of_reach_is_an_error_that_says_how_far_it_got() -> None:
    graph = planted()
    with pytest.raises(
        EdgecError, match=r"not reached with an estimated 0\.70 ms: .* dB, 80\.0 needed"
    ) as e:
        planned(graph, AccuracyGoal(min_sqnr=80), CostBudget(max_ms=0.7))
    assert e.value.exit_code == 1
    found = planned(graph, AccuracyGoal(min_sqnr=80))
    assert found.plan is not None
    assert len(found.float_ops) == 7, "all of it in float"


def test_a_goal_may_have_a_budget_relative_to_int8_alone() -> None:
    graph = planted()
    goal = AccuracyGoal(min_sqnr=20)
    found = apply_recipe(
        FAST,
        graph,
        samples(graph, 12),
        limits=PlanLimits(goal, CostBudget(max_slowdown=4.0), dear(0.5)),
    )
    assert found.plan is not None
    assert {*names(graph.ops[2:4])} <= {*found.float_ops}
    assert found.plan.budget == CostBudget(max_ms=35.0)
    with pytest.raises(EdgecError, match="not reached"):
        apply_recipe(
            FAST,
            graph,
            samples(graph, 12),
            limits=PlanLimits(goal, CostBudget(max_slowdown=0.01), dear(0.5)),
        )


def test_a_plan_says_what_each_row_bought() -> None:
    plan = planned(planted(), budget=CostBudget(max_ms=2.6)).plan
    assert plan is not None
    said = plan.to_json()
    assert said["limits"] == {"max_ms": 2.6}
    assert said["samples"] == 12
    assert said["rows"][0]["ops"] == []
    assert said["rows"][1]["price"]["ms"] == pytest.approx(2.5)
    assert said["rows"][1]["db"] > said["rows"][0]["db"]


# ---- a part of the time
# --------------------------------------------------------------------------------------


def spent(
    slowdown: float, graph: Graph, price: Callable[[Graph], Price], **fields: float
) -> QuantizedModel:
    recipe = replace(FAST, slowdown=slowdown, **fields)  # type: ignore[arg-type]
    return apply_recipe(
        recipe, graph, samples(graph, 12), limits=PlanLimits(price=price)
    )


def dear(each: float) -> Callable[[Graph], Price]:
    """An int8 convolution takes 1 ms, a float one so many more; there is no Edge TPU."""

    def price(graph: Graph) -> Price:
        convs = [op for op in graph.ops if isinstance(op.spec, Conv2D)]
        return Price(
            len(convs) + each * sum(op.output.type.dtype == "float32" for op in convs)
        )

    return price


def test_a_part_of_the_time_is_spent_on_the_ops_that_lose_most() -> None:
    graph = planted()
    found = spent(0.2, graph, dear(0.5))
    assert found.plan is not None
    assert names(
        [op for op in graph.ops if op.output.name in found.float_ops]
    ) == names(graph.ops[2:4])
    first, last = found.plan.rows
    assert first.price == Price(7.0)
    assert last.price == Price(8.0)
    assert last.db > first.db + 6
    assert found.trials == (), "there was nothing to choose"
    assert found.held_back_samples == 12
    assert found.candidate.steps[-1] == Precision(found.float_ops), (
        "the step that makes it again"
    )
    assert (
        apply_recipe(Recipe("r", found.candidate), graph, samples(graph, 12)).int8_graph
        == found.int8_graph
    )


def test_nothing_is_spent_that_buys_too_little_or_costs_too_much() -> None:
    graph = planted()
    plain = print_graph(quantize(graph, samples(graph, 12)))
    for found in (
        spent(0.05, graph, dear(0.5)),
        spent(0.2, graph, dear(0.5), worth_db=60.0),
    ):
        assert found.plan is not None
        assert len(found.plan.rows) == 1
        assert print_graph(found.int8_graph) == plain
    assert spent(0.0, graph, dear(0.5)).plan is None
    assert spent(0.2, graph, dear(0.5), enough_db=1.0).plan is None, (
        "int8 alone is good enough"
    )


def test_the_edge_tpu_loses_nothing_to_a_slowdown() -> None:
    """Where its share would be less; and most of a model that is to be int8 stays so,
    even if that is no faster.
    """
    graph = planted()
    assert spent(1.0, graph, priced()).float_ops == ()
    found = spent(1.0, graph, dear(0.0))
    assert 0 < len(found.float_ops) <= 3


def test_limits_take_the_place_of_a_slowdown() -> None:
    graph = planted()
    recipe = replace(FAST, slowdown=0.2)
    found = apply_recipe(
        recipe,
        graph,
        samples(graph, 12),
        limits=PlanLimits(AccuracyGoal(min_sqnr=1), price=dear(0.5)),
    )
    assert found.plan is not None
    assert found.plan.goal == AccuracyGoal(min_sqnr=1)
    assert found.float_ops == ()


# ---- limits
# --------------------------------------------------------------------------------------


def agreement(
    db: float, top1: float | None = None, centred: float | None = None
) -> Agreement:
    return Agreement(0.99, db, top1, 10, 0.99 if centred is not None else None, centred)


def test_a_drop_is_of_classes_or_of_power() -> None:
    goal = AccuracyGoal.parse("1%")
    assert goal.needed_db(agreement(15)) == pytest.approx(20)
    assert goal.needed_db(agreement(15, top1=0.99)) == -math.inf
    assert [*goal.misses({"y": agreement(15)})] == ["y has 15.0 dB, 20.0 needed"]
    assert [*goal.misses({"y": agreement(15, top1=0.99)})] == []
    (miss,) = goal.misses({"y": agreement(15, top1=0.98)})
    assert "another first class on 2.0% of the samples" in miss
    assert [*AccuracyGoal.parse("20dB").misses({"y": agreement(42, centred=14)})] == [
        "y has 14.0 dB, 20.0 needed"
    ]


def test_a_budget_has_room_or_not() -> None:
    budget = CostBudget.parse("5ms,tpu=90%")
    assert budget.affords(Price(5, 0.9))
    assert not budget.affords(Price(5.1, 1.0))
    assert not budget.affords(Price(4, 0.89))
    assert budget
    assert not CostBudget()
    assert not AccuracyGoal()


def test_limits_are_texts_of_terms() -> None:
    assert AccuracyGoal.parse("20dB") == AccuracyGoal(min_sqnr=20.0)
    assert AccuracyGoal.parse("1%, 20 db") == AccuracyGoal(0.01, 20.0)
    assert CostBudget.parse("12.5ms") == CostBudget(max_ms=12.5)
    assert CostBudget.parse("10%,tpu=90%") == CostBudget(None, 0.9, 0.1)


@pytest.mark.parametrize("text", ["", "20", "20dB,", "x dB", "nandB", "1%,2%", "12ms"])
def test_what_no_goal_is(text: str) -> None:
    with pytest.raises(InputError):
        AccuracyGoal.parse(text)


@pytest.mark.parametrize("text", ["", "5", "infms", "0ms", "1ms,2ms", "cpu=5%", "tpu="])
def test_what_no_budget_is(text: str) -> None:
    with pytest.raises(InputError):
        CostBudget.parse(text)


def test_a_slowdown_is_relative_to_int8_alone() -> None:
    slowdown = CostBudget(max_slowdown=0.5)
    assert slowdown.is_relative
    assert slowdown.relative_to(Price(4.0, 0.8)) == CostBudget(6.0, 0.8)
    both = CostBudget(max_ms=5.0, min_tpu_share=0.9, max_slowdown=0.5)
    assert not both.is_relative
    assert both.relative_to(Price(4.0, 0.8)) == CostBudget(5.0, 0.9)


def test_a_candidate_of_a_recipe_may_have_its_own_names() -> None:
    """Then limits add to them."""
    graph = planted()
    mine = Candidate("mine", (MinMaxRanges(), Precision((graph.ops[0].output.name,))))
    found = apply_recipe(
        replace(FAST, candidate=mine),
        graph,
        samples(graph, 12),
        limits=PlanLimits(budget=CostBudget(max_ms=3.5), price=priced()),
    )
    assert graph.ops[0].output.name in found.float_ops
    assert graph.ops[2].output.name in found.float_ops


def test_what_the_goal_does_not_need_is_int8_again() -> None:
    """From all of it in float back to the two that lose most."""
    graph = planted()
    tries = samples(graph, 8)
    line = StepPipeline(QuantizationState(graph, tries))
    limits = PlanLimits(AccuracyGoal(min_sqnr=20), price=priced())
    search = ThoroughSearch(FAST.candidate, [(line, tries)], limits)
    every = OpGroup(tuple(line.of(FAST.candidate).graph.ops))
    rows = [search.measured((), OpGroup(())), search.measured(every.names, every)]
    back = [*search.returned(rows)]
    assert all(row.back for row in back)
    assert back[-1].outputs[graph.outputs[0].name].sqnr_db >= 20
    prices = [row.price.ms for row in (rows[-1], *back) if row.price is not None]
    assert prices == sorted(prices, reverse=True)
    assert prices[-1] == pytest.approx(2.5)
    assert {*Plan(limits.goal, limits.budget, (*rows, *back), 8).floats} == {
        *names(graph.ops[2:4])
    }
