"""Recurrent layers, read step by step: RNN, GRU and LSTM over sequences of a static
length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, Builder, OnnxNode, OpDef, TfliteOp, Value
from edgec.ir.types import dequantize
from edgec.ops.activation import Clamp, HardSigmoid, LeakyRelu
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.compare import Where
from edgec.ops.composed import Composed
from edgec.ops.concat import Concat
from edgec.ops.lstm_int8 import LstmInt8
from edgec.ops.matmul import FullyConnected
from edgec.ops.opaque import Opaque
from edgec.ops.shape import Reshape, Transpose, transpose
from edgec.ops.slice import slice_axes
from edgec.ops.unary import Logistic, Relu, Softplus, Softsign, Tanh

_ACTIVATIONS: dict[str, OpDef] = {
    "sigmoid": Logistic(),
    "tanh": Tanh(),
    "relu": Relu(),
    "softsign": Softsign(),
    "softplus": Softplus(),
    "hardsigmoid": HardSigmoid(),
    "leakyrelu": LeakyRelu(),
}
_TFLITE_ACTIVATIONS: dict[int, OpDef] = {1: Relu(), 4: Tanh()}
MOST_STEPS = 512
"""Each step is the cell once more in the graph."""


@dataclass(frozen=True)
class _Layer:
    """One direction of a layer. x: for each step [batch, gates * hidden], the input's
    part of the gates, bias included.

    r: [gates * hidden, hidden]. b_r: the recurrent bias, where it is not in x. p:
    peepholes. clip: of what goes into activations. cell_clip: of an LSTM's cell.
    """

    b: Builder
    name: str
    hidden: int
    x: list[Value]
    r: Value
    b_r: Value | None
    p: Value | None
    acts: Sequence[OpDef]
    clip: float | None
    linear: bool
    coupled: bool
    cell_clip: float | None = None

    def add(self, x: Value, y: Value) -> Value:
        """x + y."""
        return self.b.add(Add(), [x, y], self.name)

    def mul(self, x: Value, y: Value) -> Value:
        """x * y."""
        return self.b.add(Mul(), [x, y], self.name)

    def act(self, i: int, x: Value) -> Value:
        """The i-th activation of what is clipped."""
        if self.clip is not None:
            x = self.b.add(Clamp(-self.clip, self.clip), [x], self.name)
        return self.b.add(self.acts[i], [x], self.name)

    def gate(self, gates: Value, i: int) -> Value:
        """The i-th part of the last axis."""
        spec = slice_axes(
            gates.type, {gates.type.rank - 1: (i * self.hidden, self.hidden, 1)}
        )
        return self.b.add(spec, [gates], self.name)

    def rows(self, weights: Value, first: int, count: int) -> Value:
        """The weights of some gates."""
        return part(
            self.b, weights, 0, first * self.hidden, count * self.hidden, self.name
        )

    def product(
        self, h: Value, first: int, count: int, bias: Value | None = None
    ) -> Value:
        """h times the recurrent weights of some gates."""
        given = [self.rows(bias, first, count)] if bias is not None else []
        return self.b.add(
            FullyConnected(), [h, self.rows(self.r, first, count), *given], self.name
        )

    def minus(self, x: Value, y: Value) -> Value:
        """x - y."""
        return self.b.add(Sub(), [x, y], self.name)


Step = Callable[[_Layer, Value, list[Value]], list[Value]]
"""The state after a step, of the input's part of the gates and the state before: h, and
c of an LSTM.
"""


def _rnn(layer: _Layer, x: Value, state: list[Value]) -> list[Value]:
    return [layer.act(0, layer.add(x, layer.product(state[0], 0, 1)))]


def _gru(layer: _Layer, x: Value, state: list[Value]) -> list[Value]:
    (h,) = state
    zr = layer.add(
        part(layer.b, x, 1, 0, 2 * layer.hidden, layer.name), layer.product(h, 0, 2)
    )
    z, r = (layer.act(0, layer.gate(zr, i)) for i in range(2))
    gated = layer.mul
    product = layer.product
    if layer.linear:
        inner = gated(r, product(h, 2, 1, layer.b_r))
    else:
        inner = product(gated(r, h), 2, 1)
    new = layer.act(1, layer.add(layer.gate(x, 2), inner))
    return [layer.add(new, layer.mul(z, layer.minus(h, new)))]


def _lstm(layer: _Layer, x: Value, state: list[Value]) -> list[Value]:
    h, c = state
    gates = layer.add(x, layer.product(h, 0, 4))
    i, o, f, g = (layer.gate(gates, k) for k in range(4))

    def peep(gate: Value, of: Value, k: int) -> Value:
        if layer.p is None:
            return gate
        return layer.add(gate, layer.mul(layer.rows(layer.p, k, 1), of))

    i = layer.act(0, peep(i, c, 0))
    one = layer.b.const(np.ones((), np.float32), "one")
    f = layer.minus(one, i) if layer.coupled else layer.act(0, peep(f, c, 2))
    new = layer.add(layer.mul(f, c), layer.mul(i, layer.act(1, g)))
    if layer.cell_clip is not None:
        new = layer.b.add(Clamp(-layer.cell_clip, layer.cell_clip), [new], layer.name)
    o = layer.act(0, peep(o, new, 1))
    return [layer.mul(o, layer.b.add(layer.acts[2], [new], layer.name)), new]


def part(b: Builder, x: Value, axis: int, first: int, count: int, name: str) -> Value:
    """Some elements of an axis; of a constant at once."""
    if count == x.type.shape[axis]:
        return x
    if x.const is not None:
        cut = (slice(None),) * axis + (slice(first, first + count),)
        return b.const(np.ascontiguousarray(x.const[cut]), f"{name}_part")
    return b.add(slice_axes(x.type, {axis: (first, count, 1)}), [x], name)


def _without(b: Builder, x: Value, axis: int, at: int, name: str) -> Value:
    """One slice of an axis, which goes."""
    cut = part(b, x, axis, at, 1, name)
    shape = tuple(d for i, d in enumerate(x.type.shape) if i != axis)
    if cut.const is not None:
        return b.const(cut.const.reshape(shape), name)
    return b.add(Reshape(shape), [cut], name)


@dataclass(frozen=True)
class _Recurrent(Composed):
    """What the layers share: directions, sequence lengths, layouts."""

    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1
    defaults: ClassVar[tuple[str, ...]] = ("tanh",)
    step: ClassVar[Step] = staticmethod(_rnn)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> list[Value]:
        """Every step of every direction."""
        b = node.build
        name = node.name
        batch_first = bool(node.attrs.get("layout", 0))
        x = transpose(b, node.input(0), (1, 0, 2)) if batch_first else node.input(0)
        steps, batch, _ = x.type.shape
        if steps > MOST_STEPS:
            raise ValueError(f"{steps} steps; edgec unrolls up to {MOST_STEPS}")
        hidden = node.input(2).type.shape[2]
        way = node.attrs.get("direction", "forward")
        node.attrs.ignore("hidden_size")
        lengths = node.const(4)
        if lengths is not None and (lengths == steps).all():
            lengths = None
        ways = {
            "forward": (False,),
            "reverse": (True,),
            "bidirectional": (False, True),
        }[way]
        every = list[list[Value]]()
        last = list[list[Value]]()
        for d, back in enumerate(ways):
            layer = cls._layer(node, x, d, hidden)
            state = [
                cls._initial(node, d, k, batch, hidden, batch_first)
                for k in range(cls.states)
            ]
            outputs, final = _run(layer, cls.step, state, back, lengths)
            every.append(outputs)
            last.append(final)
        made = [
            _joined(
                b,
                [_joined(b, [w[t] for w in every], 1, name) for t in range(steps)],
                0,
                name,
            )
        ]
        made += [_joined(b, [w[k] for w in last], 0, name) for k in range(cls.states)]
        if batch_first:
            made = [
                transpose(b, made[0], (2, 0, 1, 3)),
                *(transpose(b, v, (1, 0, 2)) for v in made[1:]),
            ]
        return made

    @classmethod
    def _layer(cls, node: OnnxNode, x: Value, d: int, hidden: int) -> _Layer:
        b = node.build
        name = node.name
        steps = x.type.shape[0]
        w, r = (_without(b, node.input(i), 0, d, name) for i in (1, 2))
        linear = bool(node.attrs.get("linear_before_reset", 0))
        peepholes = node.optional(7)
        bias = None
        apart = None
        if (given := node.optional(3)) is not None:
            both = _without(b, given, 0, d, name)
            n = cls.gates * hidden
            bias, apart = (part(b, both, 0, k * n, n, name) for k in range(2))
            if not linear:
                bias = b.add(Add(), [bias, apart], name)
            else:  # that of the hidden gate is multiplied by the reset gate
                mask = b.const(
                    np.repeat([1.0, 1.0, 0.0], hidden).astype(np.float32),
                    f"{name}_mask",
                )
                bias = b.add(Add(), [bias, b.add(Mul(), [apart, mask], name)], name)
        projected = b.add(
            FullyConnected(), [x, w, *([bias] if bias is not None else [])], name
        )
        xs = [_without(b, projected, 0, t, name) for t in range(steps)]
        clip = node.attrs.get("clip")
        if peepholes is not None and cls.states == 2:
            p = _without(b, peepholes, 0, d, name)
        else:
            p = None
        coupled = bool(node.attrs.get("input_forget", 0))
        return _Layer(
            b, name, hidden, xs, r, apart, p, cls._acts(node, d), clip, linear, coupled
        )

    @classmethod
    def _acts(cls, node: OnnxNode, d: int) -> list[OpDef]:
        n = len(cls.defaults)
        names = (node.attrs.get("activations") or list(cls.defaults) * 2)[
            d * n : (d + 1) * n
        ]
        found = [
            _ACTIVATIONS.get(
                (text.decode() if isinstance(text, bytes) else text).lower()
            )
            for text in names
        ]
        if len(found) != n or None in found:
            raise ValueError(
                f"activations {names}; edgec has {', '.join(_ACTIVATIONS)}"
            )
        return [spec for spec in found if spec is not None]

    @classmethod
    def _initial(
        cls, node: OnnxNode, d: int, k: int, batch: int, hidden: int, batch_first: bool
    ) -> Value:
        given = node.optional(5 + k)
        if given is None:
            return node.build.const(
                np.zeros((batch, hidden), np.float32), f"{node.name}_start"
            )
        return _without(node.build, given, 1 if batch_first else 0, d, node.name)


def _run(
    layer: _Layer, step: Step, state: list[Value], back: bool, lengths: Array | None
) -> tuple[list[Value], list[Value]]:
    """[1, batch, hidden] of every step, and of every state after the last.

    Beyond its length a sequence gives zeros.
    """
    b = layer.b
    steps = len(layer.x)
    outputs: dict[int, Value] = {}
    zero = b.const(np.zeros((), np.float32), "zero")
    for t in range(steps)[:: -1 if back else 1]:
        new = step(layer, layer.x[t], state)
        shown = new[0]
        if lengths is not None:
            there = b.const((t < lengths)[:, None], f"{layer.name}_there")
            new = [
                b.add(Where(), [there, after, before], layer.name)
                for after, before in zip(new, state, strict=True)
            ]
            shown = b.add(Where(), [there, shown, zero], layer.name)
        state = new
        outputs[t] = shown

    def wide(v: Value) -> Value:
        return b.add(Reshape((1, *v.type.shape)), [v], layer.name)

    return [
        b.add(Reshape((1, 1, *v.type.shape)), [v], layer.name)
        for _, v in sorted(outputs.items())
    ], [wide(v) for v in state]


def _joined(b: Builder, values: list[Value], axis: int, name: str) -> Value:
    """One after the other."""
    return values[0] if len(values) == 1 else b.add(Concat(axis), values, name)


@dataclass(frozen=True)
class Rnn(_Recurrent):
    """A simple recurrent layer."""

    kind = "rnn"
    onnx = ("RNN",)


@dataclass(frozen=True)
class Gru(_Recurrent):
    """Gated recurrent units."""

    kind = "gru"
    onnx = ("GRU",)
    gates: ClassVar[int] = 3
    defaults: ClassVar[tuple[str, ...]] = ("sigmoid", "tanh")
    step: ClassVar[Step] = staticmethod(_gru)


@dataclass(frozen=True)
class Lstm(_Recurrent):
    """Long short-term memory."""

    kind = "lstm"
    onnx = ("LSTM",)
    tflite = ("UNIDIRECTIONAL_SEQUENCE_LSTM",)
    edgetpu_versions = Opaque.edgetpu_versions
    keeps_state = True
    gates: ClassVar[int] = 4
    states: ClassVar[int] = 2
    defaults: ClassVar[tuple[str, ...]] = ("sigmoid", "tanh", "tanh")
    step: ClassVar[Step] = staticmethod(_lstm)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """A layer of floats.

        Its variables are state: a sequence begins with what the last one left, until a
        reset.
        """
        o = op.options
        b = op.build
        out = op.outputs[0]
        x = op.input(0)
        op.ignore("asymmetricQuantizeInputs")  # of hybrid kernels
        cls._check_tflite(op, x)
        if x.type.dtype == "int8":
            LstmInt8.of(op)
            return
        first = x if o.timeMajor else transpose(b, x, (1, 0, 2))
        steps, batch, _ = first.type.shape
        w, r, bias = (
            cls._stacked(op, at)
            for at in ((1, 4, 2, 3), (5, 8, 6, 7), (12, 15, 13, 14))
        )
        peepholes = cls._stacked(op, (9, 11, 10)) if _given(op, 9) else None
        projected = b.add(FullyConnected(), [first, w, bias], out.name)
        xs = [_without(b, projected, 0, t, out.name) for t in range(steps)]
        hidden = out.type.shape[2]
        act = _TFLITE_ACTIVATIONS[o.fusedActivationFunction]
        acts = [Logistic(), act, act]
        clip = float(o.cellClip) or None
        layer = _Layer(
            b, out.name, hidden, xs, r, None, peepholes, acts, None, False, False, clip
        )
        start = [cls._start(op, at, (batch, hidden)) for at in (18, 19)]
        shown, final = _run(layer, _lstm, start, False, None)
        op.kept.update(
            (v, b.add(Reshape(v.type.shape), [f], v.name))
            for v, f in zip(start, final, strict=True)
        )
        every = _joined(b, shown, 0, out.name)
        if o.timeMajor:
            b.write(Reshape((steps, batch, hidden)), [every], [out])
        else:
            b.write(
                Transpose((1, 0, 2)),
                [b.add(Reshape((steps, batch, hidden)), [every], out.name)],
                [out],
            )

    @staticmethod
    def _check_tflite(op: TfliteOp, x: Value) -> None:
        """Raise ValueError for what is not read."""
        o = op.options
        unread = {
            "coupled input and forget gates": not _given(op, 1),
            "a projection": _given(op, 16) or bool(o.projClip),
            "layer normalization": any(_given(op, i) for i in range(20, 24)),
            "a state that comes from other operators": any(
                _given(op, i) and op.inputs[i] not in op.kept for i in (18, 19)
            ),
            "recurrent weights that are a diagonal": bool(o.diagonalRecurrentTensors),
            "the fused activation": o.fusedActivationFunction
            not in _TFLITE_ACTIVATIONS,
            f"an input that is {x.type}": x.type.dtype not in ("float32", "int8"),
            "int8 with peepholes": x.type.dtype == "int8" and _given(op, 9),
        }
        if found := [what for what, there in unread.items() if there]:
            raise ValueError(f"{found[0]} is not supported")
        if (
            x.type.dtype == "float32"
            and (steps := x.type.shape[0 if o.timeMajor else 1]) > MOST_STEPS
        ):
            raise ValueError(f"{steps} steps; edgec unrolls up to {MOST_STEPS}")

    @staticmethod
    def _start(op: TfliteOp, at: int, shape: tuple[int, int]) -> Value:
        """The state before the first step: zeros where the operator stands alone."""
        v = op.inputs[at] if _given(op, at) else None
        if v is not None:
            return v
        return op.build.const(
            np.zeros(shape, np.float32), f"{op.outputs[0].name}_start"
        )

    @staticmethod
    def _stacked(op: TfliteOp, at: Sequence[int]) -> Value:
        """Constants of the gates one after the other, in the order of ONNX; stored
        integers as the reals they are.
        """
        parts = []
        for i in at:
            v = op.input(i)
            data = op.const(i)
            parts.append(
                dequantize(data, v.type)
                if v.type.is_quantized
                else data.astype(np.float32)
            )
        return op.build.const(np.concatenate(parts), f"{op.outputs[0].name}_weights")


def _given(op: TfliteOp, i: int) -> bool:
    """Whether an operator has this input."""
    return i < len(op.inputs) and op.inputs[i] is not None
