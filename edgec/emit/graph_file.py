"""report/graph.json of a bundle: the partitioned graph as it runs.

Reports that are made long after the compile read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from edgec_partitioner.partition import Partition

from edgec.emit.c import CSource
from edgec.ir import Op, Value

GRAPH_FILE = "report/graph.json"
"""The file's name in a bundle."""


@dataclass(frozen=True)
class GraphOp:
    """One operation.

    Attributes:
        index: its position in the order of execution
        kind: kind of the op
        source: the node of the model's file
        output: names of the values that it writes
        type: their types
        macs: multiply-accumulates
        segment: name of its segment
        place: where that runs
        call: which function of its segment's C computes it; None if none needs to
        reads: indices of the operations whose results it reads
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
    """One segment.

    Attributes:
        name: its name
        constants: bytes of its constants
        functions: the functions of its C, in the order of their calls
        est_parts: ms of each part of the cost model, for a segment on the Edge TPU
    """

    name: str
    constants: int
    functions: tuple[str, ...]
    est_parts: Mapping[str, float]


@dataclass(frozen=True)
class GraphFile:
    """The content of the file.

    Attributes:
        ops: all operations in the order of execution
        segments: all segments
    """

    ops: tuple[GraphOp, ...] = ()
    segments: tuple[GraphSegment, ...] = ()

    def segment(self, name: str) -> GraphSegment:
        """Return the segment of this name, an empty one if there is none."""
        for segment in self.segments:
            if segment.name == name:
                return segment
        return GraphSegment(name, 0, (), {})

    def to_json(self) -> bytes:
        """Return the bytes of the file."""
        return (json.dumps(asdict(self), indent=0) + "\n").encode()


def graph_file(parts: Partition, sources: Mapping[str, CSource]) -> GraphFile:
    """Return the file of a partitioned model.

    Args:
        parts: its partition
        sources: the C of each segment, by name
    """
    segments: list[GraphSegment] = []
    for s in parts.segments:
        source = sources[s.name]

        # Only segments on the Edge TPU have an estimate by parts.
        est_parts = s.est.parts() if s.est else {}
        segments.append(
            GraphSegment(s.name, source.constants, source.functions, est_parts)
        )
    return GraphFile(tuple(_ops(parts, sources)), tuple(segments))


def _ops(parts: Partition, sources: Mapping[str, CSource]) -> list[GraphOp]:
    """Return all operations in the order of execution."""
    # Ops of a region have the order of those of its segment, whose graph is a copy.
    ops: list[GraphOp] = []
    writers: dict[Value, int] = {}

    for region, segment in zip(parts.regions, parts.segments, strict=True):
        calls = sources[segment.name].calls
        for op, call in zip(region.ops, calls, strict=True):
            index = len(ops)
            ops.append(
                GraphOp(
                    index=index,
                    kind=op.kind,
                    source=op.source,
                    output=", ".join(v.name for v in op.outputs),
                    type=", ".join(str(v.type) for v in op.outputs),
                    macs=op.spec.macs(op),
                    segment=segment.name,
                    place=segment.place,
                    call=call,
                    reads=_reads(op, writers),
                )
            )
            for v in op.outputs:
                writers[v] = index
    return ops


def _reads(op: Op, writers: Mapping[Value, int]) -> tuple[int, ...]:
    """Return the indices of the operations whose results an op reads."""
    return tuple(sorted({writers[v] for v in op.inputs if v in writers}))
