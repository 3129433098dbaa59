"""Writes the first screen after a compile: places, sizes, checks and accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgec_devices.intervals import two_digits
from edgec_partitioner.explain import ExplainReport
from edgec_partitioner.segments import Segment

from edgec.emit.c import CSource
from edgec.quantize.float_ops.pruning import Pruned, Pruning
from edgec.quantize.observe.verification import Verification
from edgec.quantize.select.apply import QuantizedModel
from edgec.report.checks import accuracy, checks, sample_count, wrapped
from edgec.report.explain.reasons import pays, reasons
from edgec.report.explain.text import PLACES
from edgec.report.legend import legend
from edgec.report.precision import bought
from edgec.report.tables import table
from edgec.report.wording import count, percent, plain

MAX_REASONS = 3
"""Reasons against the Edge TPU that the summary shows."""
TERMS = ("MACs", "arena", "above bound", "the reference", "SQNR", "cosine")


@dataclass(frozen=True)
class Made:
    """The facts about a new bundle that the summary shows.

    Attributes:
        path: the bundle
        bytes: its size
        model: name of the model
        target: name of the target
        segments: the segments, in the order they run
        explained: why operations are not on the Edge TPU
        sources: generated C of each segment
        verification: results of running the bundle on this machine
        edgetpu_compiler: lines about the run of edgetpu_compiler
        float_on_cpu: the target has an Edge TPU, but the model was left in float
        remarks: how photos become inputs, and parts of the model's file left out
        quantized: result of the quantization recipe; None without a recipe
        pruned: result of pruning; None if it was not requested
    """

    path: Path
    bytes: int
    model: str
    target: str
    segments: Sequence[Segment]
    explained: ExplainReport
    sources: Mapping[str, CSource]
    verification: Verification
    edgetpu_compiler: Sequence[str]
    float_on_cpu: bool
    remarks: Sequence[str] = ()
    quantized: QuantizedModel | None = None
    pruned: Pruned | None = None


def summary(bundle: Made) -> str:
    """Return plain text of at most 120 columns, without the terms that it uses."""
    lines = [_headline(bundle)]
    for remark in bundle.remarks:
        lines += wrapped(remark)
    lines.append("")
    lines += _segments(bundle)
    lines.append("")
    lines += _top_reasons(bundle.explained)
    lines += bundle.edgetpu_compiler
    lines += checks(bundle.verification)
    lines += accuracy(bundle.verification)

    quantized = bundle.quantized
    # The remedy is of the recipe, so a model that was int8 already has none.
    if quantized is not None and bundle.verification.low():
        lines.append(f"  hint: give {quantized.remedy}")
    if bundle.pruned is not None:
        lines += taken_out(bundle.pruned)
    if quantized is not None:
        lines += _candidates(quantized)
        lines += _judgement(quantized)
        if quantized.plan is not None:
            lines += bought(quantized.plan, bundle.verification.whole)
    return "\n".join(lines)


def footnote() -> str:
    """Return what the terms of a summary mean."""
    return legend(TERMS)


def _headline(bundle: Made) -> str:
    """Return the line with the bundle's path, model, target and size."""
    network = plain(f"{bundle.path}: {bundle.model}")
    line = f"{network} for {bundle.target}, {bundle.bytes / 1e6:.1f} MB"
    if bundle.float_on_cpu:
        return f"{line}, in float: all on the CPU, nothing on the Edge TPU"
    return line


def _segments(bundle: Made) -> Iterator[str]:
    """Yield the table of segments."""
    segments = bundle.segments
    # A model without multiply-accumulates has shares too, of 0 %.
    total = max(1, sum(segment.macs for segment in segments))
    rows = []
    for segment in segments:
        plan = bundle.sources[segment.name].plan
        # A segment of views alone needs no arena, so its bound is 0.
        excess = "-"
        if plan.lower_bound:
            excess = f"{plan.size / plan.lower_bound - 1:.1%}"
        rows.append(
            (
                segment.name,
                PLACES[segment.place],
                str(len(segment.graph.ops)),
                f"{segment.macs:,}",
                f"{segment.macs / total:.1%}",
                f"{plan.size:,}",
                excess,
            )
        )
    yield table(
        ("segment", "place", "ops", "MACs", "of all", "arena, bytes", "above bound"),
        rows,
        "llrrrrr",
    )


