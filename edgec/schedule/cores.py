"""CPU cores as schedules see them: features of kernel variants, and facts of the core.

The facts come from the core's file in edgec_devices/cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from edgec_devices.boards import ArchTarget, Board, Cache
from edgec_devices.cores import core_facts
from edgec_devices.multicore import barrier_cycles

from edgec.schedule.database import Table, shipped


@dataclass(frozen=True)
class Core:
    """A CPU core.

    Attributes:
        name: the name of -mcpu
        isa: features that variants ask for; empty where only plain kernels run
        vector: bytes of a vector register
        registers: vector registers
        macs_s8: int8 multiply-accumulates a cycle at best
        macs_f32: float multiply-accumulates a cycle at best
        near: bytes a cycle from the first data cache
        stream: bytes a cycle from memory
        l1: bytes of the first data cache
        l2: bytes of the second cache, as far as the core has it for itself
        last: bytes of the last cache, which all cores have together
        flags: flags of the C compiler in addition to the target's
        detect: the C function of ek_cpu.h that tells whether the machine has such a
            core; "" if every machine of the target has
        in_order: whether instructions start in the order of the program
        threads: the most threads that share a call
        barrier: cycles that sharing a call costs
        room: bytes of the arena for the scratch of one thread of a call; None: any
        halves: whether kernels have float16 elements, as `computing` says
        winograd_f16: the most results in each direction that Winograd's convolutions
            of float16 compute together; None: any number
        tuned: the schedules of calls for which a search found a better one
    """

    name: str
    isa: frozenset[str] = frozenset()
    vector: int = 16
    registers: int = 32
    macs_s8: float = 1
    macs_f32: float = 1
    near: float = 16
    stream: float = 2
    l1: int = 32 << 10
    l2: int = 512 << 10
    last: int = 8 << 20
    flags: tuple[str, ...] = ()
    detect: str = ""
    in_order: bool = False
    threads: int = 1
    barrier: int = 2_000
    room: int | None = None
    halves: bool = False
    winograd_f16: int | None = None
    tuned: Table = field(default_factory=dict, compare=False, repr=False)

    @property
    def has_float16(self) -> bool:
        """Whether its vectors compute with float16."""
        return "fp16" in self.isa

    def computing(self, float16: bool) -> Core:
        """Return the core as schedules of float32 kernels see it.

        They count bytes of four for each element. With float16 elements, caches hold
        twice as many elements, and so do vectors of float16; the vectors of a core
        without these hold as many as of float32.
        """
        if not float16:
            return self

        # x86 cores widen float16 elements as they load them.
        has_vectors = self.has_float16 or "avx2" in self.isa
        factor = 2 if self.has_float16 else 1
        return replace(
            self,
            halves=True,
            isa=self.isa if has_vectors else frozenset(),
            vector=factor * self.vector,
            macs_f32=factor * self.macs_f32,
            near=2 * self.near,
            stream=2 * self.stream,
            l1=2 * self.l1,
            l2=2 * self.l2,
            room=None if self.room is None else 2 * self.room,
        )

    def with_caches(self, caches: Sequence[Cache]) -> Core:
        """Return the core with the data caches of a board, nearest first.

        Without any it keeps its own.
        """
        if not caches:
            return self
        second = caches[min(1, len(caches) - 1)]
        return replace(
            self,
            l1=caches[0].kib << 10,
            l2=second.kib << 10,
            last=caches[-1].kib << 10,
        )


PLAIN = Core("any core")
"""No core in particular: plain kernels only."""

_BETTER_CORES = {"x86_64_v3": ("x86_64_v4_vnni",)}
"""Better cores that a machine may have, by the core that its code is compiled for."""


def cores_of(board: Board, target: ArchTarget, threads: int = 1) -> tuple[Core, ...]:
    """Return the cores that a target's code is written for, the best first.

    All but the last have a function that detects them.
    """
    # The variants are for 64 bits.
    if target.name == "linux-armv7":
        return (replace(PLAIN, threads=threads),)

    # A better core has caches of its own: the board's are those of its base.
    base = core(target.mcpu).with_caches(board.caches)
    # On an ordinary machine threads meet as fast as a core says by itself.
    if board.core:
        base = replace(base, barrier=round(barrier_cycles(board)))
    names = _BETTER_CORES.get(base.name, ())
    better = [core(name) for name in names]
    return tuple(replace(c, threads=threads) for c in (*better, base))


@cache
def core(name: str) -> Core:
    """Return the core of this name; a core without a file gets plain kernels."""
    facts = core_facts(name)
    if facts is None:
        return replace(PLAIN, name=name)

    return Core(
        name=name,
        isa=frozenset(facts.isa),
        vector=facts.vector,
        registers=facts.registers,
        macs_s8=facts.macs_s8,
        macs_f32=facts.macs_f32,
        near=facts.near,
        stream=facts.stream,
        l1=facts.l1_kib << 10,
        l2=facts.l2_kib << 10,
        flags=facts.flags,
        detect=facts.detect,
        in_order=facts.pipeline is not None and facts.pipeline.in_order,
        winograd_f16=facts.winograd_f16,
        tuned=shipped(name),
    )
