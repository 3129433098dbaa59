"""A bench's report as one HTML page that opens from a disk: verdicts, latencies, segments, operations, graph, vitals.

The form is bench.html; what takes the place of its marks is escaped here, for names come from files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from edgec_devices.measurement import Launch, Measurement
from edgec_devices.requirement import amount

from edgec.benching.figures import ON_TPU, Absent, figures, spread
from edgec.benching.result import BenchReport, OpReport, SegmentReport
from edgec.benching.verdicts import WORDS, passed, verdicts
from edgec.report.bench import wording
from edgec.report.bench.charts import Launched, Line, histogram_svg, inferences_svg, over_time_svg
from edgec.report.bench.histogram import histogram
from edgec.report.bench.timeline import moments
from edgec.report.bench.wording import EST, ms, plain
from edgec.report.explain.text import count
from edgec.report.graph_svg import Box, picture, short
from edgec.report.page_parts import embedded, filled, graph_view, table

_FORM = Path(__file__).with_name("bench.html")
_TILES = ("p50", "p95", "p99", "fps", "first", "load", "rss", "celsius")
_UNITS = {"fps": "", "C": "°C"}
_BINS, _SHOWN, _NAME = 32, 25, 34
_LEGEND = '<span class="badge edgetpu">Edge TPU</span><span class="badge cpu">CPU</span>'


def page(r: BenchReport, graph: Mapping[str, Any], m: Measurement) -> str:
    """The page as text. graph: the bundle's report/graph.json."""
    ops = _by_call(r)
    parts = {
        "TITLE": escape(f"{plain(r.model)} on {wording.device(r)}"),
        "SUMMARY": escape(wording.conditions(r)),
        "TILES": "".join(_tiles(r)),
        "VERDICTS": _verdicts(r),
        "HISTOGRAM": _histogram(r),
        "FIGURES": _figures(r),
        "INFERENCES": _inferences(r, m),
        "SEGMENTS": _segments(r),
        "OPS": _ops(r),
        "GRAPH": graph_view(
            _graph(r, graph, ops) or "<p>The bundle holds no graph; compile the model again.</p>",
            "search: kind, name, segment",
            _LEGEND,
            "to read where it ran and how long it took.",
        ),
        "VITALS": _vitals(r, m),
        "MEMORY": table([("memory", "size", "planned"), *wording.memory_rows(r)]),
        "ABOUT": _about(r),
        "DATA": embedded({"ops": [_described(op, ops) for op in graph["ops"]]}),
    }
    return filled(_FORM, parts)


# ---- of the whole


def _tiles(r: BenchReport) -> Iterator[str]:
    found = figures(r)
    alone = len(r.latency.samples) == 1  # it has no percentiles to speak of
    for name in _TILES:
        figure = found[name]
        if isinstance(figure, Absent) or (alone and name in ("p95", "p99")):
            continue
        mega = figure.unit == "B"
        text = amount(round(figure.value / 1e6, 2), "MB") if mega else amount(figure.value, figure.unit)
        mark = '<span class="est">est.</span>' * figure.estimated
        number, _, unit = text.partition(" ")
        yield f"<div><dt>{name}{mark}</dt><dd>{number} <small>{_UNITS.get(unit, unit)}</small></dd></div>"


def _verdicts(r: BenchReport) -> str:
    rows = verdicts(r)
    if not rows:
        return ""
    word = "pass" if passed(r) else "fail"
    cells = [("", "must hold", "value", "margin", "")]
    cells += [(WORDS[v.state], plain(v.name), v.value, v.margin, plain(v.why)) for v in rows]
    found = table(cells, 2, [v.state for v in rows])
    return f'<p><span class="badge {word}">{word.upper()}</span></p><div class="wide verdicts">{found}</div>'


def _histogram(r: BenchReport) -> str:
    found = r.latency.summary()
    if found is None or found.n < 2:
        return ""
    marks = [("p50", found.p50), ("p95", found.p95), ("p99", found.p99)]
    unit = f"{EST * r.estimated}ms"
    bins = min(_BINS, max(6, round(2 * math.sqrt(found.n))))
    drawn = histogram_svg(histogram(r.latency.samples, bins), marks, unit)
    return _figure(f"How many inferences took so long, {unit}", drawn)


