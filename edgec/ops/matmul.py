"""Matrix products: with constant weights (fully connected layers) and of two
activations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Builder,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Sample,
    Struct,
    Table,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.opdef import Arg
from edgec.ops.binary import Add, Mul
from edgec.ops.common import (
    act_f32,
    kernel_suffix,
    real_types,
    requantize,
    requantize_struct,
    with_float_weights,
)
from edgec.ops.fixed_point import (
    TFLITE_ACTIVATIONS,
    activation_range,
    clamp_float,
    round_half_away,
    tflite_activation,
)
from edgec.ops.shape import Reshape, transpose


@dataclass(frozen=True)
class FullyConnected(OpDef):
    """y = x · wᵀ + bias over the last dimension.

    Inputs: x, weights [O,K], bias [O] (int32 when quantized; optional).

    Without `keep_dims` x is taken as [size / K, K] whatever its shape, as TFLite does.
    """

    act: str = "none"
    keep_dims: bool = True
    even: bool = False
    """Whether int8 results are scaled in float32 and rounded with ties to even, as
    onnxruntime does it.
    """

    kind = "fully_connected"
    tflite = ("FULLY_CONNECTED",)
    edgetpu_versions = {"FULLY_CONNECTED": Versions(4)}
    onnx = ("Gemm",)
    roles: ClassVar[tuple[str, ...]] = ("act", "weight", "bias")
    # interpreters before TFLite 2.16 know one scale only
    per_channel: ClassVar[bool] = False
    quant: ClassVar[QuantRule] = QuantRule.FREE
    edgetpu: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """[…, O] or [rows, O]."""
        image, w, *bias = x
        if w.rank != 2 or image.rank < 1 or 0 in w.shape or image.size % w.shape[1]:
            raise ValueError(f"weights {w} do not fit {image}")
        o, k = w.shape
        real_types(self, image, w)
        if bias and bias[0].size != o:
            raise ValueError(f"bias {bias[0]} does not fit {o} outputs")
        if not self.keep_dims:
            return (TensorType((image.size // k, o), image.dtype),)
        if image.shape[-1] != k:
            raise ValueError(f"weights {w} do not fit {image}")
        return (TensorType((*image.shape[:-1], o), image.dtype),)

    def macs(self, op: Op) -> int:
        """One per weight and row."""
        return op.output.type.size * op.inputs[1].type.shape[1]

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Float: float32 sums. int8: exact int32 sums, scaled in double (see
        `_output_scales`).
        """
        w = x[1]
        wt = xt[1]
        rows = x[0].reshape(-1, w.shape[1])
        if xt[0].dtype == "float32":
            y = rows @ w.T
            y = y + x[2].reshape(-1) if len(x) > 2 else y
            return [clamp_float(y.astype(np.float32), self.act).reshape(yt[0].shape)]
        # float64 holds these integer sums exactly, and numpy multiplies floats far
        # faster than integers
        assert wt.quant is not None
        acc = (rows.astype(np.float64) - xt[0].zero_point) @ (
            w.astype(np.float64) - wt.quant.broadcast(2)[1]
        ).T
        total = acc.astype(np.int64) + (x[2].reshape(-1) if len(x) > 2 else 0)
        if self.even:
            y = requantize(
                total.astype(np.int32), xt[0], wt, yt[0], self.act, even=True
            )
            return [y.reshape(yt[0].shape)]
        y = (
            round_half_away(total.astype(np.int32) * _output_scales(xt[0], wt, yt[0]))
            + yt[0].zero_point
        )
        return [
            np.clip(y, *activation_range(self.act, yt[0]))
            .astype(yt[0].np_dtype)
            .reshape(yt[0].shape)
        ]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Gemm: alpha * A' · B' + beta * C.

        MatMul with a matrix on the right is read by `BatchMatMul`.
        """
        b = node.build
        a = node.input(0)
        w = node.input(1)
        alpha = float(node.attrs.get("alpha", 1.0))
        beta = float(node.attrs.get("beta", 1.0))
        if node.attrs.get("transA", 0):
            a = transpose(b, a, (1, 0))
        if not node.attrs.get("transB", 0):
            w = transpose(b, w, (1, 0))
        w = _scaled(b, w, alpha)
        c = node.optional(2)
        if c is None or beta == 0:
            return b.add(cls(), [a, w], node.name)
        c = _scaled(b, c, beta)
        o = w.type.shape[0]
        if (
            c.const is not None
            and c.type.size in (1, o)
            and c.type.shape[-1:] in ((), (1,), (o,))
        ):
            bias = b.const(np.broadcast_to(c.const.reshape(-1), (o,)).copy(), c.name)
            return b.add(cls(), [a, w, bias], node.name)
        return b.add(Add(), [b.add(cls(), [a, w], node.name), c], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """FULLY_CONNECTED in the default weights format."""
        if op.options.weightsFormat:
            raise ValueError("shuffled weights are not supported")
        # see with_float_weights; the bias has a type
        op.ignore("asymmetricQuantizeInputs", "quantizedBiasType")
        spec = cls(
            TFLITE_ACTIVATIONS[op.options.fusedActivationFunction],
            bool(op.options.keepNumDims),
        )
        op.build.write(spec, with_float_weights(op, op.input(0)), op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """Version 4 is int8, 6 takes no bias there; 5 keeps the dimensions."""
        x = op.inputs[0].type
        y = op.output.type
        keep = self.keep_dims and y.shape != (x.size // x.shape[-1], y.shape[-1])
        options = {
            "fusedActivationFunction": tflite_activation(self.act, op.output.type),
            "keepNumDims": keep,
        }
        version = 5 if keep else 4 if x.dtype == "int8" else 1
        inputs = (*op.inputs, *(None,) * (3 - len(op.inputs)))
        return TfliteCode(
            "FULLY_CONNECTED", ("FullyConnectedOptions", options), version, inputs
        )

    def c(self, op: Op) -> KernelCall:
        """ek_fully_connected_<type>; the weights stay [O,K], so that both operands run
        along memory.
        """
        x = op.inputs[0].type
        w = op.inputs[1]
        y = op.output.type
        o, k = w.type.shape
        zero = np.zeros(o, np.int32 if x.dtype == "int8" else np.float32)
        bias = op.inputs[2] if len(op.inputs) > 2 else Table(zero, "b")
        args = (op.inputs[0], w, bias, op.output, y.size // o, k, o)
        return KernelCall.of(
            f"ek_fully_connected_{kernel_suffix(x, self.even)}", *args, self._last(op)
        )

    def _last(self, op: Op) -> Struct:
        """The trailing struct of the kernel."""
        x = op.inputs[0].type
        w = op.inputs[1].type
        y = op.output.type
        if x.dtype == "float32":
            return act_f32(self.act)
        if self.even:
            return requantize_struct(op, self.act, even=True)
        low, high = activation_range(self.act, y)
        assert w.quant is not None
        zeros = {
            "x_zero": x.zero_point,
            "w_zero": w.quant.zero_point[0],
            "y_zero": y.zero_point,
        }
        return Struct(
            "ek_scale_f64_t",
            **zeros,
            low=low,
            high=high,
            scale=Table(_output_scales(x, w, y), "s"),
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Rows, kept dimensions, activations, no bias; float, per-tensor, per-channel
        and asymmetric int8.
        """
        for label, spec, size, bias in (
            ("row", cls(), (1, 33), True),
            ("rows", cls("relu6"), (3, 8), False),
            ("keep", cls("relu"), (1, 3, 2, 8), True),
            ("flatten", cls(keep_dims=False), (2, 3, 4), True),
        ):
            o = 7
            k = 33 if label == "row" else 12 if label == "flatten" else 8
            tail = (Arg(TensorType((o,)), True),) if bias else ()
            yield Sample(
                spec,
                (Arg(TensorType(size)), Arg(TensorType((o, k)), True), *tail),
                label=label,
            )
            scales = tuple(float(np.float32(0.01 + 0.003 * i)) for i in range(o))
            per_channel = Quant(scales, (0,) * o, 0)
            for name, quant in (
                ("s8", Quant.per_tensor(0.02)),
                ("pc", per_channel),
                ("u8", Quant.per_tensor(0.02, 9)),
            ):
                x = TensorType(size, "int8", Quant.per_tensor(0.05, -3))
                products = (
                    float(np.float32(0.05) * np.float32(s)) for s in quant.scale
                )
                of_bias = Quant(tuple(products), (0,) * len(quant.scale), 0)
                tail = (Arg(TensorType((o,), "int32", of_bias), True),) if bias else ()
                args = (Arg(x), Arg(TensorType((o, k), "int8", quant), True), *tail)
                yield Sample(spec, args, Quant.per_tensor(0.09, 5), f"{label}_{name}")
                yield Sample(
                    replace(spec, even=True),
                    args,
                    Quant.per_tensor(0.09, 5),
                    f"{label}_{name}_even",
                )

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
        return next(
            (f"{v.name} is computed" for v in op.inputs[1:] if v.const is None), None
        )


