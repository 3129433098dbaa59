"""Pruning takes out what adds least, as much as is allowed, and only where it pays."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edgec.ir import Graph, interp, verify
from edgec.measure.agreement import tally
from edgec.ops.binary import Add
from edgec.quantize.change.state import InterpRunners
from edgec.quantize.float_ops.limits import Price
from edgec.quantize.float_ops.pruning import Pruned, prune
from tests.cli.verbs import edgec
from tests.quantize.nets import Net, samples

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits"


def by_macs(graph: Graph) -> Price:
    return Price(sum(op.spec.macs(op) for op in graph.ops) / 1e6)


def faint(residual: bool = False) -> Graph:
    """Eight channels, of which the third hardly varies about 3, and the sixth hardly
    counts.
    """
    net = Net("faint", 3)
    y = net.conv(net.input(1, 10, 10, 3), 8, act="none")
    w, b = (v.const for v in net.build.graph.ops[-1].inputs[1:])
    assert w is not None
    assert b is not None
    w[2] *= 1e-4
    b[2] = 3.0
    if residual:
        y = net.op(Add(), y, net.conv(y, 8, 1, act="none"))
    graph = net.done(net.conv(y, 6, 1, act="none"))
    last = graph.ops[-1].inputs[1].const
    assert last is not None
    last[..., 5] *= 1e-4
    return graph


def pruned(graph: Graph, drop: float, price: float | None = None) -> Pruned:
    tries = samples(graph, 12)
    same = Price(price) if price is not None else None
    return prune(
        graph, tries[:8], tries[8:], InterpRunners(), drop, lambda g: same or by_macs(g)
    )


def test_what_adds_least_goes_and_its_mean_stays() -> None:
    graph = faint()
    found = pruned(graph, 1e-4)
    assert found.kept is not None
    assert found.kept.channels == 2
    assert found.kept.of == 14
    made = found.graph
    verify(made, "canonical")
    assert made.ops[0].output.type.shape[-1] == 6
    for s in samples(graph, 3, seed=5):
        for name, y in interp(graph, s).items():
            assert tally(y, interp(made, s)[name]).sqnr_db() > 40, (
                "the mean of 3 went into the bias"
            )
    assert graph.ops[0].output.type.shape[-1] == 8, "the model itself is as it was"


def test_more_goes_where_more_is_allowed() -> None:
    counts = [
        p.kept.channels
        for p in (pruned(faint(), d) for d in (1e-4, 0.2, 0.5))
        if p.kept is not None
    ]
    assert len(counts) == 3
    assert counts == sorted(counts)
    assert counts[-1] > 2
    some = pruned(faint(), 0.2).kept
    assert some is not None
    assert all(a.sqnr_db >= -10 * np.log10(0.2) for a in some.outputs.values())


def test_what_is_tied_by_an_addition_goes_together() -> None:
    """The faint channel of one side is none of the sum."""
    graph = faint(residual=True)
    found = pruned(graph, 0.3)
    assert found.kept is not None
    a, b, total = (found.graph.ops[i].output.type.shape[-1] for i in range(3))
    assert a == b == total < 8


def test_no_gain_is_said_and_nothing_changed() -> None:
    graph = faint()
    no_faster = pruned(graph, 1e-4, price=1.0)
    assert no_faster.kept is None
    assert no_faster.most is not None
    assert no_faster.graph is graph
    nothing_allowed = pruned(graph, 1e-12)
    assert nothing_allowed.kept is nothing_allowed.most is None
    assert nothing_allowed.graph is graph


@pytest.mark.slow
def test_compile_prunes_and_says_what_it_gained(tmp_path: Path) -> None:
    """The bundle is compared with the model as the file has it."""
    same = (
        DIGITS / "digits.onnx",
        "--calibrate",
        DIGITS / "digits_calibration.npz",
        "--target",
        "pi4",
    )
    done = edgec("compile", *same, "--prune", "5%", "-o", "d.edgec", cwd=tmp_path)
    assert done.code == 0, done.err
    said = json.loads(
        zipfile.ZipFile(tmp_path / "d.edgec").read("report/quantize.json")
    )["pruned"]
    assert said["before"]["channels"] == 0
    assert said["kept"] is not None
    assert said["kept"]["price"]["ms"] < said["before"]["price"]["ms"]
    assert (
        f"pruning: {said['kept']['channels']} of {said['kept']['of']} channels taken out"
        in done.out
    )
    assert "measured on this machine, int8: " in done.out
    assert "SQNR inf" not in done.out, "the reference is not the pruned model"
    none = edgec("compile", *same, "--prune", "0%", "-o", "e.edgec", cwd=tmp_path)
    assert none.code == 0
    wrong = edgec("compile", *same, "--prune", "5", "-o", "f.edgec", cwd=tmp_path)
    assert wrong.code == 2
    assert "5 is not a percentage from 0% to 100%" in wrong.err
    assert "--prune" in wrong.err
