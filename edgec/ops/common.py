"""Helpers of several op families: C type suffixes, axes, requantization, weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from edgec.errors import UnsupportedError
from edgec.ir import (
    Array,
    CStruct,
    Kernel,
    KernelCall,
    KernelFamily,
    KernelRounding,
    Op,
    OpDef,
    Pointer,
    Quant,
    Rounding,
    Table,
    TensorType,
    TfliteOp,
    Value,
)
from edgec.ir.c_structs import ActivationParams, FloatRequantParams, RequantParams
from edgec.ir.reading import ComputedError
from edgec.ir.types import dequantize
from edgec.ops import edgetpu_law
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
"""Suffix of the kernel names for each element type, as in Arm's intrinsics."""


def suffix(t: TensorType) -> str:
    """Return the kernel suffix of a tensor; raises ValueError when it has none."""
    if t.dtype not in SUFFIX:
        raise ValueError(f"elements of type {t.dtype}")
    return SUFFIX[t.dtype]


def plain_suffix(t: TensorType) -> str:
    """Return the kernel suffix of a tensor, "i8" for int8 without a scale.

    It serves ops that have kernels for int8 with a scale and for int8 without one.
    """
    return "i8" if t.is_plain_int8 else suffix(t)


INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
"""Element types of the kernels that EK_OF_INTEGERS of ek_base.h defines."""
UNSIGNED = INTEGERS[1::2]
"""The unsigned types among them."""

INTEGER_KERNELS = ("i8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
"""Suffixes of the kernels for `INTEGERS`; int8 with a scale has "s8" instead."""
REAL_KERNELS = ("f32", "f16")
"""Suffixes of the kernels for floats of two widths."""
NUMBER_KERNELS = ("f32", *INTEGER_KERNELS)
"""Suffixes of the kernels for float32 and `INTEGERS`."""
ARITHMETIC_KERNELS = (*REAL_KERNELS, *INTEGER_KERNELS)
"""The same with the kernels for float16."""

# The factors are tables, so that only x can have the memory of the result.
SCALE_CHANNELS = KernelFamily(
    Kernel("scale_channels", "ek_norm.h", in_place=(0,)), REAL_KERNELS
).of("f32")
"""x * k + b, with a k and a b for each channel, the last axis."""


def real_types(spec: OpDef, *x: TensorType, int8: bool = True) -> None:
    """Raise ValueError unless all tensors have one element type that stands for reals.

    That is float32, or int8 where `int8` is set.
    """
    # The message names all types.
    real_dtypes = ("float32", "int8") if int8 else ("float32",)
    dtype = x[0].dtype
    if dtype in real_dtypes and all(t.dtype == dtype for t in x):
        return

    types = " and ".join(map(str, x))
    allowed = "float32 or int8" if int8 else "float32"
    raise ValueError(f"{spec.kind} of {types}; edgec computes it in {allowed}")


def custom_options(op: TfliteOp) -> Mapping[str, Any]:
    """Return the options of a custom operator, a map in FlexBuffers.

    Raises ValueError when they are no map.
    """
    raw = b"" if op.options is None else bytes(op.options)
    options = flexbuffers.Loads(raw) if raw else None
    if not isinstance(options, dict):
        raise ValueError("options that are not a map")

    return options


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front.

    Raises ValueError when the tensor has no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} of a tensor of rank {rank}")

    return int(axis) % rank


def ints(array: Array | None) -> list[int] | None:
    """Return the elements of an optional constant."""
    return None if array is None else [int(v) for v in array.reshape(-1)]


def constant(op: Op, i: int) -> Array:
    """Return input `i`, which the C of the op needs while it is written.

    Raises UnsupportedError when it is computed.
    """
    value = op.inputs[i]
    if value.const is not None:
        return value.const

    role = op.spec.role(i)
    message = (
        f"{op.kind}: the {role} ({value.name}) is computed at run time; "
        "edgec needs it to be constant"
    )
    place = f"{op.source} ({op.kind})"
    hint = "export the model with constant weights"
    error = UnsupportedError(message, place, hint)
    raise error from ComputedError(role, value)


