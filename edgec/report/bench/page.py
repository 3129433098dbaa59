"""Renders a bench's report as one HTML page that opens from a disk.

The page has verdicts, latencies, segments, operations, the graph and vitals. Its form
is bench.html.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgec_devices.measurement import Measurement
from edgec_devices.requirement import Figure, amount
from markupsafe import Markup

from edgec.benching.bundle import BundleBench
from edgec.benching.figures import figures
from edgec.benching.quantities import ON_TPU, Absent, spread
from edgec.benching.result import EMULATOR, BenchReport, OpReport, SegmentReport
from edgec.benching.verdicts import WORDS, passed, verdicts
from edgec.emit.graph_file import GraphFile, GraphOp
from edgec.report.bench import wording
from edgec.report.bench.charts import (
    Curve,
    Launched,
    histogram_svg,
    inferences_svg,
    over_time_svg,
)
from edgec.report.bench.histogram import histogram
from edgec.report.bench.text import stage_rows
from edgec.report.bench.timeline import Moment, moments
from edgec.report.bench.whole import (
    ALONE,
    NETWORKS,
    OBJECTS,
    network_rows,
    object_rows,
)
from edgec.report.bench.wording import mark, ms
from edgec.report.graph_svg import NodeBox, picture, short
from edgec.report.legend import explained
from edgec.report.markup import html, rendered
from edgec.report.summary_page import PageTable, SummaryPage
from edgec.report.wording import count, plain, shortened

TILES = ("p50", "p95", "p99", "fps", "first", "load", "rss", "celsius")
"""Figures that are shown large, at the top."""
STAGES = ("stage", "by", "p50 ms", "p95 ms")
VERDICTS = ("", "must hold", "value", "margin", "why")
"""Headers of tables."""
UNIT_TEXTS = {"fps": "", "C": "°C"}
MIN_BINS = 6
MAX_BINS = 32
MAX_OPEN_ROWS = 25
"""Operations that are shown without a click."""
MAX_NAME = 34
"""Characters of a name beside a bar."""

_CallKey = tuple[str, int | None]
"""A segment's name and the position of a call in it; None for an op without a call."""
_TimedOp = tuple[SegmentReport, OpReport]


def whole_page(bench: BundleBench) -> SummaryPage | None:
    """Return the page of all networks of a cascade together; None of one network."""
    if bench.cascade is None:
        return None
    judged = []
    for v in bench.verdicts():
        judged.append((WORDS[v.state], v.name, v.value, v.margin, v.why))
    # A verdict is what a person opens the page for, so its table is the first.
    tables = [
        PageTable("Must hold", VERDICTS, judged, left=5),
        PageTable("Each network", NETWORKS, network_rows(bench)),
        PageTable("By the number of objects", OBJECTS, object_rows(bench), left=0),
    ]
    if bench.stream is not None:
        stages = stage_rows(bench.stream, mark(bench.report, False))
        tables.append(PageTable("A stream of frames", STAGES, stages, left=2))
    return SummaryPage(
        title=f"{bench.model} on {wording.device(bench.report)}",
        summary="passed" if passed(bench.verdicts()) else "failed: see what must hold",
        tables=tables,
        notes=(ALONE,),
    )


def page(r: BenchReport, graph: GraphFile, m: Measurement) -> str:
    """Return the page; `graph` is the bundle's report/graph.json."""
    ops = _timed_ops(r)
    return rendered(
        "bench/bench.html",
        title=f"{plain(r.model)} on {wording.device(r)}",
        summary=wording.conditions(r),
        warning=_warning(r),
        tiles=list(_tiles(r)),
        unit=f"{mark(r, r.estimated)}ms",
        histogram=_histogram(r),
        inferences=_inferences(r, m),
        inferences_key=_KEY,
        segments=list(_segments(r)),
        segment_terms=explained(wording.segment_terms(r)),
        made_of=[text for text in map(wording.parts, r.segments) if text],
        part_terms=explained(wording.part_terms(r)),
        spent=_operations(r, graph),
        shown=MAX_OPEN_ROWS,
        wholes=any(time.whole for time in wording.ranked(r)),
        overhead=_overhead(r),
        graph=_graph(r, graph, ops),
        memory=list(wording.memory_rows(r)),
        memory_terms=explained(wording.memory_terms(r)),
        about=_about(r),
        data={"ops": [_details(r, op, ops) for op in graph.ops]},
        **_verdicts(r),
        **_latency(r),
        **_vitals(r, m),
    )


# ---- the whole model

_KEY = html(
    '<p class="key"><span class="warm">yellow</span>: before it was steady; '
    "the slowest are on the upper edge</p>"
)


def _warning(r: BenchReport) -> str:
    """Return a warning that an emulator's times say nothing of a board, or ""."""
    if not r.emulated:
        return ""
    return plain(" ".join((f"Each time on this page is {EMULATOR}.", *r.notes)))


