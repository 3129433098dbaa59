"""Kernel calls: what an op asks of the C back-end, as data.

`OpDef.c` returns the call of a plain kernel, which says completely what is to be
computed; edgec/schedule chooses a variant of the kernel, and edgec/emit prints the C.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, TypeVar

from edgec.ir.c_struct import CStruct, Table
from edgec.ir.types import Array
from edgec.ir.value import Value


class Elementwise(Enum):
    """How the elements of a kernel's result depend on those of its operands."""

    NONE = "an element depends on several elements, or on its position"
    UNARY = "y[i] = f(x[i]); operands x, y, the number of elements, coefficients"
    BINARY = (
        "y[i] = f(a[i], b[i]), broadcast; operands a, b, y, ek_broadcast_t, parameters"
    )


class KernelRounding(Enum):
    """How an int8 kernel rounds; the value is the part of the C name that says so."""

    TFLITE = ""
    """As TFLite does: most kernels in fixed point, ties away from zero."""
    EVEN = "even"
    """As onnxruntime does: in float32, ties to the even neighbour."""
    CUT = "cut"
    """The fraction is cut off."""


@dataclass(frozen=True)
class Kernel:
    """A C function of csrc, with the facts about it that the schedule depends on.

    Its C name is `ek_<family>_<rounding>_<source>_<dtype>_<isa>`, without the parts
    that are empty, unless `symbol` gives it.

    Attributes:
        family: name of the operation, e.g. "add" or "conv2d"
        header: header of csrc that defines it; "" where csrc has no such kernel, so
            that the op cannot be written as C
        dtype: suffix of the element type, e.g. "f32"; where the kernel converts, of the
            result's elements
        source: suffix of the operand's element type, where the kernel converts
        rounding: how an int8 kernel rounds
        isa: last part of a variant's name, e.g. "simd"
        symbol: the C name, where it does not follow from the other parts
        elementwise: how an element of the result depends on the operands
        in_place: positions of the operands that may have the same memory as the result
            if they have its shape: the kernel reads each of their elements before it
            writes that element of the result, and does not read it later
        bounds: (lowest, highest) result of a kernel that is a clamp to constants
        vectorized: whether csrc/simd has a kernel on vectors of floats that is named as
            this one with "_simd"; chains can have it as a step, and where it is unary,
            epilogues of convolutions can apply it
    """

    family: str
    header: str
    dtype: str = ""
    source: str = ""
    rounding: KernelRounding = KernelRounding.TFLITE
    isa: str = ""
    symbol: str = ""
    elementwise: Elementwise = Elementwise.NONE
    in_place: tuple[int, ...] = ()
    bounds: tuple[float, float] | None = None
    vectorized: bool = False

    @property
    def name(self) -> str:
        """The name of the C function."""
        if self.symbol:
            return self.symbol

        parts = (self.family, self.rounding.value, self.source, self.dtype, self.isa)
        return "_".join(("ek", *filter(None, parts)))

    @property
    def is_defined(self) -> bool:
        """Whether csrc has the kernel; families do not have one for every type."""
        return bool(self.header)

    def __str__(self) -> str:
        """Return the name of the C function, for messages."""
        return self.name


@dataclass(frozen=True)
class KernelFamily:
    """The plain kernels of one operation: one for each element type and rounding.

    Defining a family registers it, so that kernels can be found by their names.

    Attributes:
        template: the facts that all kernels of the family have in common
        types: suffixes of the element types, "<source>_<dtype>" for conversions
        even: those of the kernels that round half to even
        cut: those of the kernels that cut fractions off
    """

    registry: ClassVar[dict[str, KernelFamily]] = {}
    """Families by their names."""

    template: Kernel
    types: tuple[str, ...]
    even: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Register the family.

        Raises TypeError where another one of its name exists.
        """
        name = self.template.family
        if KernelFamily.registry.setdefault(name, self) != self:
            raise TypeError(f"two definitions of the kernels {name}")

    def of(
        self,
        dtype: str = "",
        rounding: KernelRounding = KernelRounding.TFLITE,
        source: str = "",
    ) -> Kernel:
        """Return the kernel for a type; `is_defined` tells whether csrc has it."""
        types = {
            KernelRounding.TFLITE: self.types,
            KernelRounding.EVEN: self.even,
            KernelRounding.CUT: self.cut,
        }
        suffix = f"{source}_{dtype}" if source else dtype
        is_defined = suffix in types[rounding]

        header = self.template.header if is_defined else ""
        return replace(
            self.template,
            # Kernels for float16 may be the text of a header for float32.
            header=header.replace("f32", dtype),
            dtype=dtype,
            source=source,
            rounding=rounding,
            # The vectors of csrc/simd hold floats.
            vectorized=self.template.vectorized and dtype == "f32",
        )

    def kernels(self) -> Iterator[Kernel]:
        """Yield every kernel of the family that csrc has."""
        by_rounding = (
            (KernelRounding.TFLITE, self.types),
            (KernelRounding.EVEN, self.even),
            (KernelRounding.CUT, self.cut),
        )
        for rounding, types in by_rounding:
            for suffix in types:
                *source, dtype = suffix.split("_")
                yield self.of(dtype, rounding, "".join(source))

    @property
    def has_float16(self) -> bool:
        """Whether csrc has the kernel for float16."""
        return "f16" in self.types

    def __contains__(self, kernel: Kernel) -> bool:
        """Return whether a kernel is one of the family's, for any type."""
        return kernel.family == self.template.family and not kernel.isa


