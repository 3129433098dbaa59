"""edgetpu_compiler in the loop: what it refuses goes to the CPU, the model is split
again, and it is asked again, until every Edge TPU segment maps whole.

A segment of which it compiles nothing is cut into pieces to find a part that it does
compile.
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
"""The rule of ops that the compiler itself refused."""
MAX_ROUNDS = 8
MAX_CALLS = 48
"""Of the program, all in all: one that fails may take minutes."""
_FLAKY = "Internal compiler error"
"""Users saw it vanish when the same command was repeated, so it is asked twice."""
_SMALLER = (
    "use a smaller input, or change the operation so that its tensors are smaller"
)


@dataclass(frozen=True)
class DemotedOp:
    """An op that was sent to the CPU on the compiler's word."""

    op: str
    kind: str
    refusal: Refusal


@dataclass(frozen=True)
class CompilerOutcome:
    """What came of asking.

    segments: the result for each Edge TPU segment of the final partition, empty if
    there is none. runner: where the program ran. together: whether all segments share
    the on-chip memory. pending: what a person has to do before there are results.
    warning: why it could not be asked to the end. version: of the program, as it
    printed it.
    """

    runner: str
    rounds: int = 0
    calls: int = 0
    found: tuple[DemotedOp, ...] = ()
    segments: Mapping[str, CompiledSegment] = field(default_factory=dict)
    together: bool = True
    pending: Pending | None = None
    warning: str | None = None
    version: str | None = None

    def to_json(self) -> dict[str, Any]:
        """For the bundle; without times, so that the same inputs give the same bytes."""
        return {
            "version": self.version,
            "rounds": self.rounds,
            "calls": self.calls,
            "together": self.together,
            "refused": [
                {
                    "op": f.op,
                    "kind": f.kind,
                    "seen": f.refusal.seen,
                    "fix": f.refusal.fix,
                }
                for f in self.found
            ],
            "warning": self.warning,
            "segments": {name: _segment_json(s) for name, s in self.segments.items()},
        }


def _segment_json(s: CompiledSegment) -> dict[str, Any]:
    return {
        "whole": s.data is not None,
        "problem": s.problem,
        "operators": s.log.total_ops,
        "cached_bytes": s.log.cached_bytes,
        "streamed_bytes": s.log.streamed_bytes,
        "rows": [[r.op, r.count, r.status] for r in s.log.rows],
    }


def ask(
    lowered: Lowered, runner: Runner, say: Progress, *, needed: bool
) -> tuple[Lowered, CompilerOutcome]:
    """Compile the Edge TPU segments of a model, with a partition of which the compiler
    maps as much as it can.

    needed: a program that cannot be run is an error (ToolError), and not only a
    warning.
    """
    return _Loop(lowered, runner, say).run(needed)


class _OutOfCalls(Exception):
    """MAX_CALLS were made."""


