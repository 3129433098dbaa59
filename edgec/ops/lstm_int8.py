"""TFLite's LSTM of int8: gates and cell in int16, as its integer kernels compute it.

Semantics: LstmStepInteger8x8_16 of tensorflow/lite/kernels/lstm_eval.cc. A gate is
activation(W x + R h + b); c = f c + i g; h = o tanh(c).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Kernel,
    KernelCall,
    KernelFamily,
    Op,
    OpDef,
    Quant,
    Sample,
    Table,
    TensorType,
    TfliteOp,
    Value,
)
from edgec.ir.c_structs import LstmParams
from edgec.ir.opdef import Arg
from edgec.ops.fixed_point import (
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_divide_by_pot,
)
from edgec.ops.gemmlowp import logistic_16, tanh_16
from edgec.ops.shape import Transpose, transpose

_LSTM = KernelFamily(Kernel("lstm", "ek_lstm.h"), ("s8",)).of("s8")

Scale = tuple[int, int]
"""A fixed-point multiplier and its shift."""

GATES = 4
"""Input, forget, cell, output, in this order."""
GATE_INTEGER_BITS = 3
"""Integer bits of a gate before its activation."""


FIRST_WEIGHT = 1
FIRST_RECURRENT = 5
FIRST_BIAS = 12
FIRST_HIDDEN = 18
"""Inputs of UNIDIRECTIONAL_SEQUENCE_LSTM: the first gate's weights, recurrent weights
and bias, and the hidden state, which the cell follows.
"""


@dataclass(frozen=True)
class LstmInt8(OpDef):
    """An int8 LSTM layer over a sequence.

    Inputs: x int8 [T, N, I], h int8 [N, H], c int16 [N, H], weights int8 [4H, I] and
    [4H, H], biases int32 [4H] of both, which hold the zero points of x and h. Outputs:
    h after every step [T, N, H], and h and c after the last. The gates lie one after
    the other: input, forget, cell, output.

    Attributes:
        from_x, from_h: for each gate the multiplier of the sums over x, over h
        hidden: multiplier of output gate times cell
        hidden_zero: zero point of h
        cell_bits: integer bits of the cell
        clip: largest magnitude of the cell in its integers, 0: none
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
        """Return the types of h after every step, and of h and c after the last.

        Raises ValueError when shapes do not fit, or the cell has more integer bits than
        the kernels have.
        """
        image, h, c, *_ = x
        if (image.rank, h.rank) != (3, 2):
            raise ValueError(f"an LSTM of {image} with a state {h}")

        steps, batch, inputs = image.shape
        hidden = h.shape[1]
        rows = GATES * hidden
        shapes = [
            (batch, hidden),
            (batch, hidden),
            (rows, inputs),
            (rows, hidden),
            (rows,),
            (rows,),
        ]
        dtypes = ["int8", "int8", "int16", "int8", "int8", "int32", "int32"]
        is_fitting = [t.shape for t in x[1:]] == shapes
        is_fitting = is_fitting and [t.dtype for t in x] == dtypes
        if not is_fitting or not 0 <= self.cell_bits <= 4:
            raise ValueError(
                f"an LSTM of {', '.join(map(str, x))} with {self.cell_bits} bits "
                "before the point"
            )

        return TensorType((steps, batch, hidden), "int8", h.quant), h, c

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute LstmStepInteger8x8_16 of TFLite for every step."""
        image, h, c, *parameters = (a.astype(np.int64) for a in x)
        outputs: list[Array] = []
        for step in image:
            gates = self._gates(step, h, parameters)
            input_gate, forget_gate, output_gate = (
                logistic_16(gates[k], GATE_INTEGER_BITS).astype(np.int64)
                for k in (0, 1, 3)
            )
            cell_gate = tanh_16(gates[2], GATE_INTEGER_BITS).astype(np.int64)

            # Gates have 15 fractional bits.
            forgotten = rounding_divide_by_pot(forget_gate * c, 15)
            shift = 15 + self.cell_bits
            added = rounding_divide_by_pot(input_gate * cell_gate, shift)
            c = _int16(_int16(forgotten) + _int16(added))
            if self.clip:
                c = np.clip(c, -self.clip, self.clip)

            # The output gate opens the activated cell.
            activated = tanh_16(c, self.cell_bits).astype(np.int64)
            product = output_gate * activated
            scaled = multiply_by_quantized_multiplier(product, *self.hidden)
            h = np.clip(scaled.astype(np.int64) + self.hidden_zero, -128, 127)
            outputs.append(h)

        return [
            np.stack(outputs).astype(np.int8),
            h.astype(np.int8),
            c.astype(np.int16),
        ]

    def _gates(self, x: Array, h: Array, parameters: Sequence[Array]) -> list[Array]:
        """Return W x + R h + b of each gate as int16.

        Both sums are scaled and saturated before they are added.
        """
        hidden = h.shape[1]
        gates: list[Array] = []
        for k in range(GATES):
            rows = slice(k * hidden, (k + 1) * hidden)
            weights, recurrent, x_bias, h_bias = (a[rows] for a in parameters)

            # Sums of int8 products in int32.
            x_sum = x @ weights.T + x_bias
            h_sum = h @ recurrent.T + h_bias
            from_x = multiply_by_quantized_multiplier(x_sum, *self.from_x[k])
            from_h = multiply_by_quantized_multiplier(h_sum, *self.from_h[k])
            gates.append(_int16(_int16(from_x).astype(np.int64) + from_h))

        return gates

    def macs(self, op: Op) -> int:
        """Return one multiplication for each weight, step and batch.

        Both weight matrices multiply once in a step.
        """
        steps, batch, _ = op.inputs[0].type.shape
        weights = op.inputs[3].type.size + op.inputs[4].type.size
        return steps * batch * weights

    def c(self, op: Op) -> KernelCall:
        """Return ek_lstm_s8.

        Multipliers and shifts of the gates are tables of four entries.
        """
        steps, batch, inputs = op.inputs[0].type.shape

        # One multiplier and shift for each gate.
        fields: dict[str, Table] = {}
        for source, scales in (("x", self.from_x), ("h", self.from_h)):
            multipliers = [multiplier for multiplier, _ in scales]
            shifts = [shift for _, shift in scales]
            for ending, numbers in (("mul", multipliers), ("shift", shifts)):
                name = f"{source}_{ending}"
                fields[name] = Table(np.array(numbers, np.int32), name)

        spec = LstmParams(
            steps=steps,
            batch=batch,
            inputs=inputs,
            hidden=op.inputs[1].type.shape[1],
            x_mul=fields["x_mul"],
            h_mul=fields["h_mul"],
            x_shift=fields["x_shift"],
            h_shift=fields["h_shift"],
            out_mul=self.hidden[0],
            out_shift=self.hidden[1],
            out_zero=self.hidden_zero,
            cell_bits=self.cell_bits,
            clip=self.clip,
        )

        return KernelCall.of(_LSTM, *op.inputs, *op.outputs, spec)

    @classmethod
    def of(cls, op: TfliteOp) -> None:
        """Append the layer of an int8 UNIDIRECTIONAL_SEQUENCE_LSTM operator.

        Its variables h and c are state: what they are at the next call is recorded in
        `op.kept`.
        """
        b = op.build
        out = op.outputs[0]
        name = out.name
        x = op.input(0)
        h = op.input(FIRST_HIDDEN)
        c = op.input(FIRST_HIDDEN + 1)
        is_time_major = op.options.timeMajor
        first = x if is_time_major else transpose(b, x, (1, 0, 2))

        weights = [op.input(FIRST_WEIGHT + k) for k in range(GATES)]
        recurrent = [op.input(FIRST_RECURRENT + k) for k in range(GATES)]
        biases = [op.const(FIRST_BIAS + k).astype(np.int64) for k in range(GATES)]
        x_biases: list[Array] = []
        for value, bias in zip(weights, biases, strict=True):
            x_biases.append(_folded_zero_point(value, x.type) + bias)

        h_biases = [_folded_zero_point(value, h.type) for value in recurrent]

        # The scales of tensors become multipliers.
        spec = cls._spec(op, weights, recurrent)
        values = [
            first,
            h,
            c,
            _stacked(op, weights),
            _stacked(op, recurrent),
            b.const(np.concatenate(x_biases).astype(np.int32), f"{name}_bx"),
            b.const(np.concatenate(h_biases).astype(np.int32), f"{name}_bh"),
        ]
        every_type, *_ = spec.infer(*(v.type for v in values))
        next_h = b.value(f"{name}_h", h.type)
        next_c = b.value(f"{name}_c", c.type)
        if is_time_major:
            b.write(spec, values, [out, next_h, next_c])
        else:
            every = b.value(f"{name}_all", replace(every_type, quant=out.type.quant))
            b.write(spec, values, [every, next_h, next_c])

        op.kept[h] = next_h
        op.kept[c] = next_c
        if not is_time_major:
            b.write(Transpose((1, 0, 2)), [every], [out])

    @classmethod
    def _spec(
        cls,
        op: TfliteOp,
        weights: Sequence[Value],
        recurrent: Sequence[Value],
    ) -> LstmInt8:
        """Return the op's attributes from the scales of the operator's tensors.

        Raises ValueError when the cell's scale is no power of two.
        """
        x = op.input(0).type
        h = op.input(FIRST_HIDDEN).type
        c = op.input(FIRST_HIDDEN + 1).type
        cell_bits = 15 + math.log2(c.scale)
        if cell_bits != int(cell_bits):
            raise ValueError(
                f"a cell with the scale {c.scale}, which is not a power of two"
            )

        # The fifth intermediate tensor has the scale of output gate times cell; files
        # without it have that of the state.
        hidden = op.intermediates[4] if len(op.intermediates) > 4 else None
        hidden_quant = h.quant
        if hidden is not None and hidden.quant is not None:
            hidden_quant = hidden.quant

        assert hidden_quant is not None
        hidden_scale = np.float32(hidden_quant.scale[0])
        hidden_ratio = np.float32(2.0**-30) / hidden_scale

        clip = 0
        if op.options.cellClip > 0:
            steps = min(max(op.options.cellClip / c.scale, -32768.0), 32767.0)
            clip = int(steps)

        return cls(
            from_x=tuple(_gate_scale(value, x) for value in weights),
            from_h=tuple(_gate_scale(value, h) for value in recurrent),
            hidden=quantize_multiplier(float(hidden_ratio)),
            hidden_zero=hidden_quant.zero_point[0],
            cell_bits=int(cell_bits),
            clip=clip,
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield a layer without and with a clip, the second of a batch of two."""
        rng = np.random.default_rng(3)
        hidden = 3
        inputs = 5

        def constant(dtype: str, low: int, high: int, *shape: int) -> Arg:
            data = rng.integers(low, high, shape).astype(dtype)
            quant = Quant.per_tensor(0.01) if dtype == "int8" else None
            return Arg(TensorType(shape, dtype, quant), True, data)

        for batch, clip, zero_point in ((1, 0, 0), (2, 3000, -4)):
            # Multipliers as scales below 1 give them.
            spec = cls(
                from_x=tuple(quantize_multiplier(s) for s in (0.5, 0.4, 0.6, 0.3)),
                from_h=tuple(quantize_multiplier(s) for s in (0.2, 0.7, 0.5, 0.4)),
                hidden=quantize_multiplier(2.0**-30 / 0.0078),
                hidden_zero=zero_point,
                cell_bits=3,
                clip=clip,
            )
            x_quant = Quant.per_tensor(0.02, 3)
            h_quant = Quant.per_tensor(0.0078, zero_point)
            state = (batch, hidden)
            x = Arg(TensorType((4, batch, inputs), "int8", x_quant))
            h = Arg(TensorType(state, "int8", h_quant))
            c_type = TensorType(state, "int16", Quant.per_tensor(2.0**-12))
            c = Arg(c_type, True, rng.integers(-9000, 9000, state).astype(np.int16))

            rows = GATES * hidden
            weights = [constant("int8", -127, 128, rows, k) for k in (inputs, hidden)]
            biases = [constant("int32", -9000, 9000, rows) for _ in range(2)]
            args = (x, h, c, *weights, *biases)
            yield Sample(spec, args, label=f"batch{batch}")


