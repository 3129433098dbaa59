"""Gives float ops between Dequantize and Quantize the int8 form that they stand for.

That is how ONNX writes a quantized model. The int8 form is TFLite's: an op takes it
where its inputs have scales, its weights are integers again without loss, and its
output goes into one scale only. What cannot stays float, between conversions. Ops that
can round as onnxruntime does (`even`); results of others differ by at most one step
each.
"""

from __future__ import annotations

from dataclasses import astuple, fields, replace
from math import prod

import numpy as np

from edgec.ir import Graph, Op, OpDef, Quant, QuantRule, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import Clamp
from edgec.ops.binary import OrtBinary
from edgec.ops.common import quantize_bias
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.fixed_point import ACTIVATIONS
from edgec.ops.linear_quantization import integers, quantized_weights
from edgec.ops.matmul import FullyConnected
from edgec.ops.pool import AveragePool2D
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.reduce import Mean
from edgec.ops.rounded import IDENTITY
from edgec.ops.rounded import Rounded as Function
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.unary import Unary

_COARSER = 2.0
"""A prescribed or an inherited scale may be so many times the one wanted: rounding to
it then costs a step at most.
"""
_FINEST = 2.0**-17
"""An output scale below this part of an input's is beyond TFLite's multipliers."""


def described(graph: Graph) -> bool:
    """Whether a graph says in floats between ONNX's scales what is meant as int8; a
    .tflite file never does.
    """
    return any(isinstance(op.spec, Quantize) and op.spec.even for op in graph.ops)


def run(graph: Graph) -> bool:
    """Until no other op becomes int8; then no constant has to remember its scale any
    more, except for weights that stay float: that tells them from those that the file
    has in floats.
    """
    marked = _marked(graph)
    if not marked and not described(graph):
        return False
    pass_ = _Recognizer(graph)
    while pass_.round():
        pass_ = _Recognizer(graph, changed=True)
    if described(graph):
        weights = {op.inputs[1] for op in graph.ops if _has_weights(op)}
    else:
        weights = set()
    forgotten = [v for v in _marked(graph) if v not in weights]
    for v in forgotten:
        v.type = v.type.with_quant(None)
    return pass_.changed or bool(forgotten)


def _marked(graph: Graph) -> list[Value]:
    """Floats that stand for integers of the file."""
    return [
        v
        for v in graph.constants()
        if v.type.dtype == "float32" and v.type.quant is not None
    ]


