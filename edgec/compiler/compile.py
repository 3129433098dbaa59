"""`compile`: a model file to one verified bundle."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgec_devices.boards import ArchTarget, Board
from edgec_devices.temporary import temporary_folder
from edgec_runtime import Bundle, Contents, write_bundle
from edgec_runtime.bundle.archive import WEIGHTS_FILE

from edgec.compiler.changed import with_changes
from edgec.compiler.contents import contents_of, state_files
from edgec.compiler.edgetpu_loop import CompilerOutcome, ask, told
from edgec.compiler.job import Job
from edgec.compiler.lower import Dump, Lowered, Options, lower
from edgec.compiler.native import native_compiler
from edgec.compiler.tasking import bound, vision_texts
from edgec.compiler.tuned import TuningDatabases
from edgec.compiler.verify import verify_bundle
from edgec.emit.c import CSRC, CSource
from edgec.emit.calls_file import CALLS_FILE, calls_file
from edgec.emit.graph_file import GRAPH_FILE, graph_file
from edgec.emit.sources import TargetSources, target_sources
from edgec.emit.tflite import write_tflite
from edgec.emit.values_file import VALUES_FILE, values_file
from edgec.errors import EdgecError, InputError
from edgec.frontends.pt2 import saved
from edgec.frontends.task_file import TaskFile
from edgec.ir import Graph, print_graph
from edgec.quantize.verification import Verification
from edgec.report.summary import Made, summary
from edgec.schedule.cores import PLAIN, cores_of
from edgec.steps import Progress, Step, Steps
from edgec.toolchain.app_files import app_files
from edgec.toolchain.build import Binaries, build
from edgec.toolchain.cc import Compiler
from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.edgetpu.handoff import HandOff
from edgec.toolchain.edgetpu.runners import Runner
from edgec.toolchain.edgetpu.where import runner_for
from edgec.toolchain.includes import included

QUANTIZE_FILE = "report/quantize.json"
"""What was tried to make the model int8."""


@dataclass(frozen=True)
class Compiled:
    """What a compile made. asked: what edgetpu_compiler said; None if it was not asked.
    steps: where its time went. tuned: what became of the schedules of a search.
    """

    path: Path
    lowered: Lowered
    sources: Mapping[str, CSource]
    verification: Verification
    asked: CompilerOutcome | None
    steps: tuple[Step, ...] = ()
    tuned: tuple[str, ...] = ()

    def summary(self) -> str:
        """The first screen: places, sizes, checks."""
        model = self.lowered
        lines = list(told(self.lowered, self.asked))
        found = None
        pruned = None
        here = tuple[float, ...]()
        if model.floats is not None:
            found = model.floats.found
            pruned = model.floats.pruned
            here = model.floats.pruned_ms
        notes = (*model.notes, *(found.suited.notes() if found is not None else ()))
        return summary(
            Made(
                self.path,
                model.graph.name,
                model.target.name,
                model.partition,
                self.sources,
                self.verification,
                lines,
                model.float_on_cpu,
                (*model.inputs_told(), *(f"note: {n}" for n in notes), *self.tuned),
                found,
                pruned,
                here,
            )
        )


def compile_model(
    model: str | Path | Callable[..., Any],
    *,
    output: Path | None = None,
    options: Options | None = None,
    labels: Path | None = None,
    task: str | None = None,
    anchors: Path | None = None,
    cc: str | None = None,
    dump: Sequence[str] = (),
    edgetpu_compiler: str | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    example_inputs: Sequence[Any] | None = None,
) -> Compiled:
    """Compile a model file, or a module of PyTorch, into the bundle `output` (default:
    <model>.edgec, here).

    example_inputs: of a module. labels: a text file with one label a line. task,
    anchors: what outputs mean (docs/tasks.md). cc: a compiler of this machine for this
    machine's own code. dump: names of passes ("after=NAME", or "after=all") whose
    result is written as text beside the bundle. edgetpu_compiler: where that program is
    (docs/edgetpu-compiler.md; default: the one on the PATH, if any). executor: tries
    the candidates of a recipe in place of `options.workers`. Raises EdgecError, with
    exit code 1 when the verification fails and 2 when the input must change; no bundle
    is left then.
    """
    options = options or Options()
    needed = edgetpu_compiler is not None
    with (
        saved(model, example_inputs)
        if callable(model)
        else nullcontext(Path(model)) as file
    ):
        job = Job(
            file,
            output or Path(f"{file.stem}.edgec"),
            options,
            labels,
            cc,
            task,
            anchors,
        )
        job.check()
        runner = runner_for(
            edgetpu_compiler, {} if not _by_hand(edgetpu_compiler) else job.recipe()
        )
        return _compile(
            job, runner, dump, Steps(progress), needed=needed, executor=executor
        )


def finish(folder: Path, progress: Progress | None = None) -> Compiled:
    """Go on with a hand-off folder that came back with what edgetpu_compiler wrote, and
    write its bundle.

    Raises EdgecError with exit code 1 when the program has to run first, or once more,
    and InputError when the model, or the folder, is no longer what it was.
    """
    runner = HandOff.open(folder)
    job = Job.again(runner.recipe, folder)
    job.check()
    return _compile(job, runner, (), Steps(progress), needed=True, finishing=True)


def _by_hand(where: str | None) -> bool:
    return where is not None and where.startswith("folder:")


def _compile(
    job: Job,
    runner: Runner | None,
    dump: Sequence[str],
    say: Steps,
    *,
    needed: bool,
    finishing: bool = False,
    executor: Executor | None = None,
) -> Compiled:
    """finishing: do not write a bundle while edgetpu_compiler has to run by hand."""
    wanted = job.wanted()
    options = replace(
        job.options,
        preprocess=wanted.with_preprocess(job.options.preprocess),
        head=wanted.head,
    )
    dumper = _dumper(dump, job.output)
    lowered = lower(
        job.model, options, dump=dumper, progress=say, cc=job.cc, executor=executor
    )
    asked: CompilerOutcome | None = None
    if runner is not None and any(
        s.place == "edgetpu" for s in lowered.partition.segments
    ):
        lowered, asked = ask(lowered, runner, say, needed=needed)
        if finishing and asked.pending is not None:
            raise asked.pending
    return _build(job, lowered, asked, wanted, say)


def _build(
    job: Job,
    lowered: Lowered,
    asked: CompilerOutcome | None,
    wanted: TaskFile,
    say: Steps,
) -> Compiled:
    """C, binaries, verification and bundle of a partitioned model."""
    task = bound(wanted, lowered)
    board = lowered.target.board
    segments = lowered.partition.segments
    say("emit")
    tuned = TuningDatabases.of(job.options.tuned)
    # what this machine tries of another's bundle is plain code, whose weights other
    # targets have too
    threads, plain = job.options.threads, (replace(PLAIN, threads=job.options.threads),)
    own = {t.name: tuned.cores(cores_of(board, t, threads)) for t in board.targets}
    cores = {t.name: own.get(t.name, plain) for t in targets_of(board)}
    beside = vision_texts(lowered, task)
    sources = {
        t: target_sources(lowered.graph, segments, found).beside(beside)
        for t, found in cores.items()
    }
    tflites = {s.name: write_tflite(s.graph) for s in segments if s.place == "edgetpu"}
    compilers = compilers_for(board, job.cc)
    flags = {
        file: given for made in sources.values() for file, given in made.flags.items()
    }
    texts = {t: made.texts for t, made in sources.items()}
    link = ("-pthread",) if threads > 1 else ()
    binaries = build(texts, CSRC, compilers, say, flags, link)
    say("pack")
    written = {t: sources[t] for t in own}
    files = _files(written, tflites, asked, binaries)
    for t in board.targets:
        own_files = app_files(
            sources[t.name].texts, t.mcpu, sources[t.name].flags, link
        )
        files |= {
            f"src/{t.name}/{name}": text.encode() for name, text in own_files.items()
        }
    files |= state_files(lowered.graph)
    files |= wanted.files if task is not None else {}
    weights = weights_files({t: made.weights for t, made in sources.items()})
    files |= {path: sources[t].weights for t, path in weights.items()}
    first = sources[board.targets[0].name]
    files[GRAPH_FILE] = graph_file(lowered.partition, first.segments).to_json()
    files[CALLS_FILE] = calls_file(written).to_json()
    here = Board.load("host").targets[0].name
    changes = lowered.floats.changes() if lowered.floats is not None else {}
    files[VALUES_FILE] = with_changes(
        values_file(here, segments, sources[here].segments), changes
    ).to_json()
    if lowered.floats is not None:
        pruned = lowered.floats.pruned
        more = {} if pruned is None else {"pruned": pruned.to_json()}
        files[QUANTIZE_FILE] = _json({**lowered.floats.found.to_json(), **more})
    toolchain = {target: compiler.version() for target, compiler in compilers.items()}
    if asked is not None and asked.version is not None:
        toolchain[PROGRAM] = asked.version
    arena = {
        s.name: max(made.arena[s.name] for made in sources.values()) for s in segments
    }
    contents = contents_of(
        lowered, arena, weights, files, wanted.labels, task, toolchain, threads
    )
    say("verify")
    checked = _verify(
        contents,
        files,
        lowered,
        job.options.min_cosine if lowered.quantized else None,
        say,
    )
    say("pack")
    tried_here = _of_targets(files, cores.keys() - own.keys())
    write_bundle(
        job.output, replace(contents, verification=checked.to_json()), files, tried_here
    )
    say("")
    return Compiled(
        job.output,
        lowered,
        first.segments,
        checked,
        asked,
        say.done(),
        tuple(tuned.told(written)),
    )


def targets_of(board: Board) -> list[ArchTarget]:
    """The board's, and this machine's, where bundles are verified and tried."""
    here = Board.load("host").targets[0]
    return [
        *board.targets,
        *([here] if here.name not in {t.name for t in board.targets} else []),
    ]


def compilers_for(board: Board, cc: str | None) -> dict[str, Compiler]:
    """One compiler per target."""
    here = Board.load("host").targets[0]
    return {
        t.name: native_compiler(cc)
        if t.name == here.name
        else Compiler.zig(t.library, t.program, t.mcpu)
        for t in targets_of(board)
    }


def weights_files(data: Mapping[str, bytes]) -> dict[str, str]:
    """The path of each target's weights file; those with the same content share one."""
    first = {content: target for target, content in reversed([*data.items()])}
    alone = len(first) == 1
    return {
        t: WEIGHTS_FILE if alone else f"lib/{first[content]}/{WEIGHTS_FILE}"
        for t, content in data.items()
        if content
    }


