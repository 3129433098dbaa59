"""Factors of channels: through all that keeps them, the model stays what it was."""

from __future__ import annotations

import numpy as np
import pytest

from edgec.analysis.channels import ChannelFactors
from edgec.ir import Array, Graph, Value, interp
from edgec.measure.agreement import tally
from edgec.ops.binary import Add
from edgec.ops.concat import Concat
from edgec.ops.pad import Pad
from edgec.ops.reduce import Mean
from edgec.ops.resize import ResizeBilinear
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.slice import Slice
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.unary import HardSwish, Logistic
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.change.steps.equalize import Equalize, reach
from edgec.quantize.change.steps.lower import Lower
from edgec.quantize.change.steps.minmax import MinMaxRanges
from tests.quantize.nets import Net, random_net, samples


def stretch(net: Net, by: float = 100.0) -> Array:
    """Give the channels of the last convolution sizes from 1 to `by`."""
    w, b = net.build.graph.ops[-1].inputs[1:]
    assert w.const is not None
    assert b.const is not None
    factor = np.geomspace(1, by, len(b.const)).astype(np.float32)
    w.const, b.const = w.const * factor[:, None, None, None], b.const * factor
    return factor


def shrink(net: Net, factor: Array) -> None:
    """Let the last convolution read channels of such sizes."""
    w = net.build.graph.ops[-1].inputs[1]
    assert w.const is not None
    w.const = w.const / factor


def sizes(graph: Graph, sample: dict[str, Array]) -> dict[str, Array]:
    seen: dict[str, Array] = {}
    interp(
        graph,
        sample,
        lambda v, a: seen.update({v.name: np.abs(a).reshape(-1, a.shape[-1]).max(0)}),
    )
    return seen


def shuffled(act: str = "relu") -> tuple[Graph, list[str]]:
    """Two branches of unlike channels and sizes, joined and shuffled as a ShuffleNet
    does, one half of it resized.
    """
    net = Net("shuffled", 1)
    x = net.input(1, 8, 8, 3)
    a = net.conv(x, 8, act=act)
    one = stretch(net)
    b = net.conv(x, 8, act=act)
    two = stretch(net, 1000.0)
    joined = net.op(Concat(3), a, b)
    parts = net.op(Transpose((0, 1, 2, 4, 3)), net.op(Reshape((1, 8, 8, 2, 8)), joined))
    mixed = net.op(Reshape((1, 8, 8, 16)), parts)
    order = np.stack([one, two]).T.reshape(-1)
    half = net.op(Slice((0, 0, 0, 0), (1, 8, 8, 8), (1, 1, 1, 1)), mixed)
    wide = net.op(
        ResizeBilinear((16, 16)), net.op(Pad(((0, 0), (1, 1), (1, 1), (0, 0))), half)
    )
    y = net.conv(wide, 4, act="none")
    shrink(net, order[:8])
    z = net.conv(mixed, 4, 1, act="none")
    shrink(net, order)
    return net.done(y, z), [a.name, b.name, mixed.name]


@pytest.mark.parametrize("seed", range(40))
def test_any_network_computes_what_it_did(seed: int) -> None:
    graph = random_net(seed)
    tries = samples(graph, 3, seed)
    made = QuantizationState(graph, tries).after(Equalize(power=1.0)).graph
    for s in tries:
        for name, y in interp(graph, s).items():
            tolerance = 1e-4 * max(1.0, float(np.abs(y).max()))
            np.testing.assert_allclose(
                interp(made, s)[name], y, rtol=1e-3, atol=tolerance
            )


def test_factors_pass_concatenations_and_shuffles() -> None:
    graph, names = shuffled()
    (s,) = samples(graph, 1)
    made = QuantizationState(graph, [s]).after(Equalize(power=1.0)).graph
    want = interp(graph, s)
    got = interp(made, s)
    for name, y in want.items():
        np.testing.assert_allclose(
            got[name], y, rtol=1e-3, atol=1e-3 * float(np.abs(y).max())
        )
    before = sizes(graph, s)
    after = sizes(made, s)
    for name in names:
        assert before[name].max() > 50 * before[name].min()
        assert after[name].max() < 8 * after[name].min()
    top = max(float(y.max()) for y in before.values())
    assert max(float(y.max()) for y in after.values()) < 1.01 * top, "no range grows"


