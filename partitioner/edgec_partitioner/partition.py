"""The way from a graph to segments.

Rewrites → verdicts → places → regions worth their transfers → segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgec.ir import Graph, Op, Refusal, Value
from edgec.ops.shape import Reshape
from edgec_partitioner.choice import Wishes, best_choice, places_of
from edgec_partitioner.cost import LINKS, Link
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.cuts import Cuts, Demoted
from edgec_partitioner.legalize import Applied, legalize
from edgec_partitioner.regions import Costs, Region, staged, stages
from edgec_partitioner.rounding import as_tflite
from edgec_partitioner.segments import Segment, segment, split, with_chip
from edgec_partitioner.verdicts import Verdict, verdicts

WORTHWHILE = "worthwhile"
"""The rule that only the cost model breaks."""


@dataclass(frozen=True)
class Partition:
    """A graph, the place of each of its ops with the reason, and the segments.

    Attributes:
        graph: the graph with the rewrites `applied`.
        link: how the Edge TPU is attached; None without one.
        verdicts: the verdict on each op; empty without an Edge TPU.
        regions: one per segment, in terms of `graph`.
        segments: in the order they run.
        applied: the rewrites that brought more ops onto the Edge TPU, and what makes
            the interfaces of its segments smaller.
        cuts: how good the choice of places is; None if there was no choice.
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
        """The segment of each op."""
        pairs = zip(self.regions, self.segments, strict=True)
        return {op: s for r, s in pairs for op in r.ops}


def partition(
    graph: Graph,
    link: str | None,
    cpu: CpuCost | None = None,
    wishes: Wishes | None = None,
) -> Partition:
    """Split a graph for a board.

    link: how the board's Edge TPU is attached ("usb3", "usb2", "pcie"), None for the
    CPU alone. cpu: the speed of the board's CPU (default: see CpuCost).
    """
    graph = _computed_outputs(graph)
    if link is None:
        return _on_cpu(graph)

    graph = as_tflite(graph)
    wishes = wishes or Wishes()
    costs = Costs(LINKS[link], cpu or CpuCost())
    skip: dict[tuple[str, str], Refusal] = {}
    # A rewrite whose ops stay on the CPU is taken back, which may strand others.
    while True:
        legal, applied = legalize(
            graph,
            exact=True,
            optimistic=wishes.optimistic,
            disabled=wishes.disabled,
            skip=skip,
        )
        refused = {at: refusal for (_, at), refusal in skip.items()}
        refused.update(wishes.refused)
        parts = _place(legal, costs, replace(wishes, refused=refused))
        stranded = _stranded(parts, applied)
        if not stranded:
            segments = parts.segments
            if wishes.as_chip:
                segments = with_chip(segments)
            every = (*applied, *parts.applied)
            return replace(parts, segments=segments, applied=every)
        skip |= stranded


def _on_cpu(graph: Graph) -> Partition:
    """Return the partition of a graph for the CPU alone."""
    segments = split(graph, dict.fromkeys(graph.ops, "cpu"))
    inputs = tuple(graph.inputs)
    region = Region("cpu", tuple(graph.ops), inputs, tuple(graph.outputs))
    return Partition(graph, None, {}, (region,), tuple(segments))


def _place(graph: Graph, costs: Costs, wishes: Wishes) -> Partition:
    """Choose the places of the ops of a rewritten graph, and split it."""
    if wishes.everything:
        by_rules = verdicts(graph, wishes.refused)
        stage = stages(graph, places_of(by_rules, wishes))
        return _split(graph, stage, costs, by_rules)

    choice = best_choice(graph, costs, wishes)
    reasons = dict(choice.verdicts)
    for group in choice.cuts.demoted:
        verdict = Verdict((_not_worth(group),))
        reasons |= dict.fromkeys(group.ops, verdict)
    parts = _split(choice.graph, choice.cuts.stages, costs, reasons)
    return replace(parts, applied=choice.applied(), cuts=choice.cuts)


def _split(
    graph: Graph,
    stage: Mapping[Op, int],
    costs: Costs,
    reasons: Mapping[Op, Verdict],
) -> Partition:
    """Return a graph in a segment for each stage. reasons: the verdict on each op."""
    # A graph without ops is one region that passes the inputs on.
    parts = staged(graph, stage)
    if not parts:
        parts = [Region("cpu", (), tuple(graph.inputs), ())]
    segments = _segments(parts, costs)
    return Partition(
        graph=graph,
        link=costs.link,
        verdicts=reasons,
        regions=tuple(parts),
        segments=segments,
    )


def _segments(parts: Sequence[Region], costs: Costs) -> tuple[Segment, ...]:
    """Return a segment for each region, with its estimated time on the Edge TPU."""
    times = iter(costs.tpu_times(parts))
    segments: list[Segment] = []
    for i, part in enumerate(parts):
        # Only Edge TPU regions have a time by parts.
        time = next(times) if part.place == "edgetpu" else None
        segments.append(segment(f"seg{i}", part, time))
    return tuple(segments)


def _stranded(
    parts: Partition, applied: Iterable[Applied]
) -> dict[tuple[str, str], Refusal]:
    """Return the rewrites with no op on the Edge TPU, and a reason for each.

    The CPU runs the original op faster than its replacement.
    """
    segment_of = parts.segment_of
    by_output = {op.outputs[0].name: op for op in parts.graph.ops}
    stranded: dict[tuple[str, str], Refusal] = {}
    for record in applied:
        # Other rewrites may have replaced some of them.
        new_ops = [by_output[name] for name in record.made if name in by_output]
        if any(segment_of[op].place != "cpu" for op in new_ops):
            continue
        reasons = [r for op in new_ops for r in parts.verdicts[op].refusals]
        if reasons:
            stranded[record.rewrite, record.at] = reasons[0]
    return stranded


def _not_worth(group: Demoted) -> Refusal:
    """Return the refusal of ops that are faster on the CPU."""
    constraint = "an Edge TPU region must save more time than its transfers take"
    count = "1 op"
    if len(group.ops) > 1:
        count = f"{len(group.ops)} ops"
    fact = f"region of {count}: an estimated {group.lost_ms:.2f} ms more with it"
    return Refusal(WORTHWHILE, constraint, fact, None)


def _computed_outputs(graph: Graph) -> Graph:
    """Return a graph without constant outputs.

    An op copies them, so that a segment writes them.
    """
    if all(v.const is None for v in graph.outputs):
        return graph
    twin = graph.copy()
    # A constant may be listed as several outputs.
    for v in dict.fromkeys(twin.outputs):
        if v.const is None:
            continue
        # The copy has the name of the output, the constant gets a new one.
        name = v.name
        v.name = twin.unique_name(f"{name}_const")
        out = Value(name, v.type)
        twin.ops.append(Op(Reshape(v.type.shape), [v], [out]))
        twin.outputs = [out if y is v else y for y in twin.outputs]
    return twin