def _files(
    sources: Mapping[str, TargetSources],
    tflites: Mapping[str, bytes],
    asked: CompilerOutcome | None,
    binaries: Mapping[str, Binaries],
) -> dict[str, bytes]:
    """The bundle's files by path. src/ compiles by itself: it has the kernels that the
    generated C includes.
    """
    files = {
        f"src/{t}/{name}": text.encode()
        for t, made in sources.items()
        for name, text in made.texts.items()
    }
    own = {p.name: p.read_text() for p in sorted(CSRC.glob("*.c"))}
    texts = [
        *own.values(),
        *(text for made in sources.values() for text in made.texts.values()),
    ]
    files |= {
        f"src/{name}": text.encode()
        for name, text in (own | included(texts, CSRC)).items()
    }
    files |= {f"segments/{name}.tflite": data for name, data in tflites.items()}
    if asked is not None:
        files |= {
            f"segments/{n}_edgetpu.tflite": r.data
            for n, r in asked.segments.items()
            if r.data is not None
        }
        files[f"report/{PROGRAM}.json"] = _json(asked.to_json())
    for target, made in binaries.items():
        files[f"lib/{target}/libmodel.so"] = made.library
        files[f"bin/{target}/main"] = made.program
    return files


def _of_targets(files: Mapping[str, bytes], targets: Set[str]) -> set[str]:
    """The files that only these targets' code consists of."""
    return {
        path
        for path in files
        if path.startswith(("lib/", "bin/")) and path.split("/")[1] in targets
    }


