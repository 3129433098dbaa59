"""Writes texts and figures the same in every output of a bench."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgec_devices.intervals import EDGETPU_ERROR, estimate_text
from edgec_devices.requirement import Figure

from edgec.benching.quantities import ON_TPU, Absent
from edgec.benching.result import BenchReport, OncePerLaunch, SegmentReport
from edgec.report.legend import TERMS
from edgec.report.wording import plain, size

EST = "est. "
"""Prefix of an estimated figure."""
TPU_ON_CPU = "CPU, for Edge TPU"
"""Place of a segment for the Edge TPU that the CPU ran."""


def mark(r: BenchReport, estimated: bool = True) -> str:
    """Return the prefix of a time: nothing if it was measured on that hardware."""
    return r.mark * estimated


def ms(value: float, marked: str = "", error: float | None = None) -> str:
    """Return a time in ms with three decimals, or the interval of an estimate.

    `marked` is a prefix from `mark`; `error` the relative error of an estimate, None of
    a time by a clock.
    """
    if error is not None:
        return f"{marked}{estimate_text(value, error)}"
    return f"{marked}{value:.3f}"


def figure(value: Figure | Absent, r: BenchReport) -> str:
    """Return a figure with its unit, marked if it is an estimate."""
    if isinstance(value, Absent):
        return value.why
    return f"{mark(r, value.estimated)}{value.text()}"


def place(s: SegmentReport) -> str:
    """Return where a segment ran, which need not be where it is meant to run."""
    # Without an Edge TPU, or its compiled file, its segments run as C.
    if s.backend in ON_TPU:
        return "Edge TPU"
    return "CPU" if s.place == "cpu" else TPU_ON_CPU


def device(r: BenchReport) -> str:
    """Return the board and the URL of the device; this machine is `local`."""
    url = r.device.url.removesuffix(":")
    if r.device.board:
        return plain(f"{r.device.board} ({url})")
    return plain(url)


def machine(r: BenchReport) -> str:
    """Return the known facts about the device and the program that ran there."""
    d = r.device

    facts = [
        d.cpu,
        d.os,
        f"kernel {d.kernel}" if d.kernel else "",
        d.target,
        "emulated" if d.emulated else "",
    ]
    runner = "the bundle's program" if d.runner == "program" else "the Python runtime"
    threads = r.settings.get("threads", 1)
    on_threads = f" on {threads} threads" if threads > 1 else ""
    texts = [*map(plain, facts), f"run by {runner}{on_threads}"]
    return ", ".join(filter(None, texts))


def once(what: str, rate: OncePerLaunch, r: BenchReport) -> str:
    """Return the worst launch's time of something done once a launch, or ""."""
    if rate.worst is None:
        return ""
    return f"{what} {ms(rate.worst, mark(r, rate.estimated))} ms"


def conditions(r: BenchReport) -> str:
    """Return what came before the latencies, and how many latencies there are."""
    steadiness = r.steadiness
    warmup = once("warm-up", steadiness.warmup, r)
    if warmup:
        warmup = f"{warmup} ({steadiness.warmup_runs} inferences)"
    texts = [once("load", r.load, r), once("first inference", r.first, r), warmup]
    # An estimate for a board has no launches to tell of.
    if r.latency.estimated and not any(texts):
        return "nothing was run on that hardware: every time is an estimate"

    launches = len(r.latency.rounds)
    runs = len(r.latency.samples)
    steady = "steady" if steadiness.reached else "NOT STEADY"
    texts.append(f"then {steady}: {runs:,} inferences in {launches} launches")
    return ", ".join(filter(None, texts))


@dataclass(frozen=True)
class TimeSpent:
    """The time of an operation, or of a segment whose operations have no times.

    Attributes:
        segment: the segment
        index: number of the operation in the segment; None for the whole segment
        kind: kind of the operation
        source: nodes of the model that it comes from
        macs: multiply-accumulates
        ms: time in an inference, ms
    """

    segment: SegmentReport
    index: int | None
    kind: str
    source: str
    macs: int
    ms: float

    @property
    def estimated(self) -> bool:
        """Return whether the time is an estimate."""
        return self.segment.latency.estimated

    @property
    def error(self) -> float | None:
        """Return the relative error of an estimate; None of a time by a clock."""
        return self.segment.latency.error

    @property
    def whole(self) -> bool:
        """Return whether the time is of a whole segment."""
        return self.index is None

    @property
    def name(self) -> str:
        """Return the name that budgets use."""
        if self.whole:
            return self.segment.name
        return f"{self.segment.name}.op{self.index}"


def ranked(r: BenchReport) -> list[TimeSpent]:
    """Return all operations and whole segments, the slowest first.

    Their times add up to the inference, on the Edge TPU and the CPU together.
    """
    times = []
    for segment in r.segments:
        for i, op in enumerate(segment.ops):
            kind = op.kind or op.name
            times.append(TimeSpent(segment, i, kind, op.source, op.macs, op.ms))

        summary = segment.latency.summary()
        if not segment.ops and summary:
            median = summary.p50
            times.append(TimeSpent(segment, None, "whole segment", "", 0, median))
    return sorted(times, key=lambda time: -time.ms)


def memory_rows(r: BenchReport) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the size and the compiler's planned size of each memory area."""
    memory = r.memory
    if memory.rss is not None:
        prefix = EST if memory.rss_estimated else ""
        yield "peak resident size", f"{prefix}{size(memory.rss)}", ""

    planned = {name: size(n) for name, n in memory.plan.items()}
    if memory.code:
        yield "code", size(memory.code), ""
        yield "constants", size(memory.constants), planned.get("constants", "")
        yield "written data", size(memory.data), ""
    for name in ("arena", "tensors"):
        if name in planned:
            yield name, "", planned[name]


def share(part: float, r: BenchReport) -> str:
    """Return a time's share of the median latency, or "" if there is no latency."""
    latency = r.latency.summary()

    if not latency or not latency.p50:
        return ""
    return f"{part / latency.p50:.1%}"


def parts(s: SegmentReport) -> str:
    """Return the cost model's parts of a segment's time on the Edge TPU, or ""."""
    texts = []
    for name, value in s.parts.items():
        if value:
            texts.append(f"{name} {EST}{estimate_text(value, EDGETPU_ERROR)} ms")

    if not texts:
        return ""
    return f"{plain(s.name)} by the cost model: {', '.join(texts)}"


def latency_terms(r: BenchReport) -> list[str]:
    """Return the terms in the table of latencies."""
    terms = []
    if len(r.latency.samples) > 1:
        terms.append("p50, p95")
    if r.estimated:
        terms.append(r.mark.strip())
    return terms


def segment_terms(r: BenchReport) -> list[str]:
    """Return the terms in the table of segments."""
    terms = list(dict.fromkeys(segment.backend for segment in r.segments))
    if any(place(segment) == TPU_ON_CPU for segment in r.segments):
        terms.append(TPU_ON_CPU)
    terms.append("share")
    return [name for name in terms if name in TERMS]


def part_terms(r: BenchReport) -> list[str]:
    """Return the names of the cost model's parts."""
    terms: dict[str, None] = {}
    for segment in r.segments:
        for name, value in segment.parts.items():
            if value:
                terms[name] = None
    return list(terms)


def memory_terms(r: BenchReport) -> list[str]:
    """Return the terms in the table of memory."""
    areas = [name for name in ("arena", "tensors") if name in r.memory.plan]
    return ["planned", *areas]
