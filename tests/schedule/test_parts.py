"""However many threads share a call, the result has the same bits: the parts of all
variants, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from edgec_runtime.bundle.manifest import MAX_THREADS

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.emit.c import check_kernels
from edgec.errors import UnsupportedError
from edgec.ir import Graph, OpDef, Quant, Sample, TensorType
from edgec.ir.opdef import Arg
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.matmul import FullyConnected
from edgec.ops.transpose_conv import TransposeConv2D
from tests.harness import random_inputs, sample_graph
from tests.schedule import layers_f32
from tests.schedule.layers import stream
from tests.schedule.on import on
from tests.schedule.runner import PORTS, Case, core_of, program_text, run

SHARES = "ek_on_threads(threads, op"
"""What the code says of an op whose work threads share."""


def _int8(spec: OpDef, x: tuple[int, ...], w: tuple[int, ...]) -> Graph:
    """A layer whose results spread over all of int8."""
    depth = int(np.prod(w[1:])) if spec.kind != "depthwise_conv2d" else w[1] * w[2]
    outputs, axis = (w[0], 0) if spec.kind != "depthwise_conv2d" else (w[-1], 3)
    weights = TensorType(w, "int8", Quant((0.01,) * outputs, (0,) * outputs, axis))
    bias = TensorType(
        (outputs,), "int32", Quant((0.0005,) * outputs, (0,) * outputs, 0)
    )
    args = (
        Arg(TensorType(x, "int8", Quant.per_tensor(0.05, -3))),
        Arg(weights, const=True),
        Arg(bias, const=True),
    )
    return sample_graph(
        Sample(spec, args, Quant.per_tensor(0.0005 * 30 * depth**0.5, 5)), sum(x)
    )


def _layers_int8() -> Iterator[Graph]:
    """Rows, panels and windows that no number of threads divides."""
    for h, w, c, o in (
        (14, 14, 24, 70),
        (7, 7, 160, 40),
        (1, 1, 64, 333),
        (29, 5, 3, 17),
        (9, 31, 48, 8),
    ):
        yield _int8(Conv2D(), (1, h, w, c), (o, 1, 1, c))
        yield _int8(Conv2D((2, 2), (1, 1, 1, 1)), (1, h + 4, w + 4, c), (o, 3, 3, c))
        for stride, k in (((1, 1), 3), ((2, 2), 3), ((1, 1), 5)):
            pads = (k // 2,) * 4
            yield _int8(
                DepthwiseConv2D(stride, pads), (1, h + 4, w + 4, c), (1, k, k, c)
            )
        yield _int8(FullyConnected(), (h, c), (o, c))
        yield _int8(TransposeConv2D((2, 2), (0, 1, 0, 1)), (1, h, w, c), (o, 3, 3, c))


def _layers_wide() -> Iterator[Graph]:
    """Float layers that are worth transforms: by some cores, even where only small
    scratch has room.
    """
    for h, w, c, o in ((29, 31, 16, 24), (61, 67, 16, 48), (45, 46, 64, 64)):
        args = (
            Arg(TensorType((1, h, w, c))),
            Arg(TensorType((o, 3, 3, c)), const=True),
            Arg(TensorType((o,)), const=True),
        )
        yield sample_graph(Sample(Conv2D(pads=(1, 1, 1, 1)), args))


def _layers_flat() -> Iterator[Graph]:
    """Depthwise layers of one row, whose channels threads share, of taps that no tile
    is for, and of some that one is for.
    """
    for taps, c in ((9, 144), (4, 48), (3, 160)):
        pads = (0, taps // 2, 0, (taps - 1) // 2)
        args = (
            Arg(TensorType((1, 1, 25, c))),
            Arg(TensorType((1, 1, taps, c)), const=True),
            Arg(TensorType((c,)), const=True),
        )
        yield sample_graph(Sample(DepthwiseConv2D(pads=pads), args))


def graphs_with_c() -> list[Graph]:
    """All samples of all ops, and layers that are worth sharing."""
    samples = [
        sample_graph(s)
        for _, cls in sorted(OpDef.registry.items())
        for s in cls.samples()
    ]
    floats = (
        layer.graph
        for maker in layers_f32.MAKERS
        for layer in islice(stream((maker,), 3), 8)
    )
    graphs = [*_layers_int8(), *_layers_wide(), *_layers_flat(), *floats, *samples]
    return [
        g for g in graphs if _has_c(g) and max(len(g.inputs), len(g.outputs)) <= PORTS
    ]


def _case(graph: Graph, name: str) -> Case:
    return Case(graph, random_inputs(graph, 0), core_of(name), threads=MAX_THREADS)


def _has_c(graph: Graph) -> bool:
    try:
        check_kernels(graph)
    except (UnsupportedError, NotImplementedError):
        return False
    return True


@pytest.mark.sweep(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", on("cortex_a53", "cortex_a76", "x86_64_v3", "x86_64_v4_vnni")
)
def test_any_number_of_parts_gives_the_same_bits(name: str) -> None:
    graphs = [g for g in graphs_with_c() if SHARES in program_text([_case(g, name)])[0]]
    assert len(graphs) > 200, "layers that have variants are shared"
    cases = [
        replace(_case(g, name), inputs=random_inputs(g, i))
        for i, g in enumerate(graphs)
    ]
    alone = run(name, cases)
    for parts in (2, 3, 4):
        shared = run(name, [replace(c, parts=parts) for c in cases])
        for graph, one, several in zip(graphs, alone, shared, strict=True):
            for output, y in one.items():
                same = several[output].tobytes() == y.tobytes()
                assert same, (
                    f"{graph.ops[0].spec} of {graph.inputs[0].type} in {parts} parts"
                )
