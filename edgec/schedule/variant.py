"""Kernel variants: other kernels for the calls of a plain one, each for certain cores.

The variants of a family of kernels are the list VARIANTS of its module in kernels/, the
preferred first. A new variant is a C file of csrc and a row of such a list.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from edgec.ir import Kernel, KernelCall, Scratch
from edgec.ir.kernel import Operand
from edgec.schedule import kernels
from edgec.schedule.cores import Core
from edgec.schedule.records import signature

Schedule = Mapping[str, int]
"""The free parameters of a variant: rows of its tile, order of its loops, …"""


@dataclass(frozen=True)
class Variant:
    """A way to compute the calls of a plain kernel.

    The C function computes a part of its result: its last two operands are the number
    of the part and that of all parts, for which `apply` gives 0 and 1.

    Attributes:
        of: the plain kernel
        name: name of the variant in records and tables, often that of its C function
        isa: features that a core must have
        schedules: returns the legal parameters for a call on a core, the best by
            analysis first; none where the variant cannot take the call
        apply: returns the call of the variant with such parameters; packs the weights
        fuses: whether `schedules` and `apply` handle the calls that follow a call
            (`KernelCall.then`); else the variant takes no call with any
        leads: returns whether analysis prefers the variant to those that do not lead
    """

    of: Kernel
    name: str
    isa: frozenset[str]
    schedules: Callable[[KernelCall, Core], Sequence[Schedule]]
    apply: Callable[[KernelCall, Core, Schedule], KernelCall]
    fuses: bool = False
    leads: Callable[[KernelCall, Core], bool] = lambda call, core: False

    def ways(self, call: KernelCall, core: Core) -> Sequence[Schedule]:
        """Return the legal parameters for a call on a core, the best first."""
        return self.schedules(call, core.computing(call.is_float16))

    def applied(self, call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
        """Return the call of the variant with such parameters; packs the weights."""
        applied = self.apply(call, core.computing(call.is_float16), schedule)
        if not call.is_float16:
            return applied

        # Variants count four bytes for an element of their scratch. What the plain
        # kernel has is not theirs: sums in double, for any elements.
        operands: list[Operand] = []
        for x in applied.operands:
            if isinstance(x, Scratch) and x not in call.operands:
                x = Scratch(x.nbytes // 2)
            operands.append(x)

        return replace(applied, operands=tuple(operands))


@cache
def variants() -> Mapping[Kernel, tuple[Variant, ...]]:
    """Return all variants by the plain kernel that they replace."""
    by_kernel: dict[Kernel, tuple[Variant, ...]] = {}

    # The modules import this one, so that they are found when variants are asked for.
    for module in pkgutil.iter_modules(kernels.__path__):
        path = f"{kernels.__name__}.{module.name}"
        for variant in importlib.import_module(path).VARIANTS:
            others = by_kernel.get(variant.of, ())
            by_kernel[variant.of] = (*others, variant)

    return by_kernel


def legal(call: KernelCall, core: Core) -> list[tuple[Variant, Schedule]]:
    """Return every way to compute a call on a core, the default first.

    The plain kernel is not among them.
    """
    return list(_legal(call, core))


def preferred(call: KernelCall, core: Core) -> tuple[Variant, Schedule] | None:
    """Return the best way by analysis; None where only the plain kernel is left."""
    return next(_legal(call, core), None)


def choice(call: KernelCall, core: Core) -> tuple[Variant, Schedule] | None:
    """Return the way in which the core computes a call.

    The result of a search comes before analysis, where it is legal.
    """
    return tuned(call, core) or preferred(call, core)


def tuned(call: KernelCall, core: Core) -> tuple[Variant, Schedule] | None:
    """Return the result of a search for this call.

    None where there was no search, or where its result is no longer legal.
    """
    # A signature costs a hash of the whole call: most cores have no results at all.
    if not core.tuned or call.kernel not in variants():
        return None

    result = core.tuned.get(signature(call))
    if result is None:
        return None

    for variant, schedule in _legal(call, core):
        if variant.name == result.variant and schedule == result.schedule:
            return variant, schedule

    return None


Choose = Callable[[KernelCall, Core], tuple[Variant, Schedule] | None]
"""Chooses one of the legal ways to compute a call.

None stands for the plain kernel, which does no calls that follow.
"""


@dataclass(frozen=True)
class Rules:
    """The parts of a schedule that are allowed; tests switch them off.

    Attributes:
        choose: chooses the variant of each call
        fusion: whether calls that follow another are computed together with it
        views: whether values lie in the bytes of others
        bands: whether convolutions that follow each other run a few rows at a time
        chains: whether elementwise calls that follow each other share one loop
        attention: whether products with a softmax between them run a few rows at a time
        spare: whether scratch memory must fit into what tensors leave of the arena
    """

    choose: Choose = choice
    fusion: bool = True
    views: bool = True
    bands: bool = True
    chains: bool = True
    attention: bool = True
    spare: bool = True


def _legal(call: KernelCall, core: Core) -> Iterator[tuple[Variant, Schedule]]:
    """Yield the legal ways, those of leading variants first.

    The generator stops early where only the first way is wanted, as schedules cost time
    to enumerate.
    """
    able: list[Variant] = []
    for variant in variants().get(call.kernel, ()):
        # A fused call has no other function that would do what follows it.
        if call.then and not variant.fuses:
            continue
        if variant.isa <= core.computing(call.is_float16).isa:
            able.append(variant)

    # The sort keeps the order of the lists among equals.
    able.sort(key=lambda variant: not variant.leads(call, core))
    for variant in able:
        for schedule in variant.ways(call, core):
            yield variant, schedule
