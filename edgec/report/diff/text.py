"""Writes the result of `edgec diff` for a terminal.

The text has outputs, the culprit, and the layers, the worst first or in graph order.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgec.report.legend import legend
from edgec.report.tables import table
from edgec.report.wording import plain, shortened

if TYPE_CHECKING:
    from edgec.comparing.result import Diff, Layer

ORDERS = ("worst", "graph")
MOST = 15
"""Layers in the table of the worst."""
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
"""Header of the table of layers."""
OUTPUT_HEAD = ("output", "SQNR", "centred", "cosine", "max error", "top-1")
"""Header of the table of outputs."""
TERMS = ("own", "inherited", "whole", "centred")
MAX_NAME = 22
"""Characters of a value's name in the table of layers."""
MAX_TEXT = 400
"""Characters of a line about the culprit."""
MAX_CHANGED = 4
"""Samples with another class that are named."""
MAX_OTHERS = 4
"""Other suspicious layers that are named beside the culprit."""
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
"""Findings in the few words of a table."""


def to_text(comparison: Diff, order: str = "worst", every: bool = False) -> str:
    """Return the text, at most 120 columns wide.

    Args:
        comparison: the comparison
        order: order of the layers, one of ORDERS
        every: show all layers, not only the worst
    """
    lines = [
        f"A {plain(comparison.a)} ({comparison.a_how})",
        f"B {plain(comparison.b)} ({comparison.b_how})",
        f"{samples(comparison)}; {compared(comparison)}; ratios of signal to noise in dB",
        "",
        table(OUTPUT_HEAD, [*output_rows(comparison)], "lrrrrr"),
    ]
    for text in (*task(comparison), *changed(comparison)):
        lines += textwrap.wrap(text, 120, subsequent_indent="  ")
    lines += _culprit(comparison)
    lines.append("")
    shown = _shown(comparison, order, every)
    if shown:
        rows = [row(layer, MAX_NAME) for layer in shown]
        lines.append(table(HEAD, rows, "rllrrrrrrl"))
    hidden = len(comparison.layers) - len(shown)
    if hidden:
        lines.append(f"({hidden} more layers: --all, or --order graph)")
    for note in comparison.notes:
        lines += textwrap.wrap(f"note: {note}", 120)
    if shown:
        lines += ["", legend(TERMS)]
    return "\n".join(lines)


def _shown(comparison: Diff, order: str, every: bool) -> list[Layer]:
    """Return the layers of the table."""
    layers = comparison.worst() if order == "worst" else list(comparison.layers)
    if every or order == "graph":
        return layers
    # Layers without any noise are of no interest.
    noisy = [layer for layer in layers if layer.sqnr_db < math.inf]
    return noisy[:MOST]


def output_rows(comparison: Diff) -> Iterator[tuple[str, ...]]:
    """Yield a row for each output."""
    for name, output in comparison.outputs.items():
        agreement = output.agreement
        top1 = "" if agreement.top1 is None else f"{agreement.top1:.0%}"
        yield (
            plain(name),
            decibel(agreement.sqnr_db),
            decibel(output.centred_db),
            f"{agreement.cosine:.5f}",
            f"{output.max_error:.3g}",
            top1,
        )


def task(comparison: Diff) -> Iterator[str]:
    """Yield the effect of the difference on the task of the network."""
    # The import brings all of edgec.ops, which only a comparison needs.
    from edgec.comparing.tasks import FIGURES

    for name, figure in comparison.task.items():
        yield f"{comparison.kind}: {name} {figure:.4g} ({FIGURES[name]})"


def changed(comparison: Diff) -> Iterator[str]:
    """Yield, for each output, the samples whose most likely class differs."""

    def sample_name(i: int) -> str:
        return plain(comparison.names[i]) if i < len(comparison.names) else str(i)

    def label(i: int) -> str:
        return plain(comparison.labels[i]) if i < len(comparison.labels) else str(i)

    for name, output in comparison.outputs.items():
        if not output.tops:
            continue
        texts = []
        for sample, class_a, class_b in output.tops[:MAX_CHANGED]:
            texts.append(f"{sample_name(sample)} {label(class_a)} → {label(class_b)}")
        hidden = len(output.tops) - len(texts)
        more = f" and {hidden} more" if hidden else ""
        yield f"top-1 of {plain(name)} changes: {', '.join(texts)}{more}"


