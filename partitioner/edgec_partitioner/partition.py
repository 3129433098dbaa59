"""The whole way from a graph to segments: verdicts → places → regions worth their transfers → segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgec.ir import Graph, Op, Refusal, Value
from edgec.ops.shape import Reshape
from edgec_partitioner.cost import LINKS, CpuCost, Link
from edgec_partitioner.regions import Costs, Move, Region, choose_places, regions
from edgec_partitioner.segments import Segment, segment, split
from edgec_partitioner.verdicts import Place, Verdict, verdicts

WORTHWHILE = "worthwhile"
"""The rule that only the cost model breaks."""


@dataclass(frozen=True)
class Partition:
    """A graph, where each of its ops runs and why, and the segments that came of it.

    link: how the Edge TPU is attached; None without one, and then `verdicts` is empty.
    segment_of: the name of each op's segment. regions: one per segment, in terms of `graph`.
    """

    graph: Graph
    link: Link | None
    verdicts: Mapping[Op, Verdict]
    regions: tuple[Region, ...]
    segments: tuple[Segment, ...]

    @property
    def segment_of(self) -> dict[Op, Segment]:
        """The segment that each op is in."""
        pairs = zip(self.regions, self.segments, strict=True)
        return {op: s for r, s in pairs for op in r.ops}


def partition(graph: Graph, link: str | None, cpu: CpuCost | None = None) -> Partition:
    """Split a graph for a board with an Edge TPU on `link` ("usb3", "usb2", "pcie"), or for the CPU alone (None).

    `cpu` tells how fast the board's CPU is (default: see CpuCost).
    """
    graph = _computed_outputs(graph)
    if link is None:
        everything = split(graph, dict.fromkeys(graph.ops, "cpu"))
        region = Region("cpu", tuple(graph.ops), tuple(graph.inputs), tuple(graph.outputs))
        return Partition(graph, None, {}, (region,), tuple(everything))
    costs = Costs(LINKS[link], cpu or CpuCost())
    judged = verdicts(graph)
    allowed: dict[Op, Place] = {op: v.place for op, v in judged.items()}
    places, moves = choose_places(graph, allowed, costs)
    judged |= {op: Verdict((_not_worth(move),)) for move in moves for op in move.ops}
    parts = regions(graph, places) or [Region("cpu", (), tuple(graph.inputs), tuple(graph.outputs))]
    times = iter(costs.tpu_ms(parts))
    segments = [
        segment(f"seg{i}", part, next(times) if part.place == "edgetpu" else None) for i, part in enumerate(parts)
    ]
    return Partition(graph, costs.link, judged, tuple(parts), tuple(segments))


def _not_worth(move: Move) -> Refusal:
    constraint = "an Edge TPU region must save more time than its transfers take"
    count = f"{len(move.ops)} ops" if len(move.ops) > 1 else "1 op"
    seen = f"region of {count}: an estimated {move.saved_ms:.2f} ms less without it"
    fix = "none needed: the CPU is faster here; more Edge TPU ops around it would change that"
    return Refusal(WORTHWHILE, constraint, seen, fix)


def _computed_outputs(graph: Graph) -> Graph:
    """A graph whose constant outputs are copied by an op, so that a segment writes them."""
    if all(v.const is None for v in graph.outputs):
        return graph
    twin = graph.copy()
    for i, v in enumerate(twin.outputs):
        if v.const is not None:
            name, v.name = v.name, twin.unique_name(f"{v.name}_const")
            out = Value(name, v.type)
            twin.ops.append(Op(Reshape(v.type.shape), [v], [out]))
            twin.outputs[i] = out
    return twin
