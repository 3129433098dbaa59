"""How texts and figures are written, the same in every output of a bench."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgec.benching.figures import ON_TPU
from edgec.benching.result import BenchReport, OncePerLaunch, SegmentReport
from edgec.report.terms import TERMS
from edgec.report.wording import plain, size

EST = "est. "


def mark(r: BenchReport, estimated: bool = True) -> str:
    """What stands before a time: nothing if it was measured on that hardware."""
    return r.mark * estimated


def ms(value: float, marked: str = "") -> str:
    """With three decimals, a microsecond. marked: see mark()."""
    return f"{marked}{value:.3f}"


def place(s: SegmentReport) -> str:
    """Where its time was spent, which need not be where it is meant to run."""
    if s.backend in ON_TPU:
        return "Edge TPU"
    return "CPU" if s.place == "cpu" else "CPU, for Edge TPU"


def device(r: BenchReport) -> str:
    """The board and the URL; of this machine, `local`."""
    d = r.device
    url = d.url.removesuffix(":")
    return plain(f"{d.board} ({url})" if d.board else url)


def machine(r: BenchReport) -> str:
    """What is known of the device and of what ran there."""
    d = r.device
    runner = "the bundle's program" if d.runner == "program" else "the Python runtime"
    known = [
        d.cpu,
        d.os,
        f"kernel {d.kernel}" if d.kernel else "",
        d.target,
        "emulated" if d.emulated else "",
    ]
    return ", ".join(
        filter(None, [*map(plain, known), f"run by {runner}{_threads(r)}"])
    )


def _threads(r: BenchReport) -> str:
    threads = r.settings.get("threads", 1)
    return f" on {threads} threads" if threads > 1 else ""


def once(what: str, found: OncePerLaunch, r: BenchReport) -> str:
    """Something that happens once a launch: the worst of all launches."""
    if found.worst is None:
        return ""
    return f"{what} {ms(found.worst, mark(r, found.estimated))} ms"


def conditions(r: BenchReport) -> str:
    """What came before the latencies, and how many there are."""
    s = r.steadiness
    warm = once("warm-up", s.warmup, r)
    said = [
        once("load", r.load, r),
        once("first inference", r.first, r),
        warm and f"{warm} ({s.warmup_runs} inferences)",
    ]
    launches = len(r.latency.rounds)
    runs = len(r.latency.samples)
    if r.latency.estimated and not any(said):
        return "nothing was run on that hardware: every time is an estimate"
    steady = "steady" if s.reached else "NOT STEADY"
    return ", ".join(
        filter(
            None, [*said, f"then {steady}: {runs:,} inferences in {launches} launches"]
        )
    )


@dataclass(frozen=True)
class TimeSpent:
    """Where time was spent: an operation, or a segment whose operations have no times
    of their own. index: its op's.
    """

    segment: SegmentReport
    index: int | None
    kind: str
    source: str
    macs: int
    ms: float
    estimated: bool

    @property
    def whole(self) -> bool:
        """A segment."""
        return self.index is None

    @property
    def name(self) -> str:
        """As budgets name it."""
        if self.whole:
            return self.segment.name
        return f"{self.segment.name}.op{self.index}"


def ranked(r: BenchReport) -> list[TimeSpent]:
    """All that takes time, the slowest first: together it is the whole, on the Edge TPU
    and on the CPU.
    """
    found = []
    for s in r.segments:
        est = s.latency.estimated
        found += [
            TimeSpent(s, i, op.kind or op.name, op.source, op.macs, op.ms, est)
            for i, op in enumerate(s.ops)
        ]
        if not s.ops and (summary := s.latency.summary()):
            found.append(TimeSpent(s, None, "whole segment", "", 0, summary.p50, est))
    return sorted(found, key=lambda one: -one.ms)


def memory_rows(r: BenchReport) -> Iterator[tuple[str, str, str]]:
    """What, how much, and how much the compiler planned."""
    m = r.memory
    if m.rss is not None:
        yield "peak resident size", f"{EST * m.rss_estimated}{size(m.rss)}", ""
    planned = {name: size(n) for name, n in m.plan.items()}
    if m.code:
        yield "code", size(m.code), ""
        yield "constants", size(m.constants), planned.get("constants", "")
        yield "written data", size(m.data), ""
    yield from (
        (name, "", planned[name]) for name in ("arena", "tensors") if name in planned
    )


def share(part: float, r: BenchReport) -> str:
    """Of the median latency."""
    whole = r.latency.summary()
    return f"{part / whole.p50:.1%}" if whole and whole.p50 else ""


def parts(s: SegmentReport) -> str:
    """Of what the cost model makes its time on the Edge TPU; empty where it has none."""
    said = ", ".join(
        f"{name} {EST}{value:.2f} ms" for name, value in s.parts.items() if value
    )
    return f"{plain(s.name)} by the cost model: {said}" if said else ""


def latency_terms(r: BenchReport) -> list[str]:
    """What must be explained of the latencies of the whole."""
    return [
        *(["p50, p95"] if len(r.latency.samples) > 1 else []),
        *([r.mark.strip()] if r.estimated else []),
    ]


def segment_terms(r: BenchReport) -> list[str]:
    """What must be explained of the segments' table."""
    by = dict.fromkeys(s.backend for s in r.segments)
    twin = "CPU, for Edge TPU"
    named = [
        *by,
        *([twin] if any(place(s) == twin for s in r.segments) else []),
        "share",
    ]
    return [name for name in named if name in TERMS]


def part_terms(r: BenchReport) -> list[str]:
    """What must be explained of the cost model's parts."""
    return list(
        dict.fromkeys(
            name for s in r.segments for name, value in s.parts.items() if value
        )
    )


def memory_terms(r: BenchReport) -> list[str]:
    """What must be explained of the memory table."""
    return [
        "planned",
        *(name for name in ("arena", "tensors") if name in r.memory.plan),
    ]
