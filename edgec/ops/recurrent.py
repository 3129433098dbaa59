"""Recurrent layers over sequences of a static length, unrolled step by step.

Semantics: ONNX RNN, GRU and LSTM (whose documentation has the equations), and TFLite
UNIDIRECTIONAL_SEQUENCE_LSTM of floats; the int8 one is `lstm_int8`. LSTM: Hochreiter &
Schmidhuber 1997; GRU: Cho et al. 2014, arXiv:1406.1078.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import Array, Builder, OnnxNode, OpDef, TfliteOp, Value
from edgec.ir.types import dequantize
from edgec.ops.binary import Add, Mul
from edgec.ops.compare import Where
from edgec.ops.compositions import Composed
from edgec.ops.concat import Concat
from edgec.ops.fused_activation import fused_activation
from edgec.ops.lstm_int8 import LstmInt8
from edgec.ops.matmul import FullyConnected
from edgec.ops.opaque import Opaque
from edgec.ops.recurrent_activations import Activation, activations, of_op
from edgec.ops.recurrent_cells import (
    RecurrentLayer,
    Step,
    gru_step,
    index_axis,
    lstm_step,
    part,
    rnn_step,
)
from edgec.ops.shape import Reshape, Transpose, transpose
from edgec.ops.unary import Logistic, Relu, Tanh

_TFLITE_ACTIVATIONS: dict[str, OpDef] = {"relu": Relu(), "tanh": Tanh()}
"""The op of each fused activation of TFLite that an LSTM has."""
MAX_UNROLLED_STEPS = 512
"""Largest number of steps: each is the cell once more in the graph."""


@dataclass(frozen=True)
class _Recurrent(Composed):
    """What the layers share: directions, sequence lengths, layouts."""

    gates: ClassVar[int] = 1
    """Number of gates in the weights."""
    states: ClassVar[int] = 1
    """Number of states: h, and of an LSTM also c."""
    defaults: ClassVar[tuple[str, ...]] = ("tanh",)
    """Activations of one direction where the node names none."""
    step: ClassVar[Step] = staticmethod(rnn_step)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> list[Value]:
        """Read the layer as all steps of all its directions.

        Outputs: h after every step [steps, directions, batch, hidden], and each state
        after the last step [directions, batch, hidden]; `layout` 1 has the batch first.
        """
        b = node.build
        name = node.name
        is_batch_first = bool(node.attrs.get("layout", 0))
        x = node.input(0)
        if is_batch_first:
            x = transpose(b, x, (1, 0, 2))

        steps = x.type.shape[0]
        if steps > MAX_UNROLLED_STEPS:
            raise ValueError(f"{steps} steps; edgec unrolls up to {MAX_UNROLLED_STEPS}")

        direction = node.attrs.get("direction", "forward")
        # It follows from the shape of the recurrent weights.
        node.attrs.ignore("hidden_size")
        lengths = node.const(4)
        if lengths is not None and (lengths == steps).all():
            lengths = None

        are_backward = {
            "forward": (False,),
            "reverse": (True,),
            "bidirectional": (False, True),
        }[direction]

        # A layer of both directions is two layers side by side.
        every: list[list[Value]] = []
        last: list[list[Value]] = []
        for number, is_backward in enumerate(are_backward):
            layer = cls._layer(node, x, number)
            state = cls._initial_state(node, x, number)
            sequence = _Sequence(layer, cls.step, is_backward, lengths)
            outputs, final = sequence.run(state)
            every.append(outputs)
            last.append(final)

        by_step = [
            _joined(b, list(directions), 1, name)
            for directions in zip(*every, strict=True)
        ]
        results = [_joined(b, by_step, 0, name)]
        for directions in zip(*last, strict=True):
            results.append(_joined(b, list(directions), 0, name))

        if not is_batch_first:
            return results

        h, *states = results

        return [
            transpose(b, h, (2, 0, 1, 3)),
            *(transpose(b, value, (1, 0, 2)) for value in states),
        ]

    @classmethod
    def _layer(cls, node: OnnxNode, x: Value, direction: int) -> RecurrentLayer:
        """Return one direction of the layer, with W x + b of all steps computed."""
        b = node.build
        name = node.name
        hidden = node.input(2).type.shape[2]
        weights = index_axis(b, node.input(1), 0, direction, name)
        recurrent = index_axis(b, node.input(2), 0, direction, name)
        linear = bool(node.attrs.get("linear_before_reset", 0))
        peephole_input = node.optional(7)

        bias, recurrent_bias = cls._biases(node, direction, linear)

        # W x of all steps is one product.
        operands = [x, weights]
        if bias is not None:
            operands.append(bias)

        projected = b.add(FullyConnected(), operands, name)
        steps = [index_axis(b, projected, 0, t, name) for t in range(x.type.shape[0])]

        peepholes = None
        clip = node.attrs.get("clip")
        if peephole_input is not None and cls.states == 2:
            peepholes = index_axis(b, peephole_input, 0, direction, name)

        return RecurrentLayer(
            b=b,
            name=name,
            hidden=hidden,
            x=steps,
            r=recurrent,
            acts=cls._activations(node, direction),
            b_r=recurrent_bias,
            p=peepholes,
            clip=clip,
            linear=linear,
            coupled=bool(node.attrs.get("input_forget", 0)),
        )

    @classmethod
    def _biases(
        cls,
        node: OnnxNode,
        direction: int,
        linear: bool,
    ) -> tuple[Value | None, Value | None]:
        """Return (bias of the input's product, recurrent bias), None without biases.

        The input's product has both, except that with `linear` a GRU's reset gate
        multiplies the recurrent bias of the hidden gate.
        """
        b = node.build
        name = node.name
        hidden = node.input(2).type.shape[2]
        bias_input = node.optional(3)
        if bias_input is None:
            return None, None

        both = index_axis(b, bias_input, 0, direction, name)
        rows = cls.gates * hidden
        bias = part(b, both, 0, (0, rows), name)
        recurrent_bias = part(b, both, 0, (rows, rows), name)
        if not linear:
            total = b.add(Add(), [bias, recurrent_bias], name)
            return total, recurrent_bias

        # The hidden gate is the last of the three.
        is_folded = np.repeat([1.0, 1.0, 0.0], hidden).astype(np.float32)
        mask = b.const(is_folded, f"{name}_mask")
        folded = b.add(Mul(), [recurrent_bias, mask], name)

        return b.add(Add(), [bias, folded], name), recurrent_bias

    @classmethod
    def _activations(cls, node: OnnxNode, direction: int) -> list[Activation]:
        """Return the activations of one direction.

        Raises ValueError for activations that edgec does not have.
        """
        count = len(cls.defaults)
        names: list[str] = []
        for name in node.attrs.get("activations") or list(cls.defaults) * 2:
            names.append((name.decode() if isinstance(name, bytes) else name).lower())

        # Numbers are listed for all directions, one after the other.
        alphas = node.attrs.get("activation_alpha") or []
        betas = node.attrs.get("activation_beta") or []
        every = activations(names, alphas, betas)
        if len(every) < (direction + 1) * count:
            raise ValueError(f"{len(every)} activations; a direction has {count}")

        return every[direction * count : (direction + 1) * count]

    @classmethod
    def _initial_state(cls, node: OnnxNode, x: Value, direction: int) -> list[Value]:
        """Return the states before the first step, zeros where the node has none.

        Inputs 5 and 6 have the states of all directions.
        """
        b = node.build
        name = node.name
        batch = x.type.shape[1]
        hidden = node.input(2).type.shape[2]
        axis = 1 if node.attrs.get("layout", 0) else 0

        # h, and of an LSTM also c.
        state: list[Value] = []
        for number in range(cls.states):
            initial = node.optional(5 + number)
            if initial is None:
                zeros = np.zeros((batch, hidden), np.float32)
                state.append(b.const(zeros, f"{name}_start"))
            else:
                state.append(index_axis(b, initial, axis, direction, name))

        return state


@dataclass(frozen=True)
class _Sequence:
    """All steps of one direction of a layer.

    Attributes:
        step: the cell
        is_backward: whether the steps go from the last to the first
        lengths: number of steps of each sequence of the batch, None: all
    """

    layer: RecurrentLayer
    step: Step
    is_backward: bool = False
    lengths: Array | None = None

    def run(self, state: list[Value]) -> tuple[list[Value], list[Value]]:
        """Return h of every step [1, 1, batch, hidden], and the states after the last
        one [1, batch, hidden].

        A sequence beyond its length gives zeros, and keeps its state.
        """
        b = self.layer.b
        name = self.layer.name
        zero = b.const(np.zeros((), np.float32), "zero")
        order = list(range(len(self.layer.x)))
        if self.is_backward:
            order.reverse()

        outputs: dict[int, Value] = {}
        for number in order:
            new = self.step(self.layer, self.layer.x[number], state)
            output = new[0]
            if self.lengths is not None:
                is_inside = (number < self.lengths)[:, None]
                condition = b.const(is_inside, f"{name}_there")
                for i, (after, before) in enumerate(zip(new, state, strict=True)):
                    new[i] = b.add(Where(), [condition, after, before], name)
                output = b.add(Where(), [condition, output, zero], name)
            state = new
            outputs[number] = output

        # Axes for steps and directions, along which the outputs are joined.
        every: list[Value] = []
        for _, value in sorted(outputs.items()):
            every.append(b.add(Reshape((1, 1, *value.type.shape)), [value], name))

        final: list[Value] = []
        for value in state:
            final.append(b.add(Reshape((1, *value.type.shape)), [value], name))

        return every, final


def _joined(b: Builder, values: list[Value], axis: int, name: str) -> Value:
    """Return the values concatenated along an axis."""
    return values[0] if len(values) == 1 else b.add(Concat(axis), values, name)


@dataclass(frozen=True)
class Rnn(_Recurrent):
    """A simple recurrent layer (ONNX RNN)."""

    kind = "rnn"
    onnx = ("RNN",)


@dataclass(frozen=True)
class Gru(_Recurrent):
    """Gated recurrent units (ONNX GRU)."""

    kind = "gru"
    onnx = ("GRU",)
    gates: ClassVar[int] = 3
    defaults: ClassVar[tuple[str, ...]] = ("sigmoid", "tanh")
    step: ClassVar[Step] = staticmethod(gru_step)


@dataclass(frozen=True)
class Lstm(_Recurrent):
    """Long short-term memory (ONNX LSTM, TFLite UNIDIRECTIONAL_SEQUENCE_LSTM)."""

    kind = "lstm"
    onnx = ("LSTM",)
    tflite = ("UNIDIRECTIONAL_SEQUENCE_LSTM",)
    edgetpu_versions = Opaque.edgetpu_versions
    keeps_state = True
    gates: ClassVar[int] = 4
    states: ClassVar[int] = 2
    defaults: ClassVar[tuple[str, ...]] = ("sigmoid", "tanh", "tanh")
    step: ClassVar[Step] = staticmethod(lstm_step)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read UNIDIRECTIONAL_SEQUENCE_LSTM.

        Its variables are state: a sequence begins with the state that the previous call
        left, until a reset.
        """
        options = op.options
        x = op.input(0)
        # Float inputs of integer weights are not quantized here.
        op.ignore("asymmetricQuantizeInputs")
        cls._check_tflite(op, x)
        if x.type.dtype == "int8":
            LstmInt8.of(op)
            return

        b = op.build
        out = op.outputs[0]
        first = x if options.timeMajor else transpose(b, x, (1, 0, 2))
        steps, batch, _ = first.type.shape
        hidden = out.type.shape[2]
        layer = cls._tflite_layer(op, first)

        # The last state is the first of the next call.
        state = [cls._start(op, place, (batch, hidden)) for place in (18, 19)]
        outputs, final = _Sequence(layer, lstm_step).run(state)
        for before, after in zip(state, final, strict=True):
            reshape = Reshape(before.type.shape)
            op.kept[before] = b.add(reshape, [after], before.name)

        every = _joined(b, outputs, 0, out.name)
        flat = Reshape((steps, batch, hidden))
        if options.timeMajor:
            b.write(flat, [every], [out])
        else:
            time_major = b.add(flat, [every], out.name)
            b.write(Transpose((1, 0, 2)), [time_major], [out])

    @classmethod
    def _tflite_layer(cls, op: TfliteOp, first: Value) -> RecurrentLayer:
        """Return the layer of a float operator, with W x + b of all steps computed.

        first: the input with the time as its first axis. The operator's gates are
        input, forget, cell, output; here they are in the order of ONNX.
        """
        b = op.build
        options = op.options
        out = op.outputs[0]
        name = out.name
        weights = cls._stacked(op, (1, 4, 2, 3))
        recurrent = cls._stacked(op, (5, 8, 6, 7))
        bias = cls._stacked(op, (12, 15, 13, 14))
        peepholes = None
        if _has_input(op, 9):
            peepholes = cls._stacked(op, (9, 11, 10))

        # W x of all steps is one product.
        projected = b.add(FullyConnected(), [first, weights, bias], name)
        steps = [
            index_axis(b, projected, 0, t, name) for t in range(first.type.shape[0])
        ]
        act = _TFLITE_ACTIVATIONS[fused_activation(op, _TFLITE_ACTIVATIONS)]

        return RecurrentLayer(
            b=b,
            name=name,
            hidden=out.type.shape[2],
            x=steps,
            r=recurrent,
            acts=[of_op(Logistic()), of_op(act), of_op(act)],
            p=peepholes,
            cell_clip=float(options.cellClip) or None,
        )

    @staticmethod
    def _check_tflite(op: TfliteOp, x: Value) -> None:
        """Raise ValueError for forms of the operator that edgec does not read."""
        options = op.options
        dtype = x.type.dtype
        has_norm = any(_has_input(op, i) for i in range(20, 24))
        unread = {
            "coupled input and forget gates": not _has_input(op, 1),
            "a projection": _has_input(op, 16) or bool(options.projClip),
            "layer normalization": has_norm,
            "a state that comes from other operators": _has_foreign_state(op),
            "recurrent weights that are a diagonal": options.diagonalRecurrentTensors,
            f"an input that is {x.type}": dtype not in ("float32", "int8"),
            "int8 with peepholes": dtype == "int8" and _has_input(op, 9),
        }
        for form, is_present in unread.items():
            if is_present:
                raise ValueError(f"{form} is not supported")

        # The int8 layer is one op, however many steps it has.
        if dtype == "int8":
            # As in LiteRT, it has tanh whatever the options say.
            fused_activation(op, _TFLITE_ACTIVATIONS)
            return

        steps = x.type.shape[0 if options.timeMajor else 1]
        if steps > MAX_UNROLLED_STEPS:
            raise ValueError(f"{steps} steps; edgec unrolls up to {MAX_UNROLLED_STEPS}")

    @staticmethod
    def _start(op: TfliteOp, at: int, shape: tuple[int, int]) -> Value:
        """Return the state before the first step: zeros for an operator without one.

        at: the operator's input. shape: [batch, hidden].
        """
        value = op.inputs[at] if _has_input(op, at) else None
        if value is not None:
            return value

        zeros = np.zeros(shape, np.float32)

        return op.build.const(zeros, f"{op.outputs[0].name}_start")

    @staticmethod
    def _stacked(op: TfliteOp, at: Sequence[int]) -> Value:
        """Return the constants of some inputs one after the other, as floats.

        Weights stored as integers become the reals they stand for.
        """
        arrays: list[Array] = []
        for place in at:
            value = op.input(place)
            data = op.const(place)
            if value.type.is_quantized:
                arrays.append(dequantize(data, value.type))
            else:
                arrays.append(data.astype(np.float32))

        return op.build.const(np.concatenate(arrays), f"{op.outputs[0].name}_weights")


def _has_input(op: TfliteOp, i: int) -> bool:
    """Return whether an operator has input `i`."""
    return i < len(op.inputs) and op.inputs[i] is not None


def _has_foreign_state(op: TfliteOp) -> bool:
    """Return whether h or c is computed by another operator, not a variable."""
    states = [op.inputs[i] for i in (18, 19) if _has_input(op, i)]
    return any(state not in op.kept for state in states)
