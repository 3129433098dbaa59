"""Comparisons, logic, and the choice between two values, with numpy broadcasting.

Semantics: the ONNX and TFLite operators of the same names (TFLite's
reference/comparisons.h); Where is TFLite's SELECT.
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
from edgec.ir.c_structs import CompareParams, WhereParams
from edgec.ir.opdef import Arg
from edgec.ops.binary import Binary
from edgec.ops.broadcast import aligned
from edgec.ops.broadcast_dims import broadcast, broadcast_strides
from edgec.ops.common import INTEGERS, NUMBER_KERNELS, suffix
from edgec.ops.elementwise_kernels import binary_kernels, unary_kernels
from edgec.ops.fixed_point import (
    multiply_by_quantized_multiplier,
    quantize_multiplier,
)
from edgec.ops.shape import Reshape
from edgec.ops.unary import Unary

_STEP_BITS = 8
"""Bits by which TFLite shifts elements to the left before it scales them."""
MAX_COMPARED_SCALE = 1 << 15
"""Elements of larger scales do not fit in int32 with their steps."""

_WHERE = KernelFamily(Kernel("where", "ek_compare.h"), (*NUMBER_KERNELS, "s8"))


@dataclass(frozen=True)
class Compare(Binary):
    """A bool for each pair of elements.

    int8 elements with scales are brought to fixed point, 256 steps to 1, as TFLite
    does: what rounds to the same steps is equal.
    """

    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    kernel_types: ClassVar[tuple[str, ...]] = (*NUMBER_KERNELS, "s8")
    """Suffixes of the types with a kernel."""
    sampled: ClassVar[tuple[str, ...]] = ("float32", *INTEGERS)
    tflite_types: ClassVar[tuple[str, ...]] = (*Binary.tflite_types, "bool")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return bool of the broadcast shape.

        Raises ValueError when one operand alone has a scale.
        """
        # The operands must broadcast.
        (y,) = super().infer(*x)
        if x[0].is_quantized != x[1].is_quantized:
            raise ValueError(f"cannot compare {x[0]} with {x[1]}")

        return (TensorType(y.shape, "bool"),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the numpy function, of quantized tensors in fixed point."""
        if not xt[0].is_quantized:
            return super().ref(x, xt, yt)

        operands: list[Array] = []
        for array, t in zip(x, xt, strict=True):
            steps = (array.astype(np.int64) - t.zero_point) << _STEP_BITS
            multiplier = quantize_multiplier(float(t.scale))
            operands.append(multiply_by_quantized_multiplier(steps, *multiplier))

        return super().ref(operands, xt, yt)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the operator; raises ValueError for scales beyond its fixed point."""
        for t in (op.input(0).type, op.input(1).type):
            if t.is_quantized and t.scale >= MAX_COMPARED_SCALE:
                raise ValueError(
                    f"the scale of {t}; it must be below {MAX_COMPARED_SCALE}"
                )

        super().from_tflite(op)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return the operator.

        None for scales from 1 on, with which LiteRT ends its process or shifts by
        negative numbers.
        """
        types = [v.type for v in op.inputs]
        if types[0].is_quantized and max(t.scale for t in types) >= 1:
            return None
        return super().to_tflite(op)

    def c(self, op: Op) -> KernelCall:
        """Return ek_<kind>_<type>, whose int8 kernel has the scales as a struct."""
        types = [v.type for v in op.inputs]
        if not types[0].is_quantized:
            return super().c(op)

        # One scale may be above 1 and the other below: each has a multiplier.
        a, b = types
        a_multiplier, a_shift = quantize_multiplier(float(a.scale))
        b_multiplier, b_shift = quantize_multiplier(float(b.scale))
        spec = CompareParams(
            a_zero=a.zero_point,
            b_zero=b.zero_point,
            a_mul=a_multiplier,
            a_shift=a_shift,
            b_mul=b_multiplier,
            b_shift=b_shift,
        )
        dims = broadcast(op.output.type, a, b)

        return KernelCall.of(self.kernels.of("s8"), *op.inputs, op.output, dims, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield the samples of binary ops, and int8 of equal, unlike and large scales.

        The last are those with which LiteRT has no result.
        """
        yield from super().samples()
        if "s8" not in cls.kernel_types:
            return

        shape = (1, 3, 4, 5)
        scales = (("equal", 0.1, 0.1), ("unlike", 0.11, 0.07), ("large", 1.0, 300.0))
        for label, a_scale, b_scale in scales:
            a = TensorType(shape, "int8", Quant.per_tensor(a_scale, 4))
            for other in (shape, (5,)):
                b = TensorType(other, "int8", Quant.per_tensor(b_scale, -9))
                yield Sample(cls(), (Arg(a), Arg(b)), label=f"{label}{len(other)}_s8")


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
        """Read Where, which picks each element of one input or the other."""
        inputs = [node.input(i) for i in range(3)]
        operands = aligned(node.build, inputs, node.name)
        return node.build.add(cls(), operands, node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read SELECT_V2, which broadcasts, and SELECT of equal shapes.

        SELECT may also have one condition for all, or one for each row: for each index
        of the first dimension.
        """
        condition, a, b = (op.input(i) for i in range(3))
        shape = a.type.shape
        if op.name == "SELECT" and condition.type.shape not in (shape, ()):
            if condition.type.shape != shape[:1] or b.type.shape != shape:
                raise ValueError(
                    f"cannot choose by {condition.type} between {a.type} and {b.type}"
                )
            # Broadcasting counts dimensions from the last one.
            rows = Reshape((shape[0], *(1 for _ in shape[1:])))
            condition = op.build.add(rows, [condition], f"{condition.name}_rows")

        op.build.write(cls(), [condition, a, b], op.outputs)

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
