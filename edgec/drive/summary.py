"""The first screen after a compile: places, sizes, checks; no noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from edgec.drive.edgetpu_loop import Outcome
from edgec.drive.lower import Lowered
from edgec.drive.verify import Verification
from edgec.emit.c import CSource
from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.edgetpu.driver import CompiledSegment


def summary(
    path: Path,
    lowered: Lowered,
    sources: Mapping[str, CSource],
    checked: Verification,
    asked: Outcome | None,
) -> str:
    """Plain text, at most 120 columns."""
    lines = [f"{path}: {lowered.graph.name} for {lowered.target.name}, {path.stat().st_size / 1e6:.1f} MB", ""]
    lines += [*_segments(lowered, sources), ""]
    lines += [*_top_refusals(lowered)]
    lines += [*_edgetpu_compiler(lowered, asked)]
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


def _edgetpu_compiler(lowered: Lowered, asked: Outcome | None) -> Iterator[str]:
    if asked is None:
        if any(s.place == "edgetpu" for s in lowered.partition.segments):
            yield f"{PROGRAM} was not run: Edge TPU segments run as C on the CPU, with the same results"
        return
    if asked.pending is not None:
        yield f"{asked.pending.what}: until then Edge TPU segments run as C on the CPU, with the same results"
        yield f"next: {asked.pending.hint}"
        return
    for f in asked.found:
        yield f"{PROGRAM} refused {f.op} ({f.kind}), which now runs on the CPU: {f.refusal.seen}"
    for name, result in asked.segments.items():
        yield result.problem or f"{PROGRAM} mapped all of {name}{_memory(result)}"
    if any(r.data is None for r in asked.segments.values()):
        yield "what it did not compile runs as C on the CPU, with the same results"
    if not asked.together and len(asked.segments) > 1:
        yield "the segments could not be compiled together: each takes all of the on-chip memory when it runs"
    if asked.warning is not None:
        yield f"warning: {asked.warning}"
    rounds = f"{asked.rounds} round{'s' * (asked.rounds != 1)}, {asked.calls} call{'s' * (asked.calls != 1)}"
    yield f"{PROGRAM} {asked.version or 'of unknown version'}, {asked.runner}: {rounds}"


def _memory(result: CompiledSegment) -> str:
    """How many of its parameters stay on the chip."""
    log = result.log
    if log.cached_bytes is None or log.streamed_bytes is None:
        return ""
    return (
        f"; parameters: {log.cached_bytes / 1e6:.2f} MB on the chip, {log.streamed_bytes / 1e6:.2f} MB sent each time"
    )


def _checks(checked: Verification) -> Iterator[str]:
    samples = f"{checked.samples} sample{'s' * (checked.samples > 1)}"
    for c in checked.segments:
        near = f"within {c.error:.2g} of interp ({c.limit:.2g} allowed)"
        exact = near if c.error else "equal to interp, bit for bit"
        yield f"verified {c.segment} as {c.how} on {samples} of {checked.source}: {exact}"
    for name, agreement in checked.whole.items():
        yield f"verified output {name} against the {'float ' if checked.quantized else ''}model: {agreement}"
