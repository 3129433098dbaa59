"""Between element types, by value: no scale is applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from edgec.ir import (
    Array,
    KernelCall,
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
from edgec.ops.binary import Add

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
"""The IR's element type of each of ONNX's; every float is float32, but where a model's
inputs and outputs are not.
"""


@dataclass(frozen=True)
class Cast(OpDef):
    """The same numbers as another type: floats lose their fraction and saturate,
    integers keep their low bits.
    """

    dtype: str

    kind = "cast"
    onnx = ("Cast", "CastLike")
    tflite = ("CAST",)
    elementwise: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The shape of the input."""
        return (TensorType(x[0].shape, self.dtype),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Towards zero; anything but 0 is true; not-a-number becomes 0."""
        if self.dtype == "bool":
            return [x[0] != 0]
        if x[0].dtype.kind != "f" or self.dtype.startswith("float"):
            with np.errstate(over="ignore"):
                return [x[0].astype(self.dtype)]
        info = np.iinfo(self.dtype)
        whole = np.nan_to_num(
            np.trunc(x[0].astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf
        )
        inside = np.clip(whole, float(info.min), float(info.max))
        # that of 2^63 - 1 is 2^63, which int64 does not have
        beyond = inside >= float(info.max)
        y = np.where(beyond, 0, inside).astype(self.dtype)
        y[beyond] = info.max
        return [y]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Cast, and CastLike whose second input has the type."""
        x = node.input(0)
        node.attrs.ignore("saturate", "round_mode")  # of float8
        if node.op_type == "CastLike":
            dtype = node.input(1).type.dtype
        elif node.attrs["to"] in ONNX_TYPES:
            dtype = ONNX_TYPES[node.attrs["to"]]
        else:
            raise ValueError(
                "the element type "
                f"{TensorProto.DataType.Name(node.attrs['to']).lower()} is not supported"
            )
        if x.type.dtype == dtype:
            return x
        return node.build.add(cls(dtype), [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The declared output says all.

        The integers of a quantized uint8 tensor are restored first.
        """
        x = op.input(0)
        y = op.outputs[0]
        if op.uint8 and x.type.is_quantized:
            wide = op.build.add(cls("int32"), [x], f"{x.name}_int32")
            x = op.build.add(
                Add(),
                [wide, op.build.const(np.array(128, np.int32), "shift")],
                f"{x.name}_uint8",
            )
        op.ignore("inDataType", "outDataType")
        op.build.write(cls(y.type.dtype), [x], [y])

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """CAST, of the types that LiteRT's kernel takes."""
        if {op.inputs[0].type.dtype, self.dtype} & {
            "float16",
            "float64",
            "uint16",
            "uint32",
            "uint64",
        }:
            return None
        return TfliteCode("CAST", ("CastOptions", {}))

    def c(self, op: Op) -> KernelCall:
        """One kernel for all pairs of types."""
        x = op.inputs[0]
        y = op.output
        return KernelCall.of("ek_cast", x, _code(x.type), y, _code(y.type), x.type.size)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """To and from floats, and between integers."""
        shape = (2, 3, 5)
        for source, target in (
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
        ):
            yield Sample(
                cls(target),
                (Arg(TensorType(shape, source)),),
                label=f"{source}_{target}",
            )


def _code(t: TensorType) -> str:
    """The C enumerator of an element type."""
    return f"EK_{t.dtype.upper()}"
