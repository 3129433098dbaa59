"""The loop of partitioning and edgetpu_compiler.

Each round compiles the Edge TPU segments of the current partition. The operations that
the compiler refuses are demoted to the CPU and the graph is partitioned again, until
every Edge TPU segment maps whole. If the compiler rejects a segment without naming an
operation, bisection finds the operations to demote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgec_partitioner.regions import regions
from edgec_partitioner.segments import Segment, segment
from edgec_partitioner.verdicts import Place

from edgec.compiler.lower import Lowered
from edgec.emit.tflite import write_tflite
from edgec.errors import ToolError
from edgec.ir import Graph, Op, Refusal
from edgec.steps import Progress
from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.edgetpu.driver import NO_REASON, CompiledSegment, compile_segments
from edgec.toolchain.edgetpu.handoff import Pending
from edgec.toolchain.edgetpu.log import CompilerFailure, Failure
from edgec.toolchain.edgetpu.runners import Runner
from edgec.toolchain.edgetpu.statuses import status

RULE = "edgetpu_compiler"
"""The rule in refusals by the compiler itself, beside those of the support table."""
MAX_ROUNDS = 8
"""Partitions that are tried."""
MAX_CALLS = 48
"""Runs of edgetpu_compiler over all rounds: a run that fails may take minutes."""
_FLAKY = "Internal compiler error"
"""A failure that users saw vanish when they repeated the command."""
_SMALLER = (
    "use a smaller input, or change the operation so that its tensors are smaller"
)
"""The fix for a region that the compiler cannot take as a whole."""


@dataclass(frozen=True)
class DemotedOp:
    """An op that was moved to the CPU because edgetpu_compiler refused it.

    Attributes:
        op: the name of its first output.
        kind: the kind of the op.
        refusal: the reason.
    """

    op: str
    kind: str
    refusal: Refusal


@dataclass(frozen=True)
class CompilerOutcome:
    """The results of edgetpu_compiler for one model.

    Attributes:
        runner: where the program ran.
        rounds: the partitions that were tried.
        calls: the runs of the program.
        demoted: the ops that moved to the CPU.
        segments: the result for each Edge TPU segment of the final partition, by name.
        together: whether all segments share the on-chip memory.
        pending: the manual step before there are results; None if there is none.
        warning: why the loop ended early; None if it did not.
        version: the version of the program as it printed it.
    """

    runner: str
    rounds: int = 0
    calls: int = 0
    demoted: tuple[DemotedOp, ...] = ()
    segments: Mapping[str, CompiledSegment] = field(default_factory=dict)
    together: bool = True
    pending: Pending | None = None
    warning: str | None = None
    version: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as the bundle's report keeps it."""
        refused = []
        for demoted in self.demoted:
            refused.append(
                {
                    "op": demoted.op,
                    "kind": demoted.kind,
                    "seen": demoted.refusal.seen,
                    "fix": demoted.refusal.fix,
                }
            )
        # Times and the runner are left out: the same inputs give the same bundle on
        # every machine.
        return {
            "version": self.version,
            "rounds": self.rounds,
            "calls": self.calls,
            "together": self.together,
            "refused": refused,
            "warning": self.warning,
            "segments": {name: _segment_json(s) for name, s in self.segments.items()},
        }


def _segment_json(result: CompiledSegment) -> dict[str, Any]:
    """Return the result for one segment as JSON."""
    log = result.log
    return {
        "whole": result.data is not None,
        "problem": result.problem,
        "operators": log.total_ops,
        "cached_bytes": log.cached_bytes,
        "streamed_bytes": log.streamed_bytes,
        "rows": [[row.op, row.count, row.status] for row in log.rows],
    }


def compile_for_edgetpu(
    lowered: Lowered, runner: Runner, say: Progress, *, needed: bool
) -> tuple[Lowered, CompilerOutcome]:
    """Compile the Edge TPU segments of a model, repartitioned as the compiler needs it.

    needed: whether a program that cannot be run is an error (ToolError) and not only a
    warning.
    """
    return _PartitionLoop(lowered, runner, say).run(needed)


