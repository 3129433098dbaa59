"""TFLite's LSTM of int8: gates and cell in int16, as its integer kernels compute it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    Op,
    OpDef,
    Quant,
    Sample,
    Struct,
    Table,
    TensorType,
    TfliteOp,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ops.fixed_point import (
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_divide_by_pot,
)
from edgec.ops.gemmlowp import logistic_16, tanh_16
from edgec.ops.shape import Transpose, transpose

Scale = tuple[int, int]
"""A multiplier and its shift."""

GATES = 4
"""Input, forget, cell, output."""
_GATE_BITS = 3
"""Of their integers, before they are activated."""


@dataclass(frozen=True)
class LstmInt8(OpDef):
    """x int8 [T,N,I], h int8 [N,H], c int16 [N,H], weights int8 [4H,I] and [4H,H],
    their biases int32 [4H] → h after every step [T,N,H], h and c after the last. Gates
    one after the other: input, forget, cell, output.

    The biases hold the zero points of x and h. from_x, from_h: of the sums to a gate;
    hidden: of gate times cell to h. cell_bits: of the cell's integers. clip: of the
    cell, 0: none.
    """

    from_x: tuple[Scale, ...]
    from_h: tuple[Scale, ...]
    hidden: Scale
    hidden_zero: int
    cell_bits: int
    clip: int

    kind = "lstm_int8"
    roles: ClassVar[tuple[str, ...]] = (
        "act",
        "act",
        "act",
        "weight",
        "weight",
        "bias",
        "bias",
    )

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The shapes fit, and the cell has as many integer bits as the kernels know."""
        image, h, c, *_ = x
        if (image.rank, h.rank) != (3, 2):
            raise ValueError(f"an LSTM of {image} with a state {h}")
        n = h.shape[1]
        shapes = [(image.shape[1], n)] * 2 + [
            (GATES * n, image.shape[2]),
            (GATES * n, n),
            (GATES * n,),
            (GATES * n,),
        ]
        types = ["int8", "int8", "int16", "int8", "int8", "int32", "int32"]
        if (
            [t.shape for t in x[1:]] != shapes
            or [t.dtype for t in x] != types
            or not 0 <= self.cell_bits <= 4
        ):
            raise ValueError(
                f"an LSTM of {', '.join(map(str, x))} with {self.cell_bits} bits "
                "before the point"
            )
        return TensorType((*image.shape[:2], n), "int8", h.quant), h, c

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """LstmStepInteger8x8_16 of tensorflow/lite/kernels/lstm_eval.cc."""
        image, h, c, *rest = (a.astype(np.int64) for a in x)
        n = h.shape[1]
        shown = []
        for step in image:
            sums = [self._gate(step, h, k, rest, n) for k in range(GATES)]
            i, f, o = (
                logistic_16(sums[k], _GATE_BITS).astype(np.int64) for k in (0, 1, 3)
            )
            g = tanh_16(sums[2], _GATE_BITS).astype(np.int64)
            kept = _int16(rounding_divide_by_pot(f * c, 15))
            c = _int16(
                kept + _int16(rounding_divide_by_pot(i * g, 15 + self.cell_bits))
            )
            if self.clip:
                c = np.clip(c, -self.clip, self.clip)
            product = o * tanh_16(c, self.cell_bits).astype(np.int64)
            h = (
                multiply_by_quantized_multiplier(product, *self.hidden).astype(np.int64)
                + self.hidden_zero
            )
            h = np.clip(h, -128, 127)
            shown.append(h)
        return [np.stack(shown).astype(np.int8), h.astype(np.int8), c.astype(np.int16)]

    def _gate(self, x: Array, h: Array, k: int, of: Sequence[Array], n: int) -> Array:
        """The sums of a gate as int16."""
        w, r, of_x, of_h = (a[k * n : (k + 1) * n] for a in of)
        first = multiply_by_quantized_multiplier(x @ w.T + of_x, *self.from_x[k])
        second = multiply_by_quantized_multiplier(h @ r.T + of_h, *self.from_h[k])
        return _int16(_int16(first).astype(np.int64) + second)

    def macs(self, op: Op) -> int:
        """Of the products with both weights."""
        steps, batch = op.inputs[0].type.shape[:2]
        return steps * batch * (op.inputs[3].type.size + op.inputs[4].type.size)

    def c(self, op: Op) -> KernelCall:
        """ek_lstm_s8."""
        x = op.inputs[0].type
        h = op.inputs[1].type
        scales = {
            name: Table(np.array([s[k] for s in both], np.int32), name)
            for k, ends in enumerate(("mul", "shift"))
            for name, both in ((f"x_{ends}", self.from_x), (f"h_{ends}", self.from_h))
        }
        spec = Struct(
            "ek_lstm_t",
            steps=x.shape[0],
            batch=x.shape[1],
            inputs=x.shape[2],
            hidden=h.shape[1],
            **scales,
            out_mul=self.hidden[0],
            out_shift=self.hidden[1],
            out_zero=self.hidden_zero,
            cell_bits=self.cell_bits,
            clip=self.clip,
        )
        return KernelCall.of("ek_lstm_s8", *op.inputs, *op.outputs, spec)

    @classmethod
    def of(cls, op: TfliteOp) -> None:
        """Append the layer that a UNIDIRECTIONAL_SEQUENCE_LSTM of int8 is."""
        o = op.options
        b = op.build
        out = op.outputs[0]
        x = op.input(0)
        h = op.input(18)
        c = op.input(19)
        first = x if o.timeMajor else transpose(b, x, (1, 0, 2))
        w, r = (tuple(op.input(i + k) for k in range(GATES)) for i in (1, 5))
        biases = [op.const(12 + k).astype(np.int64) for k in range(GATES)]
        of_x = np.concatenate(
            [_with_zero(v, x.type, bias) for v, bias in zip(w, biases, strict=True)]
        )
        of_h = np.concatenate([_with_zero(v, h.type) for v in r])
        cell_bits = 15 + math.log2(c.type.scale)
        if cell_bits != int(cell_bits):
            raise ValueError(
                f"a cell with the scale {c.type.scale}, which is no power of two"
            )
        hidden = op.intermediates[4] if len(op.intermediates) > 4 else None
        if hidden is None or hidden.quant is None:
            hidden_type = h.type.quant
        else:
            hidden_type = hidden.quant
        assert hidden_type is not None
        bound = min(max(o.cellClip / c.type.scale, -32768.0), 32767.0)
        spec = cls(
            tuple(_to_gate(v, x.type) for v in w),
            tuple(_to_gate(v, h.type) for v in r),
            quantize_multiplier(
                float(np.float32(2.0**-30) / np.float32(hidden_type.scale[0]))
            ),
            hidden_type.zero_point[0],
            int(cell_bits),
            int(bound) if o.cellClip > 0 else 0,
        )
        name = out.name
        values = [
            first,
            h,
            c,
            _stacked(op, w),
            _stacked(op, r),
            b.const(of_x, f"{name}_bx"),
            b.const(of_h, f"{name}_bh"),
        ]
        types = spec.infer(*(v.type for v in values))
        after = [b.value(f"{name}_{end}", v.type) for end, v in (("h", h), ("c", c))]
        if o.timeMajor:
            every = out
        else:
            every = b.value(f"{name}_all", replace(types[0], quant=out.type.quant))
        b.write(spec, values, [every, *after])
        op.kept.update(zip((h, c), after, strict=True))
        if every is not out:
            b.write(Transpose((1, 0, 2)), [every], [out])

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """With and without a clip, of a batch."""
        rng = np.random.default_rng(3)
        n = 3
        inputs = 5

        def fixed(dtype: str, low: int, high: int, *shape: int) -> Arg:
            data = rng.integers(low, high, shape).astype(dtype)
            quant = Quant.per_tensor(0.01) if dtype == "int8" else None
            return Arg(TensorType(shape, dtype, quant), True, data)

        for batch, clip, zero in ((1, 0, 0), (2, 3000, -4)):
            spec = cls(
                tuple(quantize_multiplier(s) for s in (0.5, 0.4, 0.6, 0.3)),
                tuple(quantize_multiplier(s) for s in (0.2, 0.7, 0.5, 0.4)),
                quantize_multiplier(2.0**-30 / 0.0078),
                zero,
                3,
                clip,
            )
            x = TensorType((4, batch, inputs), "int8", Quant.per_tensor(0.02, 3))
            h = TensorType((batch, n), "int8", Quant.per_tensor(0.0078, zero))
            c = TensorType((batch, n), "int16", Quant.per_tensor(2.0**-12))
            cell = Arg(c, True, rng.integers(-9000, 9000, (batch, n)).astype(np.int16))
            weights = [fixed("int8", -127, 128, GATES * n, k) for k in (inputs, n)]
            biases = [fixed("int32", -9000, 9000, GATES * n) for _ in range(2)]
            yield Sample(
                spec, (Arg(x), Arg(h), cell, *weights, *biases), label=f"batch{batch}"
            )


def _int16(x: Array) -> Array:
    return np.clip(np.asarray(x, np.int64), -32768, 32767)


def _with_zero(w: Value, x: TensorType, bias: Array | None = None) -> Array:
    """A gate's bias, and what the zero point of its input adds to each sum."""
    assert w.const is not None
    sums: Array = -x.zero_point * w.const.astype(np.int64).sum(1) + (
        0 if bias is None else bias
    )
    return sums.astype(np.int32)


def _to_gate(w: Value, x: TensorType) -> Scale:
    """In float32, as TFLite has it: gates have 12 bits behind the point."""
    return quantize_multiplier(
        float(np.float32(w.type.scale) * np.float32(x.scale) / np.float32(2.0**-12))
    )


def _stacked(op: TfliteOp, gates: Sequence[Value]) -> Value:
    """The weights of all gates, with a scale for each row."""
    arrays = [v.const for v in gates if v.const is not None]
    scales = tuple(v.type.scale for v in gates for _ in range(v.type.shape[0]))
    data = np.concatenate(arrays).astype(np.int8)
    return op.build.const(
        data, f"{op.outputs[0].name}_weights", Quant(scales, (0,) * len(scales), 0)
    )
