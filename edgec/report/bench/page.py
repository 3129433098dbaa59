"""A bench's report as one HTML page that opens from a disk: verdicts, latencies,
segments, operations, graph, vitals.

The form is bench.html.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgec_devices.measurement import Launch, Measurement
from edgec_devices.requirement import amount
from markupsafe import Markup

from edgec.benching.figures import ON_TPU, Absent, figures, spread
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
from edgec.report.bench.timeline import moments
from edgec.report.bench.wording import mark, ms
from edgec.report.graph_svg import NodeBox, picture, short
from edgec.report.markup import html, rendered
from edgec.report.terms import explained
from edgec.report.wording import count, plain, shortened

_TILES = ("p50", "p95", "p99", "fps", "first", "load", "rss", "celsius")
_UNITS = {"fps": "", "C": "°C"}
_BINS = 32
_SHOWN = 25
_NAME = 34


def page(r: BenchReport, graph: GraphFile, m: Measurement) -> str:
    """The page as text. graph: the bundle's report/graph.json."""
    ops = _by_call(r)
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
        made_of=[said for s in r.segments if (said := wording.parts(s))],
        part_terms=explained(wording.part_terms(r)),
        spent=_spent(r, graph),
        shown=_SHOWN,
        wholes=any(one.whole for one in wording.ranked(r)),
        overhead=_overhead(r),
        graph=_graph(r, graph, ops),
        memory=list(wording.memory_rows(r)),
        memory_terms=explained(wording.memory_terms(r)),
        about=_about(r),
        data={"ops": [_described(r, op, ops) for op in graph.ops]},
        **_verdicts(r),
        **_latency(r),
        **_vitals(r, m),
    )


# ---- of the whole

_KEY = html(
    '<p class="key"><span class="warm">yellow</span>: before it was steady; '
    "the slowest are on the upper edge</p>"
)


def _warning(r: BenchReport) -> str:
    """What must be known before a figure is read: an emulator's say nothing of a board,
    but its models do.
    """
    if r.emulated:
        return plain(" ".join((f"Each time on this page is {EMULATOR}.", *r.notes)))
    return ""


def _tiles(r: BenchReport) -> Iterator[dict[str, str]]:
    """Large figures; no rate of a board that was not run, no time of an emulator."""
    found = figures(r)
    alone = len(r.latency.samples) == 1  # it has no percentiles to speak of
    for name in _TILES:
        figure = found[name]
        if (
            isinstance(figure, Absent)
            or (alone and name in ("p95", "p99"))
            or (r.estimated and name == "fps")
        ):
            continue
        if figure.estimated and r.emulated:
            continue
        mega = figure.unit == "B"
        if mega:
            text = amount(round(figure.value / 1e6, 2), "MB")
        else:
            text = amount(figure.value, figure.unit)
        number, _, unit = text.partition(" ")
        label = "latency" if alone and name == "p50" else name
        marked = mark(r, figure.estimated).strip()
        yield {
            "name": label,
            "mark": marked,
            "number": number,
            "unit": _UNITS.get(unit, unit),
        }


def _verdicts(r: BenchReport) -> dict[str, Any]:
    rows = verdicts(r)
    return {
        "verdicts": [
            (WORDS[v.state], plain(v.name), v.value, v.margin, plain(v.why))
            for v in rows
        ],
        "states": [v.state for v in rows],
        "outcome": "pass" if passed(r) else "fail",
    }


def _histogram(r: BenchReport) -> Markup:
    found = r.latency.summary()
    if found is None or found.n < 2:
        return Markup()
    marks = [("p50", found.p50), ("p95", found.p95), ("p99", found.p99)]
    bins = min(_BINS, max(6, round(2 * math.sqrt(found.n))))
    return histogram_svg(
        histogram(r.latency.samples, bins), marks, f"{mark(r, r.estimated)}ms"
    )


def _latency(r: BenchReport) -> dict[str, Any]:
    """A table, or where there is not enough for one, a sentence."""
    found = r.latency.summary()
    table = []
    said = ""
    if found is None:
        said = f"There is no latency: {plain(r.latency.how)}."
    elif found.n == 1:
        said = (
            f"{ms(found.p50, mark(r, r.latency.estimated))} ms: {plain(r.latency.how)}."
        )
    else:
        values = (
            found.min,
            found.p50,
            found.p90,
            found.p95,
            found.p99,
            found.max,
            found.mean,
            spread(found),
        )
        header = (
            f"{mark(r, r.estimated)}ms",
            "min",
            "p50",
            "p90",
            "p95",
            "p99",
            "max",
            "mean",
            "p95-p50",
        )
        table = [header, ("latency", *map(ms, values))]
    return {
        "latency": table,
        "latency_said": said,
        "latency_terms": explained(wording.latency_terms(r)),
    }


def _inferences(r: BenchReport, m: Measurement) -> Markup:
    rounds = r.latency.rounds
    pairs = zip(m.timed, rounds, strict=bool(m.launches))
    launches = [
        Launched(_ms(one), len(one.total) - len(steady)) for one, steady in pairs
    ]
    return inferences_svg(launches, f"{mark(r, r.estimated)}ms")


def _ms(one: Launch) -> list[float]:
    return [ns / 1e6 for ns in one.total]


def _about(r: BenchReport) -> list[str]:
    told = [
        wording.machine(r),
        f"bundle {r.bundle_sha256[:16]}, compiled for {plain(r.target)}; "
        f"edgec {r.edgec}, {r.when}",
        *r.notes,
        *(r.vitals.notes if r.vitals else ()),
    ]
    return [plain(text) for text in told]


