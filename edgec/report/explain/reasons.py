"""Groups the ops that are not on the Edge TPU by the reason, the largest gain first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgec_devices.intervals import two_digits
from edgec_partitioner.explain import ExplainReport, OpRow
from edgec_partitioner.gains import reason_of

from edgec.report.tables import LONGEST
from edgec.report.wording import count, plain, shortened

SMALL = 0.01
"""A reason is in the summary if mending it may gain this share of the estimate."""


@dataclass(frozen=True)
class Reason:
    """A rule, and the ops that it keeps on the CPU.

    The ops are of one kind, or of one region that is not worth its transfers.

    Attributes:
        kinds: kinds of the ops, with commas between
        uncertain: whether the Edge TPU might accept them
        constraint: the rule in words
        seen: the violation that was found
        fix: a change of the model that helps, if there is any
        ops: the ops
    """

    kinds: str
    uncertain: bool
    constraint: str
    seen: str
    fix: str | None
    ops: tuple[OpRow, ...]

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates of the ops."""
        return sum(op.macs for op in self.ops)

    @property
    def cpu_ms(self) -> float:
        """Return the estimated time of the ops on the CPU, ms."""
        return sum(op.cpu_ms for op in self.ops)

    @property
    def gain_ms(self) -> float:
        """Return the most that mending the reason would gain, ms."""
        return self.ops[0].gain_ms

    def title(self, times: str) -> str:
        """Return the number of the ops, and their cost or what mending would gain.

        `times` is the sign between number and kinds.
        """
        macs = f"{count(self.macs)} MACs, " if self.macs else ""
        cost = f"an estimated {two_digits(self.cpu_ms)} ms on the CPU"
        if self.fix:
            cost += f", at most {two_digits(self.gain_ms)} ms to gain"
        return f"{len(self.ops)} {times} {self.kinds}: {macs}{cost}"


def reasons(ops: Iterable[OpRow]) -> list[Reason]:
    """Return why ops are on the CPU, what gains most first, then what costs most."""
    groups: dict[tuple[str, str], list[OpRow]] = {}
    for op in ops:
        if op.refusals:
            groups.setdefault(reason_of(op.kind, op.refusals[0]), []).append(op)

    # Equal costs leave the reasons in the order of their rules.
    every = [_reason(groups[key]) for key in sorted(groups)]
    every.sort(key=lambda reason: reason.cpu_ms, reverse=True)
    every.sort(key=lambda reason: reason.gain_ms, reverse=True)
    return every


def pays(reason: Reason, r: ExplainReport) -> bool:
    """Return whether mending a reason may gain enough for a person to see it."""
    visible_ms = SMALL * r.comparison.edgec.est_ms
    return reason.gain_ms >= visible_ms


def _reason(ops: Sequence[OpRow]) -> Reason:
    """Return the reason of a group of ops, with its first op as the example."""
    first = ops[0]
    refusal = first.refusals[0]
    more = f" and {len(ops) - 1} more" if len(ops) > 1 else ""
    # One op as an example: a person can look it up in the model.
    example = f"op {first.index}, {first.source or first.name}{more}"
    return Reason(
        kinds=", ".join(dict.fromkeys(op.kind for op in ops)),
        uncertain=refusal.uncertain,
        constraint=" ".join(refusal.constraint.split()),
        seen=shortened(plain(f"{refusal.seen} ({example})"), LONGEST),
        fix=refusal.fix,
        ops=tuple(ops),
    )
