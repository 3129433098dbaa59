"""`compile`: a model file to one verified bundle."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgec_devices.boards import Board
from edgec_partitioner.segments import Segment
from edgec_runtime import Bundle, Contents, write_bundle
from edgec_runtime.bundle import WEIGHTS_FILE

from edgec.drive.contents import contents_of, names
from edgec.drive.edgetpu_loop import Outcome, ask, told
from edgec.drive.job import Job
from edgec.drive.lower import Dump, Lowered, Options, lower
from edgec.drive.native import native_compiler
from edgec.drive.verify import verify_bundle
from edgec.emit.c import CSRC, CSource, segment_source
from edgec.emit.graph_file import GRAPH_FILE, graph_file
from edgec.emit.program import SegmentEntry, model_source
from edgec.emit.tflite import write_tflite
from edgec.emit.weights import Weights, join_weights
from edgec.errors import EdgecError, InputError
from edgec.ir import Graph, TensorType, print_graph
from edgec.quantize.verification import Verification
from edgec.report.summary import Made, summary
from edgec.steps import Progress, Step, Steps
from edgec.toolchain.build import Binaries, build
from edgec.toolchain.cc import Compiler
from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.edgetpu.handoff import HandOff
from edgec.toolchain.edgetpu.runners import Runner
from edgec.toolchain.edgetpu.where import runner_for


@dataclass(frozen=True)
class Compiled:
    """What a compile made. asked: what edgetpu_compiler said; None if it was not asked. steps: where its time went."""

    path: Path
    lowered: Lowered
    sources: Mapping[str, CSource]
    verification: Verification
    asked: Outcome | None
    steps: tuple[Step, ...] = ()

    def summary(self) -> str:
        """The first screen: places, sizes, checks."""
        model, lines = self.lowered, list(told(self.lowered, self.asked))
        return summary(
            Made(
                self.path, model.graph.name, model.target.name, model.partition, self.sources, self.verification, lines,
                model.float_on_cpu, (*model.inputs_told(), *(f"note: {n}" for n in model.notes)),
            )
        )  # fmt: skip


def compile_model(
    model: Path,
    *,
    output: Path | None = None,
    options: Options | None = None,
    labels: Path | None = None,
    cc: str | None = None,
    dump: Sequence[str] = (),
    edgetpu_compiler: str | None = None,
    progress: Progress | None = None,
) -> Compiled:
    """Compile a .onnx or .tflite file into the bundle `output` (default: <model>.edgec in the working folder).

    labels: a text file with one label a line. cc: a compiler of this machine for this machine's own code. dump: names
    of passes ("after=NAME", or "after=all") whose result is written as text beside the bundle. edgetpu_compiler: where
    that program is (docs/edgetpu-compiler.md; default: the one on the PATH, if any). Raises EdgecError, with exit code
    1 when the verification fails and 2 when the input must change; no bundle is left then.
    """
    options = options or Options()
    job = Job(Path(model), output or Path(f"{Path(model).stem}.edgec"), options, labels, cc)
    job.check()
    runner = runner_for(edgetpu_compiler, {} if not _by_hand(edgetpu_compiler) else job.recipe())
    needed = edgetpu_compiler is not None
    return _compile(job, runner, dump, Steps(progress), needed=needed)


def finish(folder: Path, progress: Progress | None = None) -> Compiled:
    """Go on with a hand-off folder that came back with what edgetpu_compiler wrote, and write its bundle.

    Raises EdgecError with exit code 1 when the program has to run first, or once more, and InputError when the model,
    or the folder, is no longer what it was.
    """
    runner = HandOff.open(folder)
    job = Job.again(runner.recipe, folder)
    job.check()
    return _compile(job, runner, (), Steps(progress), needed=True, finishing=True)


def _by_hand(where: str | None) -> bool:
    return where is not None and where.startswith("folder:")


def _compile(
    job: Job, runner: Runner | None, dump: Sequence[str], say: Steps, *, needed: bool, finishing: bool = False
) -> Compiled:
    """finishing: do not write a bundle while edgetpu_compiler has to run by hand."""
    names = _labels(job.labels)
    lowered = lower(job.model, job.options, dump=_dumper(dump, job.output), progress=say, cc=job.cc)
    asked: Outcome | None = None
    if runner is not None and any(s.place == "edgetpu" for s in lowered.partition.segments):
        lowered, asked = ask(lowered, runner, say, needed=needed)
        if finishing and asked.pending is not None:
            raise asked.pending
    return _build(job, lowered, asked, names, say)


def _build(job: Job, lowered: Lowered, asked: Outcome | None, labels: Sequence[str] | None, say: Steps) -> Compiled:
    """C, binaries, verification and bundle of a partitioned model."""
    segments = lowered.partition.segments
    say("emit")
    sources = {s.name: segment_source(s.graph, s.name) for s in segments}
    tflites = {s.name: write_tflite(s.graph) for s in segments if s.place == "edgetpu"}
    tensors = _crossing(lowered)
    weights = join_weights(sources.values())
    entries = [_entry(s, sources[s.name], weights) for s in segments]
    ends = names(lowered.graph.inputs), names(lowered.graph.outputs)
    model_c = model_source(lowered.graph.name, tensors, entries, *ends, weights.data)
    texts = {f"{name}.c": source.text for name, source in sources.items()} | {"model.c": model_c}
    compilers = compilers_for(lowered.target.board, job.cc)
    binaries = build(dict.fromkeys(compilers, texts), CSRC, compilers, say)
    say("pack")
    files = _files(texts, tflites, asked, binaries)
    files |= {WEIGHTS_FILE: weights.data} if weights.data else {}
    files[GRAPH_FILE] = graph_file(lowered.partition, sources).to_json()
    toolchain = {target: compiler.version() for target, compiler in compilers.items()}
    if asked is not None and asked.version is not None:
        toolchain[PROGRAM] = asked.version
    contents = contents_of(lowered, sources, weights, tensors, files, labels, toolchain)
    say("verify")
    checked = _verify(contents, files, lowered, job.options.min_cosine if lowered.quantized else None, say)
    say("pack")
    write_bundle(job.output, replace(contents, verification=checked.to_json()), files)
    say("")
    return Compiled(job.output, lowered, sources, checked, asked, say.done())


def compilers_for(board: Board, cc: str | None) -> dict[str, Compiler]:
    """One compiler per target of the board, and one for this machine, where bundles are verified and tried."""
    found: dict[str, Compiler] = {}
    here = Board.load("host").targets[0]
    for t in (*board.targets, here):
        zig = Compiler.zig(t.library, t.program, t.mcpu)
        found.setdefault(t.name, native_compiler(cc) if t.name == here.name else zig)
    return found


def _crossing(lowered: Lowered) -> dict[str, TensorType]:
    """Every tensor that enters or leaves a segment, in order of appearance."""
    graphs = [lowered.graph, *(s.graph for s in lowered.partition.segments)]
    return {v.name: v.type for g in graphs for v in (*g.inputs, *g.outputs)}


def _entry(s: Segment, source: CSource, weights: Weights) -> SegmentEntry:
    ends = names(s.graph.inputs), names(s.graph.outputs)
    return SegmentEntry(s.name, s.place, *ends, source.plan.size, len(source.functions), weights.parts[s.name][0])


def _files(
    texts: Mapping[str, str],
    tflites: Mapping[str, bytes],
    asked: Outcome | None,
    binaries: Mapping[str, Binaries],
) -> dict[str, bytes]:
    """The bundle's files by path. src/ compiles by itself: it has the kernels that the generated C includes."""
    files = {f"src/{name}": text.encode() for name, text in texts.items()}
    files |= {f"src/{p.relative_to(CSRC).as_posix()}": p.read_bytes() for p in sorted(CSRC.rglob("*.[ch]"))}
    files |= {f"segments/{name}.tflite": data for name, data in tflites.items()}
    if asked is not None:
        files |= {f"segments/{n}_edgetpu.tflite": r.data for n, r in asked.segments.items() if r.data is not None}
        report = json.dumps(asked.to_json(), indent=1, sort_keys=True)
        files[f"report/{PROGRAM}.json"] = f"{report}\n".encode()
    for target, made in binaries.items():
        files[f"lib/{target}/libmodel.so"] = made.library
        files[f"bin/{target}/main"] = made.program
    return files