class _OutOfCalls(Exception):
    """The loop has run the program MAX_CALLS times."""


class _PartitionLoop:
    """The state of the loop for one model."""

    def __init__(self, lowered: Lowered, runner: Runner, say: Progress) -> None:
        self._lowered = lowered
        self._runner = runner
        self._say = say
        self._rounds = 0
        self._calls = 0
        self._demoted: list[DemotedOp] = []
        self._results: dict[str, CompiledSegment] = {}
        self._together = True
        self._version: str | None = None
        self._compiled_any = False

    def run(self, needed: bool) -> tuple[Lowered, CompilerOutcome]:
        """Run all rounds; return the final partition and the outcome."""
        pending: Pending | None = None
        warning: str | None = None
        try:
            warning = self._rounds_until_whole()
        except Pending as e:
            # Results of an earlier round are for another partition.
            pending = e
            self._results = {}
        except ToolError as e:
            if needed:
                raise
            warning = e.what
            self._results = {}
        except _OutOfCalls:
            # Results, if there are any, are of the current partition: segments that
            # mapped whole stay usable, the others run as C.
            warning = f"gave up after {MAX_CALLS} calls of {PROGRAM}"

        outcome = CompilerOutcome(
            runner=self._runner.name,
            rounds=self._rounds,
            calls=self._calls,
            demoted=tuple(self._demoted),
            segments=self._results,
            together=self._together,
            pending=pending,
            warning=warning,
            version=self._version,
        )
        return self._lowered, outcome

    def _rounds_until_whole(self) -> str | None:
        """Compile and repartition until every segment maps whole.

        Return why the loop gave up before that, or None.
        """
        while True:
            partition = self._lowered.partition
            segments = [s for s in partition.segments if s.place == "edgetpu"]
            # A round that fails midway must not leave results of the partition before.
            self._results = {}
            if not segments:
                return None

            self._rounds += 1
            models = {s.name: write_tflite(s.in_tflite) for s in segments}
            results = self._compile_all(models)
            self._results = results
            if all(r.data is not None for r in results.values()):
                return None
            if self._rounds == MAX_ROUNDS:
                return f"{PROGRAM} still refuses operations after {MAX_ROUNDS} rounds"

            refusals = self._demote(segments, results)
            if not refusals:
                # Another round would be the same; each segment's problem says why.
                return None
            self._lowered = self._lowered.without(refusals)

    def _demote(
        self, segments: Sequence[Segment], results: Mapping[str, CompiledSegment]
    ) -> dict[str, Refusal]:
        """Note the ops that a round refused for the first time; return their refusals."""
        known = self._lowered.wishes.refused
        refusals = {}
        for s in segments:
            for demoted in self._refused_ops(s, results[s.name]):
                if demoted.op not in known:
                    self._demoted.append(demoted)
                    refusals[demoted.op] = demoted.refusal
        return refusals

    def _compile_all(self, models: Mapping[str, bytes]) -> dict[str, CompiledSegment]:
        """Compile all segments together; each alone if one has no file then."""
        # Only models that are compiled together share the on-chip memory. But one model
        # that fails can leave all of them without a file.
        results = self._compile(models)
        self._together = True
        if len(models) > 1 and any(r.file is None for r in results.values()):
            results = {}
            for name, data in models.items():
                results |= self._compile({name: data})
            self._together = False

        for name, result in results.items():
            failure = result.log.failure
            if failure is not None and failure.text == _FLAKY:
                results[name] = self._compile({name: models[name]})[name]
        return results

    def _compile(
        self, models: Mapping[str, bytes], label: str = ""
    ) -> dict[str, CompiledSegment]:
        """Run the program once.

        label: the models in the words of the progress; default: their names.

        Raises _OutOfCalls.
        """
        if self._calls == MAX_CALLS:
            raise _OutOfCalls
        self._calls += 1
        label = label or ", ".join(models)
        self._say(f"asking {PROGRAM}: {label} (call {self._calls})")

        results = compile_segments(models, self._runner)
        versions = [r.log.version for r in results.values() if r.log.version]
        if versions:
            self._version = versions[0]
        self._compiled_any |= any(r.file is not None for r in results.values())
        return results

    def _refused_ops(self, s: Segment, result: CompiledSegment) -> list[DemotedOp]:
        """Return the ops that must leave a segment by the compiler's answer."""
        if result.data is not None:
            return []
        demoted: list[DemotedOp] = []
        failure = result.log.failure

        # The program compiled a part of the segment and left operators on the CPU.
        if failure is None:
            for refused in result.refused():
                op = _op_of(s.graph, refused.operator.outputs[0])
                if op is not None:
                    demoted.append(_demoted(op, refused.said))
            return _unique(demoted)

        ops: Sequence[Op] = _named(s.graph, failure)
        # Pieces of a file that is bad as a whole would only fail in the same way.
        if not ops and failure.trouble is not CompilerFailure.MODEL:
            ops = self._bisect(s)
        return _unique(_demoted(op, failure.text) for op in ops)

    def _bisect(self, s: Segment) -> Sequence[Op]:
        """Return at most two ops without which more of the segment compiles.

        Bisection finds the longest start of the segment that compiles, then the longest
        end behind the op that follows this start. The op behind the start and the op
        before the end are refused; the next round tries the ops between them.
        """
        ops = s.graph.ops
        # The first `accepted` ops compile, the first `refused` do not.
        accepted = 0
        refused = len(ops)
        try:
            while refused - accepted > 1:
                middle = (accepted + refused) // 2
                if self._compiles(s, 0, middle):
                    accepted = middle
                else:
                    refused = middle
            end = self._longest_end(s, accepted + 1)
        except _OutOfCalls:
            return ops[accepted:] if self._compiled_any else ()

        # A program that has never compiled anything is broken: the ops are not to blame.
        if not self._compiled_any:
            return ()
        return [ops[i] for i in sorted({accepted, end - 1})]

    def _longest_end(self, s: Segment, first: int) -> int:
        """Return the first op of the longest end of a segment that compiles.

        The end begins at op `first` or later; it is empty if no end compiles.
        """
        count = len(s.graph.ops)
        if first == count or self._compiles(s, first, count):
            return first
        # Ops from `refused` on do not compile, those from `accepted` on do.
        refused = first
        accepted = count
        while accepted - refused > 1:
            middle = (refused + accepted) // 2
            if self._compiles(s, middle, count):
                accepted = middle
            else:
                refused = middle
        return accepted

    def _compiles(self, s: Segment, start: int, end: int) -> bool:
        """Return whether the compiler writes a file for ops start to end of a segment."""
        inside = set(s.graph.ops[start:end])
        places: dict[Op, Place] = {}
        for op in s.graph.ops:
            places[op] = "edgetpu" if op in inside else "cpu"
        # Neighbours in the order of the ops form one region.
        (region,) = (r for r in regions(s.graph, places) if r.place == "edgetpu")
        data = write_tflite(segment(s.name, region).in_tflite)
        label = f"{s.name}, operations {start + 1} to {end} of {len(s.graph.ops)}"
        return self._compile({s.name: data}, label)[s.name].file is not None


