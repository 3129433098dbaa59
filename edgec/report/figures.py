"""The figures of a partition report that `edgec explain --require` can ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from edgec_partitioner.comparison import Column
from edgec_partitioner.explain import OpRow, Report

from edgec.report.budget import Figure, Outcome, Requirement

_OPTION = "--require"
_SHORT = {"tpu": "tpu.ops"}  # `tpu=100%`: every op


def _worst(r: Report, weight: Callable[[OpRow], float]) -> str:
    """The op on the CPU that weighs most, and why it is there; of equals the first. Without ops, the obstacle."""
    rows = [row for row in r.ops if row.place == "cpu"]
    if not rows:
        return r.obstacle or ""
    row = max(rows, key=weight)
    why = f", {row.refusals[0].rule}: {row.refusals[0].seen}" if row.refusals else ""
    return f"op {row.index} {row.kind} ({row.source or row.name}){why}"


def _macs(r: Report) -> str:
    return _worst(r, lambda row: row.macs)


def _slow(r: Report) -> str:
    return _worst(r, lambda row: row.cpu_ms)


def _unsure(r: Report) -> str:
    rows = (row for row in r.ops if row.verdict == "uncertain")
    return next((f"op {row.index} {row.kind} ({row.source or row.name})" for row in rows), "")


def _longest(r: Report, place: str) -> str:
    """The segment of a place that takes longest, and what of it on the Edge TPU."""
    s = max((s for s in r.segments if s.place == place), key=lambda s: s.est_ms, default=None)
    if s is None:
        return ""
    parts = s.est_parts.parts() if s.est_parts else {}
    most = max(parts, key=parts.__getitem__, default="")
    return f"{s.name}, {s.est_ms:.2f} ms" + (f", of which {most} {parts[most]:.2f} ms" if most else "")


def _sizes(r: Report, part: str, whole: str) -> Figure:
    t = r.totals()
    return Figure(t[part], whole=t[whole], culprit=_longest(r, "edgetpu"))


def _ours(r: Report) -> Column:
    return r.comparison.edgec


FIGURES: Mapping[str, Callable[[Report], Figure]] = {
    "tpu.macs": lambda r: Figure(_ours(r).tpu_macs, whole=_ours(r).macs, culprit=_macs(r)),
    "tpu.ops": lambda r: Figure(_ours(r).tpu_ops, whole=_ours(r).ops, culprit=_slow(r)),
    "tpu.segments": lambda r: Figure(_ours(r).tpu_segments, whole=len(r.segments), culprit=_slow(r)),
    "tpu.ms": lambda r: Figure(_ours(r).tpu_ms, "ms", _ours(r).est_ms, _longest(r, "edgetpu")),
    "tpu.parameters": lambda r: _sizes(r, "tpu_parameter_bytes", "on_chip_bytes"),
    "tpu.streamed": lambda r: _sizes(r, "tpu_streamed_bytes", "tpu_parameter_bytes"),
    "cpu.macs": lambda r: Figure(_ours(r).macs - _ours(r).tpu_macs, whole=_ours(r).macs, culprit=_macs(r)),
    "cpu.ops": lambda r: Figure(_ours(r).ops - _ours(r).tpu_ops, whole=_ours(r).ops, culprit=_slow(r)),
    "cpu.ms": lambda r: Figure(_ours(r).cpu_ms, "ms", _ours(r).est_ms, _slow(r)),
    "uncertain.ops": lambda r: Figure(_ours(r).uncertain_ops, whole=_ours(r).ops, culprit=_unsure(r)),
    "segments": lambda r: Figure(len(r.segments), culprit=_slow(r)),
    "ms": lambda r: Figure(_ours(r).est_ms, "ms", culprit=_slow(r) or _longest(r, "edgetpu")),
}
"""How each is made of a report. Parameters are bytes; their share is of the on-chip memory."""


def requirements(texts: Sequence[str]) -> list[Requirement]:
    """What `--require` was given, read before any work is done. Raises InputError."""
    return [Requirement.parse(text, FIGURES, _OPTION, _SHORT) for text in texts]


def check(wanted: Iterable[Requirement], r: Report) -> list[Outcome]:
    """Whether each holds. Raises InputError for a unit that a figure does not have."""
    found = {name: make(r) for name, make in FIGURES.items()}
    return [w.check(found, _OPTION) for w in wanted]
