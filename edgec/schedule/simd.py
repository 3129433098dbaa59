"""Variants that are one C text for the vectors of every CPU (csrc/simd/ek_simd.h)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from edgec.ir import Elementwise, Kernel, KernelCall, KernelFamily
from edgec.schedule.cores import Core
from edgec.schedule.variant import Schedule, Variant

ISAS = (frozenset({"neon"}), frozenset({"avx2"}))
"""The instruction sets of ek_simd.h; AVX-512 is used where the compiler may."""

WHOLE = (0, 1)
"""The operands `part` and `parts` of a call that computes all of its result."""

Rewrite = Callable[[KernelCall], KernelCall | None]
"""Makes the call of a variant from that of a plain kernel; None where it cannot."""

_VECTOR_HEADERS = {
    (Elementwise.UNARY, True): "simd/ek_unary_f32_simd.h",
    (Elementwise.UNARY, False): "simd/ek_unary_simd.h",
    (Elementwise.BINARY, True): "simd/ek_binary_f32_simd.h",
    (Elementwise.BINARY, False): "simd/ek_binary_simd.h",
}
"""The headers of the kernels for vectors, by whether their elements are floats."""


def vectorized(elementwise: Elementwise) -> list[Kernel]:
    """Return the plain kernels that csrc/simd also has for vectors of floats.

    elementwise: the kind of kernels that are wanted.
    """
    kernels: list[Kernel] = []
    for family in KernelFamily.registry.values():
        for kernel in family.kernels():
            if kernel.vectorized and kernel.elementwise is elementwise:
                kernels.append(kernel)

    return kernels


def on_vectors(kernel: Kernel) -> Kernel:
    """Return the kernel for vectors that belongs to a vectorized plain kernel."""
    header = _VECTOR_HEADERS[kernel.elementwise, kernel.dtype == "f32"]
    return replace(kernel, header=header, isa="simd")


def simd(
    of: Kernel,
    kernel: Kernel,
    rewrite: Rewrite,
    slower_on: Collection[str] = (),
    fuses: bool = False,
) -> list[Variant]:
    """Return the variant of a plain kernel, once for each instruction set.

    of: the plain kernel. kernel: the one that computes its calls. rewrite: makes the
    call. slower_on: cores on which the plain kernel was faster. fuses: whether
    `rewrite` handles the calls that follow.
    """

    def schedules(call: KernelCall, core: Core) -> list[Schedule]:
        if core.name in slower_on or rewrite(call) is None:
            return []

        # There is nothing to choose.
        return [{}]

    def apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
        rewritten = rewrite(call)
        assert rewritten is not None, f"{kernel} cannot take this call of {of}"
        return rewritten

    return [Variant(of, kernel.name, isa, schedules, apply, fuses) for isa in ISAS]
