"""Comparisons, logic, and the choice between two values, with numpy broadcasting.

Semantics: the ONNX and TFLite operators of the same names; Where is TFLite's SELECT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict, Unpack

import numpy as np

from edgec.ir import (
    Array,
    Kernel,
    KernelCall,
    KernelFamily,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Sample,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
)
from edgec.ir.c_structs_data import WhereParams
from edgec.ir.opdef import Arg
from edgec.ops.binary import Binary
from edgec.ops.broadcast import aligned
from edgec.ops.broadcast_dims import broadcast_strides
from edgec.ops.common import INTEGERS, NUMBER_KERNELS, suffix
from edgec.ops.elementwise_kernels import binary_kernels, unary_kernels
from edgec.ops.unary import Unary

_WHERE = KernelFamily(Kernel("where", "ek_compare.h"), (*NUMBER_KERNELS, "s8"))


@dataclass(frozen=True)
class Compare(Binary):
    """A bool for each pair of elements."""

    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    kernel_types: ClassVar[tuple[str, ...]] = NUMBER_KERNELS
    """Suffixes of the types with a kernel."""
    sampled: ClassVar[tuple[str, ...]] = ("float32", *INTEGERS)
    tflite_types: ClassVar[tuple[str, ...]] = ("float32", "int32", "int64", "bool")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return bool of the broadcast shape.

        Raises ValueError for quantized operands, whose scales may differ.
        """
        if x[0].is_quantized:
            raise ValueError(f"comparison of quantized {x[0]} is not supported")

        # The operands must broadcast.
        (y,) = super().infer(*x)

        return (TensorType(y.shape, "bool"),)


class _CompareRow(TypedDict, total=False):
    """The operators of the file formats that a row reads."""

    onnx: tuple[str, ...]
    tflite: tuple[str, ...]


def _row(
    base: type[Compare],
    kind: str,
    fn: Callable[..., Any],
    doc: str,
    **fields: Unpack[_CompareRow],
) -> type[Binary]:
    """Return the op class of one comparison or connective.

    TFLite's options table has its name.
    """
    name = kind.title().replace("_", "")
    body = {
        "kind": kind,
        "kernels": binary_kernels(kind, base.kernel_types, header="ek_compare.h"),
        "fn": staticmethod(fn),
        "options": f"{name}Options",
        "__doc__": doc,
        "__module__": __name__,
        **fields,
    }

    return dataclass(frozen=True)(type(name, (base,), body))


Equal = _row(Compare, "equal", np.equal, "a = b.", onnx=("Equal",), tflite=("EQUAL",))
NotEqual = _row(Compare, "not_equal", np.not_equal, "a ≠ b.", tflite=("NOT_EQUAL",))
Less = _row(Compare, "less", np.less, "a < b.", onnx=("Less",), tflite=("LESS",))
LessEqual = _row(
    Compare,
    "less_equal",
    np.less_equal,
    "a ≤ b.",
    onnx=("LessOrEqual",),
    tflite=("LESS_EQUAL",),
)
Greater = _row(
    Compare,
    "greater",
    np.greater,
    "a > b.",
    onnx=("Greater",),
    tflite=("GREATER",),
)
GreaterEqual = _row(
    Compare,
    "greater_equal",
    np.greater_equal,
    "a ≥ b.",
    onnx=("GreaterOrEqual",),
    tflite=("GREATER_EQUAL",),
)


