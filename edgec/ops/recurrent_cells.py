"""The cells of recurrent layers: one step of an RNN, a GRU or an LSTM as other ops.

Equations: those of the ONNX operators RNN, GRU and LSTM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import Builder, Value
from edgec.ops.activation import Clamp
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.matmul import FullyConnected
from edgec.ops.recurrent_activations import Activation
from edgec.ops.shape import Reshape
from edgec.ops.slice import slice_axes


@dataclass(frozen=True)
class RecurrentLayer:
    """One direction of a layer.

    Attributes:
        b: builder of the graph
        name: base name of the values
        hidden: elements of the state
        x: for each step W x + b of all gates, [batch, gates * hidden]
        r: recurrent weights [gates * hidden, hidden]
        acts: activations, in the order of ONNX
        b_r: recurrent bias, where a GRU applies it before the reset gate
        p: peephole weights
        clip: largest magnitude of the activations' inputs
        linear: whether a GRU's reset gate follows the recurrent product
        coupled: whether an LSTM's forget gate is 1 less the input gate
        cell_clip: largest magnitude of an LSTM's cell
    """

    b: Builder
    name: str
    hidden: int
    x: list[Value]
    r: Value
    acts: Sequence[Activation]
    b_r: Value | None = None
    p: Value | None = None
    clip: float | None = None
    linear: bool = False
    coupled: bool = False
    cell_clip: float | None = None

    def add(self, x: Value, y: Value) -> Value:
        """Return x + y."""
        return self.b.add(Add(), [x, y], self.name)

    def mul(self, x: Value, y: Value) -> Value:
        """Return x * y."""
        return self.b.add(Mul(), [x, y], self.name)

    def minus(self, x: Value, y: Value) -> Value:
        """Return x - y."""
        return self.b.add(Sub(), [x, y], self.name)

    def act(self, i: int, x: Value) -> Value:
        """Return the i-th activation of `x`, which is clipped first.

        The bounds are -clip and clip.
        """
        # ONNX clips the inputs of all activations alike.
        if self.clip is not None:
            clamp = Clamp(-self.clip, self.clip)
            x = self.b.add(clamp, [x], self.name)

        return self.acts[i](self.b, x, self.name)

    def gate(self, gates: Value, i: int) -> Value:
        """Return the i-th gate of [batch, gates * hidden].

        Gates lie one after the other along the last axis.
        """
        last = gates.type.rank - 1
        spec = slice_axes(gates.type, {last: (i * self.hidden, self.hidden, 1)})
        return self.b.add(spec, [gates], self.name)

    def rows(self, weights: Value, first: int, count: int) -> Value:
        """Return the rows of `count` gates of some weights."""
        rows = (first * self.hidden, count * self.hidden)
        return part(self.b, weights, 0, rows, self.name)

    def product(
        self,
        h: Value,
        first: int,
        count: int,
        bias: Value | None = None,
    ) -> Value:
        """Return h times the recurrent weights of some gates, plus a bias."""
        biases = []
        if bias is not None:
            biases.append(self.rows(bias, first, count))

        # Only these gates are computed.
        weights = self.rows(self.r, first, count)

        return self.b.add(FullyConnected(), [h, weights, *biases], self.name)


Step = Callable[[RecurrentLayer, Value, list[Value]], list[Value]]
"""A function of the layer, of W x + b of a step, and of the state before the step.

It returns the state after the step: h, and of an LSTM also c.
"""


def rnn_step(layer: RecurrentLayer, x: Value, state: list[Value]) -> list[Value]:
    """Return h' = act(W x + R h + b)."""
    product = layer.product(state[0], 0, 1)
    return [layer.act(0, layer.add(x, product))]


def gru_step(layer: RecurrentLayer, x: Value, state: list[Value]) -> list[Value]:
    """Return h' = (1 - z) n + z h, computed as n + z (h - n).

    z and r are gates of W x + R h + b. n = act(W x + R (r h) + b), or with `linear`
    act(W x + r (R h + b_r) + b).
    """
    (h,) = state
    x_gates = part(layer.b, x, 1, (0, 2 * layer.hidden), layer.name)
    gates = layer.add(x_gates, layer.product(h, 0, 2))

    # Both gates have the same activation.
    update = layer.act(0, layer.gate(gates, 0))
    reset = layer.act(0, layer.gate(gates, 1))

    if layer.linear:
        product = layer.product(h, 2, 1, layer.b_r)
        inner = layer.mul(reset, product)
    else:
        inner = layer.product(layer.mul(reset, h), 2, 1)

    new = layer.act(1, layer.add(layer.gate(x, 2), inner))

    difference = layer.minus(h, new)

    return [layer.add(new, layer.mul(update, difference))]


def lstm_step(layer: RecurrentLayer, x: Value, state: list[Value]) -> list[Value]:
    """Return h' = o act(c') and c' = f c + i g.

    i, o, f are gates of W x + R h + b, in the order of ONNX; i and f also look at the
    cell before the step through peepholes, o at the one after it.
    """
    h, c = state
    gates = layer.add(x, layer.product(h, 0, 4))

    # The order of the gates in ONNX.
    i, o, f, g = (layer.gate(gates, k) for k in range(4))

    def with_peephole(gate: Value, cell: Value, k: int) -> Value:
        if layer.p is None:
            return gate
        weighted = layer.mul(layer.rows(layer.p, k, 1), cell)
        return layer.add(gate, weighted)

    i = layer.act(0, with_peephole(i, c, 0))
    one = layer.b.const(np.ones((), np.float32), "one")
    if layer.coupled:
        f = layer.minus(one, i)
    else:
        f = layer.act(0, with_peephole(f, c, 2))

    forgotten = layer.mul(f, c)
    cell = layer.add(forgotten, layer.mul(i, layer.act(1, g)))
    if layer.cell_clip is not None:
        clamp = Clamp(-layer.cell_clip, layer.cell_clip)
        cell = layer.b.add(clamp, [cell], layer.name)

    o = layer.act(0, with_peephole(o, cell, 1))
    # The cell's activation is not clipped.
    activated = layer.acts[2](layer.b, cell, layer.name)

    return [layer.mul(o, activated), cell]


def part(
    b: Builder,
    x: Value,
    axis: int,
    elements: tuple[int, int],
    name: str,
) -> Value:
    """Return the elements (first, count) of an axis; those of a constant without an op.

    All elements of the axis need no op.
    """
    first, count = elements
    if count == x.type.shape[axis]:
        return x

    # A part of a constant is cut while the model is read.
    if x.const is not None:
        index = (slice(None),) * axis + (slice(first, first + count),)
        return b.const(np.ascontiguousarray(x.const[index]), f"{name}_part")

    return b.add(slice_axes(x.type, {axis: (first, count, 1)}), [x], name)


def index_axis(b: Builder, x: Value, axis: int, place: int, name: str) -> Value:
    """Return one place of an axis, which is dropped.

    The place of a constant is taken while the model is read.
    """
    cut = part(b, x, axis, (place, 1), name)
    shape = list(x.type.shape)
    del shape[axis]
    if cut.const is not None:
        return b.const(cut.const.reshape(shape), name)

    return b.add(Reshape(tuple(shape)), [cut], name)