def _tiles(r: BenchReport) -> Iterator[dict[str, str]]:
    """Yield the large figures."""
    all_figures = figures(r)
    # A single latency has no percentiles worth a tile.
    single = len(r.latency.samples) == 1
    for name in TILES:
        figure = all_figures[name]
        if isinstance(figure, Absent):
            continue
        if single and name in ("p95", "p99"):
            continue
        # No rate for a board that was not run, no time for an emulated one.
        if r.estimated and name == "fps":
            continue
        if r.emulated and figure.estimated:
            continue

        number, unit = _amount(figure)
        yield {
            "name": "latency" if single and name == "p50" else name,
            "mark": mark(r, figure.estimated).strip(),
            "number": number,
            "unit": UNIT_TEXTS.get(unit, unit),
        }


def _amount(figure: Figure) -> tuple[str, str]:
    """Return the number and the unit of a figure; bytes become MB."""
    if figure.unit == "B":
        return amount(round(figure.value / 1e6, 2), ""), "MB"
    return figure.text().removesuffix(f" {figure.unit}"), figure.unit


def _verdicts(r: BenchReport) -> dict[str, Any]:
    """Return the table of verdicts, their states and the outcome."""
    rows = []
    states = []
    for verdict in verdicts(r):
        states.append(verdict.state)
        rows.append(
            (
                WORDS[verdict.state],
                plain(verdict.name),
                verdict.value,
                verdict.margin,
                plain(verdict.why),
            )
        )
    outcome = "pass" if passed(verdicts(r)) else "fail"
    return {"verdicts": rows, "states": states, "outcome": outcome}


def _histogram(r: BenchReport) -> Markup:
    """Return the histogram of latencies, or nothing for fewer than two."""
    summary = r.latency.summary()
    if summary is None or summary.n < 2:
        return Markup()

    marks = [("p50", summary.p50), ("p95", summary.p95), ("p99", summary.p99)]
    # The number of bins grows with the root of the number of samples.
    wanted = round(2 * math.sqrt(summary.n))
    bins = histogram(r.latency.samples, min(MAX_BINS, max(MIN_BINS, wanted)))
    return histogram_svg(bins, marks, f"{mark(r, r.estimated)}ms")


def _latency(r: BenchReport) -> dict[str, Any]:
    """Return a table of percentiles, or a sentence if there are too few latencies."""
    summary = r.latency.summary()
    table = []
    sentence = ""
    if summary is None:
        sentence = f"There is no latency: {plain(r.latency.how)}."
    elif summary.n == 1:
        latency = ms(summary.p50, mark(r, r.latency.estimated), r.latency.error)
        sentence = f"{latency} ms: {plain(r.latency.how)}."
    else:
        columns = {
            "min": summary.min,
            "p50": summary.p50,
            "p90": summary.p90,
            "p95": summary.p95,
            "p99": summary.p99,
            "max": summary.max,
            "mean": summary.mean,
            "p95-p50": spread(summary),
        }
        header = (f"{mark(r, r.estimated)}ms", *columns)
        table = [header, ("latency", *map(ms, columns.values()))]
    return {
        "latency": table,
        "latency_said": sentence,
        "latency_terms": explained(wording.latency_terms(r)),
    }


def _inferences(r: BenchReport, m: Measurement) -> Markup:
    """Return the chart of every inference of every launch."""
    launches = []
    # An estimate has a round, but no launch.
    for launch, steady in zip(m.timed, r.latency.rounds, strict=bool(m.launches)):
        latencies = [ns / 1e6 for ns in launch.total]
        warmup = len(latencies) - len(steady)
        launches.append(Launched(latencies, warmup))
    return inferences_svg(launches, f"{mark(r, r.estimated)}ms")


def _about(r: BenchReport) -> list[str]:
    """Return lines about the device, the bundle and the circumstances."""
    lines = [
        wording.machine(r),
        f"bundle {r.bundle_sha256[:16]}, compiled for {plain(r.target)}; "
        f"edgec {r.edgec}, {r.when}",
        *r.notes,
    ]

    if r.vitals:
        lines += r.vitals.notes
    return [plain(line) for line in lines]


# ---- segments and operations


def _segments(r: BenchReport) -> Iterator[dict[str, Any]]:
    """Yield a bar for each segment, from its median to its 95th percentile."""
    # All bars have the scale of the slowest segment.
    summaries = [segment.latency.summary() for segment in r.segments]
    longest = max((s.p95 for s in summaries if s), default=0.0)
    for segment, summary in zip(r.segments, summaries, strict=True):
        bar = {
            "place": _place_class(segment),
            "name": plain(segment.name),
            "small": f"{wording.place(segment)}, {plain(segment.backend)}",
        }
        how = plain(segment.latency.how)
        if summary is None:
            yield {**bar, "value": 0, "to": 0, "said": f"none: {how}"}
            continue

        marked = mark(r, segment.latency.estimated)
        error = segment.latency.error
        high = how if summary.n <= 1 else f"p95 {ms(summary.p95, marked, error)} ms"
        share = wording.share(summary.p50, r)
        yield {
            **bar,
            "value": _percent(summary.p50, longest),
            "to": _percent(summary.p95, longest),
            "said": f"{ms(summary.p50, marked, error)} ms, {share}, {high}",
        }