def _output_scales(x: TensorType, w: TensorType, y: TensorType) -> Array:
    """What one unit of the sums is worth in units of the output, for each output;
    float64.

    LiteRT's FULLY_CONNECTED multiplies by this in double and rounds once, ties away
    from zero, where its convolutions use a fixed-point multiplier and round twice
    (found by experiment with LiteRT 2.3; older kernels are fixed-point).
    """
    assert w.quant is not None
    scales = (
        np.float64(x.scale) * np.array(w.quant.scale, np.float64) / np.float64(y.scale)
    )
    return np.broadcast_to(scales, (w.shape[0],)).copy()


def _scaled(b: Builder, x: Value, factor: float) -> Value:
    """factor * x; a constant at once."""
    if factor == 1.0:
        return x
    if x.const is not None:
        return b.const((x.const * np.float32(factor)).astype(np.float32), x.name)
    return b.add(Mul(), [x, b.const(np.array(factor, np.float32), "factor")], x.name)


@dataclass(frozen=True)
class BatchMatMul(OpDef):
    """y[…, i, j] = Σ a[…, i, k] * b[…, k, j], the leading dimensions broadcast;
    `adj_x`, `adj_y` swap the last two.
    """

    adj_x: bool = False
    adj_y: bool = False

    kind = "batch_matmul"
    onnx = ("MatMul",)
    tflite = ("BATCH_MATMUL",)

    def operands(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Both as they enter the product."""
        return (a.swapaxes(-1, -2) if self.adj_x else a), (
            b.swapaxes(-1, -2) if self.adj_y else b
        )

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """numpy.matmul of at least two dimensions."""
        if (
            min(t.rank for t in x) < 2
            or x[0].dtype != "float32"
            or x[1].dtype != "float32"
        ):
            raise ValueError(f"cannot multiply {x[0]} and {x[1]}")
        a, b = self.operands(*(np.broadcast_to(np.float32(0), t.shape) for t in x))
        if a.shape[-1] != b.shape[-2]:
            raise ValueError(f"cannot multiply {x[0]} and {x[1]}")
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        if len(lead) > 4:
            raise ValueError(f"{len(lead)} leading dimensions; edgec compiles up to 4")
        return (TensorType((*lead, a.shape[-2], b.shape[-1])),)

    def macs(self, op: Op) -> int:
        """One per output and term."""
        return op.output.type.size * op.inputs[0].type.shape[-2 if self.adj_x else -1]

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy.matmul in float32."""
        a, b = self.operands(x[0], x[1])
        return [np.matmul(a, b).astype(np.float32)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """MatMul; a vector is a row on the left and a column on the right.

        A matrix on the right is fully connected.
        """
        b = node.build
        x = node.input(0)
        y = node.input(1)
        left = x.type.shape
        right = y.type.shape
        if len(left) == 1:
            x = b.add(Reshape((1, *left)), [x], x.name)
        if len(right) == 1:
            y = b.add(Reshape((*right, 1)), [y], y.name)
        if prod(y.type.shape[:-2]) == 1 and y.type.rank <= x.type.rank:
            if y.type.rank == 2:
                matrix = y
            else:
                matrix = b.add(Reshape(y.type.shape[-2:]), [y], y.name)
            out = b.add(FullyConnected(), [x, transpose(b, matrix, (1, 0))], node.name)
        else:
            out = b.add(cls(), [x, y], node.name)
        shape = out.type.shape
        if len(left) == 1:
            shape = (*shape[:-2], shape[-1])
        if len(right) == 1:
            shape = shape[:-1]
        if shape == out.type.shape:
            return out
        return b.add(Reshape(shape), [out], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """BATCH_MATMUL of floats."""
        op.ignore("asymmetricQuantizeInputs")
        op.build.write(
            cls(bool(op.options.adjX), bool(op.options.adjY)), op.present(), op.outputs
        )

    def to_tflite(self, op: Op) -> TfliteCode:
        """BATCH_MATMUL; broadcasting needs version 1 only."""
        return TfliteCode(
            "BATCH_MATMUL",
            ("BatchMatMulOptions", {"adjX": self.adj_x, "adjY": self.adj_y}),
        )

    def c(self, op: Op) -> KernelCall:
        """ek_batch_matmul_f32 with the strides of both operands."""
        (a, b), y = (v.type for v in op.inputs), op.output.type
        ar, ac = (1, a.shape[-1]) if self.adj_x else (a.shape[-1], 1)
        br, bc = (1, b.shape[-1]) if self.adj_y else (b.shape[-1], 1)
        shape = Struct(
            "ek_batch_matmul_t",
            dim=(1,) * (6 - y.rank) + y.shape[:-2],
            a=_lead_strides(a, y),
            b=_lead_strides(b, y),
            m=y.shape[-2],
            n=y.shape[-1],
            k=a.shape[-2 if self.adj_x else -1],
            ar=ar,
            ac=ac,
            br=br,
            bc=bc,
        )
        return KernelCall.of("ek_batch_matmul_f32", *op.inputs, op.output, shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Plain, batched, broadcast, transposed."""
        for label, spec, a, b in (
            ("2d", cls(), (4, 5), (5, 3)),
            ("batch", cls(), (2, 3, 4, 5), (2, 3, 5, 6)),
            ("broadcast", cls(), (2, 3, 4, 5), (3, 5, 6)),
            ("adj", cls(True, True), (3, 5, 4), (3, 6, 5)),
        ):
            yield Sample(spec, (Arg(TensorType(a)), Arg(TensorType(b))), label=label)


def _lead_strides(t: TensorType, y: TensorType) -> list[int]:
    """Elements between matrices along each of four leading dimensions; 0 where the
    operand is broadcast.
    """
    shape = (1,) * (6 - t.rank) + t.shape
    return [0 if shape[i] == 1 else prod(shape[i + 1 :]) for i in range(4)]
