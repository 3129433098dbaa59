"""report/graph.json of a bundle: the partitioned graph as it runs, for reports that are
made long after the compile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from edgec_partitioner.partition import Partition

from edgec.emit.c import CSource

GRAPH_FILE = "report/graph.json"


@dataclass(frozen=True)
class GraphOp:
    """One operation, in order of execution. source: the node of the model. output,
    type: of all that it writes.

    call: which function of its segment's C it is; None where it needs none. reads: the
    indices of those whose outputs it takes.
    """

    index: int
    kind: str
    source: str
    output: str
    type: str
    macs: int
    segment: str
    place: str
    call: int | None
    reads: tuple[int, ...]


@dataclass(frozen=True)
class GraphSegment:
    """constants: bytes. functions: of its C, in order of calls. est_parts: ms of the
    cost model, if on the Edge TPU.
    """

    name: str
    constants: int
    functions: tuple[str, ...]
    est_parts: Mapping[str, float]


@dataclass(frozen=True)
class GraphFile:
    """The file, for who writes it and who reads it."""

    ops: tuple[GraphOp, ...] = ()
    segments: tuple[GraphSegment, ...] = ()

    def segment(self, name: str) -> GraphSegment:
        """An empty one for a name that it does not have."""
        return next(
            (s for s in self.segments if s.name == name), GraphSegment(name, 0, (), {})
        )

    def to_json(self) -> bytes:
        """As the bundle has it."""
        return (json.dumps(asdict(self), indent=0) + "\n").encode()


def graph_file(parts: Partition, sources: Mapping[str, CSource]) -> GraphFile:
    """Of a partitioned model. sources: by segment name."""
    segments = [
        GraphSegment(
            s.name,
            sources[s.name].constants,
            sources[s.name].functions,
            s.est.parts() if s.est else {},
        )
        for s in parts.segments
    ]
    return GraphFile(tuple(_ops(parts, sources)), tuple(segments))


def _ops(parts: Partition, sources: Mapping[str, CSource]) -> Iterator[GraphOp]:
    """In order of execution. A region's ops stand in the order of its segment's."""
    pairs = zip(parts.regions, parts.segments, strict=True)
    rows = [
        (op, segment, call)
        for region, segment in pairs
        for op, call in zip(region.ops, sources[segment.name].calls, strict=True)
    ]
    writer = {v: i for i, (op, _, _) in enumerate(rows) for v in op.outputs}
    for i, (op, segment, call) in enumerate(rows):
        yield GraphOp(
            index=i,
            kind=op.kind,
            source=op.source,
            output=", ".join(v.name for v in op.outputs),
            type=", ".join(str(v.type) for v in op.outputs),
            macs=op.spec.macs(op),
            segment=segment.name,
            place=segment.place,
            call=call,
            reads=tuple(sorted({writer[v] for v in op.inputs if v in writer})),
        )