def bias_operand(op: Op) -> Pointer | Table:
    """Return the bias, input 2 of an op with weights; zeros when it has none.

    A computed bias is a pointer, a constant one a table of the C file.
    """
    has_bias = len(op.inputs) > 2
    if has_bias and op.inputs[2].const is None:
        return Pointer(op.inputs[2])

    if has_bias:
        return Table(constant(op, 2), "b")

    # Accumulators of int8 are int32.
    dtype = np.float32 if op.inputs[0].type.dtype == "float32" else np.int32
    channels = op.output.type.shape[-1]

    return Table(np.zeros(channels, dtype), "b")


def with_float_weights(op: TfliteOp, x: Value) -> list[Value]:
    """Return the present inputs of an operator with weights.

    Beside a float input `x`, weights stored as integers become floats. TFLite's kernels
    for such a mix quantize the input as they go; edgec computes in float, nearer to the
    model.
    """
    if x.type.dtype != "float32":
        return op.present()

    # Activations stay as they are.
    values: list[Value] = []
    for value in op.present():
        if value.const is not None and value.type.is_quantized:
            reals = dequantize(value.const, value.type)
            values.append(op.build.const(reals, value.name))
        else:
            values.append(value)

    return values


def multipliers(
    x: TensorType,
    w: TensorType,
    y: TensorType,
    float_product: bool = False,
) -> tuple[Array, Array]:
    """Return requantization (multipliers, shifts), one for each scale of the weights.

    They are scale_x * scale_w / scale_y in double of the float32 scales, as TFLite's
    PopulateConvolutionQuantizationParams has it. With `float_product` the product is
    rounded to float32, as GetQuantizedConvolutionMultipler has it for uint8
    convolutions, BATCH_MATMUL and FULLY_CONNECTED.
    """
    assert w.quant is not None

    # TFLite computes with doubles of the stored float32 scales.
    product = np.float64(x.scale) * np.array(w.quant.scale, np.float64)
    if float_product:
        product = product.astype(np.float32).astype(np.float64)

    return quantize_multipliers(product / np.float64(y.scale))


def even_scales(
    x: TensorType, w: TensorType, y: TensorType, rounding: Rounding
) -> Array:
    """Return scale_x * scale_w / scale_y in float32 steps.

    There is one for each scale of the weights. onnxruntime divides by the last, the Edge
    TPU multiplies by its reciprocal.
    """
    assert w.quant is not None
    weights_scales = np.array(w.quant.scale, np.float32)

    # Every step is rounded to float32.
    products = np.float32(x.scale) * weights_scales
    if rounding.is_edgetpu:
        return np.asarray(products * np.float32(edgetpu_law.reciprocal(y.scale)))
    scales = products / np.float32(y.scale)
    return np.asarray(scales, np.float32)


def rounded_even(real: Array, y: TensorType, clamp: tuple[int, int]) -> Array:
    """Return reals in units of the output as integers, half to even, clamped.

    They are int64: the caller converts them to the output's type.
    """
    steps = np.rint(real).astype(np.int64)
    return np.asarray(np.clip(steps + y.zero_point, *clamp))


def quantized_range(act: str, y: TensorType, rounding: Rounding) -> tuple[int, int]:
    """Return the (lowest, highest) elements of an int8 output."""
    if rounding.is_edgetpu:
        return edgetpu_law.element_range(act, y)
    return activation_range(act, y)


def requantize(
    acc: Array,
    types: tuple[TensorType, TensorType, TensorType],
    act: str,
    rounding: Rounding,
    float_product: bool = False,
) -> Array:
    """Return int32 accumulators, channel last, as the output's int8.

    types: of input, weights and output. `float_product` is as in `multipliers`, for
    TFLite's rounding; others have the scales of `even_scales`.
    """
    x, w, y = types
    clamp = quantized_range(act, y, rounding)
    if rounding.sums_in_float:
        scales = even_scales(x, w, y, rounding)
        real = (acc.astype(np.float32) * scales).astype(np.float32)
        return rounded_even(real, y, clamp).astype(y.np_dtype)

    multiplier, shift = multipliers(x, w, y, float_product)
    scaled = multiply_by_quantized_multiplier(acc, multiplier, shift)
    out = scaled.astype(np.int64) + y.zero_point

    return np.clip(out, *clamp).astype(y.np_dtype)


