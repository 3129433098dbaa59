"""Holds a bench's report, as `--json` writes it (docs/bench.schema.json)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from edgec_devices.decoding import LARGEST_JSON, from_json
from edgec_devices.intervals import ends
from edgec_devices.measurement import Identity
from edgec_devices.requirement import JudgedInterval
from edgec_devices.throttling import Throttling
from edgec_runtime import Summary
from edgec_runtime.device_end.disk import given
from edgec_runtime.session.meters import StreamFigures

from edgec.errors import InputError

SCHEMA = 1
EARLIER = "the earlier run"
EMULATOR = "an emulator's time, from which nothing follows for a board"
"""Origin of a latency by the clock of an emulated machine."""


@dataclass(frozen=True)
class Series:
    """The steady latencies of an inference or a segment.

    Attributes:
        rounds: latencies of each launch, which is one start of the program, ms
        estimated: whether they were not measured on the target's hardware
        how: "measured", EMULATOR, or the origin of an estimate
        error: relative error of an estimate (edgec_devices.intervals); None of a time
            by a clock
    """

    rounds: tuple[tuple[float, ...], ...]
    estimated: bool
    how: str
    error: float | None = None

    @cached_property
    def samples(self) -> tuple[float, ...]:
        """Return the latencies of all launches, ms."""
        return tuple(ms for launch in self.rounds for ms in launch)

    def summary(self) -> Summary | None:
        """Return the percentiles of all launches together; None without any latency."""
        return self._summary

    @cached_property
    def _summary(self) -> Summary | None:
        # Computed once: sorting a hundred thousand latencies takes a while, and each
        # report asks several times.
        return Summary.of(self.samples) if self.samples else None

    def end_summaries(self) -> tuple[Summary, Summary] | None:
        """Return the summaries of both ends of an estimate's interval.

        None for times by a clock, and without any latency.
        """
        if self.error is None or not self.samples:
            return None
        pairs = [ends(ms, self.error) for ms in self.samples]
        low, high = zip(*pairs, strict=True)
        return Summary.of(low), Summary.of(high)


@dataclass(frozen=True)
class OncePerLaunch:
    """The time of a step that each launch has once: loading or warming up, for example.

    Attributes:
        ms: time in each launch, ms
        estimated: as in Series
        how: as in Series
    """

    ms: tuple[float, ...]
    estimated: bool
    how: str

    @property
    def worst(self) -> float | None:
        """Return the longest time of all launches; None if it was not measured."""
        # The worst, since a person waits for it at every start.
        return max(self.ms, default=None)


@dataclass(frozen=True)
class OpReport:
    """One operation of a C segment.

    Attributes:
        name: its function in the generated C
        kind: its kind
        source: its name in the model
        output: type of its output
        macs: multiply-accumulates
        ms: median time of the profiled inferences, ms
    """

    name: str
    kind: str
    source: str
    output: str
    macs: int
    ms: float


@dataclass(frozen=True)
class SegmentReport:
    """One segment of the model.

    Attributes:
        name: its name
        place: where it is meant to run, "cpu" or "edgetpu"
        backend: the executor: "c", "delegate" or "interpreter"
        latency: its time in each inference
        parts: parts of its time on the Edge TPU by the cost model, ms by name; always
            estimates, empty on the CPU. "input", "output", "code" and "streamed" are
            transfers; the others are "invoke" and "compute"
        ops: its operations in order of execution; empty if it was not profiled
        ops_how: origin of the times of `ops`, as in Series
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
    """The memory of a bundle, in bytes.

    Attributes:
        rss: highest resident size of the process; None if it was not measured
        rss_estimated: whether `rss` is an estimate
        code: executable sections of the program's file
        constants: read-only sections of the file, and the weights file
        data: writable sections of the file
        plan: the compiler's plan: "arena" (the largest of all segments), "tensors"
            (boundary tensors of segments) and "constants" (of all segments)
    """

    rss: int | None
    rss_estimated: bool
    code: int
    constants: int
    data: int
    plan: Mapping[str, int]


@dataclass(frozen=True)
class DeviceReport(Identity):
    """The device of a run.

    Attributes:
        runner: "program" (csrc/main.c) or "session" (the Python runtime)
    """

    runner: str


@dataclass(frozen=True)
class Steadiness:
    """The warm-up of all launches.

    Attributes:
        reached: whether most launches became steady
        warmup_runs: the largest number of inferences that a launch took to warm up
        warmup: time of the warm-up
    """

    reached: bool
    warmup_runs: int
    warmup: OncePerLaunch