def test_branches_of_unlike_scales_share_a_concatenations_scale() -> None:
    """What one scale costs the smaller branch is repaired."""
    graph, _ = shuffled()
    tries = samples(graph, 6)

    def db(work: QuantizationState) -> float:
        int8 = work.after(MinMaxRanges()).int8().graph
        other = samples(graph, 4, 9)
        return float(
            np.mean(
                [
                    tally(y, interp(int8, s)[k]).sqnr_db()
                    for s in other
                    for k, y in interp(graph, s).items()
                ]
            )
        )

    work = QuantizationState(graph, tries)
    assert db(work.after(Equalize())) > db(work) + 10


def test_the_terms_of_a_sum_share_their_factors() -> None:
    net = Net("sum", 4)
    x = net.input(1, 8, 8, 3)
    a = net.conv(x, 8, act="relu")
    stretch(net)
    b = net.conv(x, 8, act="none")
    stretch(net)
    total = net.op(Add(), net.op(Add("relu"), a, b), net.const(8))
    y = net.conv(total, 4, act="none")
    graph = net.done(y)
    (s,) = samples(graph, 1)
    made = QuantizationState(graph, [s]).after(Equalize(power=1.0)).graph
    for name, want in interp(graph, s).items():
        np.testing.assert_allclose(
            interp(made, s)[name],
            want,
            rtol=1e-3,
            atol=1e-3 * float(np.abs(want).max()),
        )
    before = sizes(graph, s)
    after = sizes(made, s)
    factors = [after[v.name] / before[v.name] for v in (a, b, total)]
    np.testing.assert_allclose(factors[0], factors[1], rtol=1e-3)
    np.testing.assert_allclose(factors[0], factors[2], rtol=1e-3)
    assert factors[0].max() > 20


def test_transposed_convolutions_take_part_in_sums() -> None:
    """As where a decoder adds what the encoder had of the same size: with the bias that
    `lower` puts behind, too.
    """
    net = Net("decoder", 5)
    x = net.input(1, 8, 8, 3)
    a = net.conv(x, 8, act="relu")
    factor = stretch(net)
    small = net.conv(a, 4, stride=(2, 2), pads=(0, 1, 0, 1), act="relu")
    shrink(net, factor)
    w = net.const(8, 2, 2, 4, scale=0.3)
    assert w.const is not None
    w.const = w.const * factor[:, None, None, None]
    up = net.op(TransposeConv2D((2, 2)), small, w, net.const(8))
    total = net.op(Add(), up, a)
    y = net.conv(total, 4, act="none")
    shrink(net, factor)
    graph = net.done(y)
    (s,) = samples(graph, 1)
    made = QuantizationState(graph, [s]).after(Lower()).after(Equalize(power=1.0)).graph
    for name, want in interp(graph, s).items():
        np.testing.assert_allclose(
            interp(made, s)[name],
            want,
            rtol=1e-3,
            atol=1e-3 * float(np.abs(want).max()),
        )
    before = sizes(graph, s)
    after = sizes(made, s)
    for v in (a, up, total):
        assert before[v.name].max() > 20 * before[v.name].min(), v.name
        assert after[v.name].max() < 8 * after[v.name].min(), v.name
    assert (after[small.name] > before[small.name] * 1.2).any(), (
        "what it reads may have factors too"
    )


def test_what_cannot_have_a_factor() -> None:
    """Before a function that is no line, at an output, and in what is multiplied with
    another.
    """
    net = Net("pinned", 2)
    y = net.conv(net.input(1, 6, 6, 3), 4, act="none")
    z = net.conv(net.op(HardSwish(), y), 4, act="relu")
    gate = net.op(Logistic(), net.conv(net.op(Mean((1, 2), True), z), 4, 1, act="none"))
    graph = net.done(gate, net.conv(z, 2, act="none"))
    factors = ChannelFactors(graph)

    def classes(v: Value) -> list[int]:
        found = factors.channels(v)
        assert found is not None
        return [int(i) for i in found]

    assert classes(y) == [0] * 4, "hard swish"
    assert len({*classes(z)} - {0}) == 4, "read by a mean and a convolution"
    assert all(classes(v) == [0] * v.type.shape[-1] for v in graph.outputs)


