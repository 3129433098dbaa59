"""All C of a bundle: for every target its segments, the table that ties them, and the
weights that they read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgec_partitioner.segments import Segment

from edgec.emit.c import CSource, segment_source
from edgec.emit.program import SegmentEntry, model_source
from edgec.emit.weights import WeightsFile
from edgec.ir import Graph, TensorType, Value, print_graph
from edgec.schedule.cores import Core
from edgec.schedule.steps import DEFAULT
from edgec.schedule.variant import Rules


@dataclass(frozen=True)
class TargetSources:
    """texts: file name → C. flags: of the C compiler, for the files that are for one
    core of several.

    segments: by name, the C of the core that every machine of the target has. cores:
    that of each core. arena: bytes, by segment, of the core that wants most. weights:
    the file that all read.
    """

    texts: Mapping[str, str]
    flags: Mapping[str, tuple[str, ...]]
    segments: Mapping[str, CSource]
    cores: Mapping[Core, Mapping[str, CSource]]
    arena: Mapping[str, int]
    weights: bytes

    def beside(self, texts: Mapping[str, str]) -> TargetSources:
        """The same with more files."""
        return replace(self, texts={**self.texts, **texts})


def target_sources(
    graph: Graph,
    segments: Sequence[Segment],
    cores: Sequence[Core],
    rules: Rules = DEFAULT,
) -> TargetSources:
    """The C of a partitioned model for a target with these cores (`cores_of`)."""
    weights = WeightsFile()
    written = {
        core: _written(
            segments, core, weights, f"_{core.name}" if len(cores) > 1 else "", rules
        )
        for core in cores
    }
    common = written[cores[-1]]
    kept = {
        core: made
        for core, made in written.items()
        if made is common or _has_variants(made)
    }
    if len(cores) > 1 and len(kept) == 1:  # nothing is computed in another way
        common = _written(segments, cores[-1], weights, "", rules)
        kept = {cores[-1]: common}
    every = [(core, source) for core, made in kept.items() for source in made.values()]
    arena = {
        name: max(made[name].plan.size for made in kept.values()) for name in common
    }
    entries = [
        SegmentEntry(
            s.name,
            s.place,
            _names(s.graph.inputs),
            _names(s.graph.outputs),
            arena[s.name],
            len(common[s.name].functions),
            tuple(
                (made[s.name].name, core.detect)
                for core, made in kept.items()
                if len(kept) > 1
            ),
        )
        for s in segments
    ]
    texts = {f"{source.name}.c": source.text for _, source in every}
    flags = {f"{source.name}.c": core.flags for core, source in every if len(kept) > 1}
    ends = _names(graph.given()), _names(graph.returned())
    tensors = crossing(graph, segments)
    threads = cores[-1].threads
    model = (
        graph.name,
        tensors,
        entries,
        *ends,
        weights.data,
        threads,
        graph.state,
        digest_of(segments),
    )
    texts["model.c"] = model_source(*model)
    return TargetSources(texts, flags, common, kept, arena, weights.data)


def digest_of(segments: Iterable[Segment]) -> str:
    """sha256 of the graphs that the C is made of, without the elements of constants:
    the same for every target.
    """
    found = hashlib.sha256()
    for s in segments:
        found.update(
            f"{s.name} {s.place}\n{print_graph(s.graph, constants=False)}\n".encode()
        )
    return found.hexdigest()


def _written(
    segments: Sequence[Segment],
    core: Core,
    weights: WeightsFile,
    end: str,
    rules: Rules,
) -> dict[str, CSource]:
    """The C of all segments for a core, by their names."""
    return {
        s.name: segment_source(s.graph, s.name + end, core, weights, rules=rules)
        for s in segments
    }


def _has_variants(sources: Mapping[str, CSource]) -> bool:
    """Whether kernels are used that are written for cores: plain ones are compiled for
    what all machines have.
    """
    return any(
        "/" in header for source in sources.values() for header in source.headers
    )


def crossing(graph: Graph, segments: Iterable[Segment]) -> dict[str, TensorType]:
    """Every tensor that enters or leaves a segment, in order of appearance."""
    graphs = [graph, *(s.graph for s in segments)]
    return {v.name: v.type for g in graphs for v in (*g.inputs, *g.outputs)}


def _names(values: Iterable[Value]) -> tuple[str, ...]:
    return tuple(v.name for v in values)
