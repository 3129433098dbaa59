"""Regions as graphs of their own, called segments.

They run one after the other and pass named values to each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from edgec.ir import Graph, Op, Value, verify
from edgec_partitioner.cost import TpuTime
from edgec_partitioner.regions import Places, Region, regions
from edgec_partitioner.rounding import as_chip, as_tflite
from edgec_partitioner.verdicts import Place


@dataclass(frozen=True)
class Segment:
    """One piece of the model.

    Attributes:
        name: "seg0", "seg1" and so on, in the order they run.
        place: the processor.
        graph: its inputs and outputs are the values that cross the boundary, with the
            names they have in the whole graph.
        macs: the multiply-accumulates of one inference.
        est: the estimated time on the Edge TPU, None on the CPU.
    """

    name: str
    place: Place
    graph: Graph
    macs: int
    est: TpuTime | None = None

    @cached_property
    def in_tflite(self) -> Graph:
        """The graph with the arithmetic of TFLite, as a file has it."""
        return as_tflite(self.graph)


def with_chip(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Return segments of which those on the Edge TPU have its arithmetic."""
    return tuple(
        replace(s, graph=as_chip(s.graph)) if s.place == "edgetpu" else s
        for s in segments
    )


def split(graph: Graph, places: Places) -> list[Segment]:
    """Return the segments of `graph` in the order they run.

    There is at least one, and each has a legal "partitioned" graph. Every output must
    be computed, or an input.
    """
    parts = regions(graph, places)
    # A graph without ops passes its inputs on.
    if not parts:
        parts = [Region("cpu", (), tuple(graph.inputs), ())]
    return [segment(f"seg{i}", part) for i, part in enumerate(parts)]


def segment(name: str, part: Region, est: TpuTime | None = None) -> Segment:
    """Return the segment of one region.

    Raises an error if its graph is not a legal "partitioned" one.
    """
    graph = _subgraph(name, part)
    macs = sum(op.spec.macs(op) for op in graph.ops)
    verify(graph, "partitioned")
    return Segment(name, part.place, graph, macs, est)


def _subgraph(name: str, part: Region) -> Graph:
    """Return the ops of a region as a graph with values of its own."""
    twin: dict[Value, Value] = {}

    def copy(values: Sequence[Value]) -> list[Value]:
        return [twin.setdefault(v, Value(v.name, v.type, v.const)) for v in values]

    # Copies keep names, so that segments can exchange values by name.
    inputs = copy(part.inputs)
    ops: list[Op] = []
    for op in part.ops:
        ops.append(Op(op.spec, copy(op.inputs), copy(op.outputs), op.source))
    return Graph(name, inputs, copy(part.outputs), ops)
