"""report/graph.json of a bundle: the partitioned graph as it runs, for reports that are made long after the compile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from edgec_partitioner.partition import Partition

from edgec.emit.c import CSource

GRAPH_FILE = "report/graph.json"


def graph_file(parts: Partition, sources: Mapping[str, CSource]) -> bytes:
    """{"ops": […], "segments": […]}, docs/bundle.md says of which form. sources: by segment name."""
    segments = [
        {
            "name": s.name,
            "constants": sources[s.name].constants,
            "functions": list(sources[s.name].functions),
            "est_parts": s.est.parts() if s.est else {},
        }
        for s in parts.segments
    ]
    return (json.dumps({"ops": list(_ops(parts, sources)), "segments": segments}, indent=0) + "\n").encode()


def _ops(parts: Partition, sources: Mapping[str, CSource]) -> Iterator[dict[str, Any]]:
    """In order of execution. A region's ops stand in the order of its segment's."""
    pairs = zip(parts.regions, parts.segments, strict=True)
    rows = [
        (op, segment, call)
        for region, segment in pairs
        for op, call in zip(region.ops, sources[segment.name].calls, strict=True)
    ]
    writer = {v: i for i, (op, _, _) in enumerate(rows) for v in op.outputs}
    for i, (op, segment, call) in enumerate(rows):
        yield {
            "index": i,
            "kind": op.kind,
            "source": op.source,
            "output": op.output.name,
            "type": str(op.output.type),
            "macs": op.spec.macs(op),
            "segment": segment.name,
            "place": segment.place,
            "call": call,
            "reads": sorted({writer[v] for v in op.inputs if v in writer}),
        }