def _operations(r: BenchReport, graph: GraphFile) -> list[dict[str, Any]]:
    """Return a bar for each operation, and for each segment without times per op.

    Operations of the Edge TPU and of the CPU are in one list.
    """
    times = wording.ranked(r)
    # Ops of the graph file, to count those of a segment that ran as a whole.
    segments = [op.segment for op in graph.ops]
    rows = []
    for time in times:
        kind = time.kind
        operations = segments.count(time.segment.name)
        if time.whole and operations:
            kind = f"{operations} operations together"
        macs = f", {count(time.macs)} MACs" if time.macs else ""
        latency = ms(time.ms, mark(r, time.estimated), time.error)
        share = wording.share(time.ms, r)
        rows.append(
            {
                "place": _place_class(time.segment),
                "name": f"{plain(time.name)} {plain(kind)}",
                "small": shortened(plain(time.source), MAX_NAME),
                "said": f"{latency} ms, {share}{macs}",
                "value": _percent(time.ms, times[0].ms),
                "to": 0,
            }
        )
    return rows


def _percent(value: float, longest: float) -> float:
    """Return the length of a bar, % of the longest."""
    return 100 * value / (longest or 1.0)


def _overhead(r: BenchReport) -> str:
    if r.profile_overhead is None:
        return ""
    return (
        f"Profiling changes an inference by {r.profile_overhead:+.1%}; "
        "the latencies are not profiled."
    )


def _place_class(s: SegmentReport) -> str:
    """Return the CSS class of a segment, by the hardware that ran it."""
    return "edgetpu" if s.backend in ON_TPU else "cpu"


# ---- the graph


def _timed_ops(r: BenchReport) -> dict[_CallKey, _TimedOp]:
    """Return each operation that has a time, by its call."""
    ops: dict[_CallKey, _TimedOp] = {}
    for segment in r.segments:
        for i, op in enumerate(segment.ops):
            ops[segment.name, i] = (segment, op)
    return ops


def _graph(
    r: BenchReport, graph: GraphFile, timed: Mapping[_CallKey, _TimedOp]
) -> Markup:
    """Return the picture of the graph; bars in the boxes show the times."""
    segments = {segment.name: segment for segment in r.segments}

    longest = max((op.ms for _, op in timed.values()), default=0.0)
    boxes = []
    edges = {}
    for op in graph.ops:
        segment = segments.get(op.segment)
        place = _place_class(segment) if segment else op.place
        timed_op = timed.get((op.segment, op.call))
        # An op without a time of its own shows its type.
        below = _time(r, timed_op) or short(plain(op.type))
        weight = None
        if timed_op and longest:
            weight = timed_op[1].ms / longest
        title = short(plain(op.kind))
        boxes.append(NodeBox(title, below, f"op {place}", op.index, weight))
        for read in op.reads:
            edges[read, op.index] = graph.ops[read].segment != op.segment
    return picture(boxes, edges, f"graph of {plain(r.model)}")


def _time(r: BenchReport, timed: _TimedOp | None) -> str:
    """Return the time of an op, or "" if it has none."""
    if not timed:
        return ""
    segment, op = timed
    latency = segment.latency
    return f"{ms(op.ms, mark(r, latency.estimated), latency.error)} ms"


def _details(
    r: BenchReport, op: GraphOp, timed: Mapping[_CallKey, _TimedOp]
) -> dict[str, Any]:
    """Return the facts about an op that the page's script shows after a click."""
    timed_op = timed.get((op.segment, op.call))
    return {
        "index": op.index,
        "kind": plain(op.kind),
        "source": plain(op.source),
        "output": plain(op.output),
        "type": plain(op.type),
        "macs": op.macs,
        "segment": plain(op.segment),
        "function": plain(timed_op[1].name) if timed_op else "",
        "time": _time(r, timed_op),
    }


# ---- vitals


def _vitals(r: BenchReport, m: Measurement) -> dict[str, Any]:
    """Return a summary of clock, temperature and throttling, and their charts."""
    if r.vitals is None:
        return {
            "vitals_said": "Nothing was read of a device's clock and temperature.",
            "alarms": [],
            "vitals": [],
        }
    timeline = moments(m.launches)
    return {
        "vitals_said": plain(r.vitals.table()),
        "alarms": [plain(reason) for reason in r.vitals.reasons],
        "vitals": _vitals_charts(timeline) if timeline else [],
    }


def _vitals_charts(timeline: Sequence[Moment]) -> list[tuple[str, Markup]]:
    """Return the unit and the chart of clock and temperature over time."""
    start = timeline[0].ns
    clock = []
    temperature = []
    marks = []
    for moment in timeline:
        seconds = (moment.ns - start) / 1e9
        clock.append((seconds, moment.mhz))
        temperature.append((seconds, moment.celsius))
        if moment.reasons:
            marks.append((seconds, plain("; ".join(moment.reasons))))

    span = (0.0, (timeline[-1].ns - start) / 1e9)
    charts = []
    for curve in (Curve(clock, "clock", "MHz"), Curve(temperature, "heat", "°C")):
        charts.append((curve.unit, over_time_svg(curve, span, marks)))
    return charts
