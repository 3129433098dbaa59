"""How ranges are judged: by what is computed from a value, which may be flat where the
value is large.
"""

from __future__ import annotations

import numpy as np
import pytest

from edgec.ir import Array, Graph, OpDef, Value, interp
from edgec.measure.agreement import tally
from edgec.ops.activation import LeakyRelu
from edgec.ops.binary import Add, Mul
from edgec.ops.concat import Concat
from edgec.ops.shape import Reshape
from edgec.ops.softmax import Softmax
from edgec.ops.unary import HardSwish, Logistic, Relu
from edgec.quantize.change.functions import functions
from edgec.quantize.change.range_costs import SampledWindows
from edgec.quantize.change.state import QuantizationState, RecipeStep
from edgec.quantize.change.steps.choose import Choose
from edgec.quantize.change.steps.minmax import MinMaxRanges
from tests.quantize.nets import Net, samples


def signal(work: QuantizationState, step: RecipeStep, graph: Graph) -> float:
    int8 = work.after(step).int8().graph
    tries = samples(graph, 4, 9)
    return float(
        np.mean(
            [
                tally(y, interp(int8, s)[k]).sqnr_db()
                for s in tries
                for k, y in interp(graph, s).items()
            ]
        )
    )


def large(net: Net, x: Value, channels: int, size: float) -> Value:
    """A convolution with large outputs."""
    y = net.conv(x, channels, act="none")
    w = net.build.graph.ops[-1].inputs[1]
    assert w.const is not None
    w.const = w.const * np.float32(size)
    return y


@pytest.mark.parametrize(
    "spec", [HardSwish(), Relu(), Logistic()], ids=lambda s: s.kind
)
def test_a_range_ends_where_the_function_behind_is_flat(spec: OpDef) -> None:
    net = Net("flat", 1)
    y = large(net, net.input(1, 12, 12, 3), 8, 20.0)
    graph = net.done(net.op(spec, y))
    work = QuantizationState(graph, samples(graph, 6))
    low, high = work.after(MinMaxRanges()).ranges[y]
    picked = work.after(Choose(methods=("minmax",))).ranges[y]
    assert picked[0] > 0.4 * low
    assert picked[1] > 0.9 * high or spec == Logistic()
    assert (
        signal(work, Choose(methods=("minmax",)), graph)
        > signal(work, MinMaxRanges(), graph) + 0.3
    )


def test_a_value_times_its_sigmoid_is_one_function() -> None:
    net = Net("silu", 2)
    y = large(net, net.input(1, 12, 12, 3), 8, 20.0)
    graph = net.done(net.conv(net.op(Mul(), y, net.op(Logistic(), y)), 4, act="none"))
    found, told = functions(y, graph.users(), graph.outputs)
    x = np.linspace(-8, 8, 33, dtype=np.float32)
    assert len(found) == 1
    assert {op.kind for op in told} == {"mul", "logistic"}
    np.testing.assert_allclose(found[0](x), x / (1 + np.exp(-x)), atol=1e-6)
    work = QuantizationState(graph, samples(graph, 6))
    assert (
        work.after(Choose()).ranges[y][0]
        > 0.4 * work.after(MinMaxRanges()).ranges[y][0]
    )


def test_what_needs_another_value_is_no_function() -> None:
    """A sum with another branch, and a slope for each channel."""
    net = Net("two", 3)
    x = net.input(1, 6, 6, 3)
    a = net.conv(x, 4)
    b = net.conv(x, 4)
    y = net.op(LeakyRelu(0.1), net.op(Add(), a, b))
    graph = net.done(net.op(Mul(), y, net.const(4)))
    assert functions(a, graph.users(), graph.outputs) == ([], set())
    found, told = functions(graph.ops[2].output, graph.users(), graph.outputs)
    assert len(found) == 1
    assert {op.kind for op in told} == {"leaky_relu"}


def test_logits_far_below_the_largest_are_clipped_before_a_softmax() -> None:
    net = Net("logits", 4)
    logits = large(net, net.input(1, 8, 8, 3), 10, 10.0)
    graph = net.done(net.op(Softmax(), logits))
    w = graph.ops[0].inputs[1]
    assert w.const is not None
    w.const[:5] *= 8  # some are far below the others, or above all
    b = graph.ops[0].inputs[2]
    assert b.const is not None
    b.const[:5] -= 400
    work = QuantizationState(graph, samples(graph, 6))
    low, _ = work.after(MinMaxRanges()).ranges[logits]
    picked = work.after(Choose(methods=("minmax",))).ranges[logits]
    assert picked[0] > 0.7 * low
    assert signal(work, Choose(), graph) > signal(work, MinMaxRanges(), graph) + 1


def test_values_of_one_scale_are_judged_together() -> None:
    """A range that is clipped for one is no use where another keeps the scale."""
    net = Net("together", 5)
    x = net.input(1, 12, 12, 3)
    a = net.conv(x, 4, act="none")
    b = net.conv(x, 4, act="none")
    joined = net.op(Concat(3), a, b)
    flat = net.op(Reshape((1, 144, 1, 8)), joined)
    graph = net.done(net.conv(flat, 4, 1, act="none"))
    ranges = QuantizationState(graph, samples(graph, 6)).after(Choose(than=1.0)).ranges
    assert len({ranges[v] for v in (a, b, joined, flat)}) == 1


def test_histograms_give_functions_their_power() -> None:
    """An error that a function hides is none; one that it shows counts by the
    function's own size.
    """
    from edgec.quantize.change.histograms import Histogram
    from edgec.quantize.change.range_costs import CostModel

    net = Net("power", 6)
    y = net.conv(net.input(1, 6, 6, 3), 4, act="none")
    graph = net.done(net.op(Relu(), y))
    x: Array = np.random.default_rng(0).uniform(-10, 1, 100_000).astype(np.float32)
    h = Histogram((-10.0, 1.0))
    h.add(x)
    costs = CostModel(graph, graph.users(), {}, set()).costs(y, h)
    (cost,) = costs.of_functions
    assert costs.of_value is None
    assert cost((-0.01, 1.0)) < 0.01 * cost((-10.0, 1.0))
    assert cost((-10.0, 0.5)) > cost((-10.0, 1.0))


def test_an_error_of_one_sample_weighs_more_than_the_same_of_all() -> None:
    """It is clipping: what one of few photos loses, others that were not seen may lose
    several times.
    """
    parts = [
        (np.zeros((8, 2), np.float32), np.full(8, 3, np.float32)) for _ in range(4)
    ]
    drawn = SampledWindows.of(parts)
    even = np.ones((32, 2))
    one = np.zeros((32, 2))
    one[:8] = 2.0
    assert drawn.total(even) == drawn.total(one) == pytest.approx(32 * 2 * 3)
    assert drawn.pessimistic_total(even) == pytest.approx(drawn.total(even))
    assert drawn.pessimistic_total(one) == pytest.approx(2 * drawn.total(one))


def test_what_is_clipped_may_count_more() -> None:
    """Of values with long tails less is then cut off, whoever reads them; rounding
    alone counts as it did.
    """
    net = Net("tails", 3)
    graph = net.done(net.conv(net.input(1, 48, 48, 3), 4, act="none"))
    work = QuantizationState(graph, samples(graph, 6))
    most, some, none = (
        work.after(Choose(than=1.0, clipping=c)).ranges for c in (1.0, 8.0, 1e6)
    )
    assert none == work.after(MinMaxRanges()).ranges
    for v in none:
        assert (
            none[v][0]
            <= some[v][0]
            < most[v][0]
            < most[v][1]
            < some[v][1]
            <= none[v][1]
        )