def _int16(x: Array) -> Array:
    """Return `x` saturated to int16, as int64."""
    return np.clip(np.asarray(x, np.int64), -32768, 32767)


def _folded_zero_point(w: Value, x: TensorType) -> Array:
    """Return the addend of each sum over x for its zero point: -zero Σ w.

    Σ (x - zero) w = Σ x w - zero Σ w, so that the kernel need not subtract it.
    """
    assert w.const is not None
    sums: Array = -x.zero_point * w.const.astype(np.int64).sum(1)
    return sums


def _gate_scale(w: Value, x: TensorType) -> Scale:
    """Return the multiplier from sums to a gate of 12 fractional bits.

    TFLite multiplies and divides the scales in float32.
    """
    product = np.float32(w.type.scale) * np.float32(x.scale)
    return quantize_multiplier(float(product / np.float32(2.0**-12)))


def _stacked(op: TfliteOp, gates: Sequence[Value]) -> Value:
    """Return the int8 weights of all gates as a constant, with a scale for each row."""
    arrays: list[Array] = []
    scales: list[float] = []
    for value in gates:
        if value.const is not None:
            arrays.append(value.const)
        scales += [value.type.scale] * value.type.shape[0]

    data = np.concatenate(arrays).astype(np.int8)
    quant = Quant(tuple(scales), (0,) * len(scales), 0)

    return op.build.const(data, f"{op.outputs[0].name}_weights", quant)
