"""The pipeline model of a CPU core: the table `pipeline` of its file (edgec_devices.cores).

    [pipeline]
    in_order = false
    width = 3            # instructions decoded a cycle
    dispatch = 5         # micro-operations handed to the pipes a cycle
    window = 128         # micro-operations between the oldest unfinished one and the newest
    mispredicted = 15    # cycles lost by a wrongly predicted branch

    [pipeline.pipes]     # a name for each set of equal pipes
    V = ["F0", "F1"]
    F0 = ["F0"]

    [pipeline.times]     # by kind of instruction (decode*.py)
    fp_fma_q = "7 +4 V V"

A time is: the cycles until the result can be used; `+4`: the accumulator, or the data
of a store, is needed 4 cycles after the start; `@2`: so are the other operands, 2
cycles after it; then the pipes that its micro-operations need, `F0*2` for two cycles,
`-` for a micro-operation that needs none.  On a core that issues in order, which has
neither `dispatch` nor `window`: `first`, it must be the first of the instructions that
start in its cycle; `alone`, the only one.  A kind that ends in `_q` and has no time of
its own has that of the kind without.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from edgec_runtime.errors import InputError, did_you_mean

from edgec_devices.cores import CORRECT, core_facts, core_file, pipelined_cores
from edgec_devices.pipeline.insn import UNKNOWN


@dataclass(frozen=True)
class Time:
    """How long an instruction of one kind takes.  uses: (numbers of the pipes it may
    take, cycles), one per use.
    """

    latency: int
    micro_ops: int = 1
    uses: tuple[tuple[tuple[int, ...], int], ...] = ()
    operands: int = 0
    late: int = 0
    first: bool = False
    alone: bool = False


@dataclass(frozen=True)
class PipelineCore:
    """A core as its file has it.  n_pipes: pipes are numbered from 0."""

    name: str
    in_order: bool
    width: int
    mispredicted: float
    n_pipes: int
    times: dict[str, Time]
    dispatch: int = 0
    window: int = 0

    @staticmethod
    @cache
    def load(name: str) -> PipelineCore:
        """The pipeline model of a core.

        Raises InputError with the nearest name for any other.
        """
        file = core_facts(name)
        if file is None or file.pipeline is None:
            cores = pipelined_cores()
            raise InputError(
                f'there is no pipeline model of "{name}"{did_you_mean(name, cores)}',
                hint=f"use {', '.join(cores)}",
            )
        facts = file.pipeline
        at = str(core_file(name))
        if not facts.in_order and not (facts.dispatch > 0 and facts.window > 0):
            raise InputError(
                f"{name} is out of order, but has no dispatch or no window", at, CORRECT
            )

        # The pipes are numbered in the order in which the groups name them.
        numbers: dict[str, int] = {}
        groups: dict[str, tuple[int, ...]] = {}
        for group, names in facts.pipes.items():
            for pipe in names:
                numbers.setdefault(pipe, len(numbers))
            groups[group] = tuple(numbers[pipe] for pipe in names)

        times: dict[str, Time] = {}
        for kind, text in facts.times.items():
            try:
                times[kind] = _time(text, groups)
            except (KeyError, ValueError) as e:
                raise InputError(
                    f'the time of {kind} is "{text}", which is not a latency and '
                    f"pipes of {', '.join(groups)}",
                    at,
                    CORRECT,
                ) from e
        if UNKNOWN not in times:
            raise InputError(f"{name} has no time for {UNKNOWN}", at, CORRECT)
        return PipelineCore(
            name,
            facts.in_order,
            facts.width,
            facts.mispredicted,
            len(numbers),
            times,
            facts.dispatch,
            facts.window,
        )

    def time(self, kind: str) -> Time | None:
        """The time of this kind, or None if the core's file does not have it."""
        return self.times.get(kind) or self.times.get(kind.removesuffix("_q"))

    @property
    def unknown(self) -> Time:
        """What an instruction counts as that the decoder or the core's file does not
        know.
        """
        return self.times[UNKNOWN]


def _time(text: str, groups: dict[str, tuple[int, ...]]) -> Time:
    """Return the time of a kind, from its text in the core's file.

    text: the latency, then the pipes and the other facts.
    groups: the numbers of the pipes of each group.
    """
    latency, *words = text.split()
    facts: dict[str, int | bool] = {}
    uses: list[tuple[tuple[int, ...], int]] = []
    micro_ops = 0
    for word in words:
        # Every word that is no delay stands for a µop.
        if word[0] == "+":
            facts["late"] = int(word[1:])
            continue
        if word[0] == "@":
            facts["operands"] = int(word[1:])
            continue

        micro_ops += 1
        if word in ("first", "alone"):
            facts[word] = True
        elif word != "-":
            group, _, cycles = word.partition("*")
            length = int(cycles or 1)
            uses.append((groups[group], length))
    return Time(int(latency), max(1, micro_ops), tuple(uses), **facts)  # type: ignore[arg-type]