def float_kernel(family: str, header: str, types: tuple[str, ...] = ("f32",)) -> Kernel:
    """Return the kernel for float32 of an op that has kernels for floats alone.

    types: suffixes of the floats.
    """
    # A family of one kernel still registers itself, to be found by its name.
    return KernelFamily(Kernel(family, header), types).of("f32")


def requantize_struct(
    op: Op,
    act: str,
    rounding: Rounding,
    float_product: bool = False,
) -> CStruct:
    """Return the trailing struct of a kernel that multiplies by weights.

    It holds the clamp range, and in int8 zero points and a multiplier or float scale
    for each output channel.
    """
    x = op.inputs[0].type
    w = op.inputs[1].type
    y = op.output.type
    if x.dtype == "float32":
        return act_f32(act)

    low, high = quantized_range(act, y, rounding)
    assert w.quant is not None
    common = {
        "x_zero": x.zero_point,
        "w_zero": w.quant.zero_point[0],
        "y_zero": y.zero_point,
        "low": low,
        "high": high,
    }
    channels = y.shape[-1]
    if rounding.sums_in_float:
        scale = np.broadcast_to(even_scales(x, w, y, rounding), channels).copy()
        return FloatRequantParams(**common, scale=Table(scale, "s"))

    # The kernels index them by channel, also for a per-tensor scale.
    multiplier, shift = multipliers(x, w, y, float_product)

    return RequantParams(
        **common,
        multiplier=Table(np.broadcast_to(multiplier, channels).copy(), "m"),
        shift=Table(np.broadcast_to(shift, channels).copy(), "s"),
    )


def rounded_kernel(family: KernelFamily, x: TensorType, rounding: Rounding) -> Kernel:
    """Return the kernel of a family for an op on `x`.

    int8 has another kernel where the op rounds half to even.
    """
    if rounding.sums_in_float and x.dtype == "int8":
        return family.of(suffix(x), KernelRounding.EVEN)

    return family.of(suffix(x))


def quantize_bias(bias: Array, x_scale: float, w: Quant) -> tuple[Array, Quant]:
    """Return a float bias as int32, with its quantization.

    Its scale is scale_x * scale_w, one for each channel where the weights have several.
    """
    # The scale is stored as float32, while the quotient is taken in double.
    weights_scales = np.array(w.scale, np.float64)
    steps = bias.astype(np.float64) / (np.float64(x_scale) * weights_scales)
    # Infinities become the largest numbers, which saturate.
    q = round_half_away(np.nan_to_num(steps))
    data = np.clip(q, -(2**31), 2**31 - 1).astype(np.int32)

    scales = np.float32(x_scale) * np.array(w.scale, np.float32)
    stored = tuple(float(scale) for scale in scales)
    axis = 0 if len(stored) > 1 else None

    return data, Quant(stored, (0,) * len(stored), axis)


def scale_channels(op: Op, k: Table, b: Table) -> KernelCall:
    """Return ek_scale_channels_f32: x * k + b, with a k and a b for each channel.

    x is the op's first input; its channels are last.
    """
    x = op.inputs[0]
    channels = x.type.shape[-1]
    pixels = x.type.size // max(1, channels)

    return KernelCall.of(
        SCALE_CHANNELS,
        x,
        k,
        b,
        op.output,
        pixels,
        channels,
    )


def act_f32(act: str) -> ActivationParams:
    """Return the trailing struct of a float kernel: its clamp range."""
    low, high = ACTIVATIONS[act]
    return ActivationParams(low=low, high=high)
