"""A graph's C in this process gives every value that interp gives, in its own order,
and the same ranges.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgec.compiler.native import (
    HostRunners,
    NativeGraph,
    _load,
    native_compiler,
    runner,
)
from edgec.frontends import read_model
from edgec.ir import Array, Graph, Run, Value, interp
from edgec.ops.binary import Add
from edgec.ops.opaque import Opaque
from edgec.ops.pool import MaxPool2D
from edgec.ops.unary import Relu
from edgec.passes.pipeline import optimize
from edgec.quantize.change.lower import lower
from edgec.quantize.change.rewrite import rewrite
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.change.steps.bias import BiasCorrection
from edgec.quantize.change.steps.minmax import MinMaxRanges
from edgec.quantize.observe.calibration import load_calibration
from edgec.quantize.observe.ranges import calibrate
from tests.networks import mobilenet_like
from tests.quantize.nets import NETS, Net, random_net, samples

pytestmark = pytest.mark.slow


def native(graph: Graph) -> NativeGraph:
    return NativeGraph(graph, native_compiler(None))


GRAPHS = [*(make() for make in NETS.values()), random_net(3), random_net(8)]


def values(
    run: Run, sample: Mapping[str, Array]
) -> tuple[list[tuple[Value, Array]], dict[str, Array]]:
    """All that the observer is given, copied, and the outputs."""
    seen: list[tuple[Value, Array]] = []
    outputs = run(sample, lambda v, array: seen.append((v, array.copy())))
    return seen, outputs


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
def test_every_value_is_seen_as_interp_sees_it(graph: Graph) -> None:
    """Views, values that nothing reads, outputs in the middle; twice, since the arena
    is not cleared.
    """
    run = native(graph)
    for sample in samples(graph, 2):
        seen, outputs = values(run, sample)
        want, expected = values(partial(interp, graph), sample)
        assert [v for v, _ in seen] == [v for v, _ in want]
        for (v, got), (_, y) in zip(seen, want, strict=True):
            np.testing.assert_allclose(
                got, y, rtol=1e-5, atol=1e-5 * float(np.abs(y).max()), err_msg=v.name
            )
        for name, y in expected.items():
            np.testing.assert_allclose(run(sample, None)[name], outputs[name], rtol=0)
            np.testing.assert_allclose(
                outputs[name], y, rtol=1e-5, atol=1e-5 * float(np.abs(y).max())
            )


def test_outputs_that_are_inputs_constants_or_listed_twice() -> None:
    """What the C does not write is the caller's, and is read from where it is."""
    net = Net("outputs", 5)
    x = net.input(1, 9, 9, 3)
    k = net.const(4)
    y = net.conv(net.conv(x, 8), 4, act="none")
    graph = net.done(y, x, net.op(Add(), y, k), y, k, x, k)
    (sample,) = samples(graph, 1)
    seen, outputs = values(native(graph), sample)
    want, expected = values(partial(interp, graph), sample)
    assert list(outputs) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-5)
    for (v, got), (_, array) in zip(seen, want, strict=True):
        np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-5, err_msg=v.name)


def test_ranges_are_those_of_interp(tmp_path: Path) -> None:
    graph = lower(
        optimize(read_model(mobilenet_like(tmp_path / "m.onnx", size=64), {}))
    )
    tries = samples(graph, 3)
    fast = calibrate(graph, tries, run=native(graph))
    slow = calibrate(graph, tries)
    assert list(fast) == list(slow)
    for v, (low, high) in slow.items():
        np.testing.assert_allclose(
            fast[v], (low, high), atol=1e-5 * (high - low), rtol=0, err_msg=v.name
        )


def test_what_the_observer_raises_comes_back() -> None:
    graph = NETS["chain"]()

    def refuse(v: Value, array: Array) -> None:
        if v in graph.outputs:
            raise KeyError(v.name)

    with pytest.raises(KeyError, match=graph.outputs[0].name):
        native(graph)(samples(graph, 1)[0], refuse)


