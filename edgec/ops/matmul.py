"""Matrix products: with constant weights (fully connected), and of two activations.

Semantics: ONNX Gemm and MatMul, TFLite FULLY_CONNECTED and BATCH_MATMUL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    ChannelFlow,
    CStruct,
    Kernel,
    KernelCall,
    KernelFamily,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Rounding,
    Sample,
    Table,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.c_structs import (
    BatchMatmulParams,
    DoubleRequantParams,
    FixedPointProductParams,
)
from edgec.ir.opdef import Arg
from edgec.ops.common import (
    ARITHMETIC_KERNELS,
    REAL_KERNELS,
    act_f32,
    multipliers,
    real_types,
    requantize,
    requantize_struct,
    rounded_kernel,
    with_float_weights,
)
from edgec.ops.fixed_point import (
    activation_range,
    clamp_float,
    multiply_by_quantized_multiplier,
    round_half_away,
    tflite_activation,
)
from edgec.ops.fused_activation import fused_activation

FULLY_CONNECTED = KernelFamily(
    Kernel("fully_connected", "ek_matmul.h"), (*REAL_KERNELS, "s8"), even=("s8",)
)

MATMULS = KernelFamily(
    Kernel("batch_matmul", "ek_matmul.h"), (*ARITHMETIC_KERNELS, "s8")
)
"""Products of two computed matrices."""
BATCH_MATMUL = MATMULS.of("f32")
"""The product of floats."""


@dataclass(frozen=True)
class FullyConnected(OpDef):
    """A fully connected layer: y = act(x · wᵀ + bias) over the last dimension.

    Inputs: x, weights [O, K], optional bias [O] (int32 when quantized).

    Attributes:
        act: fused activation
        keep_dims: whether the output keeps the leading dimensions of x; without it x is
            taken as [size / K, K] whatever its shape, as TFLite does
        rounding: the arithmetic of int8
    """

    act: str = "none"
    keep_dims: bool = True
    rounding: Rounding = Rounding.TFLITE

    kind = "fully_connected"
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.SUMS
    tflite = ("FULLY_CONNECTED",)
    edgetpu_versions = {"FULLY_CONNECTED": Versions(4)}
    roles: ClassVar[tuple[str, ...]] = ("act", "weight", "bias")
    # Interpreters before TFLite 2.16 know one scale only.
    per_channel: ClassVar[bool] = False
    quant: ClassVar[QuantRule] = QuantRule.FREE
    edgetpu: ClassVar[bool] = True
    edgetpu_rounding: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the output, […, O] or [rows, O].

        Raises ValueError when weights or bias do not fit.
        """
        data, weights, *bias = x
        is_matrix = weights.rank == 2 and 0 not in weights.shape
        if not is_matrix or data.rank < 1 or data.size % weights.shape[1]:
            raise ValueError(f"weights {weights} do not fit {data}")

        out_channels, depth = weights.shape
        real_types(self, data, weights)
        if bias and bias[0].size != out_channels:
            raise ValueError(f"bias {bias[0]} does not fit {out_channels} outputs")

        # All dimensions are joined to rows, wherever a row ends.
        if not self.keep_dims:
            rows = data.size // depth
            return (TensorType((rows, out_channels), data.dtype),)

        if data.shape[-1] != depth:
            raise ValueError(f"weights {weights} do not fit {data}")

        return (TensorType((*data.shape[:-1], out_channels), data.dtype),)

    def macs(self, op: Op) -> int:
        """Return one multiplication for each output and weight of its row."""
        return op.output.type.size * op.inputs[1].type.shape[1]

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute float32 sums, or exact int32 sums that are scaled once.

        int8: acc = Σ (x - zero_x)(w - zero_w) + bias, times `_output_scales` in double
        as LiteRT does, or as onnxruntime does.
        """
        rows = x[0].reshape(-1, x[1].shape[1])
        bias = x[2].reshape(-1) if len(x) > 2 else None
        if xt[0].dtype == "float32":
            y = rows @ x[1].T
            if bias is not None:
                y = y + bias
            y = clamp_float(y.astype(np.float32), self.act)
            return [y.reshape(yt[0].shape)]

        # float64 holds these integer sums exactly, and numpy multiplies matrices of
        # floats far faster than of integers.
        weights_type = xt[1]
        assert weights_type.quant is not None
        _, weights_zero = weights_type.quant.broadcast(2)
        centred = rows.astype(np.float64) - xt[0].zero_point
        weights = x[1].astype(np.float64) - weights_zero
        total = (centred @ weights.T).astype(np.int64)
        if bias is not None:
            total = total + bias

        acc = total.astype(np.int32)

        if self.rounding.sums_in_float:
            types = (xt[0], weights_type, yt[0])
            y = requantize(acc, types, self.act, self.rounding)
            return [y.reshape(yt[0].shape)]

        real = acc * _output_scales(xt[0], weights_type, yt[0])
        y = round_half_away(real) + yt[0].zero_point
        low, high = activation_range(self.act, yt[0])
        y = np.clip(y, low, high).astype(yt[0].np_dtype)

        return [y.reshape(yt[0].shape)]

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read FULLY_CONNECTED with weights in the default format."""
        options = op.options
        if options.weightsFormat:
            raise ValueError("shuffled weights are not supported")

        # Float inputs are not quantized here (see `with_float_weights`), and the bias
        # has a type.
        op.ignore("asymmetricQuantizeInputs", "quantizedBiasType")
        act = fused_activation(op)
        spec = cls(act, bool(options.keepNumDims))
        op.build.write(spec, with_float_weights(op, op.input(0)), op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """Return FULLY_CONNECTED.

        Version 4 introduced int8 and 5 the kept dimensions. Version 6 takes no bias in
        int8; the third input is always written, absent where there is none.
        """
        x = op.inputs[0].type
        y = op.output.type
        rows = x.size // x.shape[-1]

        # An output that is a matrix anyway does not need the option.
        keeps_dims = self.keep_dims and y.shape != (rows, y.shape[-1])
        fields = {
            "fusedActivationFunction": tflite_activation(self.act, y),
            "keepNumDims": keeps_dims,
        }

        version = 4 if x.dtype == "int8" else 1
        if keeps_dims:
            version = 5

        absent = (None,) * (3 - len(op.inputs))
        options = ("FullyConnectedOptions", fields)

        return TfliteCode("FULLY_CONNECTED", options, version, (*op.inputs, *absent))

    def c(self, op: Op) -> KernelCall:
        """Return ek_fully_connected_<type>.

        The weights stay [O, K], so that both operands of a dot product are contiguous.
        """
        x = op.inputs[0].type
        weights = op.inputs[1]
        out_channels, depth = weights.type.shape
        rows = op.output.type.size // out_channels
        if len(op.inputs) > 2:
            bias: Value | Table = op.inputs[2]
        else:
            dtype = np.int32 if x.dtype == "int8" else np.float32
            bias = Table(np.zeros(out_channels, dtype), "b")

        return KernelCall.of(
            rounded_kernel(FULLY_CONNECTED, x, self.rounding),
            op.inputs[0],
            weights,
            bias,
            op.output,
            rows,
            depth,
            out_channels,
            self._requantization(op),
        )

    def _requantization(self, op: Op) -> CStruct:
        """Return the kernel's trailing struct: clamp range, zero points and scales."""
        x = op.inputs[0].type
        weights = op.inputs[1].type
        y = op.output.type
        if x.dtype == "float32":
            return act_f32(self.act)

        if self.rounding.sums_in_float:
            return requantize_struct(op, self.act, self.rounding)

        low, high = activation_range(self.act, y)
        assert weights.quant is not None

        return DoubleRequantParams(
            x_zero=x.zero_point,
            w_zero=weights.quant.zero_point[0],
            y_zero=y.zero_point,
            low=low,
            high=high,
            scale=Table(_output_scales(x, weights, y), "s"),
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield rows, kept dimensions, activations, and a layer without a bias.

        Each in float and in per-tensor, per-channel and asymmetric int8.
        """
        cases = (
            _LayerCase("row", cls(), (1, 33), 33, True),
            _LayerCase("rows", cls("relu6"), (3, 8), 8, False),
            _LayerCase("keep", cls("relu"), (1, 3, 2, 8), 8, True),
            _LayerCase("flatten", cls(keep_dims=False), (2, 3, 4), 12, True),
        )
        for case in cases:
            yield from case.samples()

    @edgetpu_rule(fix="use a 1x1 convolution over [1, 1, rows, channels]")
    def _one_row(self, op: Op) -> str | None:
        """FULLY_CONNECTED: the output must be one row."""
        y = op.output.type
        if y.size != y.shape[-1]:
            return f"output {list(y.shape)} has {y.size // y.shape[-1]} rows"
        return None

    @edgetpu_rule(fix="give weights and bias as constants of the model file")
    def _constant_weights(self, op: Op) -> str | None:
        """Weights and bias must be constant."""
        for value in op.inputs[1:]:
            if value.const is None:
                return f"{value.name} is computed"
        return None


@dataclass(frozen=True)
class _LayerCase:
    """One case of the samples of a fully connected layer.

    Attributes:
        shape: of x
        depth: elements of a row of x
        has_bias: whether the layer has a bias
    """

    label: str
    spec: FullyConnected
    shape: tuple[int, ...]
    depth: int
    has_bias: bool

    def samples(self) -> Iterator[Sample]:
        """Yield the case in float32, and in int8 with both roundings."""
        out_channels = 7
        weights_shape = (out_channels, self.depth)
        x = Arg(TensorType(self.shape))
        weights = Arg(TensorType(weights_shape), True)
        bias = (Arg(TensorType((out_channels,)), True),) if self.has_bias else ()
        yield Sample(self.spec, (x, weights, *bias), label=self.label)

        x_scale = 0.05
        x = Arg(TensorType(self.shape, "int8", Quant.per_tensor(x_scale, -3)))

        # Each output has another scale.
        scales = tuple(float(np.float32(0.01 + 0.003 * i)) for i in range(out_channels))

        # Asymmetric weights come from uint8 models.
        quants = {
            "s8": Quant.per_tensor(0.02),
            "pc": Quant(scales, (0,) * out_channels, 0),
            "u8": Quant.per_tensor(0.02, 9),
        }
        output_quant = Quant.per_tensor(0.09, 5)
        even = replace(self.spec, rounding=Rounding.ONNXRUNTIME)
        chip = replace(self.spec, rounding=Rounding.EDGETPU)
        for name, quant in quants.items():
            products = [np.float32(x_scale) * np.float32(s) for s in quant.scale]
            bias_scale = tuple(float(product) for product in products)
            bias_quant = Quant(bias_scale, (0,) * len(bias_scale), 0)
            bias_type = TensorType((out_channels,), "int32", bias_quant)
            bias = (Arg(bias_type, True),) if self.has_bias else ()
            weights = Arg(TensorType(weights_shape, "int8", quant), True)
            args = (x, weights, *bias)

            label = f"{self.label}_{name}"
            yield Sample(self.spec, args, output_quant, label)
            yield Sample(even, args, output_quant, f"{label}_even")
            yield Sample(chip, args, output_quant, f"{label}_edgetpu")


def _output_scales(x: TensorType, w: TensorType, y: TensorType) -> Array:
    """Return scale_x * scale_w / scale_y for each output, in float64.

    LiteRT's FULLY_CONNECTED multiplies by this in double and rounds once, ties away
    from zero, where its convolutions use a fixed-point multiplier and round twice
    (found by experiment with LiteRT 2.3; older kernels are fixed-point).
    """
    assert w.quant is not None
    weights_scales = np.array(w.quant.scale, np.float64)
    products = np.float64(x.scale) * weights_scales
    scales = products / np.float64(y.scale)

    return np.broadcast_to(scales, (w.shape[0],)).copy()


MAX_LEADING_DIMS = 4
"""Leading dimensions of the struct ek_batch_matmul_t."""


@dataclass(frozen=True)
class BatchMatMul(OpDef):
    """A batched matrix product: y[…, i, j] = Σ a[…, i, k] * b[…, k, j].

    The leading dimensions are broadcast, as numpy.matmul does. int8 is as in TFLite
    (reference/batch_matmul.h).

    Attributes:
        adj_x, adj_y: whether the last two dimensions of a, of b are swapped first
    """

    adj_x: bool = False
    adj_y: bool = False

    kind = "batch_matmul"
    tflite = ("BATCH_MATMUL",)
    edgetpu_fix = "keep it on the CPU, or take a network without attention, as YOLOv8n"

    def operands(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Return both operands as they enter the product."""
        if self.adj_x:
            a = a.swapaxes(-1, -2)

        if self.adj_y:
            b = b.swapaxes(-1, -2)

        return a, b

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of numpy.matmul.

        Raises ValueError for vectors, other types than float32 and int8 with one scale
        each, sizes that do not fit, and more leading dimensions than the kernel has.
        """
        real_types(self, *x)
        has_one_scale = all(t.quant is None or t.quant.axis is None for t in x)
        if min(t.rank for t in x) < 2 or not has_one_scale:
            raise ValueError(f"cannot multiply {x[0]} and {x[1]}")

        # Arrays of those shapes without memory of their own.
        a, b = self.operands(*(np.broadcast_to(np.float32(0), t.shape) for t in x))
        if a.shape[-1] != b.shape[-2]:
            raise ValueError(f"cannot multiply {x[0]} and {x[1]}")

        # numpy's rule for broadcasting.
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        if len(lead) > MAX_LEADING_DIMS:
            raise ValueError(f"{len(lead)} leading dimensions; edgec compiles up to 4")

        return (TensorType((*lead, a.shape[-2], b.shape[-1]), x[0].dtype),)

    def macs(self, op: Op) -> int:
        """Return one multiplication for each output and term of its sum."""
        return op.output.type.size * op.inputs[0].type.shape[-2 if self.adj_x else -1]

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy.matmul in float32, or exact sums that are scaled once.

        Transposed operands are views of their last two axes.
        """
        a, b = self.operands(x[0], x[1])
        if xt[0].dtype == "float32":
            return [np.matmul(a, b).astype(np.float32)]

        # float64 holds these integer sums exactly.
        left = a.astype(np.float64) - xt[0].zero_point
        right = b.astype(np.float64) - xt[1].zero_point
        total = np.matmul(left, right).astype(np.int64).astype(np.int32)
        multiplier, shift = multipliers(xt[0], xt[1], yt[0], float_product=True)
        steps = multiply_by_quantized_multiplier(total, multiplier[0], shift[0])
        y = np.clip(steps.astype(np.int64) + yt[0].zero_point, -128, 127)

        return [y.astype(np.int8)]

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read BATCH_MATMUL.

        Its options tell which operands are transposed.
        """
        op.ignore("asymmetricQuantizeInputs")
        spec = cls(bool(op.options.adjX), bool(op.options.adjY))
        op.build.write(spec, op.present(), op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return BATCH_MATMUL; version 2 introduced int8, and uint8 does not exist."""
        if op.output.type.dtype == "uint8":
            return None
        fields = {"adjX": self.adj_x, "adjY": self.adj_y}
        version = 2 if op.output.type.dtype == "int8" else 1
        return TfliteCode("BATCH_MATMUL", ("BatchMatMulOptions", fields), version)

    def c(self, op: Op) -> KernelCall:
        """Return ek_batch_matmul_<type> with the strides of both operands.

        ar, ac (br, bc): elements between rows, between columns of a matrix of a (of b).
        """
        a = op.inputs[0].type
        b = op.inputs[1].type
        y = op.output.type

        # A transposed matrix is read by other strides, and never copied.
        a_row, a_column = (1, a.shape[-1]) if self.adj_x else (a.shape[-1], 1)
        b_row, b_column = (1, b.shape[-1]) if self.adj_y else (b.shape[-1], 1)
        missing = MAX_LEADING_DIMS + 2 - y.rank
        shape = BatchMatmulParams(
            dim=(1,) * missing + y.shape[:-2],
            a=_lead_strides(a),
            b=_lead_strides(b),
            m=y.shape[-2],
            n=y.shape[-1],
            k=a.shape[-2 if self.adj_x else -1],
            ar=a_row,
            ac=a_column,
            br=b_row,
            bc=b_column,
        )

        if not y.is_quantized:
            return KernelCall.of(BATCH_MATMUL, *op.inputs, op.output, shape)

        multiplier, shift = multipliers(a, b, y, float_product=True)
        scaling = FixedPointProductParams(
            a_zero=a.zero_point,
            b_zero=b.zero_point,
            y_zero=y.zero_point,
            low=-128,
            high=127,
            mul=int(multiplier[0]),
            shift=int(shift[0]),
        )

        return KernelCall.of(MATMULS.of("s8"), *op.inputs, op.output, shape, scaling)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield matrices, batches, broadcast batches and transposed operands.

        Each in float and int8.
        """
        cases = (
            ("2d", cls(), (4, 5), (5, 3)),
            ("batch", cls(), (2, 3, 4, 5), (2, 3, 5, 6)),
            ("broadcast", cls(), (2, 3, 4, 5), (3, 5, 6)),
            ("adj", cls(True, True), (3, 5, 4), (3, 6, 5)),
        )
        for label, spec, a, b in cases:
            args = (Arg(TensorType(a)), Arg(TensorType(b)))
            yield Sample(spec, args, label=label)

            left = TensorType(a, "int8", Quant.per_tensor(0.03, -7))
            right = TensorType(b, "int8", Quant.per_tensor(0.05, 11))
            output_quant = Quant.per_tensor(0.4, 5)
            yield Sample(spec, (Arg(left), Arg(right)), output_quant, f"{label}_s8")


def _lead_strides(t: TensorType) -> list[int]:
    """Return the elements between matrices along each of four leading dimensions.

    The stride is 0 where the operand is broadcast.
    """
    missing = MAX_LEADING_DIMS + 2 - t.rank
    shape = (1,) * missing + t.shape
    strides: list[int] = []
    for axis in range(MAX_LEADING_DIMS):
        stride = prod(shape[axis + 1 :])
        strides.append(0 if shape[axis] == 1 else stride)

    return strides
