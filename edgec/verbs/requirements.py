"""The figures of a partition report that `edgec explain --require` can ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

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
    """The op on the CPU that weighs most, and why it is there; of equals the first.

    Without ops, the obstacle.
    """
    rows = [row for row in r.ops if row.place == "cpu"]
    if not rows:
        return r.obstacle or ""
    row = max(rows, key=weight)
    if row.refusals:
        why = f", {in_words(row.refusals[0].rule)}: {row.refusals[0].seen}"
    else:
        why = ""
    return f"op {row.index} {row.kind} ({row.source or row.name}){why}"


def _macs(r: ExplainReport) -> str:
    return _worst(r, lambda row: row.macs)


def _slow(r: ExplainReport) -> str:
    return _worst(r, lambda row: row.cpu_ms)


def _unsure(r: ExplainReport) -> str:
    rows = (row for row in r.ops if row.verdict == "uncertain")
    return next(
        (f"op {row.index} {row.kind} ({row.source or row.name})" for row in rows), ""
    )


def _longest_on_tpu(r: ExplainReport) -> str:
    """The segment on the Edge TPU that takes longest, and what of it."""
    s = max(
        (s for s in r.segments if s.place == "edgetpu"),
        key=lambda s: s.est_ms,
        default=None,
    )
    if s is None:
        return ""
    parts = s.est_parts.parts() if s.est_parts else {}
    most = max(parts, key=parts.__getitem__, default="")
    return f"{s.name}, {s.est_ms:.2f} ms" + (
        f", of which {most} {parts[most]:.2f} ms" if most else ""
    )


@dataclass(frozen=True)
class RequiredQuantity:
    """How a figure is made of a report. culprit: what is in the way. whole: what it is
    a part of. share: see Kind.
    """

    value: Callable[[ExplainReport], float]
    culprit: Callable[[ExplainReport], str]
    whole: Callable[[ExplainReport], float] | None = None
    unit: str = ""
    share: bool = False

    def kind(self) -> Kind:
        """What is known of it without a report."""
        return Kind(self.unit, self.whole is not None, self.share)

    def figure(self, r: ExplainReport) -> Figure:
        """It, of a report. Times of a partition are estimates."""
        whole = self.whole(r) if self.whole else None
        return Figure(
            self.value(r),
            self.unit,
            whole,
            self.culprit(r),
            estimated=self.unit == "ms",
        )


def _total(name: str) -> Callable[[ExplainReport], float]:
    return lambda r: r.totals()[name]


def _ours(column: Callable[[Column], float]) -> Callable[[ExplainReport], float]:
    return lambda r: column(r.comparison.edgec)


_ALL_MACS = _ours(lambda c: c.macs)
_ALL_OPS = _ours(lambda c: c.ops)
_ALL_MS = _ours(lambda c: c.est_ms)

FIGURES: Mapping[str, RequiredQuantity] = {
    "tpu.macs": RequiredQuantity(
        _ours(lambda c: c.tpu_macs), _macs, _ALL_MACS, share=True
    ),
    "tpu.ops": RequiredQuantity(
        _ours(lambda c: c.tpu_ops), _slow, _ALL_OPS, share=True
    ),
    "tpu.segments": RequiredQuantity(
        _ours(lambda c: c.tpu_segments), _slow, lambda r: len(r.segments)
    ),
    "tpu.ms": RequiredQuantity(
        _ours(lambda c: c.tpu_ms), _longest_on_tpu, _ALL_MS, "ms"
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
        _ours(lambda c: c.macs - c.tpu_macs), _macs, _ALL_MACS, share=True
    ),
    "cpu.ops": RequiredQuantity(_ours(lambda c: c.ops - c.tpu_ops), _slow, _ALL_OPS),
    "cpu.ms": RequiredQuantity(_ours(lambda c: c.cpu_ms), _slow, _ALL_MS, "ms"),
    "uncertain.ops": RequiredQuantity(
        _ours(lambda c: c.uncertain_ops), _unsure, _ALL_OPS
    ),
    "segments": RequiredQuantity(lambda r: len(r.segments), _slow),
    "ms": RequiredQuantity(
        _ALL_MS, lambda r: _slow(r) or _longest_on_tpu(r), unit="ms"
    ),
}
"""Parameters are bytes; their share is of the on-chip memory."""

_VOCABULARY = Vocabulary(
    {name: quantity.kind() for name, quantity in FIGURES.items()},
    "--require",
    "tpu.macs>=95%, cpu.ops<=3 or ms<=12.5ms",
    {"tpu": "tpu.ops"},  # `tpu=100%`: every op
)


def requirements(texts: Sequence[str]) -> list[Requirement]:
    """What `--require` was given, read before any work is done. Raises InputError."""
    return _VOCABULARY.parse_all(texts)


def check(wanted: Iterable[Requirement], r: ExplainReport) -> list[RequirementOutcome]:
    """Whether each holds."""
    return [w.check(FIGURES[w.figure].figure(r)) for w in wanted]
