"""Regions as graphs of their own, which run one after the other and hand each other
named values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgec.ir import Graph, Op, Value, verify
from edgec_partitioner.cost import TpuTime
from edgec_partitioner.regions import Places, Region, regions
from edgec_partitioner.verdicts import Place


@dataclass(frozen=True)
class Segment:
    """One piece of the model.

    Its graph's inputs and outputs are the crossing values, named as in the whole graph.

    macs: multiply-accumulates of one inference. est: the cost model's time on the Edge
    TPU; None on the CPU.
    """

    name: str
    place: Place
    graph: Graph
    macs: int
    est: TpuTime | None = None


def split(graph: Graph, places: Places) -> list[Segment]:
    """The segments of `graph` in the order they run; at least one, and each a legal
    "partitioned" graph.

    Every output must be computed, or an input.
    """
    parts = regions(graph, places) or [Region("cpu", (), tuple(graph.inputs), ())]
    return [segment(f"seg{i}", part) for i, part in enumerate(parts)]


def segment(name: str, part: Region, est: TpuTime | None = None) -> Segment:
    """The graph of one region."""
    own = _subgraph(name, part)
    macs = sum(op.spec.macs(op) for op in own.ops)
    verify(own, "partitioned")
    return Segment(name, part.place, own, macs, est)


def _subgraph(name: str, part: Region) -> Graph:
    twin: dict[Value, Value] = {}

    def copy(values: Sequence[Value]) -> list[Value]:
        return [twin.setdefault(v, Value(v.name, v.type, v.const)) for v in values]

    inputs = copy(part.inputs)
    ops = [Op(op.spec, copy(op.inputs), copy(op.outputs), op.source) for op in part.ops]
    return Graph(name, inputs, copy(part.outputs), ops)
