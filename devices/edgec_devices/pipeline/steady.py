"""How many cycles a block takes when it is repeated back to back.

Not a bound but a small simulation of some repetitions: every instruction starts as soon
as its operands, a pipe and its turn allow, so both what the pipes can do and the chains
of dependencies around the loop are seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from edgec_devices.pipeline.core import PipelineCore, Time
from edgec_devices.pipeline.insn import Insn

REGISTERS = 65
ENOUGH = 384
FEWEST = 6
MOST = 64
"""Instructions to simulate, and the limits of the repetitions; the second half of them
is measured.
"""

Step = tuple[Time, Insn, str]


def cycles(block: Sequence[Insn], core: PipelineCore) -> float:
    """Cycles of one execution of the block in the long run, when the data is in the
    nearest cache.
    """
    steps = [(core.time(i.kind) or core.unknown, i, _family(i.kind)) for i in block]
    repetitions = min(MOST, max(FEWEST, 2 * -(-ENOUGH // (2 * max(1, len(block))))))
    if core.in_order:
        ends = _in_order(steps, core, repetitions)
    else:
        ends = _out_of_order(steps, core, repetitions)
    half = repetitions // 2
    return (ends[-1] - ends[half - 1]) / (repetitions - half)


def _family(kind: str) -> str:
    """Out-of-order cores forward an accumulator late only from instructions of this
    pipe: multiplications of a sort.
    """
    for family in ("fp_fma", "fp_mul", "v_mla", "v_mul", "mul"):
        if kind.startswith(family):
            return family.replace("fma", "mul").replace("mla", "mul")
    return kind.removesuffix("_q")


class _Pipes:
    """Which cycles each pipe is taken in: bit c of a pipe's number is cycle c."""

    def __init__(self, n: int) -> None:
        self.taken = [0] * n
        self.load = [0] * n

    def first_free(self, pipe: int, start: int, length: int) -> int:
        taken = self.taken[pipe] >> start
        if length > 1:  # a bit is set where any of the next `length` is
            span = 1
            while span < length:
                step = min(span, length - span)
                taken |= taken >> step
                span += step
        return start + (~taken & (taken + 1)).bit_length() - 1

    def take(self, pipes: tuple[int, ...], start: int, length: int) -> int:
        """Takes the pipe that is free first from `start` on, of several the least used.

        Returns the first cycle.
        """
        at, _, best = min(
            (self.first_free(p, start, length), self.load[p], p) for p in pipes
        )
        self.taken[best] |= (1 << length) - 1 << at
        self.load[best] += length
        return at


def _out_of_order(
    steps: Sequence[Step], core: PipelineCore, repetitions: int
) -> list[int]:
    pipes = _Pipes(core.n_pipes)
    ready = [0] * REGISTERS
    late_ready = [0] * REGISTERS
    family_of = [""] * REGISTERS
    # (retired in cycle, µops) of what is in the window
    flying: deque[tuple[int, int]] = deque()
    in_window = cycle = decoded = dispatched = retired = 0
    ends = []
    for _ in range(repetitions):
        for time, insn, family in steps:
            n = time.micro_ops + (insn.base is not None)
            if decoded == core.width or (dispatched + n > core.dispatch and dispatched):
                cycle = cycle + 1
                decoded = 0
                dispatched = 0
            while in_window + n > core.window and flying:
                done, left = flying.popleft()
                in_window -= left
                if done > cycle:
                    cycle = done
                    decoded = 0
                    dispatched = 0
            decoded = decoded + 1
            dispatched = dispatched + n
            in_window = in_window + n
            start = cycle + 1
            for r in insn.reads:
                start = max(start, ready[r])
            # a store's data is waited for by nobody
            if not insn.kind.startswith("store"):
                for r in insn.late:
                    start = max(
                        start, late_ready[r] if family_of[r] == family else ready[r]
                    )
            begun = start
            for group, length in time.uses:
                begun = max(begun, pipes.take(group, start, length))
            for r in insn.writes:
                ready[r], late_ready[r], family_of[r] = (
                    begun + time.latency,
                    begun + time.latency - time.late,
                    family,
                )
            if insn.base is not None:
                ready[insn.base], family_of[insn.base] = begun + 1, ""
            retired = max(retired, begun + time.latency)
            flying.append((retired, n))
        ends.append(max(retired, cycle))
    return ends


def _in_order(steps: Sequence[Step], core: PipelineCore, repetitions: int) -> list[int]:
    pipes = _Pipes(core.n_pipes)
    ready = [0] * REGISTERS
    cycle = started = 0
    closed = False  # by an instruction that starts alone
    ends = []
    for _repetition in range(repetitions):
        for time, insn, _ in steps:
            start = cycle
            for r in insn.reads:
                start = max(start, ready[r] - time.operands)
            for r in insn.late:
                start = max(start, ready[r] - time.late)
            if start == cycle and (
                closed
                or started == core.width
                or (started and (time.first or time.alone))
            ):
                start += 1
            while any(
                all(pipes.taken[p] >> start & 1 for p in group)
                for group, _ in time.uses
            ):
                start += 1
            for group, length in time.uses:
                pipes.take(group, start, length)
            if start > cycle:
                cycle = start
                started = 0
            started = started + 1
            closed = time.alone
            for r in insn.writes:
                ready[r] = start + time.latency
            if insn.base is not None:
                ready[insn.base] = start + 1
        ends.append(cycle)
    return ends