class _Loop:
    def __init__(self, lowered: Lowered, runner: Runner, say: Progress) -> None:
        self._lowered = lowered
        self._runner = runner
        self._say = say
        self._rounds = self._calls = 0
        self._found: list[DemotedOp] = []
        self._results: dict[str, CompiledSegment] = {}
        self._together = True
        self._version: str | None = None
        self._compiled_any = False

    def run(self, needed: bool) -> tuple[Lowered, CompilerOutcome]:
        pending: Pending | None = None
        warning: str | None = None
        try:
            warning = self._rounds_until_whole()
        except Pending as e:
            pending = e
            self._results = {}
        except ToolError as e:
            if needed:
                raise
            warning = e.what
            self._results = {}
        except _OutOfCalls:
            warning = f"gave up after {MAX_CALLS} calls of {PROGRAM}"
        return self._lowered, CompilerOutcome(
            self._runner.name,
            self._rounds,
            self._calls,
            tuple(self._found),
            self._results,
            self._together,
            pending,
            warning,
            self._version,
        )

    def _rounds_until_whole(self) -> str | None:
        """Why it is not whole in the end, or None."""
        while True:
            segments = [
                s for s in self._lowered.partition.segments if s.place == "edgetpu"
            ]
            self._results = {}
            if not segments:
                return None
            self._rounds += 1
            results = self._compile_all(
                {s.name: write_tflite(s.graph) for s in segments}
            )
            self._results = results
            if all(r.data is not None for r in results.values()):
                return None
            if self._rounds == MAX_ROUNDS:
                return f"{PROGRAM} still refuses operations after {MAX_ROUNDS} rounds"
            known = self._lowered.wishes.refused
            new = [
                f
                for s in segments
                for f in self._findings(s, results[s.name])
                if f.op not in known
            ]
            if not new:
                return None  # the problems of the segments say why
            self._found += new
            refusals = {f.op: f.refusal for f in new}
            self._lowered = self._lowered.without(refusals)

    def _compile_all(self, models: Mapping[str, bytes]) -> dict[str, CompiledSegment]:
        """Together, so that they share the on-chip memory; where that compiles nothing,
        each alone.
        """
        results = self._compile(models)
        self._together = True
        if len(models) > 1 and any(r.file is None for r in results.values()):
            results = {
                n: r
                for name, data in models.items()
                for n, r in self._compile({name: data}).items()
            }
            self._together = False
        for name, r in results.items():
            if r.log.failure is not None and r.log.failure.text == _FLAKY:
                results[name] = self._compile({name: models[name]})[name]
        return results

    def _compile(
        self, models: Mapping[str, bytes], what: str = ""
    ) -> dict[str, CompiledSegment]:
        if self._calls == MAX_CALLS:
            raise _OutOfCalls
        self._calls += 1
        self._say(f"asking {PROGRAM}: {what or ', '.join(models)} (call {self._calls})")
        results = compile_segments(models, self._runner)
        self._version = next(
            (r.log.version for r in results.values() if r.log.version), self._version
        )
        self._compiled_any |= any(r.file is not None for r in results.values())
        return results

    def _findings(self, s: Segment, r: CompiledSegment) -> list[DemotedOp]:
        """The ops that must leave the segment, by the compiler's answer."""
        if r.data is not None:
            return []
        if r.log.failure is None:
            refused = [
                (_op_of(s.graph, x.operator.outputs[0]), x.said) for x in r.refused()
            ]
            return _unique(_found(op, said) for op, said in refused if op is not None)
        named = _named(s.graph, r.log.failure)
        if named or r.log.failure.trouble is CompilerFailure.MODEL:
            return _unique(_found(op, r.log.failure.text) for op in named)
        return [_found(op, r.log.failure.text) for op in self._bisect(s)]

    def _bisect(self, s: Segment) -> Sequence[Op]:
        """Ops without which more of the segment compiles: at most two.

        By halves, the longest start of the segment that compiles is searched, then the
        longest end of what follows. The op that ends the first goes, and the op that
        the second cannot have; what is between them is tried next. None where it never
        compiled anything at all: then the ops are not to blame.
        """
        ops = s.graph.ops
        start = 0
        bad = len(ops)
        try:
            while bad - start > 1:
                middle = (start + bad) // 2
                start, bad = (
                    (middle, bad) if self._compiles(s, 0, middle) else (start, middle)
                )
            end = start + 1
            if end < len(ops) and not self._compiles(s, end, len(ops)):
                low = end
                end = len(ops)
                while end - low > 1:
                    middle = (low + end) // 2
                    low, end = (
                        (low, middle)
                        if self._compiles(s, middle, len(ops))
                        else (middle, end)
                    )
        except _OutOfCalls:
            return ops[start:] if self._compiled_any else ()
        return [ops[i] for i in sorted({start, end - 1})] if self._compiled_any else ()

    def _compiles(self, s: Segment, start: int, end: int) -> bool:
        """Whether the compiler makes anything of ops start to end of a segment."""
        inside = set(s.graph.ops[start:end])
        places: dict[Op, Place] = {
            op: "edgetpu" if op in inside else "cpu" for op in s.graph.ops
        }
        # neighbours are one region
        (region,) = (r for r in regions(s.graph, places) if r.place == "edgetpu")
        data = write_tflite(segment(s.name, region).graph)
        what = f"{s.name}, operations {start + 1} to {end} of {len(s.graph.ops)}"
        return self._compile({s.name: data}, what)[s.name].file is not None


