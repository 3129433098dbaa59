"""What several op families share: C type suffixes, requantization, layouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from edgec.errors import UnsupportedError
from edgec.ir import (
    Array,
    KernelCall,
    Op,
    OpDef,
    Pointer,
    Quant,
    Struct,
    Table,
    TensorType,
    TfliteOp,
    Value,
)
from edgec.ir.reading import ComputedError
from edgec.ir.types import dequantize
from edgec.ops.fixed_point import (
    ACTIVATIONS,
    activation_range,
    multiply_by_quantized_multiplier,
    quantize_multipliers,
    round_half_away,
)

SUFFIX = {
    "float32": "f32",
    "float16": "f16",
    "float64": "f64",
    "int8": "s8",
    "int16": "s16",
    "int32": "s32",
    "int64": "s64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "u8",
}
"""Kernel name suffix of each element type, as in Arm's intrinsics."""


def suffix(t: TensorType) -> str:
    """The kernel suffix of a tensor."""
    if t.dtype not in SUFFIX:
        raise ValueError(f"elements of type {t.dtype}")
    return SUFFIX[t.dtype]


def plain_suffix(t: TensorType) -> str:
    """The same where kernels of int8 without a scale differ from those of quantized
    int8: "i8".
    """
    return "i8" if t.is_plain_int8 else suffix(t)


INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
"""Element types of the kernels that ek_base.h's EK_OF_INTEGERS defines."""
UNSIGNED = INTEGERS[1::2]


def real_types(spec: OpDef, *x: TensorType, int8: bool = True) -> None:
    """Raise ValueError unless all have one element type that stands for reals: float32,
    or int8 where it may be.
    """
    if any(
        t.dtype != x[0].dtype or t.dtype not in ("float32", "int8")[: 1 + int8]
        for t in x
    ):
        given = " and ".join(map(str, x))
        raise ValueError(
            f"{spec.kind} of {given}; edgec computes it in "
            f"float32{' or int8' if int8 else ''}"
        )


def custom_options(op: TfliteOp) -> Mapping[str, Any]:
    """What a custom operator's options name.

    Raises ValueError where they are no map.
    """
    raw = b"" if op.options is None else bytes(op.options)
    given = flexbuffers.Loads(raw) if raw else None
    if not isinstance(given, dict):
        raise ValueError("options that are no map")
    return given


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises ValueError when the tensor has no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} of a tensor of rank {rank}")
    return int(axis) % rank


def ints(array: Array | None) -> list[int] | None:
    """The elements of an optional constant."""
    return None if array is None else [int(v) for v in array.reshape(-1)]


def constant(op: Op, i: int) -> Array:
    """Input `i`, which the C of the op needs while it is written.

    Raises UnsupportedError when it is computed.
    """
    array = op.inputs[i].const
    if array is None:
        role = op.spec.roles[min(i, len(op.spec.roles) - 1)]
        what = (
            f"{op.kind}: the {role} ({op.inputs[i].name}) is computed at run time; "
            "edgec needs it to be constant"
        )
        error = UnsupportedError(
            what, f"{op.source} ({op.kind})", "export the model with constant weights"
        )
        raise error from ComputedError(role, op.inputs[i])
    return array


def bias_operand(op: Op) -> Pointer | Table:
    """The bias of an op with weights as its third input; zeros when there is none."""
    x = op.inputs[0].type
    y = op.output.type
    if len(op.inputs) > 2 and op.inputs[2].const is None:
        return Pointer(op.inputs[2])
    zeros = np.zeros(y.shape[-1], np.float32 if x.dtype == "float32" else np.int32)
    return Table(constant(op, 2) if len(op.inputs) > 2 else zeros, "b")


def with_float_weights(op: TfliteOp, x: Value) -> list[Value]:
    """The inputs of an operator with weights; beside a float image `x`, weights stored
    as integers become floats.

    TFLite's kernels for such a mix quantize the image as they go; edgec computes in
    float, nearer to the model.
    """

    def real(v: Value) -> Value:
        if v.const is None or not v.type.is_quantized:
            return v
        return op.build.const(dequantize(v.const, v.type), v.name)

    if x.type.dtype == "float32":
        return [real(v) for v in op.present()]
    return op.present()