def kernel_named(name: str) -> Kernel:
    """Return the plain kernel with a C name; raises KeyError where there is none."""
    for family in KernelFamily.registry.values():
        for kernel in family.kernels():
            if kernel.name == name:
                return kernel

    raise KeyError(name)


@dataclass(frozen=True, eq=False)
class Pointer:
    """A pointer to the elements of a tensor.

    A constant tensor is written to the C file like a `Table`.

    Attributes:
        value: the tensor
        offset: first element
    """

    value: Value
    offset: int = 0


@dataclass(frozen=True)
class Scratch:
    """Memory without content before and after the call.

    Attributes:
        nbytes: bytes for each thread that shares the call
    """

    nbytes: int


@dataclass(frozen=True)
class Share:
    """An operand that names the part of its result that a call computes.

    Attributes:
        alone: C expression where one call computes all
        shared: C expression where threads share the call
    """

    alone: str
    shared: str


PART = Share("0", "part")
"""Number of the thread's part."""
PARTS = Share("1", "parts")
"""Number of parts."""


def constant(x: object) -> Array | None:
    """Return the elements of a constant operand; None for computed ones."""
    if isinstance(x, Pointer):
        return x.value.const
    return x.array if isinstance(x, Table) else None


Operand = Pointer | Table | Scratch | CStruct | Share | Kernel | int | str
"""An operand of a kernel.

Numbers and names of C enumerators stand for themselves, a kernel for the address of its
function.
"""


S = TypeVar("S", bound=CStruct)
"""The type of a struct."""


@dataclass(frozen=True, eq=False)
class KernelCall:
    """A call of a C kernel.

    Attributes:
        kernel: the C function
        operands: its arguments
        then: elementwise calls that follow on its result; a fused variant may do all at
            once
    """

    kernel: Kernel
    operands: tuple[Operand, ...]
    then: tuple[KernelCall, ...] = field(default=())

    @classmethod
    def of(cls, kernel: Kernel, *operands: Operand | Value) -> KernelCall:
        """Return a call with these operands; a value is a pointer to its elements."""
        # A value stands for all of its elements.
        pointers = (Pointer(x) if isinstance(x, Value) else x for x in operands)
        return cls(kernel, tuple(pointers))

    @property
    def is_float16(self) -> bool:
        """Whether it has float16 elements, where its kernel names float32 or no type.

        The kernel of a cascade names no type: the layers in its structs do.
        """
        if self.kernel.dtype not in ("", "f32"):
            return False

        pointers = (x for x in self.operands if isinstance(x, Pointer))
        return any(x.value.type.dtype == "float16" for x in pointers)

    @property
    def divisible(self) -> bool:
        """Whether several threads may share it."""
        return PARTS in self.operands

    def struct(self, kind: type[S]) -> S:
        """Return the operand that is a struct of this type.

        Raises LookupError where there is none.
        """
        struct = self.optional_struct(kind)
        if struct is None:
            raise LookupError(f"{self.kernel} is passed no {kind.__name__}")

        return struct

    def optional_struct(self, kind: type[S]) -> S | None:
        """Return the operand that is a struct of this type, if there is one."""
        for operand in self.operands:
            if isinstance(operand, kind):
                return operand

        return None

    def pointers(self) -> Iterator[Pointer]:
        """Yield the pointers to all tensors that it reads or writes.

        They include those of the calls that follow.
        """
        for operand in self.operands:
            if isinstance(operand, Pointer):
                yield operand

        # Fused calls read tensors of their own.
        for call in self.then:
            yield from call.pointers()
