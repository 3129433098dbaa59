"""`edgec explain --html`: one page that opens from a disk: why not on the Edge TPU, the
graph, columns, segments.

The form is explain.html.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edgec_partitioner.explain import ExplainReport, SegmentRow

from edgec.report.explain.svg import graph_svg
from edgec.report.explain.text import (
    COLUMN_TERMS,
    PLACES,
    SEGMENT_HEAD,
    Reason,
    assumptions,
    brought,
    comparison_rows,
    in_words,
    notes,
    reasons,
    segment_cells,
    segment_terms,
)
from edgec.report.markup import rendered
from edgec.report.terms import TERMS, explained
from edgec.report.wording import count, percent, plain

_SHOWN = 3
"""Reasons that stand open; the graph is to be on the first screen."""
_BADGES = (
    ("edgetpu", "Edge TPU", ""),
    ("cpu", "CPU", ""),
    ("uncertain", "uncertain", TERMS["uncertain"]),
    ("rewritten", "● rewritten", TERMS["rewritten"]),
)


def page(r: ExplainReport) -> str:
    """The page as text."""
    return rendered(
        "explain/explain.html",
        title=plain(f"{r.model} for {r.target}"),
        summary="; ".join(filter(None, [_summary(r), assumptions(r)])),
        warning=plain(f"edgec cannot compile this model yet: {r.obstacle}")
        if r.obstacle
        else "",
        link=r.link,
        has_graph=bool(r.ops),
        shown=_SHOWN,
        terms=TERMS,
        graph=graph_svg(r),
        badges=_BADGES,
        columns=comparison_rows(r),
        column_terms=explained(COLUMN_TERMS),
        notes=[plain(n) for n in notes(replace(r, obstacle=None))],
        segments=[SEGMENT_HEAD, *map(segment_cells, r.segments)],
        segment_places=[s.place for s in r.segments],
        segment_terms=explained(segment_terms(r.segments)),
        times=_times(r.segments),
        rewrites=[
            (b.rewrite, str(b.times), str(b.tpu_ops), count(b.tpu_macs))
            for b in brought(r)
        ],
        data=r.to_json(),
        **_reasons(r),
        **_source(r),
    )


def _summary(r: ExplainReport) -> str:
    c = r.comparison.edgec
    if r.link is None:
        return (
            f"{c.ops} ops, {count(c.macs)} MACs, all on the CPU: "
            f"an estimated {c.est_ms:.2f} ms"
        )
    return (
        f"{percent(c.tpu_ops_share)} of {c.ops} ops and {percent(c.tpu_macs_share)} of "
        f"{count(c.macs)} MACs on the "
        f"Edge TPU ({r.link}), an estimated {c.est_ms:.2f} ms"
    )


def _times(segments: Sequence[SegmentRow]) -> list[tuple[str, ...]]:
    """What the time on the Edge TPU is made of."""
    timed = [(s.name, s.est_parts) for s in segments if s.est_parts]
    rows = [(name, *(f"{ms:.2f}" for ms in t.parts().values())) for name, t in timed]
    return [("segment", *timed[0][1].parts()), *rows] if timed else []


def _reasons(r: ExplainReport) -> dict[str, Any]:
    """Those that something can be done about, and the others."""
    found = reasons(r.ops)
    idle = [_reason(why) for why in found if not why.fix]
    kinds = ", ".join(
        dict.fromkeys(
            kind for why in found if not why.fix for kind in why.kinds.split(", ")
        )
    )
    return {
        "open": [_reason(why) for why in found if why.fix],
        "idle": idle,
        "idle_kinds": kinds,
    }


def _reason(why: Reason) -> dict[str, Any]:
    return {
        "title": why.title("×"),
        "uncertain": why.uncertain,
        "constraint": plain(why.constraint),
        "seen": plain(why.seen),
        "fix": why.fix,
        "ops": why.ops,
        "count": len(why.ops),
    }


def _source(r: ExplainReport) -> dict[str, Any]:
    """The operators of a TFLite file, as the stock compiler sees them."""
    rows = []
    for s in r.source_ops:
        o = s.op
        if o.rule:
            why = f"{in_words(o.rule)}: {o.seen}" + (f". Fix: {o.fix}" if o.fix else "")
        else:
            why = ""
        stock = "Edge TPU" if o.stock == "mapped" else "CPU"
        rows.append(
            (
                str(o.index),
                plain(o.opcode),
                PLACES[o.verdict],
                stock,
                PLACES[s.place],
                plain(why),
            )
        )
    used = {cell for row in rows for cell in row}
    return {
        "source": rows,
        "source_verdicts": [s.op.verdict for s in r.source_ops],
        "source_terms": explained(
            name for name in ("uncertain", "folded away") if name in used
        ),
    }
