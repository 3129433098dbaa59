"""Kernel variants: other ways to do what a plain kernel does, each for cores with
certain features.

The variants of a family of kernels are the list VARIANTS of its module in kernels/, the
preferred first. A new variant is a C file of csrc and a row of such a list.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from edgec.ir import KernelCall
from edgec.schedule import kernels
from edgec.schedule.cores import Core
from edgec.schedule.records import signature

Schedule = Mapping[str, int]
"""The free parameters of a variant: rows of its tile, order of its loops, …"""


@dataclass(frozen=True)
class Variant:
    """A way to compute the calls of the plain kernel `of`, by the C function `name`, on
    cores that have all of `isa`.

    schedules: the legal parameters for a call on a core, what analysis says is best
    first; none where it cannot take the call. apply: the call of the variant with such
    parameters; it packs the weights. The C function computes a part of its result: the
    last two operands are which, and of how many, and apply gives 0, 1. fuses: whether
    `schedules` says for the calls that follow a call (`KernelCall.then`) whether it can
    take them; else it takes none. leads: whether analysis prefers it to all that do not
    lead.
    """

    of: str
    name: str
    isa: frozenset[str]
    schedules: Callable[[KernelCall, Core], Sequence[Schedule]]
    apply: Callable[[KernelCall, Core, Schedule], KernelCall]
    fuses: bool = False
    leads: Callable[[KernelCall, Core], bool] = lambda call, core: False


@cache
def variants() -> Mapping[str, tuple[Variant, ...]]:
    """All variants, by the plain kernel that they replace."""
    found: dict[str, tuple[Variant, ...]] = {}
    for module in pkgutil.iter_modules(kernels.__path__):
        for v in importlib.import_module(f"{kernels.__name__}.{module.name}").VARIANTS:
            found[v.of] = (*found.get(v.of, ()), v)
    return found


def legal(call: KernelCall, core: Core) -> list[tuple[Variant, Schedule]]:
    """Every way to compute a call on a core but the plain one, the default first."""
    return list(_legal(call, core))


def preferred(call: KernelCall, core: Core) -> tuple[Variant, Schedule] | None:
    """What analysis says is the best way; None where there is but the plain one."""
    return next(_legal(call, core), None)


def choice(call: KernelCall, core: Core) -> tuple[Variant, Schedule] | None:
    """How the core computes a call: as a search found, where that is legal, else as
    analysis says.
    """
    return tuned(call, core) or preferred(call, core)


def tuned(call: KernelCall, core: Core) -> tuple[Variant, Schedule] | None:
    """What a search found; None where none has, and where that is no longer legal."""
    if core.tuned and call.kernel in variants():
        found = core.tuned.get(signature(call))
    else:
        found = None
    if found is None:
        return None
    return next(
        (
            (v, s)
            for v, s in _legal(call, core)
            if (v.name, s) == (found.variant, found.schedule)
        ),
        None,
    )


Choose = Callable[[KernelCall, Core], tuple[Variant, Schedule] | None]
"""How to compute a call: one of the legal ways; None for the plain kernel, which does
no calls that follow.
"""


@dataclass(frozen=True)
class Rules:
    """What a schedule may do. fusion: whether calls that follow another are done with
    it; views: values in others; bands: convolutions a few rows at a time; chains:
    elementwise calls that follow each other in one loop; spare: whether scratch is to
    fit where no more bytes of the arena live by it.
    """

    choose: Choose = choice
    fusion: bool = True
    views: bool = True
    bands: bool = True
    chains: bool = True
    spare: bool = True


def _legal(call: KernelCall, core: Core) -> Iterator[tuple[Variant, Schedule]]:
    able = (
        v
        for v in variants().get(call.kernel, ())
        if v.isa <= core.isa and (v.fuses or not call.then)
    )
    for v in sorted(able, key=lambda v: not v.leads(call, core)):
        yield from ((v, s) for s in v.schedules(call, core))
