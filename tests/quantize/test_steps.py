"""The steps of recipes: what each promises, on networks that show it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from edgec.ir import Array, Graph, Op, Value, interp
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.matmul import FullyConnected
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.quantize import Dequantize
from edgec.quantize.change.histograms import (
    METHODS,
    Histogram,
    entropy,
    mse,
    noise,
    percentile,
)
from edgec.quantize.change.params import activation_quant
from edgec.quantize.change.products import LinearLayer, apply
from edgec.quantize.change.recipe import Recipe
from edgec.quantize.change.state import QuantizationState, RecipeStep
from edgec.quantize.change.steps import steps
from edgec.quantize.change.steps.bias import BiasCorrection
from edgec.quantize.change.steps.centre import Centre
from edgec.quantize.change.steps.choose import Choose
from edgec.quantize.change.steps.equalize import Equalize
from edgec.quantize.change.steps.gptq import Gptq, rounded
from edgec.quantize.change.steps.lower import Lower
from edgec.quantize.change.steps.minmax import MinMaxRanges
from edgec.quantize.change.steps.ranges import Ranges
from edgec.quantize.change.steps.separate import Separate
from tests.quantize.nets import NETS, Net, db, samples, swish, worked


def weights(op: Op) -> Array:
    w = op.inputs[1].const
    assert w is not None
    return w


def stretched(names: tuple[str, ...] = ("relu", "none")) -> Graph:
    """Convolutions whose channels are of sizes from 1 to 100, a depthwise one and a
    dense one behind.
    """
    net = Net("stretched", 5)
    y = net.conv(net.input(1, 12, 12, 3), 16, act=names[0])
    w, b = net.build.graph.ops[-1].inputs[1:]
    factor = np.geomspace(1, 100, 16).astype(np.float32)
    assert w.const is not None
    assert b.const is not None
    w.const, b.const = w.const * factor[:, None, None, None], b.const * factor
    y = net.depthwise(y, act="relu")
    v = net.build.graph.ops[-1].inputs[1]
    assert v.const is not None
    v.const = v.const / factor
    return net.done(net.conv(y, 8, 1, act=names[1]))


# ---- products
# --------------------------------------------------------------------------------------

OPS = {
    "dense": (Conv2D((2, 1), (1, 0, 2, 1), (1, 2)), (2, 9, 8, 4), (6, 3, 2, 4)),
    "grouped": (Conv2D(pads=(1, 1, 1, 1)), (1, 6, 5, 6), (4, 3, 3, 3)),
    "depthwise": (DepthwiseConv2D((2, 2), (0, 1, 0, 1)), (1, 8, 8, 3), (1, 3, 3, 6)),
    "fully connected": (FullyConnected(), (5, 7), (3, 7)),
}


def product(name: str) -> tuple[Op, Array]:
    spec, x_shape, w_shape = OPS[name]
    net = Net(name, 2)
    y = net.op(spec, net.input(*x_shape), net.const(*w_shape))
    graph = net.done(y)
    return graph.ops[0], samples(graph, 1)[0]["x"] + 2.0


@pytest.mark.parametrize("name", OPS)
def test_products_are_what_the_op_computes(name: str) -> None:
    op, x = product(name)
    p = LinearLayer(op)
    w = op.inputs[1].const
    assert w is not None
    np.testing.assert_array_equal(p.weights(p.matrix(w)), w)
    want = op.spec.ref([x, w], [v.type for v in op.inputs], [op.output.type])[
        0
    ].reshape(-1, op.output.type.shape[-1])
    every = p.windows(x, 10**6, np.random.default_rng(0))
    np.testing.assert_allclose(apply(p.matrix(w), every), want, atol=1e-4)
    np.testing.assert_allclose(p.mean(x), every.mean(0), atol=1e-5)
    np.testing.assert_allclose(p.mean(x + 7, 7.0), every.mean(0), atol=1e-4)
    some = p.windows(x, 3, np.random.default_rng(0))
    assert len(some) == 3
    assert all(any(np.array_equal(row, other) for other in every) for row in some)


@pytest.mark.parametrize("name", OPS)
def test_windows_by_size_stand_for_all(name: str) -> None:
    """One large element is in what is drawn, and what is drawn has the power of all
    windows, on average.
    """
    op, x = product(name)
    x = x.copy()
    x[(0,) * (x.ndim - 1) + (1,)] = 500.0
    p = LinearLayer(op)
    every = p.windows(x, 10**6, np.random.default_rng(0))
    power = float(np.square(every).sum())
    got = [
        p.weighted_windows(x, max(2, len(every) // 4), np.random.default_rng(i))
        for i in range(400)
    ]
    assert np.mean(
        [w @ np.square(some).sum((1, 2)) for some, w in got]
    ) == pytest.approx(power, rel=0.15)
    assert np.mean([some.max() == 500.0 for some, _ in got]) > 0.5
    whole, ones = p.weighted_windows(x, 10**6, np.random.default_rng(0))
    np.testing.assert_array_equal(whole, every)
    assert set(ones) == {1}
    even, w = p.weighted_windows(np.zeros_like(x), 2, np.random.default_rng(0))
    assert w.sum() == pytest.approx(len(every))
    assert not even.any()


# ---- ranges
# --------------------------------------------------------------------------------------


def histogram(x: Array) -> Histogram:
    h = Histogram((float(x.min()), float(x.max())))
    h.add(x)
    return h


def test_percentiles_leave_out_what_they_say() -> None:
    x = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    low, high = percentile(histogram(x), 99.0)
    assert np.mean((x < low) | (x > high)) == pytest.approx(0.01, abs=0.002)
    assert percentile(histogram(np.maximum(x, 0)), 99.0)[0] == 0.0, (
        "half of them are zero: that end stays"
    )


def test_mse_is_the_least_noise() -> None:
    x = np.random.default_rng(0).standard_t(3, size=100_000).astype(np.float32)
    h = histogram(x)

    def real(r: tuple[float, float]) -> float:
        q = activation_quant(r)
        ints = (
            np.clip(np.rint(x / q.scale[0]) + q.zero_point[0], -128, 127)
            - q.zero_point[0]
        )
        return float(np.mean((x - ints * q.scale[0]) ** 2))

    assert noise(h, mse(h)) == pytest.approx(real(mse(h)), rel=0.05)
    tries = [
        (h.range[0] * a, h.range[1] * b)
        for a in np.linspace(0.1, 1, 19)
        for b in np.linspace(0.1, 1, 19)
    ]
    assert real(mse(h)) <= 1.03 * min(map(real, tries)) < 0.9 * real(h.range)


def test_entropy_clips_a_lonely_outlier() -> None:
    x = np.append(np.random.default_rng(0).normal(size=100_000), 1000.0).astype(
        np.float32
    )
    low, high = entropy(histogram(x))
    assert high < 500
    assert low < 0


@pytest.mark.parametrize("method", METHODS)
def test_ranges_of_what_never_changes_or_is_not_finite(method: str) -> None:
    for x in (
        np.zeros(9, np.float32),
        np.full(9, 3, np.float32),
        np.array([1, np.inf, 2, np.nan], np.float32),
    ):
        seen = x[np.isfinite(x)]
        h = Histogram((float(seen.min()), float(seen.max())))
        h.add(x)
        low, high = METHODS[method](h)
        assert np.isfinite((low, high)).all()
        assert low <= high


def test_choose_clips_what_its_readers_do_not_need() -> None:
    """Large values of a channel that no weight reads waste a range of min and max."""
    net = Net("outlier", 3)
    graph = net.done(net.conv(net.input(1, 16, 16, 3), 8, act="none"))
    w = graph.ops[0].inputs[1].const
    tries = samples(graph, 6)
    assert w is not None
    w[..., 1] = 0.0
    tries[2]["x"][0, 3, :2, 1] = 400.0
    work = QuantizationState(graph, tries)
    plain = work.after(MinMaxRanges())
    picked = work.after(Choose())
    x = graph.inputs[0]
    assert plain.ranges[x][1] == 400.0
    assert picked.ranges[x][1] < 100
    assert db(picked, graph) > db(plain, graph) + 6


def test_choose_takes_fewer_windows_of_wide_depthwise_layers() -> None:
    """They are kept for all candidates at once: 1,024 of each layer were 200 MB of a
    MobileNet.
    """
    net = Net("wide", 2)
    x = net.input(1, 24, 24, 512)
    y = net.op(
        DepthwiseConv2D(pads=(1, 1, 1, 1)), x, net.const(1, 3, 3, 512), net.const(512)
    )
    work = worked(net.done(net.conv(y, 4, 1, act="none")), count=8)
    windows = Choose()._windows(work)
    wide, dense = windows.values()
    assert wide.rows.nbytes <= 5 << 20
    assert len(wide.rows) >= 200
    assert len(dense.rows) == 1024


def test_choose_is_min_and_max_where_nothing_is_better() -> None:
    graph = NETS["chain"]()
    work = QuantizationState(graph, samples(graph, 6))
    assert (
        work.after(Choose(than=0.0)).ranges
        == work.after(MinMaxRanges()).ranges
        == work.after(Ranges("minmax")).ranges
    )


def test_choose_leaves_room_where_a_sample_has_one_vector() -> None:
    """Logits of other samples may reach further; in maps there are many vectors, one of
    which did.
    """
    net = Net("classifier", 4)
    x = net.conv(net.input(1, 24, 24, 3), 8, act="relu")
    graph = net.done(net.conv(net.op(AveragePool2D((24, 24)), x), 5, 1, act="none"))
    work, (logits,) = QuantizationState(graph, samples(graph, 4)), graph.outputs
    low, high = work.observed_ranges()[logits]
    tight, wide = (work.after(Choose(room=room)) for room in (1.0, 1.5))
    assert tight.ranges[logits] == (low, high)
    assert wide.ranges[logits] == (1.5 * low, 1.5 * high)
    assert wide.ranges[x] == tight.ranges[x]


# ---- rewrites, rounding, correction
# --------------------------------------------------------------------------------------


def test_equalization_changes_nothing_but_the_sizes_of_channels() -> None:
    graph = stretched()
    work = worked(graph, Equalize(power=1.0))
    for s in samples(graph, 3):
        for name, y in interp(graph, s).items():
            np.testing.assert_allclose(
                interp(work.graph, s)[name],
                y,
                rtol=1e-4,
                atol=1e-4 * float(np.abs(y).max()),
            )
    seen: dict[str, Array] = {}
    interp(
        work.graph,
        samples(graph, 1)[0],
        lambda v, a: seen.update({v.name: np.abs(a).reshape(-1, a.shape[-1]).max(0)}),
    )
    first = work.graph.ops[0].output.name
    assert seen[first].max() < 4 * seen[first].min()
    assert (
        db(worked(graph, Equalize(power=1.0), MinMaxRanges()), graph)
        > db(worked(graph, MinMaxRanges()), graph) + 6
    )


def test_equalization_leaves_relu6_room() -> None:
    """Channels grow until just before the clip, and those that reach it stay."""
    graph = stretched(("relu6", "none"))
    work = worked(graph, Equalize())
    for s in work.samples:
        for name, y in interp(graph, s).items():
            np.testing.assert_allclose(
                interp(work.graph, s)[name],
                y,
                rtol=1e-4,
                atol=1e-4 * float(np.abs(y).max()),
            )


def test_equalization_leaves_small_maps_alone() -> None:
    """A channel that stands for one class is small in all samples without it: 6 samples
    of 144 vectors are 864.
    """
    graph = stretched()
    for rows, changed in ((864, True), (865, False)):
        work = worked(graph, Equalize(rows=rows))
        assert np.any(weights(work.graph.ops[0]) != weights(graph.ops[0])) == changed


def test_equalization_goes_through_pools_and_stops_at_outputs() -> None:
    net = Net("pool", 4)
    y = net.conv(net.input(1, 8, 8, 3), 6, act="relu")
    z = net.op(MaxPool2D((2, 2), (2, 2)), y)
    graph = net.done(net.conv(z, 4, 1, act="none"))
    for outputs, changed in ((graph.outputs, True), ([*graph.outputs, z], False)):
        graph.outputs = list(outputs)
        work = worked(graph, Equalize())
        assert np.any(weights(work.graph.ops[0]) != weights(graph.ops[0])) == changed


def test_averages_of_whole_images_have_a_scale_of_their_own() -> None:
    """Which is finer than that of the image; smaller windows stay pools, and so does
    what an Edge TPU may refuse.
    """
    net = Net("average", 3)
    y = net.conv(net.input(1, 12, 12, 3), 16, act="relu")
    graph = net.done(
        net.conv(net.op(AveragePool2D((12, 12), (1, 1)), y), 4, 1, act="none")
    )
    work = worked(graph, Lower(), MinMaxRanges())
    int8 = work.int8()
    (mean,) = (op for op in int8.graph.ops if op.kind == "mean")
    assert mean.output.type.scale < 0.5 * mean.inputs[0].type.scale
    assert db(work, graph) > db(worked(graph, MinMaxRanges()), graph) + 3
    for size, window in ((12, 6), (160, 160)):
        other = Net("other", 3)
        z = other.op(
            AveragePool2D((window, window), (1, 1)), other.input(1, size, size, 3)
        )
        kept = worked(other.done(other.conv(z, 4, 1)), Lower()).graph
        assert [op.kind for op in kept.ops] == ["average_pool2d", "conv2d"]


def test_gptq_lessens_the_error_of_the_products() -> None:
    rng = np.random.default_rng(0)
    # what varies together
    x = rng.integers(-100, 100, (500, 1)) + rng.integers(-20, 20, (500, 32))
    w = rng.normal(size=(1, 8, 32)) * 20
    q = rounded(w, np.einsum("ni,nj->ij", x, x)[None].astype(np.float64), 0.01)
    assert np.array_equal(q, np.rint(q))

    def error(m: Array) -> float:
        return float(np.square(x @ (m[0] - w[0]).T).mean())

    assert error(q) < 0.2 * error(np.rint(w))
    assert np.array_equal(rounded(w, np.zeros((1, 32, 32)), 0.01), np.rint(w)), (
        "no window: the nearest"
    )


def test_gptq_of_a_whole_network() -> None:
    graph = stretched()
    before = worked(graph, MinMaxRanges())
    after = worked(graph, MinMaxRanges(), Gptq())
    assert {op.kind for op in after.weights} == {"conv2d", "depthwise_conv2d"}
    nearest = before.int8().twins
    twins = after.int8().twins
    assert any(
        np.any(weights(nearest[op]) != weights(twins[op])) for op in after.weights
    )
    assert db(after, graph) > db(before, graph) - 0.5


def channel_means(
    graph: Graph, tries: list[dict[str, Array]], names: list[str]
) -> dict[str, Array]:
    """Of reals, over all samples."""
    sums: dict[str, Array] = {}

    def observe(v: Value, array: Array) -> None:
        if v.name in names:
            if v.type.is_quantized:
                real = Dequantize().ref([array], [v.type], [v.type])[0]
            else:
                real = array
            sums[v.name] = sums.get(v.name, 0) + real.reshape(-1, array.shape[-1]).mean(
                0, dtype=np.float64
            )

    for s in tries:
        interp(graph, s, observe)
    return {k: y / len(tries) for k, y in sums.items()}


def off(work: QuantizationState, tries: list[dict[str, Array]]) -> Array:
    """How far the means of the channels of the output are off in the int8 model."""
    (out,) = (v.name for v in work.graph.outputs)
    floats, int8 = (
        channel_means(g, tries, [out])[out] for g in (work.graph, work.int8().graph)
    )
    return np.asarray(int8 - floats)


def test_bias_correction_keeps_means() -> None:
    """Of a layer alone, whose inputs have a mean; and through relus, where what is
    inherited counts too, and samples of noise agree less.
    """
    alone = one_layer()
    for graph, offset, inherited, left in (
        (alone, 5.0, False, 0.3),
        (alone, 5.0, True, 0.3),
        (stretched(), 0, True, 0.4),
    ):
        tries = [
            {k: x + np.float32(offset) for k, x in s.items()} for s in samples(graph, 6)
        ]
        work = QuantizationState(graph, tries).after(MinMaxRanges())
        after = work.after(BiasCorrection(inherited=inherited))
        assert np.abs(off(after, tries)).max() < left * np.abs(off(work, tries)).max()


@pytest.mark.parametrize("inherited", [False, True])
def test_bias_correction_takes_what_samples_agree_on(inherited: bool) -> None:
    """One of four is clipped: a quarter of what that costs it is the mean, and would be
    noise to the others.
    """
    graph = one_layer()
    calm = samples(graph, 3)
    ranges = QuantizationState(graph, calm).after(MinMaxRanges()).ranges
    bright = {k: x + np.float32(20) for k, x in calm[0].items()}
    work = QuantizationState(graph, [*calm, bright], ranges=ranges)
    after = work.after(BiasCorrection(inherited=inherited))
    alone = np.abs(off(work, [bright])).max()
    assert alone > 20 * np.abs(off(work, calm)).max()
    assert np.abs(off(after, calm)).max() < alone / 12


def one_layer() -> Graph:
    net = Net("one", 7)
    return net.done(net.conv(net.input(1, 12, 12, 3), 8, act="none"))


def test_bias_correction_gives_a_bias_to_what_has_none() -> None:
    net = Net("bare", 6)
    x = net.input(1, 8, 8, 3)
    graph = net.done(net.op(Conv2D(pads=(1, 1, 1, 1)), x, net.const(4, 3, 3, 3)))
    (op,) = graph.ops
    twin = worked(graph, MinMaxRanges(), BiasCorrection()).int8().twins[op]
    assert len(twin.inputs) == 3
    assert twin.inputs[2].type.dtype == "int32"


@pytest.mark.parametrize("net", [*NETS.values(), swish], ids=lambda net: net.__name__)
def test_every_step_takes_every_network(net: Callable[[], Graph]) -> None:
    """One after the other, and twice the same."""
    graph = net()
    todo: list[RecipeStep] = [
        Lower(),
        Separate(),
        Centre(),
        Equalize(),
        Choose(),
        Gptq(),
        BiasCorrection(),
    ]
    assert {s.name for s in todo} | {"minmax", "ranges", "precision"} == set(steps())
    one = worked(graph, *todo)
    two = worked(graph, *todo)
    assert one.int8().graph == two.int8().graph
    assert db(one, graph) > 15


def test_best_is_never_far_below_min_and_max() -> None:
    graph = stretched()
    from edgec.quantize.select.apply import apply_recipe

    found = apply_recipe(Recipe.load("best"), graph, samples(graph, 8))
    rows = {t.name: t for t in found.trials}
    assert len(rows) == len(Recipe.load("best").candidates)
    kept = rows[found.candidate.name]
    assert kept.db >= rows["minmax"].db - found.recipe.within_db
