"""What a bench found, as it is written to `--json` and read back
(docs/bench.schema.json).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from edgec_devices.decoding import LARGEST_JSON, from_json
from edgec_devices.measurement import Identity
from edgec_devices.throttling import Throttling
from edgec_runtime import Summary
from edgec_runtime.device_end.disk import given
from edgec_runtime.session.meters import StreamFigures

from edgec.errors import InputError

SCHEMA = 1
EMULATOR = "an emulator's time, from which nothing follows for a board"
"""How a latency was found on a machine that is emulated as a whole: by its clock."""


@dataclass(frozen=True)
class Series:
    """Latencies of one thing, ms: the steady ones, launch by launch (a launch is one
    start of the program).

    estimated: not measured on the hardware it speaks of. how: "measured", EMULATOR, or
    where an estimate is from.
    """

    rounds: tuple[tuple[float, ...], ...]
    estimated: bool
    how: str

    @cached_property
    def samples(self) -> tuple[float, ...]:
        """Of all launches."""
        return tuple(ms for one in self.rounds for ms in one)

    def summary(self) -> Summary | None:
        """Percentiles of all launches together; None where there is no latency."""
        return self._summary

    @cached_property
    def _summary(self) -> Summary | None:
        return Summary.of(self.samples) if self.samples else None


@dataclass(frozen=True)
class OncePerLaunch:
    """Something that happens once a launch, ms: loading, the first inference, warming
    up. estimated: as in Series.
    """

    ms: tuple[float, ...]
    estimated: bool
    how: str

    @property
    def worst(self) -> float | None:
        """Of all launches; None where it was not measured."""
        return max(self.ms, default=None)


@dataclass(frozen=True)
class OpReport:
    """One operation of a C segment. name: its function in the generated C. source: its
    name in the model.

    ms: the median of the profiled inferences. macs: multiply-accumulates.
    """

    name: str
    kind: str
    source: str
    output: str
    macs: int
    ms: float


@dataclass(frozen=True)
class SegmentReport:
    """place: "cpu" or "edgetpu", where it is meant to run. backend: what ran it: "c",
    "delegate", "interpreter".

    parts: what its time on the Edge TPU is made of by the cost model, ms by name
    ("input", "output", "code", "streamed" are transfers; "invoke", "compute"); always
    an estimate, empty on the CPU. ops: in order of execution; empty where nothing was
    profiled. ops_how: as how of Series.
    """

    name: str
    place: str
    backend: str
    latency: Series
    parts: Mapping[str, float] = field(default_factory=dict)
    ops: tuple[OpReport, ...] = ()
    ops_how: str = ""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes. rss: the highest resident size of the process, None where it was not
    measured. Of the program's file, by its sections: code, constants (read-only data,
    and the weights file), data (written). plan: what the compiler planned: "arena" (the
    largest of all segments), "tensors" (what crosses segment borders), "constants" (of
    all segments).
    """

    rss: int | None
    rss_estimated: bool
    code: int
    constants: int
    data: int
    plan: Mapping[str, int]


@dataclass(frozen=True)
class DeviceReport(Identity):
    """Where it ran. runner: "program" (csrc/main.c) or "session" (the Python runtime)."""

    runner: str


@dataclass(frozen=True)
class Steadiness:
    """Of all launches: how many inferences were needed to warm up (the most), and
    whether most became steady.
    """

    reached: bool
    warmup_runs: int
    warmup: OncePerLaunch


@dataclass(frozen=True)
class Check:
    """A budget and how it came out. what: the expression. measured, margin: in `unit`;
    None where there is no figure. why: what is in the way, or why there is no figure.
    """

    what: str
    holds: bool
    measured: float | None
    unit: str
    margin: float | None
    estimated: bool
    why: str = ""


@dataclass(frozen=True)
class Compared:
    """With an earlier run. verdict: "regress", "same", "better", "cannot tell". ratio:
    new / old, with the bounds of its confidence interval. runs_needed: how many it
    would take, None where it can tell.
    """

    baseline: str
    figure: str
    verdict: str
    ratio: float
    low: float
    high: float
    confidence: float
    max_regress: float
    runs_needed: int | None
    sentence: str


@dataclass(frozen=True)
class BenchReport:
    """All of it. when: UTC, ISO 8601. bundle_sha256: of the file. settings: as asked
    for.

    latency: of whole inferences. waited: ms of each of them in which it waited for a
    processor that other programs had, in the form of latency.rounds; empty where nobody
    knows. yardstick: ms, launch by launch, a fixed loop that tells how fast the machine
    was. stream: of frames that overlap; None where none was run. profile_overhead: how
    much longer a profiled inference takes, 0.01 is 1 %; None where nothing was
    profiled.
    """

    model: str
    bundle_sha256: str
    target: str
    when: str
    edgec: str
    device: DeviceReport
    settings: Mapping[str, Any]
    load: OncePerLaunch
    first: OncePerLaunch
    steadiness: Steadiness
    latency: Series
    segments: tuple[SegmentReport, ...]
    profile_overhead: float | None
    memory: MemoryUse
    vitals: Throttling | None
    waited: tuple[tuple[float, ...], ...] = ()
    yardstick: tuple[tuple[float, ...], ...] = ()
    budgets: tuple[Check, ...] = ()
    comparison: Compared | None = None
    notes: tuple[str, ...] = ()
    stream: StreamFigures | None = None
    schema: int = SCHEMA

    @property
    def estimated(self) -> bool:
        """Whether the latency of the whole was not measured on that hardware."""
        return self.latency.estimated

    @property
    def emulated(self) -> bool:
        """Whether the times are by the clock of an emulated machine: no estimate
        either.
        """
        return self.latency.how == EMULATOR

    @property
    def mark(self) -> str:
        """What stands before a time that was not measured."""
        return "emulator's " if self.emulated else "est. "

    @property
    def board(self) -> str | None:
        """The board that the bundle is for, which `emulated:BOARD` estimates; None for
        this machine.
        """
        name = self.target.partition("+")[0]
        return None if name == "host" else name

    def to_json(self) -> dict[str, Any]:
        """Every field, and for readers that do not compute: the summary of each series."""
        data = asdict(self)
        data["latency"]["summary"] = _summary(self.latency)
        for row, segment in zip(data["segments"], self.segments, strict=True):
            row["latency"]["summary"] = _summary(segment.latency)
        return data

    @staticmethod
    def load_file(path: Path) -> BenchReport:
        """A report of an earlier run. Raises InputError for anything else."""
        hint = "give what edgec bench --json wrote"
        what = "the earlier run"
        try:
            data = given(path, LARGEST_JSON)
        except OSError as e:
            raise InputError(
                f"cannot read {what}: {e.strerror}", at=str(path), hint=hint
            ) from e
        seen = from_json(data, _Schema, what, str(path), hint).schema
        if seen != SCHEMA:
            raise InputError(
                f"not a report of edgec bench with schema {SCHEMA}: {seen}",
                at=str(path),
                hint=hint,
            )
        return from_json(data, BenchReport, what, str(path), hint)


@dataclass(frozen=True)
class _Schema:
    schema: int | None = None


def _summary(series: Series) -> dict[str, float] | None:
    found = series.summary()
    return found.as_dict() if found else None