@dataclass(frozen=True)
class Check:
    """A budget and its outcome.

    Attributes:
        what: the expression
        holds: whether it holds
        measured: the figure in `unit`; None if there is none
        unit: unit of the figure
        margin: distance to the limit in `unit`; None without a figure
        estimated: whether the figure is an estimate
        why: what contributes most, or the reason why there is no figure
        interval: interval of an estimate in `unit`; None of a figure without one
    """

    what: str
    holds: bool
    measured: float | None
    unit: str
    margin: float | None
    estimated: bool
    why: str = ""
    interval: JudgedInterval | None = None


@dataclass(frozen=True)
class Compared:
    """The comparison with an earlier run.

    Attributes:
        baseline: file of the earlier report
        figure: the compared figure
        verdict: "regress", "same", "better" or "cannot tell"
        ratio: new / old
        low: lower bound of the ratio's confidence interval
        high: upper bound of the ratio's confidence interval
        confidence: that of the interval
        max_regress: how much slower is allowed, 0.05 is 5 %
        runs_needed: number of runs that would tell; None if it can tell
        sentence: the outcome in words
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


def earlier_data(path: Path, hint: str) -> bytes:
    """Return the bytes of an earlier run's file; raises InputError without one."""
    try:
        return given(path, LARGEST_JSON)
    except OSError as e:
        raise InputError(
            f"cannot read {EARLIER}: {e.strerror}", at=str(path), hint=hint
        ) from e


@dataclass(frozen=True)
class BenchReport:
    """The report of a bench.

    Attributes:
        model: name of the model
        bundle_sha256: hash of the bundle's file
        target: target of the bundle
        when: time of the bench, UTC, ISO 8601
        edgec: version of edgec
        device: the device
        settings: options of the bench
        load: time of loading
        first: time of the first inference
        steadiness: the warm-up
        latency: latency of whole inferences
        segments: the segments
        profile_overhead: how much longer a profiled inference takes, 0.01 is 1 %; None
            if nothing was profiled
        memory: the memory
        vitals: clock, temperature and throttling; None if they were not read
        waited: time of each inference without a processor, ms, in the form of
            latency.rounds; empty if it is not known
        yardstick: times of a fixed loop in each launch, ms, which measure the speed of
            the machine
        budgets: outcomes of the budgets
        comparison: comparison with an earlier run
        notes: remarks
        stream: a stream of frames that overlap; None if none was run
        schema: version of the JSON form
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
        """Return whether the latency was not measured on the target's hardware."""
        return self.latency.estimated

    @property
    def emulated(self) -> bool:
        """Return whether the times are by the clock of an emulated machine.

        They are no estimates of a board either.
        """
        return self.latency.how == EMULATOR

    @property
    def mark(self) -> str:
        """Return the prefix of a time that was not measured."""
        return "emulator's " if self.emulated else "est. "

    @property
    def board(self) -> str | None:
        """Return the board for `emulated:BOARD`; None if the target is this machine."""
        name = self.target.partition("+")[0]
        return None if name == "host" else name

    def to_json(self) -> dict[str, Any]:
        """Return every field, and of each series a summary and an estimate's interval.

        The summaries are for programs that compute no percentiles.
        """
        data = asdict(self)
        data["latency"] |= _computed(self.latency)
        for row, segment in zip(data["segments"], self.segments, strict=True):
            row["latency"] |= _computed(segment.latency)
        return data

    @staticmethod
    def load_file(path: Path) -> BenchReport:
        """Read the report of an earlier run; raises InputError for other files."""
        hint = "give what edgec bench --json wrote"
        data = earlier_data(path, hint)
        # The version comes first: another schema may have other fields.
        schema = from_json(data, _Schema, EARLIER, str(path), hint).schema
        if schema != SCHEMA:
            raise InputError(
                f"not a report of edgec bench with schema {SCHEMA}: {schema}",
                at=str(path),
                hint=hint,
            )
        return from_json(data, BenchReport, EARLIER, str(path), hint)


@dataclass(frozen=True)
class _Schema:
    """The version of a report, whatever its other fields are."""

    schema: int | None = None


def _computed(series: Series) -> dict[str, Any]:
    """Return the summary of a series, and the interval of its median in ms."""
    summary = series.summary()
    both_ends = series.end_summaries()
    return {
        "summary": summary.as_dict() if summary else None,
        "interval": [end.p50 for end in both_ends] if both_ends else None,
    }
