"""The plain kernels of elementwise ops, and the facts that such kernels share.

An op says here for which types it has kernels, and what the schedule may do with them;
edgec/schedule reads these facts where it fuses calls and reuses memory.
"""

from __future__ import annotations

from edgec.ir import Elementwise, Kernel, KernelFamily
from edgec.ops.common import ARITHMETIC_KERNELS, REAL_KERNELS


def unary_kernels(
    family: str,
    types: tuple[str, ...] = REAL_KERNELS,
    even: tuple[str, ...] = (),
    header: str = "ek_unary.h",
    bounds: tuple[float, float] | None = None,
    vectorized: bool = False,
) -> KernelFamily:
    """Return the kernels of a function of one number.

    types, even: suffixes of the types with a kernel, and with one that rounds half to
    even. bounds, vectorized: as of `Kernel`.
    """
    template = Kernel(
        family,
        header,
        elementwise=Elementwise.UNARY,
        # The loop reads x[i], writes y[i] and never returns to i.
        in_place=(0,),
        bounds=bounds,
        vectorized=vectorized,
    )

    return KernelFamily(template, types, even)


def binary_kernels(
    family: str,
    types: tuple[str, ...],
    even: tuple[str, ...] = (),
    header: str = "ek_binary.h",
    vectorized: bool = False,
) -> KernelFamily:
    """Return the kernels of an elementwise op of two operands.

    types, even: suffixes of the types with a kernel, and with one that rounds half to
    even. vectorized: as of `Kernel`.
    """
    template = Kernel(
        family,
        header,
        elementwise=Elementwise.BINARY,
        # Both are read at i before y[i] is written. An operand that is broadcast is
        # read again later, but does not have the shape of the result.
        in_place=(0, 1),
        vectorized=vectorized,
    )

    return KernelFamily(template, types, even)


def arithmetic_kernels(family: str) -> KernelFamily:
    """Return the kernels of a sum, difference or product, for all types."""
    types = (*ARITHMETIC_KERNELS, "s8")
    return binary_kernels(family, types, even=("s8",), vectorized=True)


LUT = unary_kernels("lut", ("s8",)).of("s8")
"""The look-up of bytes in a table of 256, which computes any function of int8."""