class _Recognizer:
    """One walk over the ops, in their order."""

    def __init__(self, graph: Graph, changed: bool = False) -> None:
        self.graph = graph
        self.changed = changed
        self.rw = Rewriter(graph)

    def round(self) -> bool:
        """Tells whether anything became int8."""
        for op in self.rw.ops():
            if isinstance(op.spec, Quantize):
                self._conversion(op)
            elif (
                len(op.outputs) == 1
                and op.inputs
                and not isinstance(op.spec, Dequantize)
            ):
                _ = self._downwards(op) or self._upwards(op) or self._computes(op)
        return self.rw.changed

    # ---- conversions
    # ----------------------------------------------------------------------------------
    def _conversion(self, op: Op) -> None:
        """Quantize right after Dequantize: nothing, or from one scale to another."""
        back = self.rw.made_by(op.inputs[0], "dequantize")
        if back is None or not op.spec.even or back.inputs[0].type.dtype != "int8":  # type: ignore[attr-defined]
            return
        source = back.inputs[0]
        if source.type != op.output.type and self._prescribed(op, back):
            return
        if source.type != op.output.type or not self.rw.forward(op, source):
            self.rw.update(op, Function(IDENTITY), [source])

    def _prescribed(self, op: Op, back: Op) -> bool:
        """Keep the scale that an op prescribes for its output, where all readers may as
        well have that.
        """
        maker = self.rw.made_by(back.inputs[0])
        readers = self.rw.users(op.output)
        own = back.inputs[0].type
        wanted = op.output.type
        if (
            maker is None
            or maker.spec.quant is not QuantRule.FIXED
            or op.output in self.graph.outputs
        ):
            return False
        (low, high), (least, most) = _range(own), _range(wanted)
        covered = least <= low + own.scale and high - own.scale <= most
        if (
            not covered
            or own.scale > 1.02 * wanted.scale
            or any(r.kind != "dequantize" for r in readers)
        ):
            return False
        return all(self.rw.forward(r, back.output) for r in readers)

    # ---- ops that move elements
    # ----------------------------------------------------------------------------------
    def _downwards(self, op: Op) -> bool:
        """An op that moves elements of int8 tensors of one scale may do so before they
        are dequantized.
        """
        if not op.spec.moves() or op.output.type.dtype != "float32":
            return False
        sources = [
            self._source(v) for i, v in enumerate(op.inputs) if op.spec.role(i) == "act"
        ]
        scales = {v.type.quant for v in sources if v is not None}
        if len(scales) != 1:
            return False
        return self._becomes(op, next(iter(scales)), next(iter(scales)))

    def _upwards(self, op: Op) -> bool:
        """An op that moves elements, or bounds them, and whose result is quantized may
        do so after that.
        """
        wanted = self._wanted(op)
        if (
            wanted is None
            or not (op.spec.moves() or isinstance(op.spec, Clamp))
            or op.output.type.dtype != "float32"
        ):
            return False
        inputs: list[Value] = []
        for i, v in enumerate(op.inputs):
            if op.spec.role(i) != "act":
                inputs.append(v)
                continue
            spec = Quantize(even=True, uint8=self._was_uint8(op))
            inputs.append(self.rw.add(op, spec, [v], f"{v.name}_int8", wanted))
        return self._write(op, inputs, wanted)

    # ---- ops that compute
    # ----------------------------------------------------------------------------------
    def _computes(self, op: Op) -> bool:
        """The int8 form of an op whose inputs have scales."""
        if op.spec.quant is QuantRule.FLOAT or op.inputs[0].type.dtype != "float32":
            return False
        if op.output.type.dtype != "float32":
            return self._becomes(op, None, None)
        wanted = self._wanted(op)
        if wanted is None:
            return False
        if op.spec.quant is QuantRule.FREE or _rounds(op.spec):
            return self._becomes(op, None, wanted)
        own = self._shared(op)
        if op.spec.quant is QuantRule.FIXED:
            own = op.spec.fixed_quant()
        if (
            own is not None
            and isinstance(op.spec, AveragePool2D)
            and own != wanted
            and self._pools(op, wanted)
        ):
            return True
        if own is None or own.scale[0] > _COARSER * wanted.scale[0]:
            return False
        return self._becomes(op, None if op.spec.quant is QuantRule.FIXED else own, own)

    def _pools(self, op: Op, wanted: Quant) -> bool:
        """A pool whose means go into a scale of their own, as an op that has one; not
        where padding counts.
        """
        pool = op.spec
        x = self._source(op.inputs[0])
        if (
            not isinstance(pool, AveragePool2D)
            or x is None
            or any(pool.pads)
            or pool.act != "none"
        ):
            return False
        if pool.is_mean(x.type):
            return self._write(op, [x], wanted, Mean((1, 2), True))
        ones = np.ones((1, *pool.kernel, x.type.shape[3]), np.int8)
        weights = self.rw.const(
            ones, f"{op.output.name}_ones", Quant.per_tensor(1 / prod(pool.kernel))
        )
        return self._write(op, [x, weights], wanted, DepthwiseConv2D(pool.stride))

    def _shared(self, op: Op) -> Quant | None:
        """The one scale of all inputs."""
        found = {
            s.type.quant
            for i, v in enumerate(op.inputs)
            if (s := self._source(v)) and op.spec.role(i) == "act"
        }
        return next(iter(found)) if len(found) == 1 else None

    def _wanted(self, op: Op) -> Quant | None:
        """The one scale that an op's result goes into."""
        readers = self.rw.users(op.output)
        found = {
            r.output.type.quant
            for r in readers
            if isinstance(r.spec, Quantize) and r.output.type.dtype == "int8"
        }
        if (
            len(found) != 1
            or op.output in self.graph.outputs
            or any(not isinstance(r.spec, Quantize) for r in readers)
        ):
            return None
        return next(iter(found))

    def _becomes(self, op: Op, same: Quant | None, out: Quant | None) -> bool:
        """Rewrite an op that can. same: the scale that constants must fit. out: of the
        result, if that is int8.
        """
        inputs: list[Value] = []
        for i, v in enumerate(op.inputs):
            role = op.spec.role(i)
            if role == "act":
                x = self._source(v) or self._constant(v, same)
            elif role == "weight":
                x = self._weight(op, v)
            elif role == "bias":
                x = self._bias(v, inputs)
            else:
                x = v
            if x is None:
                return False
            inputs.append(x)
        if (
            out is not None
            and op.spec.quant is QuantRule.FREE
            and "weight" not in op.spec.roles
        ):
            least = min(
                v.type.scale for i, v in enumerate(inputs) if op.spec.role(i) == "act"
            )
            if out.scale[0] < _FINEST * least:
                return False
        return self._write(op, inputs, out)

    def _write(
        self, op: Op, inputs: list[Value], out: Quant | None, spec: OpDef | None = None
    ) -> bool:
        """Let the op's int8 form (or that of `spec`), if there is one for these types,
        write what the op wrote.
        """
        spec = spec or op.spec
        try:
            (type_,) = spec.infer(*(v.type for v in inputs))
        except ValueError:
            return False
        if type_.dtype == "int8":
            y = self.rw.add(
                op, self._rounded(op, spec), inputs, f"{op.output.name}_int8", out
            )
            self.rw.update(op, Dequantize(), [y])
        elif type_.dtype == op.output.type.dtype:
            self.rw.update(op, inputs=inputs)
        else:
            return False
        return True

    def _rounded(self, op: Op, spec: OpDef) -> OpDef:
        """The same op with onnxruntime's rounding, where it has that."""
        if _rounds(spec):
            return Function(spec.kind, astuple(spec))
        has = {f.name for f in fields(spec)}
        if "even" not in has:
            return spec
        if isinstance(spec, (OrtBinary, AveragePool2D)) and self._was_uint8(op):
            uint8 = {"uint8": True}
        else:
            uint8 = {}
        return replace(spec, even=True, **uint8)  # type: ignore[call-arg]

    def _was_uint8(self, op: Op) -> bool:
        """Whether what its result goes into was uint8 in the file."""
        return any(
            isinstance(r.spec, Quantize) and r.spec.uint8
            for r in self.rw.users(op.output)
        )

    # ---- operands
    # ----------------------------------------------------------------------------------
    def _source(self, v: Value) -> Value | None:
        """The int8 value that was dequantized."""
        back = self.rw.made_by(v, "dequantize")
        if back is not None and back.inputs[0].type.dtype == "int8":
            return back.inputs[0]
        return None

    def _constant(self, v: Value, same: Quant | None) -> Value | None:
        """An int8 constant in place of a float one, without loss; `same` is the scale
        that it must have.
        """
        if v.const is None or v.type.dtype != "float32":
            return None
        if same is None and v.type.quant is None:
            if not v.const.size or not (v.const == v.const.reshape(-1)[0]).all():
                return None
            magnitude = abs(float(v.const.reshape(-1)[0]))
            same = Quant.per_tensor(magnitude / 127 or 1.0)
        return self._exact(v, same or v.type.quant)

    def _weight(self, op: Op, v: Value) -> Value | None:
        quant = v.type.quant
        if (
            v.const is not None
            and quant is None
            and _has_weights(op)
            and np.isfinite(v.const).all()
        ):
            data, own = quantized_weights(v.const)
            return self.rw.const(data, f"{v.name}_int8", own)
        if (
            v.const is None
            or quant is None
            or (quant.axis is not None and quant.axis != op.spec.weight_axis)
        ):
            return None
        if quant.axis is not None and any(quant.zero_point):
            return None  # TFLite has asymmetric weights per tensor only
        return self._exact(v, quant)

    def _exact(self, v: Value, quant: Quant | None) -> Value | None:
        """The integers of a constant, None where they lose something."""
        if (
            v.const is None
            or quant is None
            or (quant.axis is not None and v.type.shape[quant.axis] != len(quant.scale))
        ):
            return None
        q = integers(v.const, v.type.with_quant(quant))
        scale, zero = quant.broadcast(q.ndim)
        if not np.allclose(
            (q.astype(np.int64) - zero) * scale, v.const, rtol=1e-6, atol=1e-12
        ):
            return None
        return self.rw.const(q, f"{v.name}_int8", quant)

    def _bias(self, v: Value, before: list[Value]) -> Value | None:
        """At the scale of input times weight, int32."""
        x = before[0].type
        w = before[1].type
        if v.const is None or w.quant is None:
            return None
        data, quant = quantize_bias(v.const, x.scale, w.quant)
        return self.rw.const(data, f"{v.name}_int32", quant)


def _rounds(spec: OpDef) -> bool:
    """Whether it is a function that has a form with onnxruntime's rounding; clamps fold
    into other ops as they are.
    """
    return isinstance(spec, Unary) and spec.kind not in (*ACTIVATIONS, "clamp")


def _has_weights(op: Op) -> bool:
    """Whether it is one whose float weights onnxruntime rounds: its convolutions, and
    products with a bias.
    """
    if isinstance(op.spec, (Conv2D, DepthwiseConv2D, TransposeConv2D)):
        return True
    return isinstance(op.spec, FullyConnected) and len(op.inputs) > 2


def _range(t: TensorType) -> tuple[float, float]:
    """The least and the most that an int8 tensor can hold."""
    return (-128 - t.zero_point) * t.scale, (127 - t.zero_point) * t.scale
