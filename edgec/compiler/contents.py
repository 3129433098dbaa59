"""What the manifest of a bundle says of a compile (docs/bundle.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgec_partitioner.segments import Segment
from edgec_runtime import Contents, SegmentInfo, StateInfo, TensorInfo
from edgec_runtime import QuantInfo as TensorQuant
from edgec_runtime.vision.tasks.base import Task

from edgec.compiler.lower import Lowered
from edgec.emit.program import DESCR
from edgec.emit.sources import border_tensors, digest_of
from edgec.ir import Graph, Quant, Value
from edgec.version import VERSION


@dataclass(frozen=True)
class BundleFacts:
    """What the manifest says beside the model itself.

    Attributes:
        arena: the bytes that each segment needs, enough for every target.
        weights: the path of each target's weights file.
        files: the files of the bundle, by path.
        labels: the names of classes.
        task: the task, bound to the model's outputs.
        toolchain: the version of each target's compiler.
        threads: the most threads that the C can use.
    """

    arena: Mapping[str, int]
    weights: Mapping[str, str]
    files: Mapping[str, bytes]
    labels: Sequence[str] | None
    task: Task | None
    toolchain: Mapping[str, str]
    threads: int


def contents_of(lowered: Lowered, facts: BundleFacts) -> Contents:
    """Return the manifest without verification, which comes after."""
    files = facts.files
    tensors = border_tensors(lowered.graph, lowered.partition.segments)
    targets = sorted(name.split("/")[1] for name in files if name.startswith("lib/"))
    return Contents(
        edgec=VERSION,
        name=lowered.graph.name,
        target=lowered.target.name,
        board=lowered.target.board.name,
        inputs=names(lowered.graph.given()),
        outputs=names(lowered.graph.returned()),
        state=state_of(lowered.graph),
        tensors={
            n: TensorInfo(n, t.shape, DESCR[t.dtype], _quant(t.quant))
            for n, t in tensors.items()
        },
        segments=tuple(
            _segment(s, facts.arena[s.name], files) for s in lowered.partition.segments
        ),
        libraries={t: f"lib/{t}/libmodel.so" for t in targets},
        programs={t: f"bin/{t}/main" for t in targets},
        weights=facts.weights,
        threads=facts.threads,
        labels=tuple(facts.labels) if facts.labels is not None else None,
        preprocess=lowered.read.preprocess,
        task=facts.task,
        toolchain=facts.toolchain,
        verification={},
        quantization=_quantization(lowered),
        graph=digest_of(lowered.partition.segments),
    )


def _quantization(lowered: Lowered) -> dict[str, Any]:
    """The recipe, and which of its candidates was kept: a recipe of that one alone
    makes the same model.
    """
    if lowered.model.floats is None:
        return {}
    found = lowered.model.floats.found
    return {"recipe": found.recipe.to_json(), "kept": found.candidate.name}


def _segment(s: Segment, arena: int, files: Mapping[str, bytes]) -> SegmentInfo:
    paths = [f"segments/{s.name}{end}" for end in (".tflite", "_edgetpu.tflite")]
    tflite, edgetpu = (path if path in files else None for path in paths)
    return SegmentInfo(
        name=s.name,
        place=s.place,
        inputs=names(s.graph.inputs),
        outputs=names(s.graph.outputs),
        arena=arena,
        macs=s.macs,
        tflite=tflite,
        edgetpu=edgetpu,
        est_ms=s.est.ms if s.est else None,
    )


def _quant(q: Quant | None) -> TensorQuant | None:
    if q is None:
        return None
    return TensorQuant(tuple(q.scale), tuple(q.zero_point), q.axis)


def state_of(graph: Graph) -> tuple[StateInfo, ...]:
    """What is kept between calls; what it begins as is in `state_files`, unless it is
    zeros.
    """
    return tuple(
        StateInfo(s.input, s.output, _initial_path(i) if s.initial.any() else None)
        for i, s in enumerate(graph.state)
    )


def state_files(graph: Graph) -> dict[str, bytes]:
    """What state begins as, by path in the bundle."""
    return {
        _initial_path(i): s.initial.tobytes()
        for i, s in enumerate(graph.state)
        if s.initial.any()
    }


def _initial_path(i: int) -> str:
    return f"state/{i}.bin"


def names(values: Sequence[Value]) -> tuple[str, ...]:
    """In order."""
    return tuple(v.name for v in values)
