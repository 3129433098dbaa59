"""The whole way from a graph to segments: verdicts → places → regions worth their
transfers → segments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from edgec.ir import Graph, Op, Refusal, Value
from edgec.ops.shape import Reshape
from edgec_partitioner.cost import LINKS, Link
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.cuts import Cuts, Demoted, choose
from edgec_partitioner.legalize import Applied, legalize
from edgec_partitioner.regions import Costs, Region, staged, stages
from edgec_partitioner.rounding import as_tflite
from edgec_partitioner.segments import Segment, segment, split
from edgec_partitioner.verdicts import Place, Verdict, verdicts

WORTHWHILE = "worthwhile"
"""The rule that only the cost model breaks."""


@dataclass(frozen=True)
class Wishes:
    """What a person, or the compiler itself, says about a partition.

    optimistic: ops of which the evidence does not say whether they map go to the Edge
    TPU. disabled: names of rewrites to leave out. refused: ops that the compiler
    refused, by the name of their first output. everything: all that the Edge TPU can
    run goes there, also what the CPU is faster at.
    """

    optimistic: bool = False
    disabled: Collection[str] = ()
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    everything: bool = False


@dataclass(frozen=True)
class Partition:
    """A graph, where each of its ops runs and why, and the segments that came of it.

    graph: with the rewrites `applied` that brought more of it onto the Edge TPU. link:
    how the Edge TPU is attached; None without one, and then `verdicts` is empty.
    segment_of: the name of each op's segment. regions: one per segment, in terms of
    `graph`. cuts: how good the choice of places is; None where nothing was to choose.
    """

    graph: Graph
    link: Link | None
    verdicts: Mapping[Op, Verdict]
    regions: tuple[Region, ...]
    segments: tuple[Segment, ...]
    applied: tuple[Applied, ...] = ()
    cuts: Cuts | None = None

    @property
    def segment_of(self) -> dict[Op, Segment]:
        """The segment that each op is in."""
        pairs = zip(self.regions, self.segments, strict=True)
        return {op: s for r, s in pairs for op in r.ops}


def partition(
    graph: Graph,
    link: str | None,
    cpu: CpuCost | None = None,
    wishes: Wishes | None = None,
) -> Partition:
    """Split a graph for a board with an Edge TPU on `link` ("usb3", "usb2", "pcie"), or
    for the CPU alone (None).

    `cpu` tells how fast the board's CPU is (default: see CpuCost).
    """
    graph = _computed_outputs(graph)
    wishes = wishes or Wishes()
    if link is None:
        everything = split(graph, dict.fromkeys(graph.ops, "cpu"))
        region = Region(
            "cpu", tuple(graph.ops), tuple(graph.inputs), tuple(graph.outputs)
        )
        return Partition(graph, None, {}, (region,), tuple(everything))
    graph = as_tflite(graph)
    costs = Costs(LINKS[link], cpu or CpuCost())
    skip: dict[tuple[str, str], Refusal] = {}
    while True:
        legal, applied = legalize(
            graph,
            exact=True,
            optimistic=wishes.optimistic,
            disabled=wishes.disabled,
            skip=skip,
        )
        known = {at: refusal for (_, at), refusal in skip.items()}
        parts = _place(
            legal,
            costs,
            replace(wishes, refused={**known, **wishes.refused}),
            tuple(applied),
        )
        stranded = _stranded(parts)
        if not stranded:
            return parts
        skip |= stranded


def _place(
    graph: Graph, costs: Costs, wishes: Wishes, applied: tuple[Applied, ...]
) -> Partition:
    costs = replace(costs, cpu=costs.cpu.within(graph))
    judged = verdicts(graph, wishes.refused)
    allowed: dict[Op, Place] = {
        op: v.place(wishes.optimistic) for op, v in judged.items()
    }
    cuts = None if wishes.everything else choose(graph, allowed, costs)
    demoted = cuts.demoted if cuts else ()
    judged |= {
        op: Verdict((_not_worth(group),)) for group in demoted for op in group.ops
    }
    parts = staged(graph, cuts.stages if cuts else stages(graph, allowed))
    parts = parts or [Region("cpu", (), tuple(graph.inputs), ())]
    times = iter(costs.tpu_times(parts))
    segments = [
        segment(f"seg{i}", part, next(times) if part.place == "edgetpu" else None)
        for i, part in enumerate(parts)
    ]
    return Partition(
        graph, costs.link, judged, tuple(parts), tuple(segments), applied, cuts
    )


def _stranded(parts: Partition) -> dict[tuple[str, str], Refusal]:
    """Rewrites of which nothing came to the Edge TPU, and why: the CPU is better off
    with what was there before.
    """
    segment_of = parts.segment_of
    at = {op.outputs[0].name: op for op in parts.graph.ops}
    found: dict[tuple[str, str], Refusal] = {}
    for a in parts.applied:
        made = [at[name] for name in a.made if name in at]
        why = [r for op in made for r in parts.verdicts[op].refusals]
        if why and all(segment_of[op].place == "cpu" for op in made):
            found[a.rewrite, a.at] = why[0]
    return found


def _not_worth(group: Demoted) -> Refusal:
    constraint = "an Edge TPU region must save more time than its transfers take"
    count = f"{len(group.ops)} ops" if len(group.ops) > 1 else "1 op"
    seen = f"region of {count}: an estimated {group.lost_ms:.2f} ms more with it"
    return Refusal(WORTHWHILE, constraint, seen, None)


def _computed_outputs(graph: Graph) -> Graph:
    """A graph whose constant outputs are copied by an op, so that a segment writes
    them.
    """
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
