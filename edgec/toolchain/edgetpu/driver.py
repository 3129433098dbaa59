"""Asks edgetpu_compiler for segments and judges its answers: did all go onto the Edge
TPU, and if not, why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.edgetpu.compiled import Operator, Outline, read
from edgec.toolchain.edgetpu.log import CompilerLog, counted, failed, parse_logs
from edgec.toolchain.edgetpu.runners import Answer, Runner

NO_REASON = "it gave no reason"


@dataclass(frozen=True)
class RefusedOperator:
    """An operator that the compiler did not map for its own sake. said: its status, or
    statuses where it is unclear which of them is this operator's.
    """

    operator: Operator
    said: str


@dataclass(frozen=True)
class CompiledSegment:
    """The result for one segment. data: the compiled file, None if the segment must run
    uncompiled.

    problem: why it must. file: the compiled file looked into, if there is a sound one;
    `log.failure` if there is none.
    """

    name: str
    data: bytes | None
    log: CompilerLog
    problem: str | None = None
    file: Outline | None = None

    def refused(self) -> tuple[RefusedOperator, ...]:
        """The operators that must be taken from the segment before it can map whole."""
        return () if self.file is None else _refused(self.file, self.log)


def compile_segments(
    models: Mapping[str, bytes], runner: Runner
) -> dict[str, CompiledSegment]:
    """Compile the .tflite bytes of segments together, by name, so that they share the
    on-chip memory.
    """
    said = runner.compile(models)
    return {name: _judge(name, data, said) for name, data in models.items()}


def _judge(name: str, source: bytes, said: Answer) -> CompiledSegment:
    """A segment is taken only when it was predicted to map whole and did, by the log
    and by the file itself.
    """
    log = parse_logs(said.text).get(f"{name}.tflite")
    if log is None:
        log = failed(said.text)
        why = log.failure.text if log.failure is not None else "no reason"
        return CompiledSegment(
            name, None, log, f"{PROGRAM} did not compile {name}: {why}"
        )
    data = said.files.get(name)
    if data is None:
        return CompiledSegment(name, None, log, f"{PROGRAM} wrote no file for {name}")
    try:
        file = _sound(data, source)
    except ValueError as e:
        return CompiledSegment(
            name,
            None,
            log,
            f"{PROGRAM} wrote a file for {name} that cannot be used: {e}",
        )
    if log.whole and not file.left and file.pieces == 1:
        return CompiledSegment(name, data, log, None, file)
    return CompiledSegment(
        name,
        None,
        log,
        f"{PROGRAM} left on the CPU, of {name}: {_left(file, log)}",
        file,
    )


def _left(file: Outline, log: CompilerLog) -> str:
    rows = counted(r for r in log.rows if not r.mapped)
    if rows:
        return rows
    kinds = [op.opcode for op in file.left]
    return (
        "; ".join(f"{kinds.count(k)} x {k}" for k in dict.fromkeys(kinds))
        or f"nothing, but in {file.pieces} pieces"
    )


def _sound(data: bytes, source: bytes) -> Outline:
    """The compiled file, if it can stand in for its source."""
    file = read(data)
    origin = read(source)
    if (file.inputs, file.outputs) != (origin.inputs, origin.outputs):
        raise ValueError(
            "its inputs and outputs are not those of the file that was given"
        )
    known = {(op.opcode, op.outputs) for op in origin.operators}
    for op in file.left:
        if (op.opcode, op.outputs) not in known:
            raise ValueError(
                f"it has the operator {op.opcode} {', '.join(op.outputs)}, "
                "which was not in the file given"
            )
    return file


def _refused(file: Outline, log: CompilerLog) -> tuple[RefusedOperator, ...]:
    """Tells refused operators from those that only come after one, by the statuses of
    their opcode.

    Where an opcode has both, those that were ready are the refused ones; where nothing
    else tells, too.
    """
    left, ready = file.left, set(file.ready(file.left))
    found: list[RefusedOperator] = []
    for opcode in dict.fromkeys(op.opcode for op in left):
        rows = [r for r in log.rows if r.op == opcode and not r.mapped]
        own = [r for r in rows if r.known.own]
        if rows and not own:
            continue
        said = " or ".join(dict.fromkeys(r.status for r in own)) or NO_REASON
        clear = bool(own) and own == rows
        found += [
            RefusedOperator(op, said)
            for op in left
            if op.opcode == opcode and (clear or op in ready)
        ]
    return tuple(found) or tuple(
        RefusedOperator(op, NO_REASON) for op in left if op in ready
    )
