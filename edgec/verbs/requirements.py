"""The figures of a partition report that `edgec explain --require` can ask for.

Each has a culprit: the operation or segment that is most in the way of the requirement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgec_devices.intervals import EDGETPU_ERROR, ends, estimate_text, two_digits
from edgec_devices.requirement import (
    Figure,
    Kind,
    Requirement,
    RequirementOutcome,
    Vocabulary,
)
from edgec_partitioner.comparison import Column
from edgec_partitioner.explain import ExplainReport, OpRow

from edgec.report.explain.text import in_words


def _worst(r: ExplainReport, weight: Callable[[OpRow], float]) -> str:
    """Return the op on the CPU with the largest weight, and why it is there.

    Of equals it is the first. Without ops, as in a file that edgec cannot read, it is
    the obstacle.
    """
    rows = [row for row in r.ops if row.place == "cpu"]
    if not rows:
        return r.obstacle or ""

    row = max(rows, key=weight)
    why = ""
    if row.refusals:
        # One reason is enough: the others are in the report.
        refusal = row.refusals[0]
        why = f", {in_words(refusal.rule)}: {refusal.seen}"

    return f"{_op_text(row)}{why}"


def _op_text(row: OpRow) -> str:
    """Return an op for people: its number, kind and nodes."""
    return f"op {row.index} {row.kind} ({row.source or row.name})"


def _most_macs(r: ExplainReport) -> str:
    """Return the op on the CPU with the most multiply-accumulates."""
    return _worst(r, lambda row: row.macs)


def _slowest(r: ExplainReport) -> str:
    """Return the op on the CPU that takes longest."""
    return _worst(r, lambda row: row.cpu_ms)


def _first_uncertain(r: ExplainReport) -> str:
    """Return the first op of which it is not known whether it maps."""
    for row in r.ops:
        if row.verdict == "uncertain":
            return _op_text(row)
    return ""


def _longest_on_tpu(r: ExplainReport) -> str:
    """Return the segment on the Edge TPU that takes longest, and its largest part."""
    segments = [s for s in r.segments if s.place == "edgetpu"]
    if not segments:
        return ""

    longest = max(segments, key=lambda s: s.est_ms)
    text = f"{longest.name}, est. {estimate_text(longest.est_ms, EDGETPU_ERROR)} ms"
    # A large part of it may be the way to the stick and not the computing.
    parts = longest.est_parts.parts() if longest.est_parts else {}
    if parts:
        largest = max(parts, key=parts.__getitem__)
        text += f", of which {largest} {two_digits(parts[largest])} ms"

    return text


@dataclass(frozen=True)
class RequiredQuantity:
    """A figure of a report.

    Attributes:
        value: returns the figure.
        culprit: returns what is most in its way, for people.
        whole: returns the figure that it is a part of; None: of nothing.
        unit: its unit; "" for a number.
        share: whether a requirement is usually a percentage, see `Kind`.
        error: returns the relative error of an estimate; None: of a figure without one.
    """

    value: Callable[[ExplainReport], float]
    culprit: Callable[[ExplainReport], str]
    whole: Callable[[ExplainReport], float] | None = None
    unit: str = ""
    share: bool = False
    error: Callable[[ExplainReport], float] | None = None

    def kind(self) -> Kind:
        """Return what is known of the figure without a report."""
        return Kind(self.unit, self.whole is not None, self.share)

    def figure(self, r: ExplainReport) -> Figure:
        """Return the figure of a report."""
        total = self.whole(r) if self.whole else None

        value = self.value(r)
        # Nothing has run yet: all times of a partition are estimates.
        interval = ends(value, self.error(r)) if self.error else None
        return Figure(
            value,
            self.unit,
            total,
            self.culprit(r),
            estimated=self.unit == "ms",
            ends=interval,
        )


def _total(name: str) -> Callable[[ExplainReport], float]:
    """Return a function to the total of this name."""
    return lambda r: r.totals()[name]


def _edgec(column: Callable[[Column], float]) -> Callable[[ExplainReport], float]:
    """Return a function to a figure of edgec's column, not the stock compiler's."""
    return lambda r: column(r.comparison.edgec)


_ALL_MACS = _edgec(lambda c: c.macs)
_ALL_OPS = _edgec(lambda c: c.ops)
_ALL_MS = _edgec(lambda c: c.est_ms)

FIGURES: Mapping[str, RequiredQuantity] = {
    "tpu.macs": RequiredQuantity(
        _edgec(lambda c: c.tpu_macs), _most_macs, _ALL_MACS, share=True
    ),
    "tpu.ops": RequiredQuantity(
        _edgec(lambda c: c.tpu_ops), _slowest, _ALL_OPS, share=True
    ),
    "tpu.segments": RequiredQuantity(
        _edgec(lambda c: c.tpu_segments), _slowest, lambda r: len(r.segments)
    ),
    "tpu.ms": RequiredQuantity(
        _edgec(lambda c: c.tpu_ms),
        _longest_on_tpu,
        _ALL_MS,
        "ms",
        error=lambda r: EDGETPU_ERROR,
    ),
    "tpu.parameters": RequiredQuantity(
        _total("tpu_parameter_bytes"), _longest_on_tpu, _total("on_chip_bytes"), "B"
    ),
    "tpu.streamed": RequiredQuantity(
        _total("tpu_streamed_bytes"),
        _longest_on_tpu,
        _total("tpu_parameter_bytes"),
        "B",
    ),
    "cpu.macs": RequiredQuantity(
        _edgec(lambda c: c.macs - c.tpu_macs), _most_macs, _ALL_MACS, share=True
    ),
    "cpu.ops": RequiredQuantity(
        _edgec(lambda c: c.ops - c.tpu_ops), _slowest, _ALL_OPS
    ),
    "cpu.ms": RequiredQuantity(
        _edgec(lambda c: c.cpu_ms),
        _slowest,
        _ALL_MS,
        "ms",
        error=lambda r: r.cpu_error,
    ),
    "uncertain.ops": RequiredQuantity(
        _edgec(lambda c: c.uncertain_ops), _first_uncertain, _ALL_OPS
    ),
    "segments": RequiredQuantity(lambda r: len(r.segments), _slowest),
    "ms": RequiredQuantity(
        _ALL_MS,
        lambda r: _slowest(r) or _longest_on_tpu(r),
        unit="ms",
        error=ExplainReport.error,
    ),
}
"""The figures by name. Parameters are bytes; their share is of the on-chip memory."""

_VOCABULARY = Vocabulary(
    {name: quantity.kind() for name, quantity in FIGURES.items()},
    "--require",
    "tpu.macs>=95%, cpu.ops<=3 or ms<=12.5ms",
    # `tpu=100%`: every op is on the Edge TPU.
    {"tpu": "tpu.ops"},
)


def requirements(texts: Sequence[str]) -> list[Requirement]:
    """Return the requirements of `--require`, read before any work is done.

    Raises InputError for unknown figures.
    """
    return _VOCABULARY.parse_all(texts)


def check(
    requirements: Iterable[Requirement], r: ExplainReport
) -> list[RequirementOutcome]:
    """Return for each requirement whether it holds."""
    return [w.check(FIGURES[w.figure].figure(r)) for w in requirements]