def row(layer: Layer, value: int) -> tuple[str, ...]:
    """Return the row of a layer; `value` limits the characters of its name."""
    labels = []
    for finding in layer.findings:
        if finding.kind in LABELS:
            labels.append(LABELS[finding.kind])
    what = ", ".join(labels) if layer.fault is None else f"FAULT: {labels[0]}"
    return (
        str(layer.index),
        layer.kind,
        shortened(short_name(layer.value), value),
        decibel(layer.own_centred_db),
        decibel(layer.inherited_db),
        decibel(layer.sqnr_db),
        decibel(layer.centred_db),
        f"{layer.cosine:.4f}",
        f"{layer.max_error:.3g}",
        what,
    )


def short_name(value: str) -> str:
    """Return the first part of a value's name.

    TFLite names a fused op by all of its parts, with semicolons between.
    """
    return plain(value.split(";")[0])


def samples(comparison: Diff) -> str:
    """Return on which samples the sides were compared."""
    plural = "s" if comparison.samples != 1 else ""
    return f"on {comparison.samples} sample{plural} of {comparison.inputs}"


def compared(comparison: Diff) -> str:
    """Return how many layers were compared, and how many values were not."""
    text = f"{len(comparison.layers)} layers compared"
    skipped = []
    for side, names in (("A", comparison.skipped_a), ("B", comparison.skipped_b)):
        if names:
            skipped.append(f"{len(names)} values only in {side}")

    if not skipped:
        return text
    return f"{text}, {' and '.join(skipped)} skipped"


def culprit_lines(comparison: Diff) -> list[tuple[str, str]]:
    """Return (label, text) lines about the layer to look at first; [] without one."""
    culprit = comparison.culprit
    if culprit is None:
        return []

    # Only a wrong kernel or parameter is a fault; noise is a property of int8.
    label = "faulty layer" if culprit.fault else "layer"
    lines = [(label, f"{culprit.kind} {culprit.value}")]
    if culprit.source and culprit.source != culprit.value:
        lines.append(("from", culprit.source.replace("+", " + ")))
    lines.append(("why", culprit.why))
    lines.append(("fix", culprit.fix))

    others = [shortened(name, 40) for name in culprit.others[:MAX_OTHERS]]
    if others:
        hidden = len(culprit.others) - len(others)
        more = f" and {hidden} more" if hidden else ""
        lines.append(("also", ", ".join(others) + more))
    return [(label, plain(text)) for label, text in lines]


def nothing(comparison: Diff) -> str:
    """Return the reason why no layer is named."""
    if not comparison.layers:
        return (
            "no layer has a name and shape that both have: only outputs were compared"
        )
    # Without noise at all there is nothing to excuse by rounding.
    exact = all(layer.sqnr_db == math.inf for layer in comparison.layers)
    if exact:
        return "no layer differs"
    return "no layer differs by more than rounding of float32"


def _culprit(comparison: Diff) -> Iterator[str]:
    """Yield the lines about the culprit, or the reason why there is none."""
    lines = culprit_lines(comparison)
    if not lines:
        yield nothing(comparison)
    for label, text in lines:
        yield from textwrap.wrap(
            shortened(text, MAX_TEXT),
            120,
            initial_indent=f"{label}: ",
            subsequent_indent="  ",
        )


def decibel(db: float | None) -> str:
    """Return a ratio; "exact" without any noise, "-" if it is not known."""

    if db is None or math.isnan(db):
        return "-"
    return "exact" if db == math.inf else f"{db:.1f}"


def threshold(comparison: Diff, least: float) -> str:
    """Return a message if an output misses `least` dB, else ""."""
    # The worst output decides: a mean would hide a broken one.
    if comparison.least() >= least:
        return ""
    return f"FAILED: an output has {decibel(comparison.least())} dB, {least:g} needed"