# ---- where the time goes


def _segments(r: BenchReport) -> Iterator[dict[str, Any]]:
    longest = max(
        (s.p95 for one in r.segments if (s := one.latency.summary())), default=0.0
    )
    for one in r.segments:
        found = one.latency.summary()
        marked = mark(r, one.latency.estimated)
        bar = {
            "place": _place(one),
            "name": plain(one.name),
            "small": f"{wording.place(one)}, {plain(one.backend)}",
        }
        if found is None:
            yield {
                **bar,
                "value": 0,
                "to": 0,
                "said": f"none: {plain(one.latency.how)}",
            }
            continue
        if found.n > 1:
            high = f", p95 {ms(found.p95, marked)} ms"
        else:
            high = f", {plain(one.latency.how)}"
        said = f"{ms(found.p50, marked)} ms, {wording.share(found.p50, r)}{high}"
        yield {
            **bar,
            "value": _part(found.p50, longest),
            "to": _part(found.p95, longest),
            "said": said,
        }


def _spent(r: BenchReport, graph: GraphFile) -> list[dict[str, Any]]:
    """Bars of operations, and of whole segments where their operations have no times:
    Edge TPU and CPU alike.
    """
    spent = wording.ranked(r)
    ops = [op.segment for op in graph.ops]
    rows = []
    for one in spent:
        n = ops.count(one.segment.name)
        kind = f"{n} operations together" if one.whole and n else one.kind
        macs = f", {count(one.macs)} MACs" if one.macs else ""
        said = (
            f"{ms(one.ms, mark(r, one.estimated))} ms, {wording.share(one.ms, r)}{macs}"
        )
        small = shortened(plain(one.source), _NAME)
        bar = {
            "place": _place(one.segment),
            "name": f"{plain(one.name)} {plain(kind)}",
            "small": small,
            "said": said,
        }
        rows.append({**bar, "value": _part(one.ms, spent[0].ms), "to": 0})
    return rows


def _part(value: float, longest: float) -> float:
    """Per cent."""
    return 100 * value / (longest or 1.0)


def _overhead(r: BenchReport) -> str:
    if r.profile_overhead is None:
        return ""
    return (
        f"Profiling changes an inference by {r.profile_overhead:+.1%}; "
        "the latencies are not profiled."
    )


def _place(s: SegmentReport) -> str:
    """How it is coloured: by what ran it."""
    return "edgetpu" if s.backend in ON_TPU else "cpu"


# ---- the graph

_Ops = Mapping[tuple[str, int | None], tuple[SegmentReport, OpReport]]


def _by_call(
    r: BenchReport,
) -> dict[tuple[str, int | None], tuple[SegmentReport, OpReport]]:
    return {(s.name, i): (s, op) for s in r.segments for i, op in enumerate(s.ops)}


def _graph(r: BenchReport, graph: GraphFile, timed: _Ops) -> Markup:
    ops = graph.ops
    segments = {s.name: s for s in r.segments}
    longest = max((op.ms for _, op in timed.values()), default=0.0)
    boxes = []
    for op in ops:
        found = timed.get((op.segment, op.call))
        s = segments.get(op.segment)
        place = _place(s) if s else op.place
        weight = found[1].ms / longest if found and longest else None
        boxes.append(
            NodeBox(
                short(plain(op.kind)),
                _below(r, op, found),
                f"op {place}",
                op.index,
                weight,
            )
        )
    edges = {
        (read, op.index): ops[read].segment != op.segment
        for op in ops
        for read in op.reads
    }
    return picture(boxes, edges, f"graph of {plain(r.model)}")


def _below(
    r: BenchReport, op: GraphOp, found: tuple[SegmentReport, OpReport] | None
) -> str:
    """Its time, or its type where it has none of its own."""
    if found:
        return f"{ms(found[1].ms, mark(r, found[0].latency.estimated))} ms"
    return short(plain(op.type))


def _described(r: BenchReport, op: GraphOp, timed: _Ops) -> dict[str, Any]:
    """For the script: what a click shows."""
    found = timed.get((op.segment, op.call))
    return {
        "index": op.index,
        "kind": plain(op.kind),
        "source": plain(op.source),
        "output": plain(op.output),
        "type": plain(op.type),
        "macs": op.macs,
        "segment": plain(op.segment),
        "function": plain(found[1].name) if found else "",
        "time": f"{ms(found[1].ms, mark(r, found[0].latency.estimated))} ms"
        if found
        else "",
    }


# ---- vitals


def _vitals(r: BenchReport, m: Measurement) -> dict[str, Any]:
    if r.vitals is None:
        return {
            "vitals_said": "Nothing was read of a device's clock and temperature.",
            "alarms": [],
            "vitals": [],
        }
    seen = moments(m.launches)
    charts = []
    if seen:
        start = seen[0].ns
        span = (0.0, (seen[-1].ns - start) / 1e9)
        marks = [
            ((one.ns - start) / 1e9, plain("; ".join(one.reasons)))
            for one in seen
            if one.reasons
        ]
        times: Sequence[float] = [(one.ns - start) / 1e9 for one in seen]
        clock = Curve(
            list(zip(times, [one.mhz for one in seen], strict=True)), "clock", "MHz"
        )
        heat = Curve(
            list(zip(times, [one.celsius for one in seen], strict=True)), "heat", "°C"
        )
        charts = [
            (line.unit, over_time_svg(line, span, marks)) for line in (clock, heat)
        ]
    alarms = [plain(text) for text in r.vitals.reasons]
    return {"vitals_said": plain(r.vitals.table()), "alarms": alarms, "vitals": charts}