def _verify(
    contents: Contents, files: Mapping[str, bytes], lowered: Lowered, min_cosine: float | None, say: Progress
) -> Verification:
    """Run a bundle written aside on the samples. Raises EdgecError when something does not agree."""
    with tempfile.TemporaryDirectory(prefix="edgec-verify-") as tmp:
        aside = Path(tmp) / "model.edgec"
        write_bundle(aside, contents, files)
        with Bundle.open(aside) as bundle:
            checked = verify_bundle(bundle, lowered, min_cosine, say)
    if not checked.ok:
        hint = "report it with the model"
        if lowered.quantized:
            hint = "give --calibrate more pictures like those of its use, or accept less with --min-cosine"
        raise EdgecError(f"verification failed: {'; '.join(checked.failures)}", at=lowered.graph.name, hint=hint)
    return checked


def _labels(path: Path | None) -> list[str] | None:
    if path is None:
        return None
    try:
        return [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"cannot read the labels: {e}", at=str(path), hint="give a text file, one label a line") from e


def _dumper(names: Sequence[str], path: Path) -> Dump | None:
    """Writes <bundle>.<n>-<pass>.txt after each wanted pass."""
    if not names:
        return None
    wanted = {name.removeprefix("after=") for name in names}
    count = 0

    def dump(name: str, graph: Graph) -> None:
        nonlocal count
        if name in wanted or "all" in wanted:
            path.with_suffix(f".{count:02d}-{name}.txt").write_text(print_graph(graph))
            count += 1

    return dump
