"""Rows for kernels that are one text for the vectors of every CPU (csrc/simd)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

import edgec_runtime

from edgec.ir import KernelCall
from edgec.schedule.cores import Core
from edgec.schedule.variant import Schedule, Variant

ISAS = (frozenset({"neon"}), frozenset({"avx2"}))
"""What ek_simd.h is written for; AVX-512 is taken where the compiler may."""

WHOLE = (0, 1)
"""part and parts of a call that computes all of its result."""

CSRC = Path(edgec_runtime.__file__).parent / "csrc"
"""The C that generated code includes."""

Rewrite = Callable[[KernelCall], KernelCall | None]


def defined(header: str, pattern: str) -> tuple[str, ...]:
    """The names that lines of a header of csrc begin to define: what the only group of
    `pattern` matches there.
    """
    return tuple(
        re.findall(
            f"^{pattern}", (CSRC / header).read_text(encoding="utf-8"), re.MULTILINE
        )
    )


def simd(
    of: str,
    name: str,
    rewrite: Rewrite,
    slower_on: Collection[str] = (),
    fuses: bool = False,
) -> list[Variant]:
    """The variant `name` of a plain kernel: `rewrite` makes the call of it, or None
    where it cannot take the call.

    slower_on: cores on which the plain kernel was faster. fuses: whether `rewrite`
    looks at the calls that follow.
    """

    def schedules(call: KernelCall, core: Core) -> list[Schedule]:
        return [] if core.name in slower_on or rewrite(call) is None else [{}]

    def apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
        made = rewrite(call)
        assert made is not None, f"{name} cannot take this call of {of}"
        return made

    return [Variant(of, name, isa, schedules, apply, fuses) for isa in ISAS]
