"""Channels that a recipe scaled or moved are compared as they were: neither is a fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgec_devices.decoding import from_json

from edgec.comparing.changes import change_of, channel_changes
from edgec.compiler.channel_changes import changes_in, with_changes
from edgec.emit.tflite import write_tflite
from edgec.emit.values_file import ValuesFile
from edgec.ir import Array, Graph, Value, interp
from edgec.ops.binary import Mul
from edgec.ops.reduce import Mean
from edgec.options.diff import DiffOptions
from edgec.quantize.change.channel_groups import whole
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.change.steps.centre import Centre
from edgec.quantize.change.steps.equalize import Equalize
from edgec.quantize.change.steps.lower import Lower
from edgec.quantize.change.steps.separate import Separate
from edgec.verbs.diff import diff
from tests.comparing.nets import Samples, small
from tests.quantize.nets import Net, samples, swish, worked

EQUALIZE = """
[[candidate]]
name = "equalize"
steps = ["lower", "separate", "centre", { step = "equalize", power = 1.0 }, "minmax"]
"""


def unlike() -> tuple[Graph, Samples]:
    """Channels of very unlike sizes between convolutions, one of them dead."""
    net = Net("unlike", 3)
    y = net.conv(net.input(1, 12, 12, 3), 8, act="relu")
    y = net.depthwise(y)
    graph = net.done(net.conv(y, 6, 1, act="none"))
    for op in graph.ops[:2]:
        w = op.inputs[1]
        b = op.inputs[2]
        assert w.const is not None
        assert b.const is not None
        sizes = np.geomspace(0.02, 2, 8).astype(np.float32)
        sizes[3] = 0
        axis = op.spec.weight_axis
        w.const = w.const * sizes.reshape([-1 if i == axis else 1 for i in range(4)])
        b.const = b.const * sizes
    return graph, samples(graph, 4)


def separable() -> tuple[Graph, Samples]:
    """Two separable convolutions without anything between their halves, and a channel
    that is a constant.
    """
    net = Net("separable", 6)
    y = net.depthwise(net.conv(net.input(1, 12, 12, 3), 8, act="relu"), act="none")
    y = net.depthwise(net.conv(y, 8, 1, act="relu"), act="none")
    y = net.conv(y, 6, 1, act="none")
    graph = net.done(net.conv(y, 6, 1, act="none"))
    w = graph.ops[1].inputs[1].const
    assert w is not None
    w[..., 2] = 0
    return graph, samples(graph, 4)


def parted() -> tuple[Graph, Samples]:
    """Channels that get tensors of their own."""
    graph = swish()
    return graph, samples(graph, 6)


def values(graph: Graph, sample: dict[str, Array]) -> dict[str, Array]:
    found: dict[str, Array] = {}

    def keep(v: Value, array: Array) -> None:
        found[v.name] = array.copy()

    interp(graph, sample, keep)
    return found


def gated(scalar: bool) -> tuple[Graph, Samples]:
    """As `unlike`, with a product by one number for all, or one for each pixel."""
    net = Net("gated", 4)
    x = net.input(1, 12, 12, 3)
    y = net.conv(x, 8)
    gate = net.op(Mean((0, 1, 2, 3) if scalar else (3,), not scalar), x)
    y = net.op(Mul(), *((gate, y) if scalar else (y, gate)))
    graph = net.done(net.conv(net.depthwise(y), 6, 1, act="none"))
    w = graph.ops[0].inputs[1]
    assert w.const is not None
    w.const = w.const * np.geomspace(0.02, 2, 8).astype(np.float32).reshape(-1, 1, 1, 1)
    return graph, samples(graph, 4)


@pytest.mark.parametrize(
    "made",
    [unlike(), gated(True), gated(False), separable()],
    ids=["unlike", "by a scalar", "by pixels", "separable"],
)
def test_changes_are_those_of_the_values(made: tuple[Graph, Samples]) -> None:
    graph, tries = made
    work = QuantizationState(graph, tries)
    Centre().run(work)
    Equalize(power=1.0).run(work)
    changes = channel_changes(graph, work.graph)
    assert changes
    for sample in tries:
        before = values(graph, dict(sample))
        after = values(work.graph, dict(sample))
        for name, array in before.items():
            change = change_of(changes, name)
            want = array if change is None else change.done(array)
            if change is not None:
                np.testing.assert_allclose(
                    change.undone(want),
                    array,
                    rtol=1e-4,
                    atol=1e-5 * np.abs(array).max(),
                )
            np.testing.assert_allclose(
                after[name], want, rtol=1e-4, atol=1e-5 * np.abs(want).max()
            )


def test_changes_of_parts_are_those_of_their_channels() -> None:
    graph = swish()
    tries = samples(graph, 4)
    work = worked(graph, Lower(), Separate(), Centre(), Equalize(power=1.0))
    changes = channel_changes(graph, work.graph, work.parts)
    parted = [name for name, change in changes.items() if change.count is not None]
    assert len(parted) == 4 * len(next(iter(work.parts.values())))
    for sample in tries:
        before = values(graph, dict(sample))
        after = values(work.graph, dict(sample))
        for name, array in after.items():
            change = change_of(changes, name)
            if change is None:
                want = before[whole(name)]
            else:
                want = change.done(before[whole(name)])
            np.testing.assert_allclose(
                array, want, rtol=1e-4, atol=1e-5 * np.abs(want).max()
            )
            if change is not None and change.count is None:
                np.testing.assert_allclose(
                    change.undone(want), before[name], rtol=1e-4, atol=1e-5
                )


def test_a_file_gives_back_what_it_was_given() -> None:
    graph = swish()
    work = worked(graph, Separate(), Equalize(power=1.0))
    changes = channel_changes(graph, work.graph, work.parts)
    file = with_changes(ValuesFile(), changes)
    found = changes_in(from_json(file.to_json(), ValuesFile, "", "", ""))
    assert {*found} == {*changes}
    for name, change in changes.items():
        np.testing.assert_allclose(found[name].times, change.times, rtol=1e-6)
        np.testing.assert_array_equal(found[name].order, change.order)
        assert found[name].count == change.count


def test_moves_are_found_with_factors_and_without() -> None:
    graph, tries = separable()
    work = QuantizationState(graph, tries)
    Centre().run(work)
    moved = channel_changes(graph, work.graph)
    assert {*moved} == {graph.ops[i].output.name for i in (1, 3, 4)}
    assert all(
        (change.times == 1).all() and change.plus.any() for change in moved.values()
    )
    Equalize(power=1.0).run(work)
    both = channel_changes(graph, work.graph)
    assert all(both[name].plus.any() for name in moved)


def test_a_graph_that_nothing_scaled_has_none() -> None:
    floats, _, _ = small()
    assert channel_changes(floats, floats.copy()) == {}


@pytest.mark.cc
@pytest.mark.parametrize(
    "made", [unlike(), separable(), parted()], ids=["unlike", "separable", "parted"]
)
def test_an_equalized_model_has_no_fault(
    tmp_path: Path, made: tuple[Graph, Samples]
) -> None:
    graph, tries = made
    (tmp_path / "m.tflite").write_bytes(write_tflite(graph))
    (tmp_path / "eq.toml").write_text(EQUALIZE)
    np.savez(tmp_path / "x.npz", x=np.stack([s["x"] for s in tries]))
    model = str(tmp_path / "m.tflite")
    found = diff(
        DiffOptions(
            model,
            f"int8:{model}",
            tmp_path / "x.npz",
            quantize=str(tmp_path / "eq.toml"),
        )
    )
    assert not [
        (one.value, one.findings) for one in found.layers if one.fault is not None
    ]
    assert [n for n in found.notes if "scaled, moved or ordered channels" in n]