def _figures(r: BenchReport) -> str:
    found = r.latency.summary()
    if found is None:
        return f"<p>There is no latency: {escape(plain(r.latency.how))}.</p>"
    if found.n == 1:
        return f"<p>{ms(found.p50, r.latency.estimated)} ms: {escape(plain(r.latency.how))}.</p>"
    values = (found.min, found.p50, found.p90, found.p95, found.p99, found.max, found.mean, spread(found))
    header = (f"{EST * r.estimated}ms", "min", "p50", "p90", "p95", "p99", "max", "mean", "p95-p50")
    return f'<div class="wide">{table([header, ("latency", *map(ms, values))])}</div>'


def _inferences(r: BenchReport, m: Measurement) -> str:
    rounds = r.latency.rounds
    pairs = zip(m.timed, rounds, strict=bool(m.launches))
    launches = [Launched(_ms(one), len(one.total) - len(steady)) for one, steady in pairs]
    unit = f"{EST * r.estimated}ms"
    key = '<p class="key"><span class="warm">yellow</span>: before it was steady; the slowest are on the upper edge</p>'
    return _figure(f"Each inference, {unit}", inferences_svg(launches, unit), key)


def _figure(caption: str, drawn: str, key: str = "") -> str:
    return f"<figure><figcaption>{caption}</figcaption>{drawn}{key}</figure>" if drawn else ""


def _ms(one: Launch) -> list[float]:
    return [ns / 1e6 for ns in one.total]


def _about(r: BenchReport) -> str:
    told = [
        wording.machine(r),
        f"bundle {r.bundle_sha256[:16]}, compiled for {plain(r.target)}; edgec {r.edgec}, {r.when}",
        *r.notes,
        *(r.vitals.notes if r.vitals else ()),
    ]
    return "".join(f"<li>{escape(plain(text))}</li>" for text in told)


# ---- where the time goes


def _segments(r: BenchReport) -> str:
    rows = []
    longest = max((s.p95 for one in r.segments if (s := one.latency.summary())), default=0.0)
    for one in r.segments:
        found, estimated = one.latency.summary(), one.latency.estimated
        name = f"{escape(plain(one.name))} <small>{escape(wording.place(one))}, {escape(plain(one.backend))}</small>"
        if found is None:
            rows.append(_bar(name, 0, 0, one, f"none: {plain(one.latency.how)}"))
            continue
        high = f", p95 {ms(found.p95, estimated)} ms" if found.n > 1 else f", {plain(one.latency.how)}"
        said = f"{ms(found.p50, estimated)} ms, {wording.share(found.p50, r)}{high}"
        rows.append(_bar(name, found.p50, longest, one, said, found.p95))
    parts = "".join(f"<li>{escape(said)}</li>" for s in r.segments if (said := wording.parts(s)))
    return f'<div class="bars">{"".join(rows)}</div><ul class="notes">{parts}</ul>'


def _ops(r: BenchReport) -> str:
    ops = wording.ranked(r)
    if not ops:
        return "<p>No operation was timed.</p>"
    rows = [_op_bar(r, s, i, op, ops[0][2].ms) for s, i, op in ops]
    more = "".join(rows[_SHOWN:])
    rest = (
        f'<details><summary>{len(rows) - _SHOWN} more</summary><div class="bars">{more}</div></details>' if more else ""
    )
    overhead = ""
    if r.profile_overhead is not None:
        overhead = (
            f"<p>Profiling changes an inference by {r.profile_overhead:+.1%}; the latencies are not profiled.</p>"
        )
    return f'<div class="bars">{"".join(rows[:_SHOWN])}</div>{rest}{overhead}'


def _op_bar(r: BenchReport, s: SegmentReport, i: int, op: OpReport, longest: float) -> str:
    kind = escape(plain(op.kind or op.name))
    name = f"{escape(plain(s.name))}.op{i} {kind} <small>{escape(wording.shortened(plain(op.source), _NAME))}</small>"
    macs = f", {count(op.macs)} MACs" if op.macs else ""
    said = f"{ms(op.ms, s.latency.estimated)} ms, {wording.share(op.ms, r)}{macs}"
    return _bar(name, op.ms, longest, s, said)