def _demoted(op: Op, reason: str) -> DemotedOp:
    """Return an op with the compiler's reason as its refusal."""
    known = status(reason)
    constraint = f"{PROGRAM} must map the operation: {known.meaning}"
    fix = known.fix
    # A text that is its own meaning is no status of an operator in the table, but the
    # failure of the whole region.
    if known.text == known.meaning and reason != NO_REASON:
        constraint = f"{PROGRAM} must compile the region that holds the operation"
        fix = _SMALLER
    refusal = Refusal(RULE, constraint, reason, fix)
    return DemotedOp(op.outputs[0].name, op.kind, refusal)


def _unique(demoted: Iterable[DemotedOp]) -> list[DemotedOp]:
    """Return each op once, with the last of its reasons."""
    return list({d.op: d for d in demoted}.values())


def _op_of(graph: Graph, tensor: str) -> Op | None:
    """Return the op of a segment for an operator of its .tflite file.

    tensor: the first tensor that the operator writes.

    A uint8 file has a QUANTIZE at each border, with <name>_inner as the name of its
    inner tensor (emit/tflite.py). A QUANTIZE at an input stands for the first op that
    reads the tensor.
    """
    writers = {v.name: op for op in graph.ops for v in op.outputs}
    inner = tensor.removesuffix("_inner")
    for name in (tensor, inner):
        if name in writers:
            return writers[name]
    for op in graph.ops:
        if any(v.name == inner for v in op.inputs):
            return op
    return None


