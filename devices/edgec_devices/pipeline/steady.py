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
    steps: list[Step] = []
    for insn in block:
        time = core.time(insn.kind) or core.unknown
        steps.append((time, insn, _family(insn.kind)))

    # An even number, rounded up, since the second half is measured.
    doubled_size = 2 * max(1, len(block))
    repetitions = 2 * -(-ENOUGH // doubled_size)
    repetitions = min(MOST, max(FEWEST, repetitions))

    if core.in_order:
        ends = _in_order(steps, core, repetitions)
    else:
        ends = _out_of_order(steps, core, repetitions)

    # The first half fills the pipes.
    half = repetitions // 2
    measured_cycles = ends[-1] - ends[half - 1]
    return measured_cycles / (repetitions - half)


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
        """Return the first cycle from `start` on with `length` free cycles of a pipe."""
        taken = self.taken[pipe] >> start

        # Afterwards a bit is set where any of the next `length` is. Each shift doubles
        # the span that the bits cover.
        span = 1
        while span < length:
            step = min(span, length - span)
            taken |= taken >> step
            span += step

        lowest_zero = ~taken & (taken + 1)
        return start + lowest_zero.bit_length() - 1

    def all_taken(self, pipes: tuple[int, ...], cycle: int) -> bool:
        """Return whether no pipe is free in a cycle."""
        return all(self.taken[pipe] >> cycle & 1 for pipe in pipes)

    def take(self, pipes: tuple[int, ...], start: int, length: int) -> int:
        """Take the pipe that is free first from `start` on, of several the least used.

        Return the first cycle.
        """
        candidates: list[tuple[int, int, int]] = []
        for pipe in pipes:
            first = self.first_free(pipe, start, length)
            candidates.append((first, self.load[pipe], pipe))
        first, _, best = min(candidates)

        cycles_taken = (1 << length) - 1
        self.taken[best] |= cycles_taken << first
        self.load[best] += length
        return first


def _out_of_order(
    steps: Sequence[Step], core: PipelineCore, repetitions: int
) -> list[int]:
    """Return the cycle in which each repetition ends on an out-of-order core."""
    front = _FrontEnd(core)
    registers = _Registers()
    pipes = _Pipes(core.n_pipes)
    retired = 0

    ends = []
    for _ in range(repetitions):
        for time, insn, family in steps:
            micro_ops = time.micro_ops + (insn.base is not None)
            dispatched = front.dispatch(micro_ops)

            # The result needs all of the pipes.
            operands_ready = registers.operands_ready(insn, family, dispatched + 1)
            issue = operands_ready
            for group, length in time.uses:
                issue = max(issue, pipes.take(group, operands_ready, length))
            registers.write(insn, family, time, issue)

            # Instructions retire in their order.
            retired = max(retired, issue + time.latency)
            front.flying.append((retired, micro_ops))
        ends.append(max(retired, front.cycle))
    return ends


class _FrontEnd:
    """The decoder of an out-of-order core, and its window of unfinished instructions.

    Attributes:
        core: the pipeline model.
        flying: the cycle of retirement and the µops of each instruction in the window.
        cycle: the current cycle.
    """

    def __init__(self, core: PipelineCore) -> None:
        self.core = core
        self.flying: deque[tuple[int, int]] = deque()
        self.cycle = 0
        self._in_window = 0
        self._decoded = 0
        self._dispatched = 0

    def dispatch(self, micro_ops: int) -> int:
        """Return the cycle in which the next instruction enters the window."""
        decoder_full = self._decoded == self.core.width
        too_many = self._dispatched + micro_ops > self.core.dispatch
        # An instruction of more µops than fit a cycle may still begin one.
        if decoder_full or (too_many and self._dispatched):
            self._begin_cycle(self.cycle + 1)

        # A full window waits for its oldest instruction.
        while self._in_window + micro_ops > self.core.window and self.flying:
            retired, left = self.flying.popleft()
            self._in_window -= left
            if retired > self.cycle:
                self._begin_cycle(retired)

        self._decoded += 1
        self._dispatched += micro_ops
        self._in_window += micro_ops
        return self.cycle

    def _begin_cycle(self, cycle: int) -> None:
        """Go on to a later cycle, in which nothing is decoded yet."""
        self.cycle = cycle
        self._decoded = 0
        self._dispatched = 0


class _Registers:
    """The cycles from which the registers of an out-of-order core can be read.

    Attributes:
        ready: the cycle of each register.
        late_ready: the same for an accumulator of the same family of instructions.
        family: the family of the last instruction that wrote each register.
    """

    def __init__(self) -> None:
        self.ready = [0] * REGISTERS
        self.late_ready = [0] * REGISTERS
        self.family = [""] * REGISTERS

    def operands_ready(self, insn: Insn, family: str, start: int) -> int:
        """Return the first cycle from `start` on with all operands."""
        for register in insn.reads:
            start = max(start, self.ready[register])

        # A store's data is waited for by nobody.
        if insn.kind.startswith("store"):
            return start
        for register in insn.late:
            ready = self.ready[register]
            if self.family[register] == family:
                ready = self.late_ready[register]
            start = max(start, ready)
        return start

    def write(self, insn: Insn, family: str, time: Time, begun: int) -> None:
        """Record the results of an instruction that begins in cycle `begun`."""
        ready = begun + time.latency
        for register in insn.writes:
            self.ready[register] = ready
            self.late_ready[register] = ready - time.late
            self.family[register] = family

        # The address moves on by an addition of its own.
        if insn.base is not None:
            self.ready[insn.base] = begun + 1
            self.family[insn.base] = ""


def _in_order(steps: Sequence[Step], core: PipelineCore, repetitions: int) -> list[int]:
    """Return the cycle in which each repetition ends on an in-order core."""
    pipes = _Pipes(core.n_pipes)
    ready = [0] * REGISTERS
    cycle = 0
    started = 0
    closed = False  # by an instruction that starts alone

    ends = []
    for _repetition in range(repetitions):
        for time, insn, _ in steps:
            start = _operands_ready(insn, time, ready, cycle)
            full = closed or started == core.width
            must_be_first = time.first or time.alone
            if start == cycle and (full or (started and must_be_first)):
                start += 1

            start = _pipes_free(pipes, time, start)
            for group, length in time.uses:
                pipes.take(group, start, length)

            # The next ones start no earlier than this one.
            if start > cycle:
                cycle = start
                started = 0
            started += 1
            closed = time.alone
            for register in insn.writes:
                ready[register] = start + time.latency
            if insn.base is not None:
                ready[insn.base] = start + 1
        ends.append(cycle)
    return ends


def _operands_ready(insn: Insn, time: Time, ready: Sequence[int], start: int) -> int:
    """Return the first cycle from `start` on with all operands, on an in-order core.

    ready: the cycle from which each register can be read.
    """
    for register in insn.reads:
        start = max(start, ready[register] - time.operands)
    # An accumulator is read late in the pipe.
    for register in insn.late:
        start = max(start, ready[register] - time.late)
    return start


def _pipes_free(pipes: _Pipes, time: Time, start: int) -> int:
    """Return the first cycle from `start` on with a free pipe for each use."""
    while any(pipes.all_taken(group, start) for group, _ in time.uses):
        start += 1
    return start
