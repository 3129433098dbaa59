"""Cores: what a kernel variant may use, and what the choice among legal schedules
depends on.

One TOML file each in cores/, named as the compiler names the core; there is no list to
extend.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from edgec_devices.boards import ArchTarget, Board, Cache

from edgec.schedule.database import Table, shipped

TABLES = Path(__file__).parent / "cores"


@dataclass(frozen=True)
class Core:
    """One core. isa: the features that variants ask for; none where only plain kernels
    run.

    vector: bytes of a register, of which there are `registers`. macs_s8, macs_f32:
    multiply-accumulates a cycle at best. near, stream: bytes a cycle from the first
    cache, and from beyond the second. l1, l2: bytes of the data caches that it has for
    itself. flags: of the C compiler, beside the target's. detect: the C function of
    ek_cpu.h that tells whether this machine is one; "": all of the target are. threads:
    the most that share a call. barrier: cycles that sharing costs. room: bytes of the
    arena that a call may take for the scratch of one thread; None: as many as it likes.
    tuned: the calls for which a search knows better than analysis.
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
    flags: tuple[str, ...] = ()
    detect: str = ""
    threads: int = 1
    barrier: int = 2_000
    room: int | None = None
    tuned: Table = field(default_factory=dict, compare=False, repr=False)

    def with_caches(self, caches: Sequence[Cache]) -> Core:
        """The same core with the caches of a board, nearest first; without any, its
        own.
        """
        if not caches:
            return self
        return replace(
            self, l1=caches[0].kib << 10, l2=caches[min(1, len(caches) - 1)].kib << 10
        )


PLAIN = Core("any core")
"""No core in particular: plain kernels only."""


def cores_of(board: Board, target: ArchTarget, threads: int = 1) -> tuple[Core, ...]:
    """The cores that a target's code is written for; all but the last say how a machine
    that has it is told.
    """
    return tuple(replace(c, threads=threads) for c in _cores_of(board, target))


def _cores_of(board: Board, target: ArchTarget) -> tuple[Core, ...]:
    if target.name == "linux-armv7":
        return (PLAIN,)  # its variants are for 64 bits
    found = core(target.mcpu).with_caches(board.caches)
    better = map(core, _BETTER.get(found.name, ()))
    return (*better, found)


_BETTER = {"x86_64_v3": ("x86_64_v4_vnni",)}
"""What a machine of a target may be beyond the core that its code is compiled for."""


@cache
def core(name: str) -> Core:
    """The core that the compiler calls by this name; one without a table gets plain
    kernels.
    """
    path = TABLES / f"{name}.toml"
    if not path.is_file():
        return replace(PLAIN, name=name)
    with path.open("rb") as f:
        facts = tomllib.load(f)
    facts["isa"], facts["flags"] = (
        frozenset(facts["isa"]),
        tuple(facts.pop("flags", ())),
    )
    facts["l1"], facts["l2"] = facts.pop("l1_kib") << 10, facts.pop("l2_kib") << 10
    return Core(name=name, tuned=shipped(name), **facts)
