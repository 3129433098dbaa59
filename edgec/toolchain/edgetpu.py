"""Google's edgetpu_compiler: run when it is on the PATH, its log parsed, its verdict compared with ours.

It is a closed program of old libraries, so nothing depends on it: a segment that it does not compile whole keeps
running uncompiled.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROGRAM = "edgetpu_compiler"
MAPPED = "Mapped to Edge TPU"
TIMEOUT_S = 600.0
"""The program gives up on a model after 180 s by itself."""

_ROW = re.compile(r"^\s*([A-Z][A-Z0-9_]*)\s+(\d+)\s+(\S.*?)\s*$")
_VERSION = re.compile(r"Edge TPU Compiler version (\S+)")
_INPUT = re.compile(r"^Input model: (.+?)\s*$", re.MULTILINE)
_SIZE = re.compile(r"^([\d.]+)\s*(B|KiB|MiB|GiB)$")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_FAILURES = (
    re.compile(r"^Compilation failed: (.+?)\s*$", re.MULTILINE),
    re.compile(r"^(?:ERROR: )?(Didn't find op for .+?)\s*$", re.MULTILINE),
    re.compile(r"^(Internal compiler error)\b", re.MULTILINE),
    re.compile(r"^ERROR: (.+?)\s*$", re.MULTILINE),
    re.compile(r"^(Invalid model: .+?)\s*$", re.MULTILINE),
    re.compile(r"^(Compilation failed!)", re.MULTILINE),
)
"""What the program says when it compiles nothing, the most telling first."""


@dataclass(frozen=True)
class LogRow:
    """A line of the operator table: TFLite operator, how many, and the status they share."""

    op: str
    count: int
    status: str


@dataclass(frozen=True)
class CompilerLog:
    """What the program said of one model. Sizes in bytes; numbers that it did not print are None.

    failure: why it compiled nothing. tpu_ops, cpu_ops: from the operator table, or the totals where there is no table.
    """

    version: str | None = None
    failure: str | None = None
    rows: tuple[LogRow, ...] = ()
    subgraphs: int | None = None
    tpu_ops: int | None = None
    cpu_ops: int | None = None
    cached_bytes: int | None = None
    streamed_bytes: int | None = None

    @property
    def whole(self) -> bool:
        """Whether all of the model runs on the Edge TPU, in one piece."""
        return self.failure is None and self.cpu_ops == 0 and bool(self.tpu_ops)


@dataclass(frozen=True)
class CompiledSegment:
    """The result for one segment: `data` is the compiled file, None if it must run uncompiled; `warnings` say why."""

    name: str
    data: bytes | None
    log: CompilerLog
    warnings: tuple[str, ...] = field(default=())


def find_compiler() -> str | None:
    """The path of the program, None if this machine has none (it exists for x86-64 Linux only)."""
    return shutil.which(PROGRAM)


def compile_segments(
    models: Mapping[str, bytes], compiler: str | None = None, timeout: float = TIMEOUT_S
) -> dict[str, CompiledSegment]:
    """Compile the .tflite bytes of segments, by name; `{}` when there is no compiler.

    All are compiled together, so that they share the on-chip memory. Where that leaves one out, each is tried alone.
    """
    program = compiler or find_compiler()
    if program is None or not models:
        return {}
    together = _compile(program, models, timeout)
    if len(models) == 1 or all(s.data is not None for s in together.values()):
        return together
    alone: dict[str, CompiledSegment] = {}
    for name, data in models.items():
        alone |= _compile(program, {name: data}, timeout)
    return alone


def _compile(program: str, models: Mapping[str, bytes], timeout: float) -> dict[str, CompiledSegment]:
    with tempfile.TemporaryDirectory(prefix="edgec-edgetpu-") as tmp:
        folder = Path(tmp)
        for name, data in models.items():
            (folder / f"{name}.tflite").write_bytes(data)
        text = _run([program, "-s", "-o", str(folder), *(str(folder / f"{n}.tflite") for n in models)], folder, timeout)
        logs = parse_logs(text)
        found: dict[str, CompiledSegment] = {}
        for name in models:
            log = logs.get(f"{name}.tflite") or CompilerLog(_version(text), _failure(text))
            output = folder / f"{name}_edgetpu.tflite"
            found[name] = _judge(name, log, output.read_bytes() if output.is_file() else None)
        return found


def _judge(name: str, log: CompilerLog, data: bytes | None) -> CompiledSegment:
    """A segment is taken only when it was predicted to map whole and did."""
    warnings: list[str] = []
    if log.failure is not None:
        warnings.append(f"{PROGRAM} did not compile {name}: {log.failure}")
    elif data is None:
        warnings.append(f"{PROGRAM} wrote no file for {name}")
    elif not log.whole:
        left = [r for r in log.rows if r.status != MAPPED]
        text = "; ".join(f"{r.count} x {r.op}: {r.status}" for r in left) or f"{log.cpu_ops} ops"
        warnings.append(f"edgec expected all of {name} on the Edge TPU, but {PROGRAM} left on the CPU: {text}")
    return CompiledSegment(name, None if warnings else data, log, tuple(warnings))


def _run(command: list[str], cwd: Path, timeout: float) -> str:
    """Everything it prints. It forks, so on a timeout its whole process group is killed."""
    try:
        process = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as e:
        return f"Compilation failed: cannot run {command[0]}: {e.strerror}\n"
    try:
        text, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"Compilation failed: no result after {timeout:g} s\n"
    if process.returncode and not text.strip():
        return f"Compilation failed: exit code {process.returncode}\n"
    return text


def parse_logs(text: str) -> dict[str, CompilerLog]:
    """The log of each compiled model, by the file name of its input; empty when nothing was compiled."""
    version = _version(text)
    found = list(_INPUT.finditer(text))
    ends = [m.start() for m in found[1:]] + [len(text)]
    return {Path(m[1]).name: _parse_block(text[m.start() : end], version) for m, end in zip(found, ends, strict=False)}


def _parse_block(text: str, version: str | None) -> CompilerLog:
    rows = tuple(LogRow(m[1], int(m[2]), m[3]) for m in map(_ROW.match, text.splitlines()) if m)
    tpu = _number(text, "Number of operations that will run on Edge TPU")
    cpu = _number(text, "Number of operations that will run on CPU")
    if rows:
        tpu = sum(r.count for r in rows if r.status == MAPPED)
        cpu = sum(r.count for r in rows if r.status != MAPPED)
    elif tpu is None:  # the counts are printed only when some op is left over
        tpu, cpu = _number(text, "Total number of operations"), 0
    return CompilerLog(
        version=version,
        rows=rows,
        subgraphs=_number(text, "Number of Edge TPU subgraphs"),
        tpu_ops=tpu,
        cpu_ops=cpu,
        cached_bytes=_size(text, "On-chip memory used for caching model parameters"),
        streamed_bytes=_size(text, "Off-chip memory used for streaming uncached model parameters"),
    )


def _version(text: str) -> str | None:
    found = _VERSION.search(text)
    return found[1] if found else None


def _failure(text: str) -> str:
    for pattern in _FAILURES:
        found = pattern.search(text)
        if found:
            return found[1]
    return (text.strip().splitlines() or ["it printed nothing"])[-1]


def _number(text: str, label: str) -> int | None:
    value = _value(text, label)
    return int(value) if value is not None and value.isdigit() else None


def _size(text: str, label: str) -> int | None:
    found = _SIZE.match(_value(text, label) or "")
    return round(float(found[1]) * _UNITS[found[2]]) if found else None


def _value(text: str, label: str) -> str | None:
    found = re.search(rf"^{re.escape(label)}: *(.+?) *$", text, re.MULTILINE)
    return found[1] if found else None
