"""Asks edgetpu_compiler for segments, and decides which of its answers to use.

A segment is used if all of it went onto the Edge TPU; otherwise the refused operators
are found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.edgetpu.compiled_file import Operator, Outline, read
from edgec.toolchain.edgetpu.log import (
    CompilerLog,
    LogRow,
    counted,
    failed,
    parse_logs,
)
from edgec.toolchain.edgetpu.runners import Answer, Runner

NO_REASON = "it gave no reason"


@dataclass(frozen=True)
class RefusedOperator:
    """An operator that the compiler did not map for its own sake.

    Attributes:
        operator: the operator
        said: its status in the log, or several if the log does not tell which of them
            is this operator's
    """

    operator: Operator
    said: str


@dataclass(frozen=True)
class CompiledSegment:
    """The result for one segment.

    Attributes:
        name: name of the segment
        data: the compiled file; None if the segment must run uncompiled
        log: log of the compiler; `log.failure` is set if there is no sound file
        problem: the reason to run it uncompiled
        file: outline of the compiled file, if it is sound
    """

    name: str
    data: bytes | None
    log: CompilerLog
    problem: str | None = None
    file: Outline | None = None

    def refused(self) -> tuple[RefusedOperator, ...]:
        """Return the operators without which the segment may map whole."""
        return () if self.file is None else _refused(self.file, self.log)


def compile_segments(
    models: Mapping[str, bytes], runner: Runner
) -> dict[str, CompiledSegment]:
    """Compile the .tflite bytes of segments, by name.

    They are compiled together, so that they share the on-chip memory.
    """
    answer = runner.compile(models)
    return {name: _segment(name, data, answer) for name, data in models.items()}


def _segment(name: str, source: bytes, answer: Answer) -> CompiledSegment:
    """Return the result for a segment.

    Its file is used only if the segment mapped whole by the log and by the file itself.
    """
    log = parse_logs(answer.text).get(f"{name}.tflite")
    if log is None:
        # The log has no part for a model that was not compiled.
        log = failed(answer.text)
        why = log.failure.text if log.failure is not None else "no reason"
        problem = f"{PROGRAM} did not compile {name}: {why}"
        return CompiledSegment(name, None, log, problem)
    data = answer.files.get(name)
    if data is None:
        return CompiledSegment(name, None, log, f"{PROGRAM} wrote no file for {name}")

    try:
        file = _sound(data, source)
    except ValueError as e:
        problem = f"{PROGRAM} wrote a file for {name} that cannot be used: {e}"
        return CompiledSegment(name, None, log, problem)
    # Several pieces would run one after the other, with transfers between them.
    if log.whole and not file.left and file.pieces == 1:
        return CompiledSegment(name, data, log, None, file)
    problem = f"{PROGRAM} left on the CPU, of {name}: {_left(file, log)}"
    return CompiledSegment(name, None, log, problem, file)


def _left(file: Outline, log: CompilerLog) -> str:
    """Return the operators left on the CPU in words, by the log or else by the file."""
    rows = counted(row for row in log.rows if not row.mapped)
    if rows:
        return rows
    opcodes = [op.opcode for op in file.left]
    counts = [f"{opcodes.count(code)} x {code}" for code in dict.fromkeys(opcodes)]
    return "; ".join(counts) or f"nothing, but in {file.pieces} pieces"


def _sound(data: bytes, source: bytes) -> Outline:
    """Return the outline of a compiled file.

    Raises ValueError if the file cannot replace its source.
    """
    file = read(data)
    original = read(source)
    if (file.inputs, file.outputs) != (original.inputs, original.outputs):
        raise ValueError(
            "its inputs and outputs are not those of the file that was given"
        )
    # An operator changed on the way could give other results without a trace.
    known = {(op.opcode, op.outputs) for op in original.operators}
    for op in file.left:
        if (op.opcode, op.outputs) not in known:
            outputs = ", ".join(op.outputs)
            raise ValueError(
                f"it has the operator {op.opcode} {outputs}, "
                "which was not in the file given"
            )
    return file


def _refused(file: Outline, log: CompilerLog) -> tuple[RefusedOperator, ...]:
    """Return the refused operators, without those that only come after a refused one.

    Rows of the log are per opcode, not per operator. If an opcode has rows of both
    kinds, its operators that were ready are the refused ones; so are all ready
    operators if nothing else tells.
    """
    ready = file.ready(file.left)
    refused: list[RefusedOperator] = []
    for opcode in dict.fromkeys(op.opcode for op in file.left):
        operators = [op for op in file.left if op.opcode == opcode]
        refused += _refused_of_opcode(opcode, operators, ready, log)
    if not refused:
        refused = [RefusedOperator(op, NO_REASON) for op in ready]
    return tuple(refused)


def _refused_of_opcode(
    opcode: str,
    operators: Sequence[Operator],
    ready: Sequence[Operator],
    log: CompilerLog,
) -> list[RefusedOperator]:
    """Return the refused operators of one opcode, see `_refused`."""
    rows = _unmapped_rows(opcode, log)
    own_rows = [row for row in rows if row.known.own]
    # Every operator of this opcode only comes after a refused one.
    if rows and not own_rows:
        return []

    statuses = dict.fromkeys(row.status for row in own_rows)
    text = " or ".join(statuses) or NO_REASON
    all_refused = bool(own_rows) and own_rows == rows
    refused = []
    for op in operators:
        if all_refused or op in ready:
            refused.append(RefusedOperator(op, text))
    return refused


def _unmapped_rows(opcode: str, log: CompilerLog) -> list[LogRow]:
    """Return the rows of an opcode's operators on the CPU."""
    return [row for row in log.rows if row.op == opcode and not row.mapped]
