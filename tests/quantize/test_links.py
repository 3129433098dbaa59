"""Values that may be moved: centred, and their biases in whole steps."""

from __future__ import annotations

import numpy as np
import pytest

from edgec.ir import Array, Graph, Value, interp
from edgec.ir.types import dequantize
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.change.steps.bias import BiasCorrection
from edgec.quantize.change.steps.centre import Centre
from edgec.quantize.change.steps.equalize import Equalize
from edgec.quantize.change.steps.minmax import MinMaxRanges
from tests.quantize.nets import Net, db, samples, worked


def separable(act: str = "none", kernel: int = 1, **fields: object) -> Graph:
    """A depthwise convolution of zeros and positives, half of its channels negative,
    before a 1x1 one.
    """
    net = Net("separable", 5)
    y = net.depthwise(net.conv(net.input(1, 12, 12, 3), 8, act="relu"), act=act)
    w = net.build.graph.ops[1].inputs[1]
    assert w.const is not None
    w.const = np.abs(w.const) * np.where(np.arange(8) % 2, -1, 1).astype(np.float32)
    return net.done(net.conv(y, 6, kernel, **{"act": "none", **fields}))


def test_centring_changes_nothing_but_where_channels_lie() -> None:
    graph = separable()
    work = worked(graph, Centre())
    for s in work.samples:
        for name, y in interp(graph, s).items():
            np.testing.assert_allclose(
                interp(work.graph, s)[name],
                y,
                rtol=1e-4,
                atol=1e-4 * float(np.abs(y).max()),
            )
    before, after = (
        QuantizationState(g, work.samples).observed_ranges()
        for g in (graph, work.graph)
    )
    (low, high), (a, b) = (
        r[g.ops[1].output] for r, g in ((before, graph), (after, work.graph))
    )
    assert b - a < 0.7 * (high - low)
    assert a == pytest.approx(-b, rel=1e-5)
    equalize = Equalize(power=1.0)
    assert db(worked(graph, Centre(), equalize, MinMaxRanges()), graph) > db(
        worked(graph, equalize, MinMaxRanges()), graph
    )


@pytest.mark.parametrize(
    ("graph", "count"),
    [
        (separable("relu"), 6),
        (separable(kernel=3), 6),
        (separable(), 1),
        (separable(kernel=3, pads=(1, 0, 0, 0)), 6),
    ],
    ids=["clipped", "padded", "few vectors", "padded at one side"],
)
def test_centring_leaves_alone_what_more_than_weights_sees(
    graph: Graph, count: int
) -> None:
    assert worked(graph, Centre(), count=count).graph is graph


def test_centring_stops_at_outputs() -> None:
    graph = separable()
    graph.outputs = [*graph.outputs, graph.ops[1].output]
    assert worked(graph, Centre()).graph is graph


def test_centring_gives_a_bias_to_what_has_none_and_goes_through_windows_without_padding() -> (
    None
):
    graph = separable(kernel=3, pads=(0, 0, 0, 0))
    for op in graph.ops[1:]:
        op.inputs[2:] = []
    work = worked(graph, Centre())
    assert all(len(op.inputs) == 3 for op in work.graph.ops)
    for s in work.samples:
        (y,), (got,) = (interp(g, s).values() for g in (graph, work.graph))
        np.testing.assert_allclose(
            got, y, rtol=1e-4, atol=1e-4 * float(np.abs(y).max())
        )


def test_bias_in_whole_steps_is_exact_where_nothing_is_read() -> None:
    """What a depthwise convolution makes of zeros is an integer; what reads it makes up
    for the rest.
    """
    graph = separable()
    tries = samples(graph, 6)
    for s in tries:
        s["x"][:, :, 3:] = 0.0
    b = graph.ops[0].inputs[2]
    assert b.const is not None
    b.const = -np.abs(b.const)  # where the image is black, a relu says nothing
    for whole in (False, True):
        work = (
            QuantizationState(graph, tries)
            .after(Centre())
            .after(MinMaxRanges())
            .after(BiasCorrection(whole=whole))
        )
        op = work.graph.ops[1]
        int8 = work.int8()
        seen = dict[Value, Array]()
        interp(int8.graph, tries[0], seen.__setitem__)
        y = int8.twins[op].output
        off = dequantize(seen[y], y.type)[0, 2:-2, 6:-2] - work.biases[op]
        assert (np.abs(off).max() < 1e-3 * y.type.scale) == whole
        (want,), (got,) = (interp(g, tries[0]).values() for g in (graph, int8.graph))
        last = int8.twins[work.graph.ops[2]].output.type.scale
        assert np.abs(got - want)[0, 2:-2, 6:-2].max() < 1.1 * last