def test_a_padding_with_another_value_keeps_its_channels() -> None:
    net = Net("padded", 3)
    y = net.conv(net.input(1, 6, 6, 3), 4, act="relu")
    first = stretch(net)
    z = net.conv(
        net.op(Pad(((0, 0), (1, 1), (1, 1), (0, 0)), value=1.0), y), 2, act="none"
    )
    shrink(net, first)
    found = ChannelFactors(net.done(z)).channels(y)
    assert found is not None
    assert not found.any()


def test_channels_that_were_small_keep_room_for_other_samples() -> None:
    """A channel that seems to need a thousandth of the range is not stretched over all
    of it: another photo may have more of it, also where only a depthwise convolution
    reads it and nothing else speaks against.
    """
    net = Net("room", 4)
    y = net.conv(net.input(1, 12, 12, 3), 6, act="relu")
    factor = stretch(net, 100.0)
    z = net.depthwise(y, act="none")
    w = net.build.graph.ops[-1].inputs[1]
    assert w.const is not None
    w.const = w.const / factor
    graph = net.done(z)
    work = QuantizationState(graph, samples(graph, 6))
    made = work.after(Equalize())
    high = max(
        r[1] for v, r in made.after(MinMaxRanges()).ranges.items() if v.name == y.name
    )
    usual = samples(graph, 1)[0]
    room = high / sizes(made.graph, usual)[y.name]
    grown = sizes(made.graph, usual)[y.name] / sizes(graph, usual)[y.name]
    assert grown[0] > 4, "it has more steps than it had"
    assert room[0] > 4, "and may still be several times as large"


def test_channels_that_differ_from_sample_to_sample_keep_more_room() -> None:
    """Channels that reached as far: one does so in every sample, others in some or in
    one alone.
    """
    sizes = np.full((10, 4), 1.0, np.float32)
    sizes[:, 1] = np.linspace(0.1, 1.0, 10)
    sizes[1:, 2] = 0.0
    sizes[:, 3] = 40.0
    found = reach(sizes, 1.0)
    np.testing.assert_allclose(found, (1.0, 1 / 0.55, 10.0, 40.0), rtol=1e-5)
    np.testing.assert_allclose(reach(10 * sizes, 1.0), 10 * found, rtol=1e-5)
    np.testing.assert_allclose(reach(sizes, 0.0), sizes.max(0))
    assert reach(sizes[:, :3], 1.0).max() == 1.0, "no further than the largest"
    assert not reach(np.zeros((4, 2), np.float32), 1.0).any(), (
        "a value that is never positive"
    )


def test_equalization_believes_channels_that_are_alike_in_all_samples() -> None:
    """Of two channels that came to the same size, the one that comes and goes grows
    less.
    """
    net = Net("unsteady", 5)
    x = net.input(1, 8, 8, 3)
    y = net.conv(x, 3, 1, act="relu")
    first = net.build.graph.ops[0]
    w = first.inputs[1].const
    b = first.inputs[2].const
    assert w is not None
    assert b is not None
    w[:], b[:] = np.eye(3, dtype=np.float32)[:, None, None, :], 0.0
    graph = net.done(net.conv(y, 4, 3, act="none"))
    rng = np.random.default_rng(0)
    tries = []
    for size in np.geomspace(0.02, 1.0, 12):
        x_of = rng.uniform(0.0, 1.0, (1, 8, 8, 3)) * (1.0, size, 50.0)
        x_of[0, 0, 0] = (1.0, size, 50.0)
        tries.append({x.name: x_of.astype(np.float32)})
    made = QuantizationState(graph, tries).after(Equalize(power=1.0, room=1.0)).graph
    after = sizes(made, tries[-1])[y.name] / sizes(graph, tries[-1])[y.name]
    assert after[0] == pytest.approx(50.0, rel=0.01)
    assert 0.2 * after[0] < after[1] < 0.5 * after[0]
    assert after[2] == pytest.approx(1.0)
