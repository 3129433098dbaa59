"""The first screen after a compile: places, sizes, checks, accuracy; no noise."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgec_partitioner.partition import Partition

from edgec.emit.c import CSource
from edgec.quantize.layers import LayerNoise
from edgec.quantize.pruning import Pruned
from edgec.quantize.search import QuantizedModel
from edgec.quantize.verification import Verification
from edgec.report.explain.text import PLACES
from edgec.report.precision import bought
from edgec.report.pruning import taken_out
from edgec.report.tables import table
from edgec.report.terms import legend

FEW = 8
"""Samples: calibration with fewer is warned of."""


@dataclass(frozen=True)
class Made:
    """What there is to tell of a bundle. edgetpu_compiler: lines about that program.

    float_on_cpu: the target has an Edge TPU, but the model was left in float. remarks:
    how photos become inputs, and what of the model's file was left out. quantized: what
    became of the recipe, if there was one. pruned: of pruning, if it was asked for;
    pruned_ms: before and after, on this machine.
    """

    path: Path
    model: str
    target: str
    partition: Partition
    sources: Mapping[str, CSource]
    verification: Verification
    edgetpu_compiler: Sequence[str]
    float_on_cpu: bool
    remarks: Sequence[str] = ()
    quantized: QuantizedModel | None = None
    pruned: Pruned | None = None
    pruned_ms: Sequence[float] = ()


def summary(made: Made) -> str:
    """Plain text, at most 120 columns."""
    if made.float_on_cpu:
        left = ", in float: all on the CPU, nothing on the Edge TPU"
    else:
        left = ""
    lines = [
        f"{made.path}: {made.model} for {made.target}, "
        f"{made.path.stat().st_size / 1e6:.1f} MB{left}"
    ]
    for text in made.remarks:
        lines += textwrap.wrap(
            text, 120, break_long_words=False, break_on_hyphens=False
        )
    lines += [""]
    lines += [*_segments(made), ""]
    lines += _top_refusals(made.partition)
    lines += made.edgetpu_compiler
    lines += _checks(made.verification)
    lines += _accuracy(made.verification)
    if made.quantized is not None and made.verification.low():
        lines.append(f"  hint: give {made.quantized.remedy}")
    if made.pruned is not None:
        lines += taken_out(made.pruned, made.pruned_ms)
    if made.quantized is not None:
        lines += _tried(made.quantized)
        if made.quantized.plan is not None:
            lines += bought(made.quantized.plan, made.verification.whole)
    return "\n".join(lines)


def _segments(made: Made) -> Iterator[str]:
    segments = made.partition.segments
    total = max(1, sum(s.macs for s in segments))
    rows = []
    for s in segments:
        plan = made.sources[s.name].plan
        above = f"{plan.size / plan.lower_bound - 1:.1%}" if plan.lower_bound else "-"
        sizes = (f"{s.macs:,}", f"{s.macs / total:.1%}", f"{plan.size:,}", above)
        rows.append((s.name, PLACES[s.place], str(len(s.graph.ops)), *sizes))
    yield table(
        ("segment", "place", "ops", "MACs", "of all", "arena, bytes", "above bound"),
        rows,
        "llrrrrr",
    )
    yield legend(("MACs", "arena", "above bound"))


def _top_refusals(partition: Partition) -> Iterator[str]:
    """The three reasons that keep most work from the Edge TPU."""
    groups: dict[tuple[str, str], list[int]] = {}
    for op, verdict in partition.verdicts.items():
        if verdict.refusals:
            groups.setdefault((op.kind, verdict.refusals[0].constraint), []).append(
                op.spec.macs(op)
            )
    ordered = sorted(
        groups.items(), key=lambda item: (-sum(item[1]), -len(item[1]), item[0])
    )
    for (kind, reason), macs in ordered[:3]:
        yield f"on the CPU: {len(macs)} x {kind}: {' '.join(reason.split())}"
    if groups:
        yield "(edgec explain shows them all)"


def _checks(checked: Verification) -> Iterator[str]:
    """Whether the code does what it should: whatever the accuracy of the model that it
    runs.

    A line for each way of running, for all segments that are exact; one for each of the
    others.
    """
    exact: dict[tuple[str, int], list[str]] = {}
    for c in checked.segments:
        if not c.error:
            exact.setdefault((c.how, c.samples), []).append(c.segment)
    for (how, samples), names in exact.items():
        if len(names) <= 6:
            which = ", ".join(names)
        else:
            which = f"{len(names)} segments, {names[0]} to {names[-1]}"
        runs = "it runs" if len(names) == 1 else "they run"
        yield (
            f"verified {which}: as {how} {runs} as interp does, "
            f"bit for bit ({_samples(samples)})"
        )
    for c in checked.segments:
        if c.error:
            near = f"within {c.error:.2g} of interp ({c.limit:.2g} allowed)"
            yield f"verified {c.segment}: as {c.how} it runs {near} ({_samples(c.samples)})"
    if checked.not_finite:
        where = f"on {checked.source}: first {checked.not_finite}"
        yield from textwrap.wrap(f"warning: outputs are not finite {where}", 120)
    if checked.not_run:
        yield from textwrap.wrap(
            f"not run here {checked.not_run}",
            120,
            break_long_words=False,
            break_on_hyphens=False,
        )


def _accuracy(checked: Verification) -> Iterator[str]:
    """How near the outputs are to the model's own."""
    of = f"{_samples(checked.samples)} of {checked.source}"
    if checked.calibrated:
        yield f"calibrated on {_samples(checked.calibrated)}"
        if checked.calibrated < FEW:
            yield (
                f"warning: that is few: ranges and corrections want {FEW} samples "
                "or "
                "more, of different things"
            )
        yield f"accuracy against the float model, on {of}:"
    else:
        yield f"agreement with the model, on {of}:"
    low = checked.low()
    for name, agreement in checked.whole.items():
        yield f"  output {name}: {agreement}{': low' if name in low else ''}"
    if checked.worst is not None:
        yield from _layer(checked.worst)
    for name, misses in low.items():
        yield f"warning: low accuracy: output {name}: {'; '.join(misses)}"


def _tried(found: QuantizedModel) -> Iterator[str]:
    """What a recipe of several candidates tried, the best first."""
    if not found.tried:
        return
    first = found.tried[0]
    if found.held == found.samples:
        how = "each held back in turn"
    else:
        how = "held back from all candidates"
    yield (
        f"quantized by {found.recipe.name}: {found.candidate.name}; "
        "judged on "
        f"{_samples(found.held)}, {how}:"
    )
    rows = [
        (
            t.name,
            f"{t.db:.1f}",
            f"{t.db - first.db:+.1f}",
            f"±{t.error:.1f}" if t.error else "",
            f"refused: {t.refused}"
            if t.refused
            else "kept"
            if t.name == found.candidate.name
            else "",
        )
        for t in sorted(found.tried, key=lambda t: -t.db)
    ]
    yield table(
        ("tried", "SQNR, dB", f"over {first.name}", "beside the best", ""),
        rows,
        "lrrrl",
    )


def _layer(worst: LayerNoise) -> Iterator[str]:
    ratio = f"SQNR {worst.own_sqnr_db:.1f} dB by itself"
    yield f"  largest loss in one op: {worst.kind} {worst.value} in {worst.part}, {ratio}"
    if worst.source:
        nodes = worst.source.replace("+", " + ")
        yield textwrap.shorten(
            f"from {nodes}", 110, placeholder=" …", initial_indent="    "
        )


def _samples(count: int) -> str:
    return f"{count} sample{'s' * (count != 1)}"
