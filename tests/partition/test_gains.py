"""What mending a refusal would gain: its own time, or all that a cut costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from edgec_devices.intervals import two_digits
from edgec_partitioner.choice import Wishes
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.explain import ExplainReport, Origin, explain
from edgec_partitioner.gains import gains, reason_of
from edgec_partitioner.partition import Partition, partition

from edgec.ir import Graph, Op, Refusal
from edgec.quantize import assumed
from edgec.report.explain.reasons import pays, reasons
from edgec.report.explain.text import to_text
from tests.quantize.nets import Net

CPU = CpuCost()


def tower() -> Graph:
    """Convolutions that the Edge TPU is far faster at, with two light ops between."""
    net = Net("tower", 3)
    y = net.input(1, 64, 64, 16)
    for _ in range(3):
        y = net.conv(y, 64)
    y = net.depthwise(y)
    y = net.depthwise(y)
    for _ in range(3):
        y = net.conv(y, 64)
    return net.done(y)


def light(graph: Graph) -> list[Op]:
    return [op for op in graph.ops if op.kind == "depthwise_conv2d"]


def refusal(rule: str, fix: str | None = "do that") -> Refusal:
    return Refusal(rule, f"the rule {rule}", "this", fix)


def parts(*refusals: Refusal) -> Partition:
    """The tower, of whose light ops the first ones are refused."""
    graph = assumed(tower())
    names = [op.output.name for op in light(graph)]
    refused = dict(zip(names, refusals, strict=False))
    return partition(graph, "usb3", CPU, Wishes(refused=refused))


def report(*refusals: Refusal) -> ExplainReport:
    return explain(parts(*refusals), CPU, Origin("tower", "pi4+coral"))


def test_a_cut_gains_what_the_whole_network_gains() -> None:
    p = parts(refusal("a"))
    whole = report().comparison.edgec.est_ms
    cut = report(refusal("a"))
    (gain,) = gains(p, CPU).values()
    assert gain == pytest.approx(cut.comparison.edgec.est_ms - whole, rel=0.02)
    op = next(row for row in cut.ops if row.refusals and row.refusals[0].fix)
    assert op.gain_ms == pytest.approx(gain)
    assert gain > 1.5 * op.cpu_ms


def test_neighbours_gain_together_what_neither_gains_alone() -> None:
    both = gains(parts(refusal("a"), refusal("b")), CPU)
    one = gains(parts(refusal("a")), CPU)
    assert [*both] == [("a", "depthwise_conv2d"), ("b", "depthwise_conv2d")]
    assert min(both.values()) >= max(one.values())


def test_what_nothing_mends_gains_nothing() -> None:
    assert gains(parts(refusal("a", fix=None)), CPU) == {}
    assert not any(row.gain_ms for row in report(refusal("a", fix=None)).ops)
    assert gains(partition(assumed(tower()), None, CPU), CPU) == {}


def test_the_largest_gain_comes_first_and_small_ones_are_one_line() -> None:
    r = report(refusal("a"), refusal("b"))
    keys = [reason_of(op.kind, op.refusals[0]) for op in r.ops if op.refusals]
    assert len({*keys}) == len(keys)
    est_ms = r.comparison.edgec.est_ms
    shares = {"a": 0.005, "b": 0.5}
    rows = []
    for op in r.ops:
        rule = op.refusals[0].rule if op.refusals else ""
        rows.append(replace(op, gain_ms=est_ms * shares.get(rule, 0.0)))
    r = replace(r, ops=tuple(rows))
    first, *_ = reasons(r.ops)
    assert first.constraint == "the rule b"
    assert [pays(reason, r) for reason in reasons(r.ops)][:2] == [True, False]

    summary = to_text(r)
    assert "rule: the rule b" in summary
    assert f"at most {two_digits(est_ms / 2)} ms to gain" in summary
    assert "rule: the rule a" not in summary
    assert "less than 1% to gain: 1 x depthwise_conv2d (--ops has" in summary
    full = to_text(r, each_op=True)
    assert full.index("rule: the rule b") < full.index("rule: the rule a")
    assert "less than 1% to gain" not in full