def _top_reasons(report: ExplainReport) -> Iterator[str]:
    """Yield the three reasons against the Edge TPU that are most worth mending."""
    every = reasons(report.ops)
    worth = [reason for reason in every if reason.fix and pays(reason, report)]
    for reason in worth[:MAX_REASONS]:
        ops = f"{len(reason.ops)} x {reason.kinds}"
        gain = f"at most {two_digits(reason.gain_ms)} ms to gain"
        yield from wrapped(f"on the CPU: {ops}, {gain}: {reason.constraint}")
    if every:
        yield "(edgec explain says why an operation is on the CPU, and what would help)"


def _candidates(model: QuantizedModel) -> Iterator[str]:
    """Yield the candidates of a quantization recipe, the most accurate first."""
    if not model.trials:
        return
    # With few samples each part is held back once, as in cross-validation.
    if model.held_back_samples == model.samples:
        how = "each held back in turn"
    else:
        how = "held back from all candidates"
    yield (
        f"quantized by {model.recipe.name}: {model.candidate.name}; "
        "judged on "
        f"{sample_count(model.held_back_samples)}, {how}:"
    )

    # Gains are over the guard, the baseline.
    first = model.trials[0]
    rows = []
    for trial in sorted(model.trials, key=lambda trial: -trial.db):
        if trial.refused:
            outcome = f"refused: {trial.refused}"
        elif trial.name == model.candidate.name:
            outcome = "kept"
        else:
            outcome = ""
        row = [
            trial.name,
            f"{trial.db:.1f}",
            f"{trial.db - first.db:+.1f}",
        ]
        if trial.judged is not None:
            row.append(f"{trial.judged.value:.2f}")
        rows.append([*row, outcome])
    header = ["tried", "SQNR, dB", f"over {first.name}"]
    if first.judged is not None:
        header.append(f"{first.judged.title}, {first.judged.unit}".rstrip(", "))
    yield table([*header, ""], rows, "l" + "r" * (len(header) - 1) + "l")
    if len(model.trials) < len(model.recipe.candidates):
        ample = f"{model.recipe.ample_db:.0f} dB or more"
        yield f"(with {ample} nothing else is tried: it could gain what nobody sees)"


def _judgement(model: QuantizedModel) -> Iterator[str]:
    """Yield the figure on labelled pictures, by which the model was chosen."""
    judged = model.judged
    if judged is None:
        return
    chance = "within" if judged.is_as_float else "beyond"
    yield (
        f"on {model.pictures} labelled pictures, none of which calibrated: "
        f"{judged.text()}, {chance} what chance explains"
    )


def taken_out(pruned: Pruned) -> Iterator[str]:
    """Yield the verdict, and a table of the variants that were compared."""
    plural = "s" if pruned.samples != 1 else ""
    where = f"on {pruned.samples} sample{plural} held back"
    if pruned.kept is None:
        if pruned.most is not None:
            why = "the model is not faster without what may go"
        else:
            why = "every channel says more than may be lost"
        yield f"pruning: no gain: {why}, {where}"
    else:
        pruning = pruned.kept
        saved = 1 - pruning.price.ms / pruned.before.price.ms
        yield (
            f"pruning: {pruning.channels} of {pruning.of} channels taken out, "
            f"{saved:.1%} "
            f"less time estimated, {where}:"
        )

    if pruned.ms_here:
        before, after = pruned.ms_here
        yield (
            f"measured on this machine, int8: {before:.3g} ms before, {after:.3g} ms after"
        )

    variants = {
        "before": pruned.before,
        "all that may go": pruned.most,
        "kept": pruned.kept,
    }
    # A variant that was not reached has no row.
    rows = [_row(name, p) for name, p in variants.items() if p is not None]
    yield table(("", "channels", "MACs", "ms", "SQNR", "top-1"), rows, "lrrrrr")


def _row(name: str, pruning: Pruning) -> tuple[str, ...]:
    """Return a row of the table; SQNR and top-1 are of the worst output."""
    agreements = pruning.outputs.values()
    # The worst output, since pruning must not ruin one for the others.
    ratio = min(a.sqnr_db for a in agreements)

    shares = [a.top1 for a in agreements if a.top1 is not None]
    top1 = percent(min(shares)) if shares else ""
    return (
        name,
        str(pruning.of - pruning.channels),
        count(pruning.macs),
        f"{pruning.price.ms:.2f}",
        f"{ratio:.1f}",
        top1,
    )
