"""The compile of one network, stage by stage, to a verified bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgec_devices.boards import HOST
from edgec_devices.temporary import temporary_folder
from edgec_partitioner.explain import Origin, explain
from edgec_runtime import Bundle, Contents, write_bundle

from edgec.compiler.build import build_programs
from edgec.compiler.edgetpu_loop import (
    CompilerOutcome,
    compile_for_edgetpu,
    outcome_lines,
)
from edgec.compiler.emit import Emitted, emit
from edgec.compiler.float_width import float32_names
from edgec.compiler.host import Dump, Host
from edgec.compiler.job import Job
from edgec.compiler.judge import LabelledData
from edgec.compiler.lower import Lowered, lower
from edgec.compiler.native import native_compiler
from edgec.compiler.pack import PackedBundle, pack
from edgec.compiler.place import cpu_cost
from edgec.compiler.task import bound, task_notes
from edgec.compiler.tuning_databases import TuningDatabases
from edgec.compiler.verify import verify_bundle
from edgec.emit.c import CSource
from edgec.errors import EdgecError, InputError, shell_word
from edgec.frontends.task_file import TaskFile
from edgec.ir import Graph, print_graph
from edgec.options.compile import with_task_file
from edgec.quantize.observe.verification import Verification
from edgec.report.summary import Made, footnote, summary
from edgec.steps import Step, Steps
from edgec.toolchain.edgetpu.runners import Runner

PLACE_STEPS = ("read", "load samples", "partition")
"""The steps that each compile has up to the placement."""
COMPLETE_STEPS = ("emit", "verify", "write")
"""The steps that each compile has after it."""
MAX_ROUNDS = 2
"""Verifications after which only some ops of a failed float16 network become float32."""


@dataclass(frozen=True)
class CompiledNetwork:
    """The results of the compile of one network.

    Attributes:
        path: its bundle; that of a network of a cascade is within the cascade's.
        bytes: the size of that.
        lowered: the model as it was partitioned.
        sources: the C of each segment, for the board's first target.
        verification: the distance between the outputs of the bundle and of the model.
        outcome: the results of edgetpu_compiler; None if it was not run.
        contents: the manifest of its bundle.
        tuned: notes on the schedules of a search.
    """

    path: Path
    bytes: int
    lowered: Lowered
    sources: Mapping[str, CSource]
    verification: Verification
    outcome: CompilerOutcome | None
    contents: Contents
    tuned: tuple[str, ...] = ()

    def first_screen(self) -> str:
        """Return places, sizes, checks."""
        lowered = self.lowered
        model = lowered.model
        notes = [*lowered.notes]
        if model.quantized is not None:
            notes += model.quantized.sample_report.notes()
        remarks = (
            *lowered.read.preprocess_notes(),
            *task_notes(self.contents.task, self.contents.labels),
            *(f"note: {note}" for note in notes),
            *self.tuned,
        )
        origin = Origin(lowered.graph.name, lowered.target.name)
        return summary(
            Made(
                self.path,
                self.bytes,
                lowered.graph.name,
                lowered.target.name,
                lowered.partition.segments,
                explain(lowered.partition, cpu_cost(lowered.target), origin),
                self.sources,
                self.verification,
                list(outcome_lines(lowered, self.outcome)),
                model.float_on_cpu,
                remarks,
                model.quantized,
                model.pruned,
            )
        )


@dataclass(frozen=True)
class Compiled:
    """The results of a compile.

    Attributes:
        path: the bundle.
        networks: the results of each network with a model of its own, by name.
        is_cascade: whether they are those of a cascade.
        shared: whether they share the memory of the Edge TPU, in words; "" where there
            is nothing to share.
        steps: the steps with their times.
    """

    path: Path
    networks: Mapping[str, CompiledNetwork]
    steps: tuple[Step, ...]
    is_cascade: bool = False
    shared: str = ""

    @property
    def network(self) -> CompiledNetwork:
        """Return the first network: the only one, or the detector."""
        return next(iter(self.networks.values()))

    def next_command(self) -> str:
        """Return the command to try the bundle with, on this machine."""
        bundle = shell_word(self.path)
        if self.is_cascade:
            return f"edgec webcam {bundle}"
        lowered = self.network.lowered
        board = lowered.target.board.name
        on = "" if board == HOST else f" --on emulated:{board}"
        if lowered.read.preprocess:
            return f"edgec run {bundle}{on} --input photo.jpg"
        return f"edgec bench {bundle}{on}"

    def summary(self) -> str:
        """Return the first screen of each network, and what their terms mean."""
        texts = [network.first_screen() for network in self.networks.values()]
        if self.is_cascade:
            megabytes = self.path.stat().st_size / 1e6
            names = ", ".join(self.networks)
            texts.insert(0, f"{self.path}: a cascade of {names}, {megabytes:.1f} MB")
        if self.shared:
            texts.append(self.shared)
        return "\n\n".join([*texts, footnote()])


@dataclass(frozen=True)
class PlacedNetwork:
    """A network whose operations have their places.

    Attributes:
        wanted: the task, before it is bound to outputs.
        lowered: the model as it was partitioned.
        outcome: the results of edgetpu_compiler; None if it was not run.
    """

    wanted: TaskFile
    lowered: Lowered
    outcome: CompilerOutcome | None


@dataclass(frozen=True)
class _Trial:
    """The code of a placed network, and how it ran on this machine.

    Attributes:
        placed: the network.
        emitted: its code.
        package: the bundle that is not written yet.
        verification: what its run showed.
        tuning_notes: notes on the schedules of a search.
    """

    placed: PlacedNetwork
    emitted: Emitted
    package: PackedBundle
    verification: Verification
    tuning_notes: tuple[str, ...]


@dataclass(frozen=True)
class Compilation:
    """The compile of one network.

    Attributes:
        job: the model and the options.
        say: is called with each step.
        runner: runs edgetpu_compiler; None: it does not run.
        needed: whether it is an error if edgetpu_compiler cannot be run.
        finishing: whether no bundle is written while edgetpu_compiler still has to run
            by hand.
        dump: the names of passes whose results are written as text.
    """

    job: Job
    say: Steps
    runner: Runner | None
    needed: bool = False
    finishing: bool = False
    dump: Sequence[str] = ()

    def run(self) -> Compiled:
        """Do all stages, and write the bundle."""
        done = self.complete(self.place())
        networks = {done.lowered.graph.name: done}
        return Compiled(done.path, networks, self.say.done())

    def place(self) -> PlacedNetwork:
        """Do the stages up to the placement, which asks edgetpu_compiler."""
        wanted = self.job.wanted()
        lowered, outcome = self._place(wanted)
        return PlacedNetwork(wanted, lowered, outcome)

    def complete(self, placed: PlacedNetwork) -> CompiledNetwork:
        """Do the stages after the placement, and write the bundle."""
        trial = self._tried(placed)
        rounds = 0
        while self._is_float16_at_fault(trial):
            rounds += 1
            placed = self._with_more_float32(trial, entirely=rounds > MAX_ROUNDS)
            trial = self._tried(placed)

        verification = trial.verification
        if not verification.ok:
            raise self._failure(verification, placed.lowered)

        self.say("write")
        # The bundle is packed twice: verification opens it as a person will, and the
        # manifest then gets the figures.
        package = trial.package
        contents = replace(package.contents, verification=verification.to_json())
        write_bundle(self.job.output, contents, package.files, package.tried_here)
        self.say("")
        return CompiledNetwork(
            path=self.job.output,
            bytes=self.job.output.stat().st_size,
            lowered=placed.lowered,
            sources=trial.emitted.first.segments,
            verification=verification,
            outcome=placed.outcome,
            contents=contents,
            tuned=trial.tuning_notes,
        )

    def _tried(self, placed: PlacedNetwork) -> _Trial:
        """Generate and compile the code of a placed network, and run it here."""
        job = self.job
        lowered = placed.lowered
        task = bound(placed.wanted, lowered.read, lowered.graph)
        self.say("emit")
        tuning = TuningDatabases.of(job.tuned)
        keep = job.options.keep_tflite
        emitted = emit(lowered, task, tuning, job.options.threads, keep)
        built = build_programs(emitted, lowered.target.board, job.options.cc, self.say)

        self.say("pack")
        package = pack(lowered, emitted, built, placed.outcome, placed.wanted, task)

        self.say("verify")
        return _Trial(
            placed=placed,
            emitted=emitted,
            package=package,
            verification=self._verify(package, lowered),
            tuning_notes=tuple(tuning.notes(emitted.board_sources)),
        )

    def _is_float16_at_fault(self, trial: _Trial) -> bool:
        """Return whether a trial failed that may pass with more floats in float32.

        Where a person asked for float16, what it costs is a warning.
        """
        verification = trial.verification
        if trial.placed.lowered.model.float16 is None:
            return False
        if self.job.options.float_width == "16":
            return False

        return not verification.ok or bool(verification.float16)

    def _with_more_float32(self, trial: _Trial, entirely: bool) -> PlacedNetwork:
        """Return the network with the ops in float32 that failed in float16.

        Where none failed by itself, or all of them are in float32 already, the whole
        network is in float32, and where it is to be so entirely.
        """
        placed = trial.placed
        lowered = placed.lowered
        choice = lowered.model.float16
        assert choice is not None
        failed = float32_names(choice, trial.verification.float16_ops)
        more = failed.difference(choice.kept)
        ops = more.union(choice.kept) if more and not entirely else ()
        host = Host(native_compiler(self.job.options.cc), self.say)
        # The Edge TPU's segments have no floats, so they stay as they were compiled.
        lowered = lowered.with_float32(ops, self.job.options, host)
        return replace(placed, lowered=lowered)

    def _place(self, wanted: TaskFile) -> tuple[Lowered, CompilerOutcome | None]:
        """Lower the model to segments, and compile those of the Edge TPU."""
        job = self.job
        options = with_task_file(job.options, wanted)
        dump = _dumper(self.dump, job.output)
        host = Host(native_compiler(job.options.cc), self.say, dump)
        labelled = None
        if options.data is not None:
            labelled = LabelledData(Path(options.data), wanted, self.say)
        lowered = lower(job.model, options, host, head=wanted.head, labelled=labelled)
        on_edgetpu = [s for s in lowered.partition.segments if s.place == "edgetpu"]
        if self.runner is None or not on_edgetpu:
            return lowered, None
        lowered, outcome = compile_for_edgetpu(
            lowered, self.runner, self.say, needed=self.needed
        )
        if self.finishing and outcome.pending is not None:
            raise outcome.pending
        return lowered, outcome

    def _verify(self, package: PackedBundle, lowered: Lowered) -> Verification:
        """Run the bundle on the samples, from a temporary file."""
        # The output path must not have a bundle that failed, nor lose an older one to it.
        quantized = lowered.model.quantized
        min_cosine = None if quantized is None else self.job.options.min_cosine
        with temporary_folder("verify") as folder:
            aside = folder / "model.edgec"
            write_bundle(aside, package.contents, package.files)
            with Bundle.open(aside) as bundle:
                return verify_bundle(bundle, lowered, min_cosine, self.say)

    def _failure(self, checked: Verification, lowered: Lowered) -> EdgecError:
        """Return the error of a verification that failed."""
        name = lowered.graph.name
        quantized = lowered.model.quantized
        # NaN or infinity times zero may differ (accuracy.md): no fault of the code.
        if checked.not_finite and quantized is None:
            what = (
                f"the model cannot be verified: {checked.not_finite}; "
                "after that the C and the reference may differ"
            )
            # Random inputs may be negative, where a logarithm wants positive ones.
            hint = "give real inputs of the model: --validate"
            return InputError(what, at=name, hint=hint)

        # An int8 model that is only too unlike its float form is no fault of the code.
        hint = "report it with the model"
        if quantized is not None and not checked.failures:
            hint = f"give {quantized.remedy}, or accept less with --min-cosine"
        what = "; ".join((*checked.failures, *checked.unlike))
        return EdgecError(f"verification failed: {what}", at=name, hint=hint)


def _dumper(names: Sequence[str], path: Path) -> Dump:
    """Return a function that writes <bundle>.<n>-<pass>.txt after each wanted pass."""
    wanted = {name.removeprefix("after=") for name in names}
    # Passes run several times: the number keeps their files apart, and in order.
    count = 0

    def dump(name: str, graph: Graph) -> None:
        nonlocal count
        if name in wanted or "all" in wanted:
            target = path.with_suffix(f".{count:02d}-{name}.txt")
            target.write_text(print_graph(graph))
            count += 1

    return dump
