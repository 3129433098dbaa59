"""How strict the check after a compile is: 1e-4 of the range, and more only where the
graph itself makes more of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgec_partitioner.regions import Region
from edgec_partitioner.segments import segment
from edgec_runtime import Bundle, Session

import edgec
from edgec.compiler.op_by_op import HOW, op_by_op
from edgec.compiler.segment_checks import (
    FLOAT_TOLERANCE,
    MIXED_TOLERANCE,
    SegmentChecker,
    amplified_error,
    rounding_error,
    rounds_floats,
    selects_by_floats,
)
from edgec.emit.tflite import write_tflite
from edgec.ir import Builder, Graph, Quant, TensorType, interp
from edgec.measure.distance import distance, root_mean_square
from edgec.ops.argmax import ArgMax
from edgec.ops.binary import Mul, Sub
from edgec.ops.cast import Cast
from edgec.ops.softmax import Softmax
from edgec.ops.unary import Relu
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.change.steps.minmax import MinMaxRanges
from edgec.quantize.change.steps.precision import Precision
from tests.cli.verbs import edgec as verb
from tests.networks import Net
from tests.quantize.nets import NETS, samples


def amplifier(gain: float) -> Graph:
    """x, as gain * (1000 x - (1000 - 1/gain) x): the larger the gain, the more the
    difference cancels.
    """
    b = Builder("g")
    x = b.input("x", TensorType((8,)))
    big = b.add(Mul(), [x, b.const(np.array(1000, np.float32))], "big")
    near = b.add(Mul(), [x, b.const(np.array(1000 - 1 / gain, np.float32))], "near")
    b.graph.outputs = [
        b.add(
            Mul(), [b.add(Sub(), [big, near]), b.const(np.array(gain, np.float32))], "y"
        )
    ]
    return b.graph


@pytest.mark.parametrize(("gain", "tame"), [(1.0, True), (1000.0, False)])
def test_cancellation_is_what_raises_the_limit(gain: float, tame: bool) -> None:
    graph = amplifier(gain)
    inputs = {"x": np.linspace(0.5, 1, 8, dtype=np.float32)}
    moved = rounding_error(graph, inputs, "y", interp(graph, inputs)["y"])
    assert (moved < FLOAT_TOLERANCE) == tame
    assert moved > 0


def test_distance_counts_steps_and_parts_of_the_range() -> None:
    assert distance(np.array([1, -3], np.int8), np.array([1, 2], np.int8)) == 5
    assert distance(
        np.array([0, 1.5], np.float32), np.array([-1, 1], np.float32)
    ) == pytest.approx(0.5)
    nan = np.array([np.nan, 1], np.float32)
    assert distance(nan, nan) == 0
    assert distance(nan, np.array([0, 1], np.float32)) == np.inf
    assert (
        distance(np.array([np.inf, 1], np.float32), np.array([-np.inf, 1], np.float32))
        == np.inf
    )


@pytest.mark.parametrize(
    ("floats", "rounds"),
    [((), False), ((0,), True), ((1,), True), ((2,), False), ((0, 1), True)],
)
def test_int8_behind_float_is_where_a_last_bit_decides(
    floats: tuple[int, ...], rounds: bool
) -> None:
    """Of three convolutions; quantizing an input is exact, and so is what nothing in
    int8 reads.
    """
    graph = NETS["chain"]()
    left = Precision(tuple(graph.ops[i].output.name for i in floats))
    assert (
        rounds_floats(
            QuantizationState(graph, samples(graph))
            .after(MinMaxRanges())
            .after(left)
            .int8()
            .graph
        )
        == rounds
    )


def test_single_elements_behind_float_may_move_but_not_all_of_them() -> None:
    """A few wrong steps are a last bit's; a wrong kernel is everywhere."""
    graph = NETS["chain"]()
    left = Precision((graph.ops[0].output.name,))
    mixed = (
        QuantizationState(graph, samples(graph))
        .after(MinMaxRanges())
        .after(left)
        .int8()
        .graph
    )
    (sample,) = samples(graph, 1)
    (name, want), *_ = interp(mixed, sample).items()
    s = segment(
        "seg0",
        Region("cpu", tuple(mixed.ops), tuple(mixed.inputs), tuple(mixed.outputs)),
    )
    span = float(want.max() - want.min())
    for moved, ok in ((want.reshape(-1)[:1], True), (want.reshape(-1), False)):
        got = want.copy()
        got.reshape(-1)[: moved.size] += np.float32(0.2 * span)
        judge = SegmentChecker()
        judge(s, {**sample, name: got}.__getitem__, "C")
        (check,) = judge.worst()
        assert check.ok == ok
        assert check.error == pytest.approx(root_mean_square(got, want))
        assert check.limit >= MIXED_TOLERANCE


