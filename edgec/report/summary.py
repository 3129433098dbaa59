"""The first screen after a compile: places, sizes, checks; no noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from edgec.emit.c import CSource
from edgec.lowering import Lowered
from edgec.toolchain.edgetpu import CompiledSegment
from edgec.verification import Verification


def summary(
    path: Path,
    lowered: Lowered,
    sources: Mapping[str, CSource],
    checked: Verification,
    edgetpu: Mapping[str, CompiledSegment],
) -> str:
    """Plain text, at most 120 columns."""
    lines = [f"{path}: {lowered.graph.name} for {lowered.target.name}, {path.stat().st_size / 1e6:.1f} MB", ""]
    lines += [*_segments(lowered, sources), ""]
    lines += [*_top_refusals(lowered)]
    lines += [*_edgetpu_compiler(lowered, edgetpu)]
    lines += [*_checks(checked)]
    return "\n".join(lines)


def _segments(lowered: Lowered, sources: Mapping[str, CSource]) -> Iterator[str]:
    segments = lowered.partition.segments
    total = max(1, sum(s.macs for s in segments))
    yield f"{'segment':<8} {'place':<8} {'ops':>4} {'MACs':>14} {'share':>6} {'arena, bytes':>13} {'above bound':>12}"
    for s in segments:
        plan = sources[s.name].plan
        above = f"{plan.size / plan.lower_bound - 1:.1%}" if plan.lower_bound else "-"
        sizes = f"{s.macs:>14,} {s.macs / total:>6.1%} {plan.size:>13,} {above:>12}"
        yield f"{s.name:<8} {s.place:<8} {len(s.graph.ops):>4} {sizes}"


def _top_refusals(lowered: Lowered) -> Iterator[str]:
    """The three reasons that keep most work from the Edge TPU."""
    groups: dict[tuple[str, str], list[int]] = {}
    for op, verdict in lowered.partition.verdicts.items():
        if verdict.refusals:
            groups.setdefault((op.kind, verdict.refusals[0].constraint), []).append(op.spec.macs(op))
    ordered = sorted(groups.items(), key=lambda item: (-sum(item[1]), -len(item[1]), item[0]))
    for (kind, reason), macs in ordered[:3]:
        yield f"on the CPU: {len(macs)} x {kind}: {' '.join(reason.split())}"
    if groups:
        yield "(edgec explain shows them all)"


def _edgetpu_compiler(lowered: Lowered, results: Mapping[str, CompiledSegment]) -> Iterator[str]:
    wanted = [s.name for s in lowered.partition.segments if s.place == "edgetpu"]
    if wanted and not results:
        yield "edgetpu_compiler is not on the PATH: Edge TPU segments run as C on the CPU, with the same results"
    for name, result in results.items():
        yield from result.warnings or (f"edgetpu_compiler mapped all of {name}",)


def _checks(checked: Verification) -> Iterator[str]:
    samples = f"{checked.samples} sample{'s' * (checked.samples > 1)}"
    for c in checked.segments:
        near = f"within {c.error:.2g} of interp ({c.limit:.2g} allowed)"
        exact = near if c.error else "equal to interp, bit for bit"
        yield f"verified {c.segment} as {c.how} on {samples} of {checked.source}: {exact}"
    for name, agreement in checked.whole.items():
        yield f"verified output {name} against the {'float ' if checked.quantized else ''}model: {agreement}"
