"""`edgec diff` for a terminal: outputs, the culprit, the layers worst first or in
order.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgec.report.tables import table
from edgec.report.terms import legend
from edgec.report.wording import plain, shortened

if TYPE_CHECKING:
    from edgec.comparing.result import Diff, Layer

ORDERS = ("worst", "graph")
MOST = 15
"""Layers that the table of the worst has."""
HEAD = (
    "#",
    "op",
    "value",
    "own",
    "inherited",
    "whole",
    "centred",
    "cosine",
    "max error",
    "what",
)
TERMS = ("own", "inherited", "whole", "centred")
_VALUE = 22
_CHANGED = 4
LABELS = {
    "kernel": "wrong kernel",
    "gain": "wrong scale",
    "offset": "wrong zero point",
    "swap": "swapped channels",
    "noise": "wrong channel",
    "clip": "range clips",
    "weights": "unlike weights",
    "channels": "unlike channels",
    "loose": "loose range",
}
"""Findings, in the few words of a table."""


def to_text(found: Diff, order: str = "worst", every: bool = False) -> str:
    """At most 120 columns, but where the table is in the order of the graph, or of
    every layer, as long as it is.
    """
    lines = [
        f"A {plain(found.a)} ({found.a_how})",
        f"B {plain(found.b)} ({found.b_how})",
        f"{samples(found)}; {compared(found)}; ratios of signal to noise in dB",
        "",
        table(OUTPUT_HEAD, [*output_rows(found)], "lrrrrr"),
    ]
    for text in (*task(found), *changed(found)):
        lines += textwrap.wrap(text, 120, subsequent_indent="  ")
    lines += [*_culprit(found), ""]
    shown = found.worst() if order == "worst" else list(found.layers)
    some = [one for one in shown if one.sqnr_db < math.inf][:MOST]
    cut = shown if every or order == "graph" else some
    if cut:
        rows = [row(one, _VALUE) for one in cut]
        lines += [table(HEAD, rows, "rllrrrrrrl"), legend(TERMS)]
    if len(cut) < len(shown):
        lines.append(f"({len(shown) - len(cut)} more layers: --all, or --order graph)")
    for note in found.notes:
        lines += textwrap.wrap(f"note: {note}", 120)
    return "\n".join(lines)


OUTPUT_HEAD = ("output", "SQNR", "centred", "cosine", "max error", "top-1")


def output_rows(found: Diff) -> Iterator[tuple[str, ...]]:
    """A row for each output."""
    for name, o in found.outputs.items():
        a = o.agreement
        top1 = "" if a.top1 is None else f"{a.top1:.0%}"
        yield (
            plain(name),
            decibel(a.sqnr_db),
            decibel(o.centred_db),
            f"{a.cosine:.5f}",
            f"{o.max_error:.3g}",
            top1,
        )


def task(found: Diff) -> Iterator[str]:
    """What the difference does to what the network is for."""
    # with it comes all of edgec.ops, which only a comparison needs
    from edgec.comparing.tasks import FIGURES

    for name, figure in found.task.items():
        yield f"{found.kind}: {name} {figure:.4g} ({FIGURES[name]})"


def changed(found: Diff) -> Iterator[str]:
    """For each output the samples whose class is another one."""

    def label(i: int) -> str:
        return plain(found.labels[i]) if i < len(found.labels) else str(i)

    for name, o in found.outputs.items():
        if not o.tops:
            continue
        said = [
            f"{plain(found.names[s] if s < len(found.names) else str(s))} {label(a)} → "
            f"{label(b)}"
            for s, a, b in o.tops
        ]
        rest = f" and {len(said) - _CHANGED} more" if len(said) > _CHANGED else ""
        yield f"top-1 of {plain(name)} changes: {', '.join(said[:_CHANGED])}{rest}"


def row(one: Layer, value: int) -> tuple[str, ...]:
    """Of the table of layers. value: characters of its name."""
    said = [LABELS[f.kind] for f in one.findings if f.kind in LABELS]
    what = f"FAULT: {said[0]}" if one.fault is not None else ", ".join(said)
    return (
        str(one.index),
        one.kind,
        shortened(short_name(one.value), value),
        decibel(one.own_centred_db),
        decibel(one.inherited_db),
        decibel(one.sqnr_db),
        decibel(one.centred_db),
        f"{one.cosine:.4f}",
        f"{one.max_error:.3g}",
        what,
    )


def short_name(value: str) -> str:
    """TFLite names what it fuses by all of its parts: the first."""
    return plain(value.split(";")[0])


def samples(found: Diff) -> str:
    """On what it was compared."""
    return f"on {found.samples} sample{'s' * (found.samples != 1)} of {found.inputs}"


def compared(found: Diff) -> str:
    """How many values, and how many only one side has."""
    said = f"{len(found.layers)} layers compared"
    only = [
        f"{len(names)} values only in {side}"
        for side, names in zip("AB", (found.skipped_a, found.skipped_b), strict=True)
        if names
    ]
    return f"{said}, {' and '.join(only)} skipped" if only else said


def culprit_lines(found: Diff) -> list[tuple[str, str]]:
    """(what, said) of the layer to look at first; empty where there is no difference."""
    c = found.culprit
    if c is None:
        return []
    lines = [("layer" if not c.fault else "faulty layer", f"{c.kind} {c.value}")]
    if c.source and c.source != c.value:
        lines.append(("from", c.source.replace("+", " + ")))
    lines += [("why", c.why), ("fix", c.fix)]
    if c.others:
        rest = f" and {len(c.others) - 4} more" if len(c.others) > 4 else ""
        lines.append(("also", ", ".join(shortened(o, 40) for o in c.others[:4]) + rest))
    return [(name, plain(text)) for name, text in lines]


def nothing(found: Diff) -> str:
    """Why no layer is named."""
    if not found.layers:
        return (
            "no layer has a name and shape that both have: only outputs were compared"
        )
    exact = all(one.sqnr_db == math.inf for one in found.layers)
    if exact:
        return "no layer differs"
    return "no layer differs by more than rounding of float32"


def _culprit(found: Diff) -> Iterator[str]:
    lines = culprit_lines(found)
    if not lines:
        yield nothing(found)
    for name, text in lines:
        yield from textwrap.wrap(
            shortened(text, 400),
            120,
            initial_indent=f"{name}: ",
            subsequent_indent="  ",
        )


def decibel(db: float | None) -> str:
    """ "exact" for no noise at all, "-" for what is not known."""
    if db is None or math.isnan(db):
        return "-"
    return "exact" if db == math.inf else f"{db:.1f}"


def threshold(found: Diff, least: float) -> str:
    """What misses it; "" where nothing does."""
    if found.least() >= least:
        return ""
    return f"FAILED: an output has {decibel(found.least())} dB, {least:g} needed"
