"""Reads the facts about one network of a bundle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgec_runtime import Bundle, Manifest, SegmentInfo, TensorInfo
from edgec_runtime.edgetpu_file.compiled_file import read_compiled
from edgec_runtime.vision.tasks import task_json

from edgec.benching.build import read_graph
from edgec.benching.memory import memory
from edgec.emit.graph_file import GraphFile
from edgec.inspecting.checks import recorded
from edgec.inspecting.compiled import facts_of
from edgec.inspecting.compiled_facts import CompiledFacts
from edgec.inspecting.facts import (
    InspectedMemory,
    InspectedNetwork,
    InspectedSegment,
    InspectedState,
    InspectedTensor,
)


@dataclass(frozen=True)
class NetworkPlace:
    """Where a network stands.

    Attributes:
        name: the name in a cascade, else that of the model.
        role: what it sees in a cascade.
        like: the network of the cascade that shares its bundle.
        bytes: the size of its bundle.
    """

    name: str
    bytes: int
    role: str = ""
    like: str = ""


def network_of(bundle: Bundle, place: NetworkPlace) -> InspectedNetwork:
    """Return the facts about the network of a bundle.

    Args:
        bundle: of this one network.
        place: where it stands.

    Raises InputError or BundleError for a damaged report within the bundle.
    """
    # The manifest has what runs, the report what it was made of.
    manifest = bundle.manifest
    graph = read_graph(bundle)
    # Recipes are for other programs, so the manifest's reader does not check them.
    recipe = manifest.quantization.get("recipe", {})
    task = None if manifest.task is None else task_json(manifest.task)
    return InspectedNetwork(
        name=place.name,
        model=manifest.name,
        role=place.role,
        like=place.like,
        target=manifest.target,
        bytes=place.bytes,
        inputs=_tensors(manifest, manifest.input_infos()),
        outputs=_tensors(manifest, manifest.output_infos()),
        state=_state(manifest),
        task=task,
        labels=manifest.labels,
        segments=_segments(bundle, graph),
        kinds=_kinds(graph),
        memory=_memory(bundle, graph),
        threads=manifest.threads,
        checks=recorded(manifest.verification, str(bundle.path)),
        recipe=str(recipe.get("name", "")) if isinstance(recipe, Mapping) else "",
        kept=str(manifest.quantization.get("kept", "")),
        license=manifest.license.get("name", ""),
        license_source=manifest.license.get("source", ""),
        edgec=manifest.edgec,
        toolchain={name: str(text) for name, text in manifest.toolchain.items()},
    )


def _tensors(
    manifest: Manifest, infos: Sequence[TensorInfo]
) -> tuple[InspectedTensor, ...]:
    # A preprocessing is there for images alone.
    tensors = []
    for info in infos:
        preprocess = manifest.preprocess.get(info.name)
        quant = info.quant
        tensors.append(
            InspectedTensor(
                name=info.name,
                dtype=info.numpy_dtype.name,
                shape=info.shape,
                scale=() if quant is None else quant.scale,
                zero_point=() if quant is None else quant.zero_point,
                photo=None if preprocess is None else preprocess.explained(),
            )
        )
    return tuple(tensors)


def _state(manifest: Manifest) -> tuple[InspectedState, ...]:
    rows = []
    for state in manifest.state:
        size = manifest.tensors[state.input].nbytes
        begins = state.initial or "zeros"
        rows.append(InspectedState(state.input, state.output, size, begins))
    return tuple(rows)


def _segments(bundle: Bundle, graph: GraphFile) -> tuple[InspectedSegment, ...]:
    manifest = bundle.manifest
    # A bundle that was written by hand has no report.
    counts = Counter(op.segment for op in graph.ops)
    segments = []
    for segment in manifest.segments:
        segments.append(
            InspectedSegment(
                name=segment.name,
                place=segment.place,
                ops=counts[segment.name] if graph.ops else None,
                macs=segment.macs,
                arena=segment.arena,
                constants=graph.segment(segment.name).constants,
                est_ms=segment.est_ms,
                form=_form(segment),
                compiled=_compiled(bundle, segment),
            )
        )
    return tuple(segments)


def _compiled(bundle: Bundle, segment: SegmentInfo) -> CompiledFacts | None:
    """Return what the file of edgetpu_compiler for a segment has."""
    if segment.edgetpu is None:
        return None
    where = f"{bundle.path}: {segment.edgetpu}"
    file = read_compiled(bundle.read(segment.edgetpu), where)
    return facts_of(file, segment.edgetpu)


def _form(segment: SegmentInfo) -> str:
    """Return what a bundle has of a segment for the Edge TPU."""
    if segment.edgetpu is not None:
        return "compiled"
    return "to be compiled" if segment.tflite is not None else ""


def _kinds(graph: GraphFile) -> dict[str, int]:
    counts = Counter(op.kind for op in graph.ops)
    # Equal counts by name, so that the same bundle gives the same text.
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _memory(bundle: Bundle, graph: GraphFile) -> tuple[InspectedMemory, ...]:
    rows = []
    for target, path in bundle.manifest.libraries.items():
        # Code that stayed in another machine's cache cannot be measured here.
        if bundle.manifest.files[path].detached:
            continue
        use = memory(bundle, path, target, graph, (), estimated=True)
        rows.append(
            InspectedMemory(
                target=target,
                code=use.code,
                constants=use.constants,
                arena=use.plan["arena"],
                tensors=use.plan["tensors"],
            )
        )
    return tuple(rows)
