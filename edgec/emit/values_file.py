"""report/values.json of a bundle: its graphs without weights, and where values lie.

`edgec diff` reads values of a bundle that runs by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from edgec_partitioner.segments import Segment

from edgec.emit.c import CSource
from edgec.ir import Graph, print_graph

VALUES_FILE = "report/values.json"
"""The file's name in a bundle."""


@dataclass(frozen=True)
class ValueLocation:
    """Where and when a value lies as a whole.

    Attributes:
        done: the number of functions of the segment's profile after which it does
        buffer: a tensor of the segment's border; "": the arena
        offset: bytes into that
    """

    done: int
    buffer: str
    offset: int


@dataclass(frozen=True)
class SegmentValues:
    """The values of one segment.

    Attributes:
        graph: its text, without elements and scales of constants
        function: the name in the C of the code that `places` is of: the code that all
            machines of the target can run
        places: where each value lies, by name
    """

    graph: str
    function: str
    places: dict[str, ValueLocation]


@dataclass(frozen=True)
class ValuesFile:
    """The content of the file.

    Attributes:
        target: the target whose code it describes
        segments: values by the names of segments
        factors: what the channels of a value of the model's file are multiplied by
        moves: what is added to them then
        orders: which channels of the value in the model's file a value has
        counts: how many channels that has, for values with only some of them
    """

    target: str = ""
    segments: dict[str, SegmentValues] = field(default_factory=dict)
    factors: dict[str, tuple[float, ...]] = field(default_factory=dict)
    moves: dict[str, tuple[float, ...]] = field(default_factory=dict)
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the bytes of the file."""
        return (json.dumps(asdict(self), separators=(",", ":")) + "\n").encode()


def values_file(
    target: str, segments: Sequence[Segment], sources: Mapping[str, CSource]
) -> ValuesFile:
    """Return the file of a target.

    Args:
        target: its name
        segments: all segments
        sources: the C of each segment for the target, by name
    """
    values = {s.name: _segment_values(s.graph, sources[s.name]) for s in segments}
    return ValuesFile(target, values)


def _segment_values(graph: Graph, source: CSource) -> SegmentValues:
    """Return the values of a segment that are whole at some time."""
    border = {*graph.inputs, *graph.outputs}

    offsets = source.plan.offsets
    locations: dict[str, ValueLocation] = {}
    for v, done in source.complete.items():
        place = source.places[v]
        root = place.root
        if root in border:
            location = ValueLocation(done, root.name, place.at)
        elif root.name in offsets:
            offset = offsets[root.name] + place.at
            location = ValueLocation(done, "", offset)
        else:
            # A fused value is in no memory at any time.
            continue
        locations[v.name] = location

    text = print_graph(_without_constant_scales(graph), constants=False)
    return SegmentValues(text, source.name, locations)


def _without_constant_scales(graph: Graph) -> Graph:
    """Return a copy without the quantization of constants.

    There is a scale for each channel, and no value to read with it.
    """
    twin = graph.copy()
    for v in twin.constants():
        v.type = replace(v.type, quant=None)
    return twin
