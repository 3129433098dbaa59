"""`edgec explain --html`: one page that opens from a disk, with the graph, the columns, the segments and the reasons.

The form is explain.html; what takes the place of its `<!--…-->` marks is escaped here, for names come from files.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from edgec_partitioner.explain import ON_CHIP, Report, SegmentRow

from edgec.report.explain.svg import graph_svg
from edgec.report.explain.text import (
    PLACES,
    assumptions,
    brought,
    comparison_rows,
    count,
    notes,
    percent,
    reasons,
    size,
)
from edgec.report.page_parts import embedded, filled, graph_view, table

_FORM = Path(__file__).with_name("explain.html")
_LEGEND = (
    '<span class="badge edgetpu">Edge TPU</span><span class="badge cpu">CPU</span>'
    '<span class="badge uncertain">uncertain</span><span class="badge rewritten">&#9679; rewritten</span>'
)


def page(r: Report) -> str:
    """The page as text."""
    parts = {
        "TITLE": escape(f"{r.model} for {r.target}"),
        "SUMMARY": escape("; ".join(t for t in (_summary(r), assumptions(r)) if t)),
        "NOTES": "".join(f"<li>{escape(' '.join(n.split()))}</li>" for n in notes(r)),
        "COLUMNS": table(comparison_rows(r)),
        "SEGMENTS": _segments(r.segments),
        "PARTS": _parts(r.segments),
        "REWRITES": _rewrites(r),
        "REASONS": _reasons(r),
        "SOURCE": _source(r),
        "GRAPH": graph_view(
            graph_svg(r) or "<p>There is no graph: edgec cannot compile this model yet.</p>",
            "search: kind, name, rule, rewrite",
            _LEGEND,
            "to read where it runs and why.",
        ),
        "DATA": embedded(r.to_json()),
    }
    return filled(_FORM, parts)


def _summary(r: Report) -> str:
    c = r.comparison.edgec
    if r.link is None:
        return f"{c.ops} ops, {count(c.macs)} MACs, all on the CPU: an estimated {c.est_ms:.2f} ms"
    return (
        f"{percent(c.tpu_ops_share)} of {c.ops} ops and {percent(c.tpu_macs_share)} of {count(c.macs)} MACs on the "
        f"Edge TPU ({r.link}), an estimated {c.est_ms:.2f} ms"
    )


def _segments(segments: Sequence[SegmentRow]) -> str:
    rows = [("segment", "place", "ops", "MACs", "parameters", "of 8 MB", "bytes in", "bytes out", "estimated ms")]
    for s in segments:
        share = percent(s.parameter_bytes / ON_CHIP) if s.place == "edgetpu" else ""
        sizes = (size(s.parameter_bytes), share, size(s.bytes_in), size(s.bytes_out))
        rows.append((s.name, PLACES[s.place], str(s.ops), count(s.macs), *sizes, f"{s.est_ms:.2f}"))
    return table(rows, 2, [s.place for s in segments])


def _parts(segments: Sequence[SegmentRow]) -> str:
    timed = [(s.name, s.est_parts) for s in segments if s.est_parts]
    if not timed:
        return ""
    header = ("segment", *timed[0][1].parts())
    rows = [(name, *(f"{ms:.2f}" for ms in t.parts().values())) for name, t in timed]
    return "<h3>Of the estimated ms on the Edge TPU</h3>" + table([header, *rows])


def _rewrites(r: Report) -> str:
    rows = [(b.rewrite, str(b.times), str(b.tpu_ops), count(b.tpu_macs)) for b in brought(r)]
    return table([("rewrite", "times", "its ops on the Edge TPU", "their MACs"), *rows]) if rows else "<p>None.</p>"


def _reasons(r: Report) -> str:
    items = []
    for why in reasons(r.ops):
        macs = f", {count(why.macs)} MACs" if why.macs else ""
        unsure = ' <span class="badge uncertain">uncertain</span>' if why.uncertain else ""
        links = " ".join(f'<a href="#op{op.index}" data-op="{op.index}">{op.index}</a>' for op in why.ops[:40])
        more = " …" if len(why.ops) > 40 else ""
        fix = f"<dt>fix</dt><dd>{escape(why.fix)}</dd>" if why.fix else ""
        items.append(
            f"<article><h3>{len(why.ops)} × {escape(why.kinds)}{macs}{unsure}</h3><dl>"
            f"<dt>rule</dt><dd>{escape(why.constraint)}</dd><dt>seen</dt><dd>{escape(why.seen)}</dd>"
            f"{fix}<dt>ops</dt><dd>{links}{more}</dd></dl></article>"
        )
    none = "every op goes to the Edge TPU" if r.link and r.ops else "no op was refused"
    return "".join(items) or f"<p>{none}</p>"


def _source(r: Report) -> str:
    """The operators of a TFLite file, as the stock compiler sees them."""
    rows = [("", "operator", "verdict", "stock compiler", "edgec", "why")]
    for s in r.source_ops:
        o = s.op
        why = f"{o.rule}: {o.seen}" if o.rule else ""
        why += f". Fix: {o.fix}" if o.fix else ""
        stock = "Edge TPU" if o.stock == "mapped" else "CPU"
        rows.append((str(o.index), o.opcode, PLACES[o.verdict], stock, PLACES[s.place], why))
    found = table(rows, 6, [s.op.verdict for s in r.source_ops])
    return (
        f'<section id="source"><h2>Operators of the file</h2><div class="wide">{found}</div></section>' if found else ""
    )
