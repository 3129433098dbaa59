"""Comparisons, logic, and the choice between two values: elementwise, with numpy
broadcasting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict, Unpack

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Sample,
    Struct,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ops.binary import Binary, walk
from edgec.ops.common import INTEGERS, suffix
from edgec.ops.unary import Unary


@dataclass(frozen=True)
class Compare(Binary):
    """A bool for each pair."""

    quant: ClassVar[QuantRule] = QuantRule.FLOAT
    sampled: ClassVar[tuple[str, ...]] = ("float32", *INTEGERS)
    tflite_types: ClassVar[tuple[str, ...]] = ("float32", "int32", "int64", "bool")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """bool, of the broadcast shape."""
        if x[0].is_quantized:
            raise ValueError(f"comparison of quantized {x[0]} is not supported")
        return (TensorType(super().infer(*x)[0].shape, "bool"),)


class _CompareRow(TypedDict, total=False):
    """What a row may say of its op beside its meaning."""

    onnx: tuple[str, ...]
    tflite: tuple[str, ...]


def _row(
    base: type[Binary],
    kind: str,
    fn: Callable[..., Any],
    doc: str,
    **fields: Unpack[_CompareRow],
) -> type[Binary]:
    """One comparison or connective; TFLite's options table has its name."""
    name = kind.title().replace("_", "")
    body = {
        "kind": kind,
        "fn": staticmethod(fn),
        "options": f"{name}Options",
        "__doc__": doc,
        "__module__": __name__,
    }
    return dataclass(frozen=True)(type(name, (base,), {**body, **fields}))


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
    Compare, "greater", np.greater, "a > b.", onnx=("Greater",), tflite=("GREATER",)
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

    sampled: ClassVar[tuple[str, ...]] = ("bool",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """bool."""
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
    Logical, "logical_xor", np.logical_xor, "Either, not both.", onnx=("Xor",)
)


@dataclass(frozen=True)
class LogicalNot(Unary):
    """Not a."""

    kind = "logical_not"
    onnx = ("Not",)
    tflite = ("LOGICAL_NOT",)
    options: ClassVar[str] = "LogicalNotOptions"
    fn = staticmethod(np.logical_not)
    quant: ClassVar[QuantRule] = QuantRule.FLOAT

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """bool."""
        if x[0].dtype != "bool":
            raise ValueError(f"logical_not takes bool, not {x[0]}")
        return (TensorType(x[0].shape, "bool"),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Bools."""
        yield Sample(cls(), (Arg(TensorType((3, 5), "bool")),))


@dataclass(frozen=True)
class Where(OpDef):
    """y = condition ? a : b, all three broadcast as numpy does."""

    kind = "where"
    onnx = ("Where",)
    tflite = ("SELECT", "SELECT_V2")
    roles: ClassVar[tuple[str, ...]] = ("index", "act")
    quant: ClassVar[QuantRule] = QuantRule.SAME
    elementwise: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The broadcast shape, the type of a."""
        condition, a, b = x
        if condition.dtype != "bool" or a.dtype != b.dtype:
            raise ValueError(f"cannot choose by {condition} between {a} and {b}")
        if a.is_quantized and a.quant != b.quant:
            raise ValueError("the choices have different scales")
        shape = np.broadcast_shapes(*(t.shape for t in x))
        walk(shape, *(t.shape for t in x))
        return (TensorType(shape, a.dtype, a.quant),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy.where."""
        return [np.where(*x).astype(yt[0].np_dtype)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Where."""
        return node.build.add(
            cls(), [node.input(0), node.input(1), node.input(2)], node.name
        )

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """SELECT_V2 broadcasts; SELECT takes equal shapes, or one condition for each
        row, which is not supported.
        """
        condition = op.input(0).type
        a = op.input(1).type
        if op.name == "SELECT" and condition.shape != a.shape and condition.rank:
            raise ValueError(
                f"one condition for each row ({condition}) is not supported"
            )
        op.build.write(cls(), op.present(), op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """SELECT_V2, of the types that LiteRT's kernel takes."""
        y = op.output.type
        if y.dtype in ("uint16", "uint32", "uint64") or (
            y.dtype in ("int8", "uint8") and y.quant is None
        ):
            return None
        return TfliteCode("SELECT_V2", ("SelectV2Options", {}))

    def c(self, op: Op) -> KernelCall:
        """ek_where_<type>."""
        y = op.output.type
        dims, (cond, a, b) = walk(y.shape, *(v.type.shape for v in op.inputs))
        nd = Struct("ek_where_t", dim=dims, c=cond, a=a, b=b)
        return KernelCall.of(f"ek_where_{suffix(y)}", *op.inputs, op.output, nd)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Every type; a mask over the image, a scalar choice."""
        shape = (1, 3, 4, 5)
        for dtype in ("float32", "bool", *INTEGERS):
            t = TensorType(shape, dtype)
            yield Sample(
                cls(), (Arg(TensorType(shape, "bool")), Arg(t), Arg(t)), label=dtype
            )
        s8 = TensorType(shape, "int8", Quant.per_tensor(0.1, 3))
        yield Sample(
            cls(),
            (Arg(TensorType((4, 1), "bool")), Arg(s8), Arg(s8.with_shape((5,)))),
            label="s8",
        )
        mask = TensorType((1, 3, 4, 1), "bool")
        one = TensorType(())
        yield Sample(cls(), (Arg(mask), Arg(TensorType(shape)), Arg(one)), label="mask")
