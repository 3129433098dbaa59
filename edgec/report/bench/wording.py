"""How texts and figures are written, the same in every output of a bench."""

from __future__ import annotations

from collections.abc import Iterator

from edgec.benching.figures import ON_TPU
from edgec.benching.result import BenchReport, Once, OpReport, SegmentReport
from edgec.report.explain.text import size

EST = "est. "


def plain(text: str) -> str:
    """On one line, without what is no character to be seen: names come from files."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def shortened(text: str, most: int) -> str:
    """Without its middle, where it is long: names of one model begin alike."""
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most // 2) :]}"


def ms(value: float, estimated: bool = False) -> str:
    """With three decimals, a microsecond, and marked where it is an estimate."""
    return f"{EST * estimated}{value:.3f}"


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
    known = [d.cpu, d.os, f"kernel {d.kernel}" if d.kernel else "", d.target, "emulated" if d.emulated else ""]
    return ", ".join(filter(None, [*map(plain, known), f"run by {runner}"]))


def once(what: str, found: Once) -> str:
    """Something that happens once a launch: the worst of all launches."""
    return "" if found.worst is None else f"{what} {ms(found.worst, found.estimated)} ms"


def conditions(r: BenchReport) -> str:
    """What came before the latencies, and how many there are."""
    s = r.steadiness
    warm = once("warm-up", s.warmup)
    said = [once("load", r.load), once("first inference", r.first), warm and f"{warm} ({s.warmup_runs} inferences)"]
    launches, runs = len(r.latency.rounds), len(r.latency.samples)
    if r.latency.estimated and not any(said):
        return "nothing was run on that hardware: every time is an estimate"
    steady = "steady" if s.reached else "NOT STEADY"
    return ", ".join(filter(None, [*said, f"then {steady}: {runs:,} inferences in {launches} launches"]))


def ranked(r: BenchReport) -> list[tuple[SegmentReport, int, OpReport]]:
    """The profiled ops, the slowest first: of which segment, which of its functions."""
    rows = [(s, i, op) for s in r.segments for i, op in enumerate(s.ops)]
    return sorted(rows, key=lambda row: -row[2].ms)


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
    yield from ((name, "", planned[name]) for name in ("arena", "tensors") if name in planned)


def share(part: float, r: BenchReport) -> str:
    """Of the median latency."""
    whole = r.latency.summary()
    return f"{part / whole.p50:.1%}" if whole and whole.p50 else ""


def parts(s: SegmentReport) -> str:
    """Of what the cost model makes its time on the Edge TPU; empty where it has none."""
    said = ", ".join(f"{name} {EST}{value:.2f} ms" for name, value in s.parts.items() if value)
    return f"{plain(s.name)} by the cost model: {said}" if said else ""
