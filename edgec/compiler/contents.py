"""The contents of a bundle's manifest after a compile (docs/bundle.md)."""

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
    """The facts of the manifest beside the model itself.

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
    segments = lowered.partition.segments
    targets = sorted(name.split("/")[1] for name in files if name.startswith("lib/"))

    # Tensors inside a segment are none of a session's business: it fills the borders.
    tensors = {}
    for name, type_ in border_tensors(lowered.graph, segments).items():
        dtype = DESCR[type_.dtype]
        tensors[name] = TensorInfo(name, type_.shape, dtype, _quant(type_.quant))
    return Contents(
        edgec=VERSION,
        name=lowered.graph.name,
        target=lowered.target.name,
        board=lowered.target.board.name,
        inputs=names(lowered.graph.given()),
        outputs=names(lowered.graph.returned()),
        state=state_of(lowered.graph),
        tensors=tensors,
        segments=tuple(_segment(s, facts.arena[s.name], files) for s in segments),
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
        license=lowered.read.license,
        graph=digest_of(segments),
        cascade=None,
    )


def _quantization(lowered: Lowered) -> dict[str, Any]:
    """Return the recipe and the name of its chosen candidate, and the use of float16.

    Without both it is {}.
    """
    facts: dict[str, Any] = {}
    quantized = lowered.model.quantized
    if quantized is not None:
        # A recipe of the chosen candidate alone makes the same model, without the
        # search.
        facts["recipe"] = quantized.recipe.to_json()
        facts["kept"] = quantized.candidate.name

    choice = lowered.model.float16
    if choice is not None:
        facts["float16"] = choice.to_json()
    return facts


def _segment(s: Segment, arena: int, files: Mapping[str, bytes]) -> SegmentInfo:
    """Return a segment as the manifest lists it.

    arena: the bytes that it needs. files: the files of the bundle, by path.
    """
    tflite = f"segments/{s.name}.tflite"
    edgetpu = f"segments/{s.name}_edgetpu.tflite"
    return SegmentInfo(
        name=s.name,
        place=s.place,
        inputs=names(s.graph.inputs),
        outputs=names(s.graph.outputs),
        arena=arena,
        macs=s.macs,
        # Segments for the CPU have neither file, and without edgetpu_compiler there is
        # no compiled one.
        tflite=tflite if tflite in files else None,
        edgetpu=edgetpu if edgetpu in files else None,
        est_ms=s.est.ms if s.est else None,
    )


def _quant(quant: Quant | None) -> TensorQuant | None:
    """Return the quantization of a tensor in the form of the manifest."""
    if quant is None:
        return None
    return TensorQuant(tuple(quant.scale), tuple(quant.zero_point), quant.axis)


def state_of(graph: Graph) -> tuple[StateInfo, ...]:
    """Return the tensors that are kept between calls.

    Their first values are in `state_files`, unless these are zeros.
    """
    infos = []
    for i, s in enumerate(graph.state):
        # Most states begin as zeros, for which the manifest needs no file.
        initial = _initial_path(i) if s.initial.any() else None
        infos.append(StateInfo(s.input, s.output, initial))
    return tuple(infos)


def state_files(graph: Graph) -> dict[str, bytes]:
    """Return the first values of state that are not zeros, by path in the bundle."""
    files = {}
    for i, s in enumerate(graph.state):
        if s.initial.any():
            files[_initial_path(i)] = s.initial.tobytes()
    return files


def _initial_path(i: int) -> str:
    """Return the path of the first value of state number `i`."""
    return f"state/{i}.bin"


def names(values: Sequence[Value]) -> tuple[str, ...]:
    """Return the names of values, in the same order."""
    return tuple(v.name for v in values)
