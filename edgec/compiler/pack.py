"""Stage 9 of a compile: the files of the bundle, and its manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass

from edgec_devices.boards import Board
from edgec_runtime import Contents
from edgec_runtime.bundle.archive import EDGETPU_FILE, WEIGHTS_FILE
from edgec_runtime.bundle.signatures import SIGNATURES_FILE
from edgec_runtime.vision.tasks.base import Task

from edgec.compiler.build import Built
from edgec.compiler.channel_changes import with_changes
from edgec.compiler.contents import BundleFacts, contents_of, state_files
from edgec.compiler.edgetpu_loop import CompilerOutcome
from edgec.compiler.emit import Emitted
from edgec.compiler.lower import Lowered
from edgec.emit.anchors_file import anchors_file
from edgec.emit.c import CSRC
from edgec.emit.calls_file import CALLS_FILE, calls_file
from edgec.emit.edgetpu_programs import edgetpu_programs, segment_programs
from edgec.emit.graph_file import GRAPH_FILE, graph_file
from edgec.emit.sources import constants_crc32, digest_of
from edgec.emit.tflite import MODEL_TFLITE
from edgec.emit.values_file import VALUES_FILE, values_file
from edgec.frontends.task_file import TaskFile
from edgec.toolchain.app_files import app_files
from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.includes import included

QUANTIZE_FILE = "report/quantize.json"
"""The report on how the model became int8."""


@dataclass(frozen=True)
class PackedBundle:
    """A bundle that is not written yet.

    Attributes:
        contents: its manifest, without verification.
        files: its files, by path.
        tried_here: the files of this machine's code if the board has other code; they
            are not packed.
    """

    contents: Contents
    files: Mapping[str, bytes]
    tried_here: Set[str]


def pack(
    lowered: Lowered,
    emitted: Emitted,
    built: Built,
    outcome: CompilerOutcome | None,
    wanted: TaskFile,
    task: Task | None,
) -> PackedBundle:
    """Put the files of a bundle together.

    outcome: the results of edgetpu_compiler. wanted: the task as a person or the file
    states it. task: the same, bound to the model's outputs.
    """
    # Weights are by far the largest files, and cores with the same layout share them.
    weights = weights_files({n: made.weights for n, made in emitted.sources.items()})
    files = _source_files(emitted)
    files |= _binary_files(emitted, built, outcome)
    files |= _edgetpu_file(lowered, outcome)
    files |= {path: emitted.sources[name].weights for name, path in weights.items()}
    files |= _app_files(emitted, lowered.target.board)
    files |= state_files(lowered.graph)
    if task is not None:
        files |= wanted.files
    files |= _report_files(lowered, emitted)
    files |= _signatures_file(lowered)

    toolchain = built.versions()
    if outcome is not None and outcome.version is not None:
        toolchain[PROGRAM] = outcome.version
    segments = lowered.partition.segments
    facts = BundleFacts(
        arena={s.name: emitted.arena_bytes(s.name) for s in segments},
        weights=weights,
        files=files,
        labels=wanted.labels,
        task=task,
        toolchain=toolchain,
        threads=emitted.threads,
    )
    others = emitted.sources.keys() - set(emitted.board_targets)
    return PackedBundle(contents_of(lowered, facts), files, _of_targets(files, others))


def weights_files(data: Mapping[str, bytes]) -> dict[str, str]:
    """Return the path of each target's weights; equal weights share a file."""
    first: dict[bytes, str] = {}
    for target, content in data.items():
        first.setdefault(content, target)
    # Weights of all targets lie beside their folders; others in the first one's.
    alone = len(first) == 1
    paths = {}
    for target, content in data.items():
        if content:
            shared = f"lib/{first[content]}/{WEIGHTS_FILE}"
            paths[target] = WEIGHTS_FILE if alone else shared
    return paths


