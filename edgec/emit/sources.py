"""All C of a bundle: for every target its segments, their table, and the weights file."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgec_partitioner.segments import Segment

from edgec.emit.c import CSource, segment_source
from edgec.emit.program import ModelTable, SegmentEntry
from edgec.emit.weights import WeightsFile
from edgec.ir import Graph, TensorType, Value, print_graph
from edgec.schedule.cores import Core
from edgec.schedule.steps import DEFAULT
from edgec.schedule.variant import Rules


@dataclass(frozen=True)
class TargetSources:
    """The C of a target.

    Attributes:
        texts: the C by file name
        flags: flags of the C compiler for the files of one core among several
        segments: the C of each segment, by name, for the core that every machine of
            the target has
        cores: the same for each core
        arena: bytes of each segment's arena, by name, for the core that wants most
        weights: the content of the file that all read
    """

    texts: Mapping[str, str]
    flags: Mapping[str, tuple[str, ...]]
    segments: Mapping[str, CSource]
    cores: Mapping[Core, Mapping[str, CSource]]
    arena: Mapping[str, int]
    weights: bytes

    def with_files(self, texts: Mapping[str, str]) -> TargetSources:
        """Return the same with more files of C."""
        return replace(self, texts={**self.texts, **texts})


def target_sources(
    graph: Graph,
    segments: Sequence[Segment],
    cores: Sequence[Core],
    rules: Rules = DEFAULT,
) -> TargetSources:
    """Return the C of a partitioned model for a target.

    Args:
        graph: the model
        segments: its segments
        cores: the cores that the target's machines may have (`cores_of`)
        rules: what schedules may do
    """
    weights = WeightsFile()
    by_core = _by_core(segments, cores, weights, rules)
    common = by_core[cores[-1]]
    arena: dict[str, int] = {}
    for name in common:
        # One manifest serves all cores, so its arena has to be enough for any.
        arena[name] = max(c[name].plan.size for c in by_core.values())

    entries = [_entry(s, by_core, common, arena[s.name]) for s in segments]
    texts: dict[str, str] = {}
    flags: dict[str, tuple[str, ...]] = {}
    for core, core_sources in by_core.items():
        for source in core_sources.values():
            file = f"{source.name}.c"
            texts[file] = source.text
            if len(by_core) > 1:
                flags[file] = core.flags

    texts["model.c"] = ModelTable(
        graph.name,
        border_tensors(graph, segments),
        entries,
        _names(graph.given()),
        _names(graph.returned()),
        weights.data,
        cores[-1].threads,
        graph.state,
        digest_of(segments),
        constants_crc32(segments),
    ).source()
    return TargetSources(texts, flags, common, by_core, arena, weights.data)


def _by_core(
    segments: Sequence[Segment],
    cores: Sequence[Core],
    weights: WeightsFile,
    rules: Rules,
) -> dict[Core, dict[str, CSource]]:
    """Return the C of all segments for each core that computes something its own way."""
    by_core: dict[Core, dict[str, CSource]] = {}
    common = cores[-1]
    for core in cores:
        suffix = f"_{core.name}" if len(cores) > 1 else ""
        sources = _segment_sources(segments, core, weights, suffix, rules)
        # Plain kernels are compiled for what all machines have, so that code of a
        # better core without variants would be the common code once more.
        if core == common or _has_variants(sources):
            by_core[core] = sources

    if len(cores) > 1 and len(by_core) == 1:
        # The only code left needs no core in its names.
        by_core[common] = _segment_sources(segments, common, weights, "", rules)
    return by_core


def _segment_sources(
    segments: Sequence[Segment],
    core: Core,
    weights: WeightsFile,
    suffix: str,
    rules: Rules,
) -> dict[str, CSource]:
    """Return the C of all segments for a core, by the names of segments.

    Args:
        segments: the segments
        core: the core
        weights: the file that gets the constants
        suffix: end of the names of functions and files
        rules: what schedules may do
    """
    sources: dict[str, CSource] = {}
    for s in segments:
        name = s.name + suffix
        sources[s.name] = segment_source(s.graph, name, core, weights, rules=rules)
    return sources


def _has_variants(sources: Mapping[str, CSource]) -> bool:
    """Return whether any kernel is written for certain cores.

    The headers of such kernels are in a folder of their own.
    """
    headers = (header for source in sources.values() for header in source.headers)
    return any("/" in header for header in headers)


def _entry(
    segment: Segment,
    by_core: Mapping[Core, Mapping[str, CSource]],
    common: Mapping[str, CSource],
    arena: int,
) -> SegmentEntry:
    """Return the entry of a segment in the model's table.

    Args:
        segment: the segment
        by_core: the C of all segments for each core
        common: the C for the core that every machine has
        arena: bytes
    """
    detected: list[tuple[str, str]] = []
    if len(by_core) > 1:
        for core, sources in by_core.items():
            detected.append((sources[segment.name].name, core.detect))
    return SegmentEntry(
        segment.name,
        segment.place,
        _names(segment.graph.inputs),
        _names(segment.graph.outputs),
        arena,
        len(common[segment.name].functions),
        tuple(detected),
    )


def digest_of(segments: Iterable[Segment]) -> str:
    """Return the SHA-256 of the graphs that the C is generated from.

    It is the same for every target, and leaves out the elements of constants.
    """
    # A library records it, so that it cannot run with another model's manifest.
    digest = hashlib.sha256()
    for s in segments:
        text = print_graph(s.graph, constants=False)
        digest.update(f"{s.name} {s.place}\n{text}\n".encode())
    return digest.hexdigest()


def constants_crc32(segments: Iterable[Segment]) -> int:
    """Return the CRC-32 of the constants of the segments for the Edge TPU; 0 without any.

    By it and the graph's digest a program knows what was compiled of its own network:
    not all constants are in the weights file.
    """
    crc = 0
    for s in segments:
        if s.place == "edgetpu":
            for op in s.graph.ops:
                for value in op.inputs:
                    if value.const is not None:
                        crc = zlib.crc32(value.const.tobytes(), crc)
    return crc


def border_tensors(graph: Graph, segments: Iterable[Segment]) -> dict[str, TensorType]:
    """Return every tensor that enters or leaves a segment, in order of appearance."""
    graphs = [graph, *(s.graph for s in segments)]
    return {v.name: v.type for g in graphs for v in (*g.inputs, *g.outputs)}


def _names(values: Iterable[Value]) -> tuple[str, ...]:
    return tuple(v.name for v in values)
