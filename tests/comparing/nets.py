"""A float network and its int8 form, and sides that run them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from edgec.comparing.measure import measure
from edgec.comparing.result import Diff, result
from edgec.comparing.side import Sample, Side
from edgec.compiler.native import native_compiler
from edgec.ir import Graph
from edgec.ops.binary import Add
from edgec.passes.pipeline import optimize
from edgec.quantize.change.convert import quantize
from edgec.verbs.diff_sides import InterpSide, NativeSide
from tests.comparing.planted import Planted
from tests.quantize.nets import Net, samples

Samples = Sequence[Sample]


@cache
def small() -> tuple[Graph, Graph, Samples]:
    """Six layers with an addition, float and int8, and samples that it was calibrated
    on.
    """
    net = Net("small", 7)
    y = net.conv(net.input(1, 16, 16, 3), 16)
    z = net.depthwise(y)
    z = net.conv(z, 16, 1, act="none")
    y = net.op(Add("relu"), y, z)
    y = net.depthwise(y, stride=(2, 2), pads=(0, 1, 0, 1))
    graph = net.done(net.conv(y, 12, 1, act="none"))
    tries = samples(graph, 6)
    return graph, optimize(quantize(graph, tries)), tries


def compared(a: Side, b: Side, tries: Samples, exact: int = 1) -> Diff:
    """On the same inputs."""
    return result(a, b, "samples", measure(a, b, [(s, s) for s in tries], exact))


def as_c(name: str, graph: Graph, csrc: Path | None = None) -> NativeSide:
    """By plain kernels."""
    return NativeSide(name, graph, native_compiler(None), None, csrc)


def against(a: Side, planted: Planted, tries: Samples) -> Diff:
    """A against a graph with a fault; with interp where that is in a kernel."""
    return compared(
        a,
        as_c("planted", planted.graph, planted.csrc),
        tries,
        1 if planted.kernel else 0,
    )


__all__ = ["InterpSide", "against", "as_c", "compared", "small"]