def test_interp_runs_what_is_small_or_has_no_c() -> None:
    small = NETS["chain"]()
    net = Net("opaque")
    told: list[str] = []
    assert isinstance(runner(small, 4, native_compiler(None), told.append), partial)
    assert isinstance(
        runner(small, 1_000_000, native_compiler(None), told.append), NativeGraph
    )
    x = net.input(1, 8)
    unread = net.done(net.op(Opaque("CUSTOM", "custom", (("float32", (1, 8)),)), x))
    assert isinstance(
        runner(unread, 10**9, native_compiler(None), told.append), partial
    )
    assert set(told) <= {"compile C of the float model"}
    other: list[str] = []
    net = Net("new", 77)
    fresh = net.done(net.conv(net.input(1, 5, 7, 2), 3))
    for _ in range(2):
        runner(fresh, 10**9, native_compiler(None), other.append)
    assert other == ["compile C of the float model"], (
        "what was loaded before is not waited for"
    )


def test_memory_does_not_grow_with_the_photos(tmp_path: Path) -> None:
    """Photos are read one at a time, and the C has one arena for all of them."""
    net = Net("large", 1)
    x = net.input(1, 224, 224, 3)
    graph = net.done(net.op(MaxPool2D((2, 2), (2, 2)), net.op(Relu(), x)))
    run = native(graph)
    for i in range(200):
        Image.new("RGB", (4, 4), (i, 0, 255 - i)).save(tmp_path / f"{i:03}.png")

    def peak(count: int) -> int:
        found = load_calibration(tmp_path, graph.inputs, limit=count)
        assert len(found) == count
        tracemalloc.start()
        calibrate(graph, found, run=run)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(200) - peak(10) < x.type.nbytes


@pytest.fixture(autouse=True)
def _no_trace() -> Iterator[None]:
    yield
    tracemalloc.stop()


def test_graphs_that_differ_in_numbers_share_a_library() -> None:
    """Weights, biases and multipliers are no part of the text then; the results are
    those of interp.
    """
    graph = NETS["chain"]()
    tries = samples(graph, 4)
    run = HostRunners(native_compiler(None), lambda text: None)
    one = QuantizationState(graph, tries).after(MinMaxRanges())
    two = one.after(BiasCorrection(inherited=False)).after(BiasCorrection())
    assert one.int8().graph != two.int8().graph
    loaded = []
    for work in (one, two):
        int8 = work.int8().graph
        got = run.int8(int8, 10**9)(tries[0], None)
        want = interp(int8, tries[0])
        for name, y in want.items():
            np.testing.assert_array_equal(got[name], y)
        loaded.append(_load.cache_info().misses)
    assert loaded[0] == loaded[1]


@pytest.mark.parametrize(
    "graph", [NETS["chain"](), NETS["residual"]()], ids=lambda g: g.name
)
def test_what_an_observer_writes_is_what_is_computed_from(graph: Graph) -> None:
    """As `interp` has it: a simulation of rounding stands on that."""
    first = graph.ops[0].output

    def halve(v: Value, array: Array) -> None:
        if v is first:
            array *= 0.5

    sample = samples(graph, 1)[0]
    plain = interp(graph, sample)
    want = interp(graph, sample, halve)
    for name, y in native(graph)(sample, halve).items():
        np.testing.assert_allclose(y, want[name], rtol=1e-4, atol=1e-5)
        assert not np.allclose(y, plain[name], rtol=1e-3)


def test_float_graphs_of_other_weights_share_a_library() -> None:
    graph = NETS["chain"]()
    native(graph)
    before = _load.cache_info().misses
    for v in graph.constants():
        assert v.const is not None
        v.const = v.const * 2 + 1
    sample = samples(graph, 1)[0]
    for name, y in native(graph)(sample).items():
        np.testing.assert_allclose(y, interp(graph, sample)[name], rtol=1e-4, atol=1e-3)
    assert _load.cache_info().misses == before


def test_a_kernel_that_cannot_take_every_scale_is_not_taken_because_it_took_another() -> (
    None
):
    """The sum of two values, in steps of which most are one, has no factors that the
    vectors could take.
    """
    net = Net("scales", 1)
    x = net.input(1, 16, 16, 3)
    total = net.op(Add(), net.conv(x, 16), net.conv(x, 16))
    graph = net.done(net.conv(total, 4, act="none"))
    tries = samples(graph, 3)
    work = QuantizationState(graph, tries).after(MinMaxRanges())
    runners = HostRunners(native_compiler(None), lambda text: None)
    for widest in (None, 1e9):
        ranges = {
            v: r if v is not total or widest is None else (-widest, widest)
            for v, r in work.ranges.items()
        }
        int8 = rewrite(graph, ranges).graph
        run = runners.int8(int8, 10**6)
        for name, y in interp(int8, tries[0]).items():
            np.testing.assert_array_equal(run(tries[0], None)[name], y)