def _json(report: object) -> bytes:
    return f"{json.dumps(report, indent=1, sort_keys=True)}\n".encode()


def _verify(
    contents: Contents,
    files: Mapping[str, bytes],
    lowered: Lowered,
    min_cosine: float | None,
    say: Progress,
) -> Verification:
    """Run a bundle written aside on the samples.

    Raises EdgecError when something does not agree.
    """
    with temporary_folder("verify") as tmp:
        aside = tmp / "model.edgec"
        write_bundle(aside, contents, files)
        with Bundle.open(aside) as bundle:
            checked = verify_bundle(bundle, lowered, min_cosine, say)
    if not checked.ok:
        hint = "report it with the model"
        if checked.not_finite and not lowered.quantized:
            what = (
                f"the model cannot be verified: {checked.not_finite}, "
                "and what becomes of that differs"
            )
            hint = (
                "give --validate samples of what the model is for: "
                "numpy's "
                "noise may be none, as for a logarithm"
            )
            raise InputError(what, at=lowered.graph.name, hint=hint)
        if lowered.floats is not None and not checked.failures:
            hint = (
                f"give {lowered.floats.found.remedy}, or accept less with --min-cosine"
            )
        what = "; ".join((*checked.failures, *checked.unlike))
        raise EdgecError(
            f"verification failed: {what}", at=lowered.graph.name, hint=hint
        )
    return checked


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