@dataclass(frozen=True)
class Logical(Compare):
    """A connective of bools."""

    kernel_types: ClassVar[tuple[str, ...]] = ("u8",)
    sampled: ClassVar[tuple[str, ...]] = ("bool",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return bool of the broadcast shape.

        Raises ValueError for other element types than bool.
        """
        if x[0].dtype != "bool":
            raise ValueError(f"{self.kind} takes bool, not {x[0]}")

        return super().infer(*x)


LogicalAnd = _row(
    Logical,
    "logical_and",
    np.logical_and,
    "a and b.",
    onnx=("And",),
    tflite=("LOGICAL_AND",),
)
LogicalOr = _row(
    Logical,
    "logical_or",
    np.logical_or,
    "a or b.",
    onnx=("Or",),
    tflite=("LOGICAL_OR",),
)
LogicalXor = _row(
    Logical,
    "logical_xor",
    np.logical_xor,
    "Either, not both.",
    onnx=("Xor",),
)


@dataclass(frozen=True)
class LogicalNot(Unary):
    """y = not x."""

    kind = "logical_not"
    kernels = unary_kernels("logical_not", ("u8",), header="ek_compare.h")
    onnx = ("Not",)
    tflite = ("LOGICAL_NOT",)
    options: ClassVar[str] = "LogicalNotOptions"
    fn = staticmethod(np.logical_not)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return bool of the input's shape.

        Raises ValueError for other element types than bool.
        """
        if x[0].dtype != "bool":
            raise ValueError(f"logical_not takes bool, not {x[0]}")

        return (TensorType(x[0].shape, "bool"),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield a matrix of bools."""
        yield Sample(cls(), (Arg(TensorType((3, 5), "bool")),))


@dataclass(frozen=True)
class Where(OpDef):
    """y = condition ? a : b, all three broadcast as numpy.where does."""

    kind = "where"
    onnx = ("Where",)
    tflite = ("SELECT", "SELECT_V2")
    roles: ClassVar[tuple[str, ...]] = ("index", "act")
    quant: ClassVar[QuantRule] = QuantRule.SAME
    elementwise: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the broadcast shape, with the type of a.

        Raises ValueError when a and b have different types or scales, or the condition
        is not bool.
        """
        condition, a, b = x
        if condition.dtype != "bool" or a.dtype != b.dtype:
            raise ValueError(f"cannot choose by {condition} between {a} and {b}")

        if a.is_quantized and a.quant != b.quant:
            raise ValueError("the choices have different scales")

        # The condition broadcasts as well.
        shapes = [t.shape for t in x]
        shape = np.broadcast_shapes(*shapes)
        broadcast_strides(shape, *shapes)

        return (TensorType(shape, a.dtype, a.quant),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy.where."""
        return [np.where(*x).astype(yt[0].np_dtype)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Where."""
        inputs = [node.input(i) for i in range(3)]
        operands = aligned(node.build, inputs, node.name)
        return node.build.add(cls(), operands, node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read SELECT_V2, which broadcasts, and SELECT of equal shapes.

        SELECT may also have one condition for each row, which is refused.
        """
        condition = op.input(0).type
        a = op.input(1).type
        if op.name == "SELECT" and condition.shape != a.shape and condition.rank:
            raise ValueError(
                f"one condition for each row ({condition}) is not supported"
            )

        op.build.write(cls(), op.present(), op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return SELECT_V2; None for types that LiteRT's kernel does not take.

        TFLite's int8 and uint8 always have a scale.
        """
        y = op.output.type
        is_plain_8_bit = y.dtype in ("int8", "uint8") and y.quant is None
        if is_plain_8_bit or y.dtype in ("uint16", "uint32", "uint64"):
            return None

        return TfliteCode("SELECT_V2", ("SelectV2Options", {}))

    def c(self, op: Op) -> KernelCall:
        """Return ek_where_<type>."""
        y = op.output.type

        # All three have strides of their own.
        shapes = [value.type.shape for value in op.inputs]
        dims, (condition, a, b) = broadcast_strides(y.shape, *shapes)
        spec = WhereParams(dim=dims, c=condition, a=a, b=b)

        return KernelCall.of(_WHERE.of(suffix(y)), *op.inputs, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield every element type, a mask over the image, and a scalar choice."""
        shape = (1, 3, 4, 5)
        condition = Arg(TensorType(shape, "bool"))
        for dtype in ("float32", "bool", *INTEGERS):
            choice = Arg(TensorType(shape, dtype))
            yield Sample(cls(), (condition, choice, choice), label=dtype)

        s8 = TensorType(shape, "int8", Quant.per_tensor(0.1, 3))
        rows = Arg(TensorType((4, 1), "bool"))
        channel = Arg(s8.with_shape((5,)))
        yield Sample(cls(), (rows, Arg(s8), channel), label="s8")

        mask = Arg(TensorType((1, 3, 4, 1), "bool"))
        image = Arg(TensorType(shape))
        scalar = Arg(TensorType(()))
        yield Sample(cls(), (mask, image, scalar), label="mask")
