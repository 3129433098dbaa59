"""Renders the report of `edgec explain --html` as one page that opens from a disk.

The page has the reasons against the Edge TPU, the graph, columns and segments. Its form
is explain.html.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edgec_devices.intervals import two_digits
from edgec_partitioner.explain import ExplainReport, OpRow, SegmentRow

from edgec.report.explain.reasons import Reason, reasons
from edgec.report.explain.text import (
    PLACES,
    SEGMENT_HEAD,
    assumptions,
    brought,
    column_terms,
    comparison_rows,
    in_words,
    notes,
    rewrite_cells,
    segment_cells,
    segment_terms,
    whole_ms,
)
from edgec.report.graph_svg import NodeBox, picture, short
from edgec.report.legend import TERMS, explained
from edgec.report.markup import rendered
from edgec.report.wording import count, percent, plain

MAX_OPEN_REASONS = 3
"""Reasons shown without a click; few, so that the graph is on the first screen."""
BADGES = (
    ("edgetpu", "Edge TPU", ""),
    ("cpu", "CPU", ""),
    ("uncertain", "uncertain", TERMS["uncertain"]),
    ("rewritten", "● rewritten", TERMS["rewritten"]),
)


def page(r: ExplainReport) -> str:
    """Return the page."""
    obstacle = ""
    if r.obstacle:
        obstacle = plain(f"edgec cannot compile this model yet: {r.obstacle}")
    # The obstacle is shown above all notes.
    other_notes = notes(replace(r, obstacle=None))
    return rendered(
        "explain/explain.html",
        title=plain(f"{r.model} for {r.target}"),
        summary="; ".join(filter(None, [_summary(r), assumptions(r)])),
        warning=obstacle,
        link=r.link,
        has_graph=bool(r.ops),
        shown=MAX_OPEN_REASONS,
        terms=TERMS,
        graph=graph_svg(r),
        badges=BADGES,
        columns=comparison_rows(r),
        column_terms=explained(column_terms(r)),
        notes=[plain(note) for note in other_notes],
        segments=[SEGMENT_HEAD, *map(segment_cells, r.segments)],
        segment_places=[s.place for s in r.segments],
        segment_terms=explained(segment_terms(r.segments)),
        times=_times(r.segments),
        rewrites=[rewrite_cells(use) for use in brought(r)],
        data=r.to_json(),
        **_reasons(r),
        **_source(r),
    )


def _summary(r: ExplainReport) -> str:
    """Return one sentence: shares on the Edge TPU and the estimated time."""
    c = r.comparison.edgec
    if r.link is None:
        return (
            f"{c.ops} ops, {count(c.macs)} MACs, all on the CPU: "
            f"an estimated {whole_ms(r)} ms"
        )
    return (
        f"{percent(c.tpu_ops_share)} of {c.ops} ops and {percent(c.tpu_macs_share)} of "
        f"{count(c.macs)} MACs on the "
        f"Edge TPU ({r.link}), an estimated {whole_ms(r)} ms"
    )


def _times(segments: Sequence[SegmentRow]) -> list[tuple[str, ...]]:
    """Return the table of the parts of each segment's time on the Edge TPU."""
    header: tuple[str, ...] = ()
    rows = []
    for segment in segments:
        if not segment.est_parts:
            continue
        parts = segment.est_parts.parts()
        # All segments on the Edge TPU have the same parts.
        header = header or ("segment", *parts)
        cells = [two_digits(ms) for ms in parts.values()]
        rows.append((segment.name, *cells))
    return [header, *rows] if rows else []


def _reasons(r: ExplainReport) -> dict[str, Any]:
    """Return the reasons with a fix ("open"), and the others ("idle")."""
    # Reasons without a remedy would push the others off the first screen.
    fixable = []
    idle = []
    idle_kinds: dict[str, None] = {}
    for reason in reasons(r.ops):
        if reason.fix:
            fixable.append(_reason(reason))
        else:
            idle.append(_reason(reason))
            idle_kinds |= dict.fromkeys(reason.kinds.split(", "))
    return {"open": fixable, "idle": idle, "idle_kinds": ", ".join(idle_kinds)}


def _reason(reason: Reason) -> dict[str, Any]:
    """Return the fields of a reason that the page shows."""
    return {
        "title": reason.title("×"),
        "uncertain": reason.uncertain,
        "constraint": plain(reason.constraint),
        "seen": plain(reason.seen),
        "fix": reason.fix,
        "ops": reason.ops,
        "count": len(reason.ops),
    }


def _source(r: ExplainReport) -> dict[str, Any]:
    """Return the operators of a TFLite file, as the stock compiler sees them."""
    rows = []
    for source in r.source_ops:
        op = source.op
        why = ""
        if op.rule:
            why = f"{in_words(op.rule)}: {op.seen}"
            if op.fix:
                why += f". Fix: {op.fix}"
        rows.append(
            (
                str(op.index),
                plain(op.opcode),
                PLACES[op.verdict],
                "Edge TPU" if op.stock == "mapped" else "CPU",
                PLACES[source.place],
                plain(why),
            )
        )
    # Only terms that the table has are explained below it.
    cells = {cell for row in rows for cell in row}
    terms = [name for name in ("uncertain", "folded away") if name in cells]
    return {
        "source": rows,
        "source_verdicts": [source.op.verdict for source in r.source_ops],
        "source_terms": explained(terms),
    }


def graph_svg(r: ExplainReport) -> str:
    """Return an `<svg>` element, or "" without ops; the nodes of ops have `data-op`."""
    # The report has ops only; inputs are the tensors that no op writes.
    inputs = _inputs(r.ops)

    boxes = [NodeBox(short(name), type_, "io") for name, type_ in inputs.items()]
    boxes += [_box(op) for op in r.ops]
    return picture(boxes, _edges(list(inputs), r.ops), f"graph of {r.model}")


def _inputs(ops: Sequence[OpRow]) -> dict[str, str]:
    """Return the name and type of each tensor that enters the model."""
    produced = {name for op in ops for name in op.outputs}
    inputs = {}
    for op in ops:
        for name, type_ in zip(op.inputs, op.input_types, strict=True):
            if name not in produced:
                inputs[name] = type_
    return inputs


def _box(op: OpRow) -> NodeBox:
    """Return the box of an op, with its number for the page's script."""
    classes = f"op {place_class(op)}"
    if op.rewrites:
        classes += " rewritten"
    return NodeBox(op.kind, short(op.output), classes, op.index)


def _edges(inputs: Sequence[str], ops: Sequence[OpRow]) -> dict[tuple[int, int], bool]:
    """Return the edges, and whether each crosses from one segment to another.

    The boxes are numbered with the model's inputs first.
    """
    producers = {name: node for node, name in enumerate(inputs)}
    # An input of the model is in no segment: its edges cross nothing.
    segments: list[str | None] = [None] * len(inputs)
    edges = {}
    for op in ops:
        node = len(segments)
        for name in op.inputs:
            producer = producers[name]
            segment = segments[producer]
            edges[producer, node] = segment is not None and segment != op.segment
        segments.append(op.segment)
        for name in op.outputs:
            producers[name] = node
    return edges


def place_class(op: OpRow) -> str:
    """Return the CSS class of an op: edgetpu, uncertain or cpu."""
    # An uncertain op on the Edge TPU was wanted there (--optimistic).
    if op.place == "cpu" and op.verdict == "uncertain":
        return "uncertain"
    return op.place
