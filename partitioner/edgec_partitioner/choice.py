"""The choice of a graph's segments, with smaller interfaces between them.

Operations are placed where they take the least time (cuts.py). Where the transfers of
that choice cost more than work on the Edge TPU, operations are added that make them
smaller: copies (recomputation.py) and flat forms of outputs (flat_outputs.py). Then the
places are chosen again, and the faster choice is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

from edgec.ir import Graph, Op, Refusal
from edgec_partitioner import flat_outputs, recomputation
from edgec_partitioner.cuts import Cuts, choose
from edgec_partitioner.flat_outputs import flatten
from edgec_partitioner.legalize import Applied
from edgec_partitioner.recomputation import Repeated, repeated, without_idle
from edgec_partitioner.regions import Costs, Places, staged, stages
from edgec_partitioner.verdicts import Place, Verdict, verdicts

INTERFACES = (recomputation.NAME, flat_outputs.NAME)
"""The names by which smaller interfaces can be switched off, as rewrites can."""

_VIEW = Refusal(
    flat_outputs.NAME,
    "the shape of a flat output is changed back where that costs nothing",
    "a view",
    None,
)
"""Why a RESHAPE back from a flat output is on the CPU."""


@dataclass(frozen=True)
class Wishes:
    """Requests of a person, or of the compiler itself, for a partition.

    Attributes:
        optimistic: ops without evidence for or against run on the Edge TPU.
        disabled: the names of rewrites to leave out.
        refused: the ops that the compiler refused, by the name of their first output.
        everything: all ops that the Edge TPU can run are placed there, also those that
            are faster on the CPU.
        as_chip: what is placed on the Edge TPU has its arithmetic, in `interp` and C.
    """

    optimistic: bool = False
    disabled: Collection[str] = ()
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    everything: bool = False
    as_chip: bool = False


@dataclass(frozen=True)
class PlacedGraph:
    """A graph with a place and a stage for each of its ops.

    Attributes:
        repeated: the graph, and its ops that repeat others.
        verdicts: the verdict of the rules on each op.
        allowed: the better place that the rules allow for each op.
        costs: the cost model, with the times of this graph on the CPU.
        cuts: the stages.
        flat: a record of each flat output.
    """

    repeated: Repeated
    verdicts: Mapping[Op, Verdict]
    allowed: Places
    costs: Costs
    cuts: Cuts
    flat: tuple[Applied, ...] = ()

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.repeated.graph

    @property
    def total_ms(self) -> float:
        """The estimated time of an inference."""
        return self.cuts.total_ms

    def applied(self) -> tuple[Applied, ...]:
        """Return a record of each copy and of each flat output."""
        return (*self.repeated.records(), *self.flat)


def places_of(by_rules: Mapping[Op, Verdict], wishes: Wishes) -> dict[Op, Place]:
    """Return the better place that verdicts allow for each op."""
    places: dict[Op, Place] = {}
    for op, verdict in by_rules.items():
        places[op] = verdict.place(wishes.optimistic)
    return places


def best_choice(graph: Graph, costs: Costs, wishes: Wishes) -> PlacedGraph:
    """Return the choice of segments with the least estimated time."""
    best = _chosen(Repeated(graph, {}), costs, wishes)
    if recomputation.NAME not in wishes.disabled:
        # Without a gain, the first of equal ones is taken: the graph as it is.
        candidates = [best, *_with_copies(best, wishes)]
        best = min(candidates, key=attrgetter("total_ms"))
    if flat_outputs.NAME not in wishes.disabled:
        flat = _with_flat_outputs(best, wishes)
        best = min(best, flat, key=attrgetter("total_ms"))
    return best


def _chosen(r: Repeated, costs: Costs, wishes: Wishes) -> PlacedGraph:
    """Return the best choice for the ops of a graph as they are."""
    # Fusion and views lower the CPU's times in this graph.
    costs = replace(costs, cpu=costs.cpu.within(r.graph))
    by_rules = verdicts(r.graph, wishes.refused)
    allowed = places_of(by_rules, wishes)
    cuts = choose(r.graph, allowed, costs, r.original.keys())
    return PlacedGraph(r, by_rules, allowed, costs, cuts)


def _with_copies(base: PlacedGraph, wishes: Wishes) -> Iterator[PlacedGraph]:
    """Yield choices for graphs in which segments repeat operations.

    The segments that might repeat some are those of the choice so far, and those with
    all that the Edge TPU can run: these may pay only with the copies.
    """
    everything = stages(base.graph, base.allowed)
    for stage in (base.cuts.stages, everything):
        found = repeated(base.graph, stage, base.allowed, base.costs)
        while found is not None:
            choice = _chosen(found, base.costs, wishes)
            found = without_idle(found, choice.cuts.stages)
            # Without idle copies the CPU has less to compute: choose again.
            if found is None:
                yield choice


def _with_flat_outputs(base: PlacedGraph, wishes: Wishes) -> PlacedGraph:
    """Return the choice for the same graph with flat outputs of its segments."""
    twin = base.repeated.copy()
    # A copy has its ops in the same order.
    stage: dict[Op, int] = {}
    for op, same in zip(base.graph.ops, twin.graph.ops, strict=True):
        stage[same] = base.cuts.stages[op]
    flat: dict[str, Applied] = {}
    for region in staged(twin.graph, stage):
        if region.place == "edgetpu":
            flat |= flatten(twin.graph, region, base.costs, wishes.refused)
    if not flat:
        return base

    # The other half of each form is for the CPU.
    views = dict.fromkeys(flat, _VIEW)
    refused = {**wishes.refused, **views}
    choice = _chosen(twin, base.costs, replace(wishes, refused=refused))
    return replace(choice, flat=tuple(flat.values()))
