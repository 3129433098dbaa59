"""Conversion between element types by value: no scale is applied.

Semantics: ONNX Cast and CastLike, TFLite CAST.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from edgec.ir import (
    Array,
    Kernel,
    KernelCall,
    KernelFamily,
    OnnxNode,
    Op,
    OpDef,
    Sample,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ops.binary import Add, Sub
from edgec.ops.bits import BitwiseAnd, BitwiseXor

_CAST = KernelFamily(Kernel("cast", "ek_cast.h"), ("",)).of()

ONNX_TYPES = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float32",
    TensorProto.FLOAT16: "float32",
    TensorProto.BFLOAT16: "float32",
    TensorProto.INT8: "int8",
    TensorProto.UINT8: "uint8",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.UINT16: "uint16",
    TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint64",
    TensorProto.BOOL: "bool",
}
"""The IR's element type of each of ONNX's; every float is float32, except in a model's
inputs and outputs.
"""

FOUR_BITS = {TensorProto.INT4: "int8", TensorProto.UINT4: "uint8"}
"""The IR's element type of constants, inputs and outputs of four bits."""


@dataclass(frozen=True)
class Cast(OpDef):
    """The same numbers as another element type.

    Floats lose their fraction and saturate, integers keep their low bits, and bools are
    0 and 1.

    Attributes:
        dtype: element type of the output
    """

    dtype: str

    kind = "cast"
    any_elements: ClassVar[bool] = True
    onnx = ("Cast", "CastLike")
    tflite = ("CAST",)
    elementwise: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the input's shape with the new element type, without quantization."""
        return (TensorType(x[0].shape, self.dtype),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the conversion: towards zero, and not-a-number becomes 0.

        Every number but 0 is true.
        """
        data = x[0]
        if self.dtype == "bool":
            return [data != 0]

        if data.dtype.kind != "f" or self.dtype.startswith("float"):
            with np.errstate(over="ignore"):
                return [data.astype(self.dtype)]

        # C leaves a cast of a float that does not fit undefined.
        info = np.iinfo(self.dtype)
        whole = np.trunc(data.astype(np.float64))
        whole = np.nan_to_num(whole, nan=0.0, posinf=np.inf, neginf=-np.inf)
        saturated = np.clip(whole, float(info.min), float(info.max))

        # The double of 2^63 - 1 is 2^63, which int64 does not have.
        is_largest = saturated >= float(info.max)
        y = np.where(is_largest, 0, saturated).astype(self.dtype)
        y[is_largest] = info.max

        return [y]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Cast, and CastLike, whose second input has the type."""
        x = node.input(0)
        # They concern float8 only.
        node.attrs.ignore("saturate", "round_mode")
        if node.op_type == "CastLike":
            dtype = node.input(1).type.dtype
            if node.input(1) in node.four_bit:
                return _in_four_bits(node, dtype)
        elif node.attrs["to"] in FOUR_BITS:
            return _in_four_bits(node, FOUR_BITS[node.attrs["to"]])
        elif node.attrs["to"] in ONNX_TYPES:
            dtype = ONNX_TYPES[node.attrs["to"]]
        else:
            name = TensorProto.DataType.Name(node.attrs["to"]).lower()
            raise ValueError(f"the element type {name} is not supported")

        # Casts between kinds of floats, all float32 here, are no op.
        if x.type.dtype == dtype:
            return x

        return node.build.add(cls(dtype), [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read CAST to the type of the declared output.

        The integers of a quantized uint8 tensor, which is int8 here, are restored
        first.
        """
        b = op.build
        x = op.input(0)
        y = op.outputs[0]
        if op.uint8 and x.type.is_quantized:
            wide = b.add(Cast("int32"), [x], f"{x.name}_int32")
            shift = b.const(np.array(128, np.int32), "shift")
            x = b.add(Add(), [wide, shift], f"{x.name}_uint8")

        # The declared tensors have the types.
        op.ignore("inDataType", "outDataType")
        b.write(cls(y.type.dtype), [x], [y])

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return CAST; None for types that LiteRT's kernel does not take."""
        # LiteRT's kernel does not take these.
        missing = {"float16", "float64", "uint16", "uint32", "uint64"}
        if {op.inputs[0].type.dtype, self.dtype} & missing:
            return None
        return TfliteCode("CAST", ("CastOptions", {}))

    def c(self, op: Op) -> KernelCall:
        """Return ek_cast, which is one kernel for all pairs of types."""
        x = op.inputs[0]
        y = op.output

        return KernelCall.of(
            _CAST,
            x,
            _type_code(x.type),
            y,
            _type_code(y.type),
            x.type.size,
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield casts to and from floats, and between integers."""
        pairs = (
            ("float32", "int32"),
            ("float32", "int64"),
            ("float32", "bool"),
            ("float32", "int8"),
            ("uint8", "float32"),
            ("int32", "float32"),
            ("int64", "int32"),
            ("int32", "int64"),
            ("bool", "float32"),
            ("int8", "int32"),
            ("int64", "bool"),
            ("bool", "int64"),
            ("float32", "float16"),
            ("float16", "float32"),
            ("float64", "int64"),
            ("float32", "float64"),
            ("float64", "float32"),
            ("float32", "uint16"),
            ("float32", "uint32"),
            ("float32", "uint64"),
            ("uint64", "float32"),
            ("uint32", "int64"),
            ("int32", "uint64"),
            ("uint16", "int8"),
        )
        for source, target in pairs:
            x = Arg(TensorType((2, 3, 5), source))
            yield Sample(cls(target), (x,), label=f"{source}_{target}")


def _type_code(t: TensorType) -> str:
    """Return the C enumerator of an element type."""
    return f"EK_{t.dtype.upper()}"


def _in_four_bits(node: OnnxNode, dtype: str) -> Value:
    """Return the low four bits of the input, with a sign for int8, as `dtype`."""
    b = node.build
    y = b.add(Cast("int32"), [node.input(0)], node.name)
    y = b.add(BitwiseAnd(), [y, b.const(np.array(15, np.int32), "bits")], node.name)
    if dtype == "int8":
        # The fourth bit counts -8.
        sign = b.const(np.array(8, np.int32), "sign")
        flipped = b.add(BitwiseXor(), [y, sign], node.name)
        y = b.add(Sub(), [flipped, sign], node.name)

    return b.add(Cast(dtype), [y], node.name)


def in_floats(node: OnnxNode, x: Value, read: Callable[[Value], Value]) -> Value:
    """Return `read` of a value as float32, converted back to the value's type.

    A value that is float32 already needs no conversion.
    """
    if x.type.dtype == "float32":
        return read(x)

    b = node.build
    real = b.add(Cast("float32"), [x], node.name)

    return b.add(Cast(x.type.dtype), [read(real)], node.name)