def _source_files(emitted: Emitted) -> dict[str, bytes]:
    """Return the C of the board's targets, and the kernels that it includes."""
    # Only included headers are packed: `src/` compiles by itself, and stays small.
    files = {}
    texts = []
    for target, made in emitted.board_sources.items():
        for name, text in made.texts.items():
            files[f"src/{target}/{name}"] = text.encode()
            texts.append(text)
    own = {p.name: p.read_text() for p in sorted(CSRC.glob("*.c"))}
    kernels = own | included([*own.values(), *texts], CSRC)
    return files | {f"src/{name}": text.encode() for name, text in kernels.items()}


def _binary_files(
    emitted: Emitted, built: Built, outcome: CompilerOutcome | None
) -> dict[str, bytes]:
    """Return segments for the Edge TPU, libraries and programs."""
    files = {f"segments/{n}.tflite": data for n, data in emitted.tflites.items()}
    if emitted.whole_tflite is not None:
        files[MODEL_TFLITE] = emitted.whole_tflite
    if outcome is not None:
        for name, result in outcome.segments.items():
            if result.data is not None:
                files[f"segments/{name}_edgetpu.tflite"] = result.data
        files[f"report/{PROGRAM}.json"] = _json(outcome.to_json())
    for target, made in built.binaries.items():
        files[f"lib/{target}/libmodel.so"] = made.library
        files[f"bin/{target}/main"] = made.program
    return files


def _edgetpu_file(
    lowered: Lowered, outcome: CompilerOutcome | None
) -> dict[str, bytes]:
    """Return what programs send to a stick, if any segment was compiled for it."""
    if outcome is None:
        return {}
    segments = lowered.partition.segments
    compiled = {n: r.data for n, r in outcome.segments.items() if r.data is not None}
    programs = segment_programs(segments, compiled)
    data = edgetpu_programs(programs, digest_of(segments), constants_crc32(segments))
    return {EDGETPU_FILE: data} if data else {}


def _app_files(emitted: Emitted, board: Board) -> dict[str, bytes]:
    """Return what a person's own C program needs to use the model's C."""
    files = {}
    for target in board.targets:
        made = emitted.sources[target.name]
        texts = app_files(made.texts, target.mcpu, made.flags, emitted.link_flags)
        for name, text in texts.items():
            files[f"src/{target.name}/{name}"] = text.encode()
    return files


def _report_files(lowered: Lowered, emitted: Emitted) -> dict[str, bytes]:
    """Return the reports that other verbs read from the bundle."""
    # `diff` runs the code of this machine, so the places of values are those of that.
    segments = lowered.partition.segments
    model = lowered.model
    here = Board.load("host").targets[0].name
    values = values_file(here, segments, emitted.sources[here].segments)
    graph = graph_file(lowered.partition, emitted.first.segments)
    files = {
        GRAPH_FILE: graph.to_json(),
        CALLS_FILE: calls_file(emitted.board_sources).to_json(),
        VALUES_FILE: with_changes(values, model.changes()).to_json(),
    }
    files |= anchors_file(lowered.graph)
    if model.quantized is not None:
        report = model.quantized.to_json()
        if model.pruned is not None:
            report["pruned"] = model.pruned.to_json()
        files[QUANTIZE_FILE] = _json(report)
    return files


def _signatures_file(lowered: Lowered) -> dict[str, bytes]:
    """Return the signatures whose tensors the compiled model has, as a file."""
    # A head that was left out, or state, takes tensors of the file away.
    inputs = {v.name for v in lowered.graph.given()}
    outputs = {v.name for v in lowered.graph.returned()}
    kept = {}
    for key, signature in lowered.read.signatures.items():
        is_given = inputs.issuperset(signature["inputs"].values())
        if is_given and outputs.issuperset(signature["outputs"].values()):
            kept[key] = signature
    return {SIGNATURES_FILE: _json(kept)} if kept else {}


def _of_targets(files: Mapping[str, bytes], targets: Set[str]) -> set[str]:
    """Return the paths of the code of these targets."""
    # Weights that a target of the board shares lie in that target's folder: `targets_of`
    # names the board's targets first.
    code = {path for path in files if path.startswith(("lib/", "bin/"))}
    return {path for path in code if path.split("/")[1] in targets}


def _json(report: object) -> bytes:
    # Sorted keys and no times: the same inputs give the same bundle.
    return f"{json.dumps(report, indent=1, sort_keys=True)}\n".encode()
