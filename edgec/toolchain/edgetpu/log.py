"""What edgetpu_compiler prints, and the .log file beside its output, in the formats of
versions 1.0 to 16.0.

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
and missing lines do no harm. The text may be anyone's: `clean` bounds its lines, so
that every pattern here takes time in proportion to it, and a number of more than nine
digits is none.
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
_LINE = 1000
"""Characters of a line that are read; the longest that the program is known to print
has 200.
"""


class CompilerFailure(Enum):
    """What is known about a failure of a whole model, and so what can be done about it."""

    OPCODE = "an operator that the compiler does not know"
    NODE = "one operator, by its number"
    SIZE = "something that smaller pieces may not have"
    MODEL = "the file as a whole"


@dataclass(frozen=True)
class Failure:
    """Why nothing was compiled. text: the most telling line of the log.

    opcode, version: of TFLite, where the trouble is OPCODE (version may be unknown).
    node: its number, for NODE.
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
"""The most telling first."""


@dataclass(frozen=True)
class LogRow:
    """A line of the operator table: TFLite operator, how many, and the status they
    share, as it is printed.
    """

    op: str
    count: int
    status: str

    @property
    def mapped(self) -> bool:
        """Whether these run on the Edge TPU."""
        return status(self.status).text == MAPPED

    @property
    def known(self) -> CompilerStatus:
        """What the status means."""
        return status(self.status)


@dataclass(frozen=True)
class CompilerLog:
    """What the program said of one model.

    Sizes in bytes, time in ms; what it did not print is None.

    failure: why it compiled nothing. tpu_ops, cpu_ops: as printed, or else by the
    table, or else by the total. available_bytes: on-chip memory for parameters before
    this model took its part; remaining_bytes: after.
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
        """Whether all of the model runs on the Edge TPU."""
        return (
            self.failure is None
            and self.cpu_ops == 0
            and bool(self.tpu_ops)
            and all(r.mapped for r in self.rows)
        )


def parse_logs(text: str) -> dict[str, CompilerLog]:
    """The log of each compiled model, by the file name of its input; empty when nothing
    was compiled.

    Where a model comes twice (the search with -d, or the .log file after what was
    printed) the later words count, and what they leave out is taken from the earlier
    ones.
    """
    text = clean(text)
    version = _version(text)
    time = _TIME.search(text)
    found = list(_INPUT.finditer(text))
    logs: dict[str, CompilerLog] = {}
    ends = [*(m.start() for m in found), len(text)][1:]
    # without any, there is one end too many
    for m, end in zip(found, ends, strict=False):
        block = text[m.start() : end]
        log = replace(
            parse_block(block),
            version=version,
            input=m[1],
            compile_ms=int(time[1]) if time else None,
        )
        name = PurePosixPath(m[1]).name
        logs[name] = _merged(logs[name], log) if name in logs else log
    return logs


def parse_block(text: str) -> CompilerLog:
    """What is said of one model; also of a table alone, without the line that names the
    model.
    """
    text = clean(text)
    rows = tuple(
        LogRow(m[1], int(m[2]), m[3]) for m in map(_ROW.match, text.splitlines()) if m
    )
    total = _number(text, "Total number of operations")
    tpu = _number(text, "Number of operations that will run on Edge TPU")
    cpu = _number(text, "Number of operations that will run on CPU")
    if (tpu is None or cpu is None) and rows:
        tpu = sum(r.count for r in rows if r.mapped)
        cpu = sum(r.count for r in rows if not r.mapped)
    elif tpu is None or cpu is None:
        # the counts are printed only when some op is left over
        tpu = total
        cpu = None if total is None else 0
    return CompilerLog(
        rows=rows,
        subgraphs=_number(text, "Number of Edge TPU subgraphs"),
        total_ops=total,
        tpu_ops=tpu,
        cpu_ops=cpu,
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


def failed(text: str) -> CompilerLog:
    """The log of a model of which nothing was compiled."""
    text = clean(text)
    return CompilerLog(_version(text), failure_in(text))


def failure_in(text: str) -> Failure:
    """Why nothing was compiled."""
    for trouble, pattern in _FAILURES:
        found = pattern.search(text)
        if found:
            named = found.groupdict()
            version = named.get("version")
            node = named.get("node")
            return Failure(
                trouble,
                " ".join(found[1].split()),
                (named.get("opcode") or "").upper() or None,
                int(version) if version else None,
                int(node) if node else None,
            )
    last = (text.strip().splitlines() or [""])[-1].strip()
    if not last:
        return Failure(CompilerFailure.SIZE, "it printed nothing")
    if _VERSION.search(last):
        return Failure(CompilerFailure.SIZE, "it printed its version and no more")
    return Failure(CompilerFailure.SIZE, f'it said "{last[:200]}"')


def clean(text: str) -> str:
    """Its lines that are not blank, without terminal colours and what else cannot be
    seen, each of bounded length.
    """
    lines = (
        printable(line[:_LINE]).rstrip() for line in _COLOUR.sub("", text).splitlines()
    )
    return "".join(f"{line}\n" for line in lines if line)


def _merged(old: CompilerLog, new: CompilerLog) -> CompilerLog:
    """`new`, with what it does not say taken from `old`."""
    missing = {
        k: v
        for k, v in vars(old).items()
        if v is not None and v != () and getattr(new, k) in (None, ())
    }
    return replace(new, **missing)


def _version(text: str) -> str | None:
    found = _VERSION.search(text)
    return found[1] if found else None


def _number(text: str, label: str) -> int | None:
    value = _value(text, label)
    return int(value) if value is not None and re.fullmatch(_COUNT, value) else None


def _size(text: str, label: str) -> int | None:
    found = _SIZE.match(_value(text, label) or "")
    return round(float(found[1]) * _UNITS[found[2]]) if found else None


def _value(text: str, label: str) -> str | None:
    found = re.search(
        rf"{_PROMPT}{re.escape(label)}[ \t]*:[ \t]*(\S[^\n]*?)[ \t]*$",
        text,
        re.MULTILINE,
    )
    return found[1] if found else None


def counted(rows: Iterable[LogRow]) -> str:
    """Rows in a line: "2 x RESHAPE: Operation not supported; …"."""
    return "; ".join(f"{r.count} x {r.op}: {r.status}" for r in rows)
