"""report/values.json of a bundle: its graphs without their weights, and where this
machine's code has which values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from edgec_partitioner.segments import Segment

from edgec.emit.c import CSource
from edgec.ir import Graph, print_graph

VALUES_FILE = "report/values.json"


@dataclass(frozen=True)
class At:
    """Where a value is: `offset` bytes into a tensor of the border, or, `buffer` being
    "", into the arena, after `done` functions of the segment's profile.
    """

    done: int
    buffer: str
    offset: int


@dataclass(frozen=True)
class SegmentValues:
    """graph: in text form, without elements and scales of constants. function: the name
    in the C of the code that `places` is of: of what all machines of the target can
    run.
    """

    graph: str
    function: str
    places: dict[str, At]


@dataclass(frozen=True)
class ValuesFile:
    """The file, for who writes it and who reads it. target: whose code it is. segments:
    by name. orders, factors, moves: by value, which channels of the model as it came it
    has, what these are multiplied by, and what is added then. counts: of values that
    have only some of the channels, how many there were.
    """

    target: str = ""
    segments: dict[str, SegmentValues] = field(default_factory=dict)
    factors: dict[str, tuple[float, ...]] = field(default_factory=dict)
    moves: dict[str, tuple[float, ...]] = field(default_factory=dict)
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """As the bundle has it."""
        return (json.dumps(asdict(self), separators=(",", ":")) + "\n").encode()


def values_file(
    target: str, segments: Sequence[Segment], sources: Mapping[str, CSource]
) -> ValuesFile:
    """sources: of the target, by segment name."""
    return ValuesFile(
        target, {s.name: _segment(s.graph, sources[s.name]) for s in segments}
    )


def _segment(graph: Graph, source: CSource) -> SegmentValues:
    border = {*graph.inputs, *graph.outputs}
    places: dict[str, At] = {}
    for v, done in source.complete.items():
        place = source.places[v]
        if place.root in border:
            places[v.name] = At(done, place.root.name, place.at)
        elif place.root.name in source.plan.offsets:
            places[v.name] = At(
                done, "", source.plan.offsets[place.root.name] + place.at
            )
    return SegmentValues(
        print_graph(_bare(graph), constants=False), source.name, places
    )


def _bare(graph: Graph) -> Graph:
    """Without the scales of constants, of which there is one for each channel."""
    twin = graph.copy()
    for v in twin.constants():
        v.type = replace(v.type, quant=None)
    return twin