def _named(graph: Graph, failure: Failure) -> list[Op]:
    """Return the ops that a failure names by opcode or by number."""
    same: list[tuple[Op, int]] = []
    for op in graph.ops:
        code = op.spec.to_tflite(op)
        if code is not None and code.name == failure.opcode:
            same.append((op, code.version))

    if failure.trouble is CompilerFailure.OPCODE:
        # Only the newer versions of an opcode may be unknown to the compiler.
        return [op for op, version in same if failure.version in (None, version)]
    if failure.trouble is not CompilerFailure.NODE or failure.node is None:
        return []
    # A uint8 file has a QUANTIZE before the ops, so the number may be of another
    # operator: it counts only if the opcode agrees.
    if failure.node >= len(graph.ops):
        return []
    op = graph.ops[failure.node]
    return [op] if any(op is other for other, _ in same) else []


def outcome_lines(lowered: Lowered, outcome: CompilerOutcome | None) -> Iterator[str]:
    """Yield the lines of the summary on edgetpu_compiler.

    outcome: None if it was not run.
    """
    if outcome is None:
        if any(s.place == "edgetpu" for s in lowered.partition.segments):
            yield (
                f"{PROGRAM} was not run: Edge TPU segments run as C on the CPU, "
                "with the same results"
            )
        return
    if outcome.pending is not None:
        yield (
            f"{outcome.pending.what}: until then Edge TPU segments run as C on the "
            "CPU, with the same results"
        )
        yield f"next: {outcome.pending.hint}"
        return

    for demoted in outcome.demoted:
        yield (
            f"{PROGRAM} refused {demoted.op} ({demoted.kind}), which now runs on the CPU: "
            f"{demoted.refusal.seen}"
        )
    for name, result in outcome.segments.items():
        yield result.problem or f"{PROGRAM} mapped all of {name}{_memory(result)}"
    if any(r.data is None for r in outcome.segments.values()):
        yield "what it did not compile runs as C on the CPU, with the same results"
    if not outcome.together and len(outcome.segments) > 1:
        yield (
            "the segments could not be compiled together: "
            "each takes all of the on-chip memory when it runs"
        )
    if outcome.warning is not None:
        yield f"warning: {outcome.warning}"
    yield _run_line(outcome)


def _run_line(outcome: CompilerOutcome) -> str:
    """Return the version of the program, where it ran, and how often."""
    version = outcome.version or "of unknown version"
    round_word = "round" if outcome.rounds == 1 else "rounds"
    call_word = "call" if outcome.calls == 1 else "calls"
    counts = f"{outcome.rounds} {round_word}, {outcome.calls} {call_word}"
    return f"{PROGRAM} {version}, {outcome.runner}: {counts}"


def _memory(result: CompiledSegment) -> str:
    """Return where the parameters of a segment lie; "" if the log does not tell."""
    log = result.log
    if log.cached_bytes is None or log.streamed_bytes is None:
        return ""
    cached_mb = log.cached_bytes / 1e6
    streamed_mb = log.streamed_bytes / 1e6
    return (
        f"; parameters: {cached_mb:.2f} MB on the chip, "
        f"{streamed_mb:.2f} MB sent each time"
    )