@pytest.mark.slow
def test_op_by_op_finds_what_hides_behind_a_last_bit(tmp_path: Path) -> None:
    """One weight of one channel, in an int8 op that reads what float computed: far
    below what the outputs may move.
    """
    net = Net("m", (1, 3, 16, 16))
    y = "images"
    for channels in (8, 8, 8):
        y = net.conv(y, channels, 3, act="relu")
    model = net.save(tmp_path / "m.onnx", y)
    np.savez(
        tmp_path / "d.npz",
        images=np.random.default_rng(5).normal(size=(8, 3, 16, 16)).astype(np.float32),
    )
    data = tmp_path / "d.npz"
    done = edgec.compile(
        model,
        output=tmp_path / "m.edgec",
        calibrate=data,
        quantize="fast",
        float_ops=["/Conv_0"],
    )
    assert [c.ok for c in done.network.verification.segments if c.how == HOW] == [True]
    lowered, sample = done.network.lowered, done.network.lowered.samples.verify[0]
    mixed = [s for s in lowered.partition.segments if rounds_floats(s.graph)]
    op = next(
        op
        for s in mixed
        for op in s.graph.ops
        if op.kind == "conv2d" and op.output.type.dtype == "int8"
    )
    weights = op.inputs[1].const
    assert weights is not None
    weights.reshape(-1)[int(np.abs(weights.astype(int)).argmin())] += 2
    with Bundle.open(done.path) as bundle, Session(bundle, tpu="c") as session:
        (check,) = op_by_op(bundle, mixed, sample).checks
        assert not check.ok
        judge = SegmentChecker()
        session.run(sample)
        judge(mixed[0], session.tensor, "C")
        assert judge.worst()[0].ok


def best_places(path: Path, side: int, count: int) -> Path:
    """The channels of an image at its highest scores, of a sum of many products."""
    net = Net("best", (1, 8, side, side))
    x = net.conv("images", 8, 3)
    rows = net.op("Reshape", x, net.const(np.array([8, side * side], np.int64)))
    score = net.op("ReduceMean", rows, axes=[0], keepdims=0)
    first = net.op("TopK", score, net.const(np.array([count], np.int64)), outputs=2)
    return net.save(path, net.op("Gather", rows, f"{first[:-1]}1", axis=1))


def test_the_order_of_nearly_equal_scores_is_no_error(tmp_path: Path) -> None:
    """Of 65,536 scores some neighbours differ by their last bit, and C adds in another
    order than numpy: rows change places. The op that chooses is compared by itself.
    """
    model = best_places(tmp_path / "best.onnx", 256, 20_000)
    done = edgec.compile(model, output=tmp_path / "best.edgec")
    ways = {c.how: c for c in done.network.verification.segments}
    assert ways["C"].limit > FLOAT_TOLERANCE
    assert ways[HOW].ok
    graph = done.network.lowered.read.graph
    assert selects_by_floats(graph)
    (sample,) = done.network.lowered.samples.verify[:1]
    (name, want), *_ = interp(graph, sample).items()
    # Two rows change places: an order of scores. All are others: an error.
    swapped = want.copy()
    swapped[..., [0, 1]] = want[..., [1, 0]]
    for got, ok in ((swapped, True), (want[..., ::-1], False)):
        error, limit = amplified_error(graph, sample, name, got, want)
        assert (error <= limit) == ok


def test_positions_from_scores_are_told_from_other_outputs(tmp_path: Path) -> None:
    net = Net("places", (1, 8, 16, 16))
    best = net.op("ArgMax", net.conv("images", 8, 3), axis=1, keepdims=0)
    model = net.save(tmp_path / "places.onnx", net.op("Cast", best, to=1))
    graph = edgec.compile(
        model, output=tmp_path / "places.edgec"
    ).network.lowered.read.graph
    assert selects_by_floats(graph)
    plain = Net("plain", (1, 8, 16, 16))
    model = plain.save(tmp_path / "plain.onnx", plain.conv("images", 8, 3))
    graph = edgec.compile(
        model, output=tmp_path / "plain.edgec"
    ).network.lowered.read.graph
    assert not selects_by_floats(graph)


def test_class_numbers_may_differ_in_few_places() -> None:
    """Of 256 of eight classes: one of them is a last bit's, and all next ones are not."""
    b = Builder("classes")
    x = b.input("x", TensorType((256, 8)))
    scores = b.add(Mul(), [x, b.const(np.array(1.5, np.float32))], "scores")
    best = b.add(ArgMax(1), [scores], "best")
    b.graph.outputs = [b.add(Cast("int32"), [best], "y")]
    assert selects_by_floats(b.graph)
    values = np.random.default_rng(0).normal(size=(256, 8)).astype(np.float32)
    want = interp(b.graph, {"x": values})["y"]
    one = want.copy()
    one.reshape(-1)[0] += 1
    for got, ok in ((one, True), (want + 1, False)):
        error, limit = amplified_error(b.graph, {"x": values}, "y", got, want)
        assert (error <= limit) == ok


@pytest.mark.cc
@pytest.mark.slow
def test_a_softmax_that_ends_litert_is_not_run_by_it(tmp_path: Path) -> None:
    """LiteRT aborts where nearly equal numbers add up to 512 or more."""
    build = Builder("flat")
    quant = Quant.per_tensor(0.005, 3)
    x = build.input("x", TensorType((1, 1024), "int8", quant))
    hidden = build.add(Relu(), [x], "hidden", quant=quant)
    build.graph.outputs = [build.add(Softmax(), [hidden], "y")]
    model = tmp_path / "flat.tflite"
    model.write_bytes(write_tflite(build.graph))
    options = ("--target", "pi4+coral", "--edgetpu", "all")
    done = verb("compile", model, *options, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "not run here as TFLite: a softmax of seg0 is so flat" in done.out
