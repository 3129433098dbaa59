"""The int8 model run on several samples at once: what is corrected on the way is what
one op after the other gives.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from edgec.compiler.native import HostRunners, NativeGraph, native_compiler
from edgec.ir import Array, Graph, Op, Run, Value, interp
from edgec.ir.types import dequantize
from edgec.ops.conv import Conv2D
from edgec.quantize.change.products import LinearLayer, linear_layers
from edgec.quantize.change.state import InterpRunners, QuantizationState, Runners
from edgec.quantize.change.steps.bias import BiasCorrection, living, run_together
from edgec.quantize.change.steps.gptq import Gptq
from edgec.quantize.change.steps.minmax import MinMaxRanges
from edgec.quantize.observe.calibration import Sample
from tests.quantize.nets import NETS, Net, random_net, samples


def bare() -> Graph:
    """Convolutions without a bias, of which two read one value; equal weights, which a
    file would hold once.
    """
    net = Net("bare", 6)
    x = net.op(
        Conv2D(pads=(1, 1, 1, 1), act="relu"),
        net.input(1, 8, 8, 3),
        net.const(6, 3, 3, 3),
    )
    w = net.const(6, 3, 3, 6)
    y, z = (net.op(Conv2D(pads=(1, 1, 1, 1)), x, w) for _ in range(2))
    return net.done(net.op(Conv2D(), y, net.const(4, 1, 1, 6)), z)


GRAPHS = [*(make() for make in NETS.values()), random_net(3), random_net(8), bare()]


def matrix(p: LinearLayer, w: Value) -> Array:
    assert w.const is not None
    return p.matrix(
        dequantize(w.const, w.type) if w.type.is_quantized else w.const
    ).astype(np.float64)


def means(
    graph: Graph, p: LinearLayer, x: Value, tries: Sequence[Sample]
) -> list[Array]:
    """The mean window of what an op reads in each sample, of a float or an int8 graph."""
    found: list[Array] = []

    def observe(v: Value, array: Array) -> None:
        if v is x and v.type.is_quantized:
            found.append(p.mean(array, v.type.zero_point) * v.type.scale)
        elif v is x:
            found.append(p.mean(array))

    for s in tries:
        interp(graph, s, observe)
    return found


def one_by_one(work: QuantizationState) -> dict[Op, Array]:
    """What the sequential correction means: the whole int8 model made anew for each op,
    by `interp`.
    """
    work = replace(work)
    for op, p in linear_layers(work.int8().twins).items():
        int8 = work.int8()
        twin = int8.twins[op]
        wanted = means(work.graph, p, op.inputs[0], work.samples)
        got = means(int8.graph, p, twin.inputs[0], work.samples)
        off = np.array(
            [
                (matrix(p, op.inputs[1]) * w[:, None]).sum(2)
                - (matrix(p, twin.inputs[1]) * g[:, None]).sum(2)
                for w, g in zip(wanted, got, strict=True)
            ]
        ).reshape(len(wanted), -1)
        bias = op.inputs[2].const if len(op.inputs) > 2 else None
        agreed = off.mean(0) ** 3 / (off**2).mean(0)
        work.biases = {
            **work.biases,
            op: agreed + (0 if bias is None else bias.reshape(-1).astype(float)),
        }
    return dict(work.biases)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
def test_sequential_biases_are_those_of_one_op_after_the_other(graph: Graph) -> None:
    work = (
        QuantizationState(graph, samples(graph, 4)).after(MinMaxRanges()).after(Gptq())
    )
    got = work.after(BiasCorrection(whole=False)).biases
    want = one_by_one(work)
    assert got.keys() == want.keys()
    for op in want:
        np.testing.assert_allclose(got[op], want[op], rtol=1e-9, err_msg=op.output.name)


@pytest.mark.slow
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
def test_c_takes_in_what_is_corrected(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgec.compiler.native.MIN_COMPILED_WORK", 0)
    made: list[object] = []

    class Told(HostRunners):
        def floats(self, graph: Graph, samples: int) -> Run:
            return InterpRunners().floats(graph, samples)

        def int8(self, graph: Graph, samples: int) -> NativeGraph:
            run = super().int8(graph, samples)
            assert isinstance(run, NativeGraph)
            made.append(run)
            return run

    runners: Sequence[Runners] = (
        InterpRunners(),
        Told(native_compiler(None), lambda text: None),
    )
    slow, fast = (
        QuantizationState(graph, samples(graph, 4), r)
        .after(MinMaxRanges())
        .after(Gptq())
        .after(BiasCorrection())
        .int8()
        .graph
        for r in runners
    )
    assert len(made) == 1
    assert slow == fast


def test_an_error_ends_all_runs() -> None:
    graph = NETS["chain"]()
    before = {*threading.enumerate()}

    def meet(v: Value, arrays: Sequence[Array]) -> None:
        raise KeyError(v.name)

    with pytest.raises(KeyError, match=graph.ops[1].inputs[0].name):
        run_together(
            lambda s, see: interp(graph, s, see),
            samples(graph, 5),
            {graph.ops[1].inputs[0]},
            meet,
        )
    assert {*threading.enumerate()} <= before


def test_what_is_alive_at_once() -> None:
    net = Net("living", 0)
    x = net.input(1, 8, 8, 3)  # 768 bytes
    y = net.op(Conv2D(), x, net.const(2, 1, 1, 3))  # 512
    z = net.op(Conv2D(), y, net.const(5, 1, 1, 2))  # 1280
    assert living(net.done(z)) == 1280 + 512
    assert living(net.done(z, y)) == 1280 + 512
