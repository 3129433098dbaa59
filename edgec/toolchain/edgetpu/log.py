"""Parses the output and the .log file of edgetpu_compiler, versions 1.0 to 16.0.

    Edge TPU Compiler version 16.0.384591198           first line of both
    Started a compilation timeout timer of 180 seconds. version 16 on
    Model compiled successfully in 542 ms.             "Models" where several were compiled
                                                       together
    Input model: a.tflite                              starts what is said of one model; "Input:"
                                                       in the .log file
    Input size: 3.17MiB                                then "Output model: …" ("Output:"), "Output
                                                       size: …"
    On-chip memory available for caching …: 7.96MiB    up to 2.0, before "used": before this model
                                                       took its part
    On-chip memory used for caching …: 3.33MiB
    On-chip memory remaining for caching …: 4.19MiB    from 2.1, after "used"
    Off-chip memory used for streaming …: 64.00B
    Number of Edge TPU subgraphs: 1                    then "Total number of operations: 45",
                                                       "Operation log: …"
    Number of operations that will run on Edge TPU: 1  with "… on CPU: 2": only where some are
                                                       left on the CPU
    CONV_2D                                            35     Mapped to Edge TPU               the
                                                       table: with -s, and in the .log file

Reading is tolerant: \\r\\n, terminal colours, tabs, quoting and prompts before a line,
and missing lines do no harm. The text may come from anyone: `clean` bounds its lines,
so that every pattern here takes time in proportion to it, and a number of more than
nine digits is no number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import PurePosixPath

from edgec_runtime.device_end.printable import printable

from edgec.toolchain.edgetpu.statuses import MAPPED, CompilerStatus, status

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PROMPT = r"^[ \t>|#$*]*(?:INFO:[ \t]*)?"
_COUNT = r"[0-9]{1,9}"
_ROW = re.compile(_PROMPT + rf"([A-Z][A-Z0-9_]*)\s+({_COUNT})\s+(\S.*?)\s*$")
_VERSION = re.compile(r"Edge TPU Compiler version\s+([0-9]+(?:\.[0-9]+)*)")
_INPUT = re.compile(
    r"(?:Input model|" + _PROMPT + r"Input):[ \t]*(\S.*?\.tflite|\S+)", re.MULTILINE
)
_TIME = re.compile(rf"Models? compiled successfully in\s+({_COUNT})\s*ms")
_SIZE = re.compile(rf"^({_COUNT}(?:\.[0-9]{{1,9}})?)\s*(B|KiB|MiB|GiB)\b")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
MAX_LINE = 1000
"""Characters of a line that are read; the longest known line has 200."""
MAX_QUOTE = 200
"""Characters of a line in a message."""


class CompilerFailure(Enum):
    """The kinds of failure of a whole model, which decide about the next attempt."""

    OPCODE = "an operator that the compiler does not know"
    NODE = "one operator, by its number"
    SIZE = "something that smaller pieces may not have"
    MODEL = "the file as a whole"


@dataclass(frozen=True)
class Failure:
    """The reason why nothing was compiled.

    Attributes:
        trouble: the kind of failure
        text: the most telling line of the log
        opcode: TFLite's opcode, for OPCODE and NODE
        version: version of the opcode, for OPCODE, if it is known
        node: number of the operator, for NODE
    """

    trouble: CompilerFailure
    text: str
    opcode: str | None = None
    version: int | None = None
    node: int | None = None


_FAILURES: tuple[tuple[CompilerFailure, re.Pattern[str]], ...] = tuple(
    (trouble, re.compile(pattern, re.MULTILINE))
    for trouble, pattern in (
        (
            CompilerFailure.OPCODE,
            r"(Didn't find op for builtin opcode '(?P<opcode>\w+)' version "
            r"'(?P<version>[0-9]{1,9})')",
        ),
        (
            CompilerFailure.OPCODE,
            r"('tfl\.(?P<opcode>\w+)' op is not supported on DarwiNN)",
        ),
        (
            CompilerFailure.NODE,
            r"(Node number (?P<node>[0-9]{1,9}) \((?P<opcode>\w+)\) failed to prepare)",
        ),
        (
            CompilerFailure.MODEL,
            r"(Invalid model: [^\n]+?(?:\s*\n[ \t]*Model [^\n]+?)?)\s*$",
        ),
        (
            CompilerFailure.SIZE,
            r"(?:Compilation failed: )(Compilation failed due to large activation "
            r"tensors in model)",
        ),
        (CompilerFailure.SIZE, r"(Compilation timeout\b[^\n]*?)\.?\s*$"),
        (CompilerFailure.SIZE, r"(no result after [\d.]+ s)"),
        (CompilerFailure.SIZE, r"(Internal compiler error)\b"),
        (CompilerFailure.SIZE, r"(terminating with uncaught exception[^\n]*?)\s*$"),
        (CompilerFailure.SIZE, r"Compilation failed: (\S[^\n]*?)\s*$"),
        (CompilerFailure.SIZE, r"ERROR: (\S[^\n]*?)\s*$"),
        (CompilerFailure.SIZE, r"(Compilation failed!)"),
        (CompilerFailure.SIZE, r"(Segmentation fault|Aborted)\b"),
    )
)
"""Patterns of messages, the most telling first."""


@dataclass(frozen=True)
class LogRow:
    """A line of the table of operators.

    Attributes:
        op: TFLite operator
        count: number of these operators
        status: their common status, as it is printed
    """

    op: str
    count: int
    status: str

    @property
    def mapped(self) -> bool:
        """Return whether these operators run on the Edge TPU."""
        return status(self.status).text == MAPPED

    @property
    def known(self) -> CompilerStatus:
        """Return the meaning of the status."""
        return status(self.status)


@dataclass(frozen=True)
class CompilerLog:
    """The log of one model; values that were not printed are None.

    Attributes:
        version: version of the compiler
        failure: the reason why it compiled nothing
        rows: table of operators
        subgraphs: number of subgraphs for the Edge TPU
        total_ops: number of operators
        tpu_ops: operators on the Edge TPU; by the table or the total if not printed
        cpu_ops: operators on the CPU; by the table or the total if not printed
        input: name of the input file
        output: name of the output file
        input_bytes: size of the input file, bytes
        output_bytes: size of the output file, bytes
        available_bytes: on-chip memory for parameters before this model, bytes
        cached_bytes: parameters in on-chip memory, bytes
        remaining_bytes: on-chip memory for parameters after this model, bytes
        streamed_bytes: parameters that are streamed, bytes
        compile_ms: time of the compilation, ms
    """

    version: str | None = None
    failure: Failure | None = None
    rows: tuple[LogRow, ...] = ()
    subgraphs: int | None = None
    total_ops: int | None = None
    tpu_ops: int | None = None
    cpu_ops: int | None = None
    input: str | None = None
    output: str | None = None
    input_bytes: int | None = None
    output_bytes: int | None = None
    available_bytes: int | None = None
    cached_bytes: int | None = None
    remaining_bytes: int | None = None
    streamed_bytes: int | None = None
    compile_ms: int | None = None

    @property
    def whole(self) -> bool:
        """Return whether all of the model runs on the Edge TPU."""
        return (
            self.failure is None
            and self.cpu_ops == 0
            and bool(self.tpu_ops)
            and all(r.mapped for r in self.rows)
        )


def parse_logs(text: str) -> dict[str, CompilerLog]:
    """Return the log of each compiled model by the file name of its input.

    A model may come twice: in the search with -d, or in the .log file after the printed
    text. The later values count then, and missing ones are taken from the earlier part.
    """
    text = clean(text)

    version = _version(text)
    time = _TIME.search(text)
    compile_ms = int(time[1]) if time else None

    # The block of a model goes from its input line to the next one.
    inputs = list(_INPUT.finditer(text))
    starts = [match.start() for match in inputs]
    ends = [*starts[1:], len(text)]
    logs: dict[str, CompilerLog] = {}
    for match, end in zip(inputs, ends, strict=False):
        block = parse_block(text[match.start() : end])
        path = match[1]
        log = replace(block, version=version, input=path, compile_ms=compile_ms)
        name = PurePosixPath(path).name
        # A search with -d, or the .log file, tells of the same model once more.
        if name in logs:
            log = _merged(logs[name], log)
        logs[name] = log
    return logs


def parse_block(text: str) -> CompilerLog:
    """Return the log of one model, or of a table without the line of a model."""
    text = clean(text)
    rows = _rows(text)
    total = _number(text, "Total number of operations")
    tpu, cpu = _op_counts(text, rows, total)
    return CompilerLog(
        rows=rows,
        subgraphs=_number(text, "Number of Edge TPU subgraphs"),
        total_ops=total,
        tpu_ops=tpu,
        cpu_ops=cpu,
        # The first label is of the printed text, the second of the .log file.
        output=_value(text, "Output model") or _value(text, "Output"),
        input_bytes=_size(text, "Input size"),
        output_bytes=_size(text, "Output size"),
        available_bytes=_size(
            text, "On-chip memory available for caching model parameters"
        ),
        cached_bytes=_size(text, "On-chip memory used for caching model parameters"),
        remaining_bytes=_size(
            text, "On-chip memory remaining for caching model parameters"
        ),
        streamed_bytes=_size(
            text, "Off-chip memory used for streaming uncached model parameters"
        ),
    )


def _rows(text: str) -> tuple[LogRow, ...]:
    """Return the table of operators."""
    rows = []
    for line in text.splitlines():
        match = _ROW.match(line)
        if match:
            rows.append(LogRow(match[1], int(match[2]), match[3]))
    return tuple(rows)


def _op_counts(
    text: str, rows: Iterable[LogRow], total: int | None
) -> tuple[int | None, int | None]:
    """Return the number of operators on the Edge TPU and on the CPU."""
    tpu = _number(text, "Number of operations that will run on Edge TPU")
    cpu = _number(text, "Number of operations that will run on CPU")
    # Printed counts include all operators; the table may be missing or cut short.
    if tpu is not None and cpu is not None:
        return tpu, cpu

    table = list(rows)
    if table:
        tpu = sum(row.count for row in table if row.mapped)
        return tpu, sum(row.count for row in table if not row.mapped)
    # The counts are printed only if some op is left on the CPU.
    return total, None if total is None else 0


def failed(text: str) -> CompilerLog:
    """Return the log of a model of which nothing was compiled."""
    text = clean(text)
    return CompilerLog(_version(text), failure_in(text))


def failure_in(text: str) -> Failure:
    """Return the reason why nothing was compiled."""
    # The most telling message first: a later line often repeats it in general words.
    for trouble, pattern in _FAILURES:
        match = pattern.search(text)
        if match:
            groups = match.groupdict()
            opcode = groups.get("opcode")
            version = groups.get("version")
            node = groups.get("node")
            return Failure(
                trouble,
                # A message of several lines becomes one line of a report.
                text=" ".join(match[1].split()),
                opcode=opcode.upper() if opcode else None,
                version=int(version) if version else None,
                node=int(node) if node else None,
            )

    # An unknown message: the last line is usually the error. SIZE, so that smaller
    # pieces are tried, as the cause may be a single operator.
    lines = text.strip().splitlines()
    last = lines[-1].strip() if lines else ""
    if not last:
        return Failure(CompilerFailure.SIZE, "it printed nothing")
    # The program ended before it read a model.
    if _VERSION.search(last):
        return Failure(CompilerFailure.SIZE, "it printed its version and no more")
    return Failure(CompilerFailure.SIZE, f'it said "{last[:MAX_QUOTE]}"')


def clean(text: str) -> str:
    """Return the lines that are not blank, of bounded length, without terminal colours.

    Other control characters are removed too.
    """
    lines = []
    for line in _COLOUR.sub("", text).splitlines():
        # Cut before it is cleaned, so that the time for a line is bounded too.
        visible = printable(line[:MAX_LINE]).rstrip()
        if visible:
            lines.append(f"{visible}\n")
    return "".join(lines)


def _merged(old: CompilerLog, new: CompilerLog) -> CompilerLog:
    """Return `new` with its missing values taken from `old`."""
    missing = {}
    for name, value in vars(old).items():
        # Only None and an empty table are missing: a count of 0 is a value.
        if value in (None, ()):
            continue
        if getattr(new, name) in (None, ()):
            missing[name] = value
    return replace(new, **missing)


def _version(text: str) -> str | None:
    match = _VERSION.search(text)
    return match[1] if match else None


def _number(text: str, label: str) -> int | None:
    """Return the number behind a label, or None."""
    value = _value(text, label)
    if value is None or not re.fullmatch(_COUNT, value):
        return None

    return int(value)


def _size(text: str, label: str) -> int | None:
    """Return the size behind a label in bytes, or None."""
    match = _SIZE.match(_value(text, label) or "")

    if not match:
        return None

    number, unit = match.groups()
    return round(float(number) * _UNITS[unit])


def _value(text: str, label: str) -> str | None:
    """Return the text behind a label, or None."""
    # To the end of the line, since a path may contain spaces.
    match = re.search(
        rf"{_PROMPT}{re.escape(label)}[ \t]*:[ \t]*(\S[^\n]*?)[ \t]*$",
        text,
        re.MULTILINE,
    )
    return match[1] if match else None


def counted(rows: Iterable[LogRow]) -> str:
    """Return rows in a line: "2 x RESHAPE: Operation not supported; …"."""
    return "; ".join(f"{r.count} x {r.op}: {r.status}" for r in rows)