def multipliers(
    x: TensorType, w: TensorType, y: TensorType, float_product: bool = False
) -> tuple[Array, Array]:
    """Requantization multiplier and shift of each output channel (one element when per
    tensor).

    The products and quotients are taken in double of the float32 scales, as TFLite's
    PopulateConvolutionQuantizationParams does; with `float_product` the product in
    float32, as its GetQuantizedConvolutionMultipler does for uint8 convolutions and for
    FULLY_CONNECTED.
    """
    assert w.quant is not None
    product = np.float64(x.scale) * np.array(w.quant.scale, np.float64)
    if float_product:
        product = product.astype(np.float32).astype(np.float64)
    return quantize_multipliers(product / np.float64(y.scale))


def even_scales(x: TensorType, w: TensorType, y: TensorType) -> Array:
    """What one unit of the sums is worth in units of the output, as onnxruntime has it:
    float32 steps.
    """
    assert w.quant is not None
    product = np.float32(x.scale) * np.array(w.quant.scale, np.float32)
    return np.asarray(product / np.float32(y.scale), np.float32)


def rounded_even(real: Array, y: TensorType, clamp: tuple[int, int]) -> Array:
    """Reals in units of the output to integers, ties to even, before their element type
    is.
    """
    return np.asarray(np.clip(np.rint(real).astype(np.int64) + y.zero_point, *clamp))


def requantize(
    acc: Array,
    x: TensorType,
    w: TensorType,
    y: TensorType,
    act: str,
    float_product: bool = False,
    even: bool = False,
) -> Array:
    """int32 accumulators, channel last, to the output's int8. even: by `even_scales`,
    ties to even, as onnxruntime.
    """
    if even:
        real = (acc.astype(np.float32) * even_scales(x, w, y)).astype(np.float32)
        return rounded_even(real, y, activation_range(act, y)).astype(y.np_dtype)
    multiplier, shift = multipliers(x, w, y, float_product)
    low, high = activation_range(act, y)
    out = (
        multiply_by_quantized_multiplier(acc, multiplier, shift).astype(np.int64)
        + y.zero_point
    )
    return np.clip(out, low, high).astype(y.np_dtype)


def requantize_struct(
    op: Op, act: str, float_product: bool = False, even: bool = False
) -> Struct:
    """The trailing struct of a kernel that multiplies by weights: clamp range, offsets
    and multipliers or scales.
    """
    x = op.inputs[0].type
    w = op.inputs[1].type
    y = op.output.type
    if x.dtype == "float32":
        return act_f32(act)
    low, high = activation_range(act, y)
    assert w.quant is not None
    zeros = {
        "x_zero": x.zero_point,
        "w_zero": w.quant.zero_point[0],
        "y_zero": y.zero_point,
        "low": low,
        "high": high,
    }
    if even:
        scale = np.broadcast_to(even_scales(x, w, y), y.shape[-1]).copy()
        return Struct("ek_even_t", **zeros, scale=Table(scale, "s"))
    multiplier, shift = (
        np.broadcast_to(a, y.shape[-1]).copy()
        for a in multipliers(x, w, y, float_product)
    )
    return Struct(
        "ek_requant_t",
        **zeros,
        multiplier=Table(multiplier, "m"),
        shift=Table(shift, "s"),
    )


def kernel_suffix(x: TensorType, even: bool) -> str:
    """The kernel suffix of an op on `x`, whose int8 kernel is another one where it
    rounds as onnxruntime does.
    """
    return f"even_{suffix(x)}" if even and x.dtype == "int8" else suffix(x)


def quantize_bias(bias: Array, x_scale: float, w: Quant) -> tuple[Array, Quant]:
    """int32 and its quantization, one scale per channel where the weight has several."""
    scale = np.float32(x_scale) * np.array(w.scale, np.float32)
    steps = bias.astype(np.float64) / (
        np.float64(x_scale) * np.array(w.scale, np.float64)
    )
    q = round_half_away(np.nan_to_num(steps))  # what is infinite saturates
    stored = tuple(float(s) for s in scale)
    quant = Quant(stored, (0,) * len(stored), 0 if len(stored) > 1 else None)
    return np.clip(q, -(2**31), 2**31 - 1).astype(np.int32), quant


def scale_channels(op: Op, k: Table, b: Table) -> KernelCall:
    """ek_scale_channels_f32: x * k + b of the op's first input, with a k and a b for
    each channel.
    """
    x = op.inputs[0]
    channels = x.type.shape[-1]
    return KernelCall.of(
        "ek_scale_channels_f32",
        x,
        k,
        b,
        op.output,
        x.type.size // max(1, channels),
        channels,
    )


def act_f32(act: str) -> Struct:
    """The trailing struct of a float kernel: its clamp range."""
    low, high = ACTIVATIONS[act]
    return Struct("ek_act_f32_t", low=low, high=high)