def _found(op: Op, said: str) -> DemotedOp:
    """An op with the compiler's word as the reason."""
    known = status(said)
    constraint = f"{PROGRAM} must map the operation: {known.meaning}"
    fix = known.fix
    # no status of an operator, but a failure of its region
    if known.text == known.meaning and said != NO_REASON:
        constraint = f"{PROGRAM} must compile the region that holds the operation"
        fix = _SMALLER
    return DemotedOp(op.outputs[0].name, op.kind, Refusal(RULE, constraint, said, fix))


def _unique(found: Iterable[DemotedOp]) -> list[DemotedOp]:
    return list({f.op: f for f in found}.values())


def _op_of(graph: Graph, tensor: str) -> Op | None:
    """The op of a segment that an operator of its file stands for, by the first tensor
    that this one writes.

    A uint8 file has a QUANTIZE at each border, of which the tensor inside is called
    <name>_inner (see emit/tflite.py); one at the entrance stands for the first op
    behind it.
    """
    writes = {v.name: op for op in graph.ops for v in op.outputs}
    inner = tensor.removesuffix("_inner")
    reads = next(
        (op for op in graph.ops if any(v.name == inner for v in op.inputs)), None
    )
    return writes.get(tensor) or writes.get(inner) or reads


def _named(graph: Graph, failure: Failure) -> list[Op]:
    """The ops that a failure names."""
    codes = [(op, op.spec.to_tflite(op)) for op in graph.ops]
    same = [(op, c) for op, c in codes if c is not None and c.name == failure.opcode]
    if failure.trouble is CompilerFailure.OPCODE:
        return [
            op
            for op, c in same
            if failure.version is None or c.version == failure.version
        ]
    if (
        failure.trouble is CompilerFailure.NODE
        and failure.node is not None
        and failure.node < len(graph.ops)
    ):
        op = graph.ops[failure.node]
        return [op] if any(op is o for o, _ in same) else []
    return []


def told(lowered: Lowered, asked: CompilerOutcome | None) -> Iterator[str]:
    """What a person should know of it, in lines."""
    if asked is None:
        if any(s.place == "edgetpu" for s in lowered.partition.segments):
            yield (
                f"{PROGRAM} was not run: Edge TPU segments run as C on the CPU, "
                "with the same results"
            )
        return
    if asked.pending is not None:
        yield (
            f"{asked.pending.what}: until then Edge TPU segments run as C on the "
            "CPU, with the same results"
        )
        yield f"next: {asked.pending.hint}"
        return
    for f in asked.found:
        yield (
            f"{PROGRAM} refused {f.op} ({f.kind}), which now runs on the CPU: "
            f"{f.refusal.seen}"
        )
    for name, result in asked.segments.items():
        yield result.problem or f"{PROGRAM} mapped all of {name}{_memory(result)}"
    if any(r.data is None for r in asked.segments.values()):
        yield "what it did not compile runs as C on the CPU, with the same results"
    if not asked.together and len(asked.segments) > 1:
        yield (
            "the segments could not be compiled together: "
            "each takes all of the "
            "on-chip memory when it runs"
        )
    if asked.warning is not None:
        yield f"warning: {asked.warning}"
    rounds = (
        f"{asked.rounds} round{'s' * (asked.rounds != 1)}, "
        f"{asked.calls} "
        f"call{'s' * (asked.calls != 1)}"
    )
    yield f"{PROGRAM} {asked.version or 'of unknown version'}, {asked.runner}: {rounds}"


def _memory(result: CompiledSegment) -> str:
    """How many of its parameters stay on the chip."""
    log = result.log
    if log.cached_bytes is None or log.streamed_bytes is None:
        return ""
    return (
        f"; parameters: {log.cached_bytes / 1e6:.2f} MB on the chip, "
        f"{log.streamed_bytes / 1e6:.2f} "
        "MB sent each time"
    )