def _bar(name: str, value: float, longest: float, s: SegmentReport, said: str, to: float = 0.0) -> str:
    """name: HTML. to: a thinner bar behind it, for a higher percentile."""
    full = longest or 1.0
    thin = f'<i class="thin" style="width:{100 * to / full:.2f}%"></i>' if to else ""
    return (
        f'<div class="{_place(s)}"><span class="name">{name}</span><span class="track">{thin}'
        f'<i style="width:{100 * value / full:.2f}%"></i></span><span class="said">{escape(said)}</span></div>'
    )


def _place(s: SegmentReport) -> str:
    """How it is coloured: by what ran it."""
    return "edgetpu" if s.backend in ON_TPU else "cpu"


# ---- the graph

_Ops = Mapping[tuple[str, int | None], tuple[SegmentReport, OpReport]]


def _by_call(r: BenchReport) -> dict[tuple[str, int | None], tuple[SegmentReport, OpReport]]:
    return {(s.name, i): (s, op) for s in r.segments for i, op in enumerate(s.ops)}


def _graph(r: BenchReport, graph: Mapping[str, Any], timed: _Ops) -> str:
    ops, segments = graph["ops"], {s.name: s for s in r.segments}
    longest = max((op.ms for _, op in timed.values()), default=0.0)
    boxes = []
    for op in ops:
        found = timed.get((op["segment"], op["call"]))
        s = segments.get(op["segment"])
        place = _place(s) if s else op["place"]
        weight = found[1].ms / longest if found and longest else None
        boxes.append(Box(short(plain(op["kind"])), _below(op, found), f"op {place}", op["index"], weight))
    edges = {
        (read, op["index"]): ops[read]["segment"] != op["segment"] for op in ops for read in op["reads"]
    }  # fmt: skip
    return picture(boxes, edges, f"graph of {plain(r.model)}")


def _below(op: Mapping[str, Any], found: tuple[SegmentReport, OpReport] | None) -> str:
    """Its time, or its type where it has none of its own."""
    return f"{ms(found[1].ms, found[0].latency.estimated)} ms" if found else short(plain(op["type"]))


def _described(op: Mapping[str, Any], timed: _Ops) -> dict[str, Any]:
    """For the script: what a click shows."""
    found = timed.get((op["segment"], op["call"]))
    return {
        "index": op["index"],
        "kind": plain(op["kind"]),
        "source": plain(op["source"]),
        "output": plain(op["output"]),
        "type": plain(op["type"]),
        "macs": op["macs"],
        "segment": plain(op["segment"]),
        "function": plain(found[1].name) if found else "",
        "time": f"{ms(found[1].ms, found[0].latency.estimated)} ms" if found else "",
    }


# ---- vitals


def _vitals(r: BenchReport, m: Measurement) -> str:
    if r.vitals is None:
        return "<p>Nothing was read of a device's clock and temperature.</p>"
    seen = moments(m.launches)
    charts = []
    if seen:
        start = seen[0].ns
        span = (0.0, (seen[-1].ns - start) / 1e9)
        marks = [((one.ns - start) / 1e9, plain("; ".join(one.reasons))) for one in seen if one.reasons]
        times: Sequence[float] = [(one.ns - start) / 1e9 for one in seen]
        clock = Line(list(zip(times, [one.mhz for one in seen], strict=True)), "clock", "MHz")
        heat = Line(list(zip(times, [one.celsius for one in seen], strict=True)), "heat", "°C")
        for line in (clock, heat):
            charts.append(_figure(line.unit, over_time_svg(line, span, marks)))
    alarms = "".join(f'<li class="alarm">{escape(plain(text))}</li>' for text in r.vitals.reasons)
    said = f'<p>{escape(plain(r.vitals.table()))}</p><ul class="notes">{alarms}</ul>'
    return f'{said}<div class="charts">{"".join(charts)}</div>'
