"""Gives float ops between Dequantize and Quantize the int8 form that they stand for.

That is how ONNX writes a quantized model. The int8 form is TFLite's: an op takes it
where its inputs have scales, its weights are integers again without loss, and its
output goes into one scale only. An op without int8 form stays float, between
conversions. Ops with a form that rounds like onnxruntime (half to even, the attribute
`rounding`) take that one; results of others differ by at most one step each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, replace
from math import prod

import numpy as np

from edgec.ir import (
    Array,
    Graph,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Rounding,
    TensorType,
    Value,
)
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import Clamp
from edgec.ops.common import quantize_bias
from edgec.ops.conv import DepthwiseConv2D
from edgec.ops.fixed_point import ACTIVATIONS
from edgec.ops.linear_quantization import integers, quantized_weights
from edgec.ops.pool import AveragePool2D
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.reduce import Mean
from edgec.ops.rounded import IDENTITY
from edgec.ops.rounded import Rounded as Function
from edgec.ops.softmax import RoundedSoftmax, Softmax
from edgec.ops.unary import Unary

MAX_SCALE_RATIO = 2.0
"""The largest accepted ratio of a prescribed or inherited scale to the scale of the
file: rounding to the coarser one then costs a step at most.
"""
MAX_FIXED_SCALE_RATIO = 1.02
"""The largest accepted ratio of an op's fixed output scale to the scale of the file, if
all users shall read the fixed one.
"""
MIN_OUTPUT_SCALE_RATIO = 2.0**-17
"""An output scale below this part of an input's is beyond TFLite's multipliers."""


def described(graph: Graph) -> bool:
    """Return whether the graph states int8 arithmetic as floats between scales.

    ONNX files may, a .tflite file never does.
    """
    quantizations = Rewriter(graph).matches(Quantize)
    return any(spec.rounding.is_onnxruntime for _, spec in quantizations)


def run(graph: Graph) -> bool:
    """Give ops their int8 form until no other op gets one.

    Float constants then forget the scales they had in the file. Weights that stay
    float keep them: the scale tells them from weights that the file has in floats.
    """
    if not _scaled_floats(graph) and not described(graph):
        return False
    recognizer = _Recognizer(graph)
    while recognizer.round():
        recognizer = _Recognizer(graph, changed=True)

    weights = _float_weights(graph) if described(graph) else set()
    forgetful = [v for v in _scaled_floats(graph) if v not in weights]
    for v in forgetful:
        v.type = v.type.with_quant(None)
    return recognizer.changed or bool(forgetful)


def _float_weights(graph: Graph) -> set[Value]:
    return {op.inputs[1] for op in graph.ops if _has_weights(op)}


def _scaled_floats(graph: Graph) -> list[Value]:
    """Return the float constants that stand for integers of the file.

    Their types have the scale of those integers.
    """
    return [
        v
        for v in graph.constants()
        if v.type.dtype == "float32" and v.type.quant is not None
    ]


class _Recognizer:
    """One walk over the ops of a graph, in their order.

    Attributes:
        changed: whether an earlier walk has changed the graph.
    """

    def __init__(self, graph: Graph, changed: bool = False) -> None:
        self.graph = graph
        self.changed = changed
        self.rw = Rewriter(graph)

    def round(self) -> bool:
        """Return whether any op became int8."""
        for op in self.rw.ops():
            if isinstance(op.spec, Quantize):
                self._merge_conversions(op, op.spec)
                continue
            if len(op.outputs) != 1 or not op.inputs:
                continue
            if isinstance(op.spec, Dequantize):
                continue
            if not self._move_before_dequantize(op):
                _ = self._move_behind_quantize(op) or self._compute_in_int8(op)
        return self.rw.changed

    # ---- conversions
    # ----------------------------------------------------------------------------------
    def _merge_conversions(self, op: Op, spec: Quantize) -> None:
        """Merge a Dequantize and the Quantize right after it.

        Both disappear if the scales are equal, else they become a change of scale.
        """
        # TFLite's own conversions stay.
        dequantize = self.rw.made_by(op.inputs[0], "dequantize")
        if dequantize is None or not spec.rounding.is_onnxruntime:
            return
        source = dequantize.inputs[0]
        if source.type.dtype != "int8":
            return

        if source.type == op.output.type:
            if not self.rw.forward(op, source):
                self.rw.update(op, Function(IDENTITY), [source])
        elif not self._keep_fixed_scale(op, dequantize):
            self.rw.update(op, Function(IDENTITY), [source])

    def _keep_fixed_scale(self, op: Op, dequantize: Op) -> bool:
        """Let all users read the output scale that an op prescribes, if it is close.

        `op` is the Quantize to the scale of the file. Return whether the users do.
        """
        producer = self.rw.made_by(dequantize.inputs[0])
        if producer is None or producer.spec.quant is not QuantRule.FIXED:
            return False
        if op.output in self.graph.outputs:
            return False

        fixed = dequantize.inputs[0].type
        stated = op.output.type
        fixed_low, fixed_high = _range(fixed)
        stated_low, stated_high = _range(stated)
        # The range of the fixed scale may exceed the stated one by a step.
        if stated_low > fixed_low + fixed.scale:
            return False
        if fixed_high - fixed.scale > stated_high:
            return False
        if fixed.scale > MAX_FIXED_SCALE_RATIO * stated.scale:
            return False

        users = self.rw.users(op.output)
        if any(user.kind != "dequantize" for user in users):
            return False
        return all(self.rw.forward(user, dequantize.output) for user in users)

    # ---- ops that move elements
    # ----------------------------------------------------------------------------------
    def _move_before_dequantize(self, op: Op) -> bool:
        """Let an op that only moves elements move int8 elements of one scale.

        Its inputs are then dequantized behind it.
        """
        if not op.spec.moves() or op.output.type.dtype != "float32":
            return False
        scales: set[Quant | None] = set()
        for v in _activations(op, op.inputs):
            source = self._source(v)
            if source is not None:
                scales.add(source.type.quant)
        if len(scales) != 1:
            return False
        scale = next(iter(scales))
        return self._rewrite(op, scale, scale)

    def _move_behind_quantize(self, op: Op) -> bool:
        """Let an op that moves or clamps elements read them after they are quantized.

        Its result must go into one scale.
        """
        stated = self._stated_scale(op)
        if stated is None or op.output.type.dtype != "float32":
            return False
        if not op.spec.moves() and not isinstance(op.spec, Clamp):
            return False

        inputs: list[Value] = []
        for i, v in enumerate(op.inputs):
            if op.spec.role(i) != "act":
                inputs.append(v)
                continue
            spec = Quantize(rounding=Rounding.of_onnx(self._was_uint8(op)))
            quantized = self.rw.add(op, spec, [v], f"{v.name}_int8", stated)
            inputs.append(quantized)
        return self._write(op, inputs, stated)

    # ---- ops that compute
    # ----------------------------------------------------------------------------------
    def _compute_in_int8(self, op: Op) -> bool:
        """Give an op whose inputs have scales its int8 form, if it has one."""
        rule = op.spec.quant
        if rule is QuantRule.FLOAT or op.inputs[0].type.dtype != "float32":
            return False
        # A result that is no float, as an index, has no scale.
        if op.output.type.dtype != "float32":
            return self._rewrite(op, None, None)
        stated = self._stated_scale(op)
        if stated is None:
            return False
        if rule is QuantRule.FREE or _rounded_form(op.spec) is not None:
            return self._rewrite(op, None, stated)
        return self._compute_in_own_scale(op, stated)

    def _compute_in_own_scale(self, op: Op, stated: Quant) -> bool:
        """Give an op its int8 form if that form decides the output scale.

        A fixed scale is a property of the op, another one is that of the inputs. A
        change to the stated scale of the file follows, so it must not be much finer.
        """
        fixed = op.spec.quant is QuantRule.FIXED
        scale = op.spec.fixed_quant() if fixed else self._shared_scale(op)
        if scale is None:
            return False
        if scale != stated and self._pool_into(op, stated):
            return True
        if scale.scale[0] > MAX_SCALE_RATIO * stated.scale[0]:
            return False
        return self._rewrite(op, None if fixed else scale, scale)

    def _pool_into(self, op: Op, scale: Quant) -> bool:
        """Rewrite an average pool as an op that has an output scale of its own.

        That is a mean, or a depthwise convolution with equal weights. Not possible if
        the pool has pads or an activation.
        """
        pool = op.spec
        if not isinstance(pool, AveragePool2D):
            return False
        x = self._source(op.inputs[0])
        if x is None or any(pool.pads) or pool.act != "none":
            return False
        if pool.is_mean(x.type):
            return self._write(op, [x], scale, Mean((1, 2), True))

        ones = np.ones((1, *pool.kernel, x.type.shape[3]), np.int8)
        mean_weight = Quant.per_tensor(1 / prod(pool.kernel))
        weights = self.rw.const(ones, f"{op.output.name}_ones", mean_weight)
        return self._write(op, [x, weights], scale, DepthwiseConv2D(pool.stride))

    def _shared_scale(self, op: Op) -> Quant | None:
        """Return the scale of all int8 inputs of `op`, None if there are several."""
        scales: set[Quant | None] = set()
        for v in _activations(op, op.inputs):
            source = self._source(v)
            if source is not None:
                scales.add(source.type.quant)
        return next(iter(scales)) if len(scales) == 1 else None

    def _stated_scale(self, op: Op) -> Quant | None:
        """Return the one scale to which the result of `op` is quantized.

        None if there are several, or if the float result has another user.
        """
        if op.output in self.graph.outputs:
            return None
        scales: set[Quant | None] = set()
        for user in self.rw.users(op.output):
            # A float user needs the float result.
            if not isinstance(user.spec, Quantize):
                return None
            if user.output.type.dtype == "int8":
                scales.add(user.output.type.quant)
        return next(iter(scales)) if len(scales) == 1 else None

    def _rewrite(self, op: Op, constant_scale: Quant | None, out: Quant | None) -> bool:
        """Rewrite `op` on integers, and return whether that was possible.

        constant_scale: the scale that constant operands must fit, None for their own.
        out: the scale of the result, None if the result is not int8.
        """
        inputs: list[Value] = []
        for i in range(len(op.inputs)):
            x = self._operand(op, i, inputs, constant_scale)
            if x is None:
                return False
            inputs.append(x)
        if out is not None and not _has_multiplier(op, inputs, out):
            return False
        return self._write(op, inputs, out)

    def _operand(
        self, op: Op, i: int, inputs: list[Value], constant_scale: Quant | None
    ) -> Value | None:
        """Return the integer form of input `i` of `op`, None if it has none.

        `inputs` are the integer forms of the inputs before.
        """
        v = op.inputs[i]
        role = op.spec.role(i)
        if role == "act":
            return self._source(v) or self._constant(v, constant_scale)
        if role == "weight":
            return self._weight(op, v)
        if role == "bias":
            return self._bias(v, inputs)
        return v

    def _write(
        self, op: Op, inputs: list[Value], out: Quant | None, spec: OpDef | None = None
    ) -> bool:
        """Let the int8 form of `op` write its result, and return whether it has one.

        `spec` replaces the op's own. An int8 result is dequantized again.
        """
        spec = spec or op.spec
        try:
            (type_,) = spec.infer(*(v.type for v in inputs))
        except ValueError:
            return False

        if type_.dtype == "int8":
            name = f"{op.output.name}_int8"
            y = self.rw.add(op, self._rounded(op, spec), inputs, name, out)
            self.rw.update(op, Dequantize(), [y])
            return True
        # The op reads integers but its result has none, as an index.
        if type_.dtype == op.output.type.dtype:
            self.rw.update(op, inputs=inputs)
            return True
        return False

    def _rounded(self, op: Op, spec: OpDef) -> OpDef:
        """Return the form of `spec` that rounds like onnxruntime, or `spec` itself."""
        rounded = _rounded_form(spec)
        if rounded is not None:
            return rounded
        if not hasattr(spec, "rounding"):
            return spec
        rounding = Rounding.of_onnx(self._was_uint8(op))
        return replace(spec, rounding=rounding)  # type: ignore[call-arg]

    def _was_uint8(self, op: Op) -> bool:
        """Return whether the file quantizes the result of `op` to uint8."""
        for user in self.rw.users(op.output):
            if isinstance(user.spec, Quantize) and user.spec.rounding.is_uint8:
                return True
        return False

    # ---- operands
    # ----------------------------------------------------------------------------------
    def _source(self, v: Value) -> Value | None:
        """Return the int8 value from which `v` was dequantized.

        None if `v` is no dequantized int8 value.
        """
        dequantize = self.rw.made_by(v, "dequantize")
        if dequantize is None:
            return None
        source = dequantize.inputs[0]
        return source if source.type.dtype == "int8" else None

    def _constant(self, v: Value, scale: Quant | None) -> Value | None:
        """Return a float constant as int8 with the given scale, if that is exact.

        Without `scale`, the constant has the scale of the file, or one that suits it if
        all its elements are equal.
        """
        if v.const is None or v.type.dtype != "float32":
            return None
        scale = scale or v.type.quant
        if scale is None:
            scale = _uniform_scale(v.const)
        return self._exact(v, scale)

    def _weight(self, op: Op, v: Value) -> Value | None:
        """Return the int8 form of weights, None if they have none.

        Weights that the file has in floats are quantized as onnxruntime does it.
        """
        if v.const is None:
            return None
        quant = v.type.quant
        if quant is None:
            if not _has_weights(op) or not np.isfinite(v.const).all():
                return None
            data, new_quant = quantized_weights(v.const)
            return self.rw.const(data, f"{v.name}_int8", new_quant)

        if quant.axis is not None:
            if quant.axis != op.spec.weight_axis:
                return None
            # TFLite has asymmetric weights per tensor only.
            if any(quant.zero_point):
                return None
        return self._exact(v, quant)

    def _exact(self, v: Value, quant: Quant | None) -> Value | None:
        """Return the integers of a constant, None if they lose something."""
        if v.const is None or quant is None:
            return None
        if quant.axis is not None and v.type.shape[quant.axis] != len(quant.scale):
            return None
        q = integers(v.const, v.type.with_quant(quant))
        scale, zero_point = quant.broadcast(q.ndim)
        restored = (q.astype(np.int64) - zero_point) * scale
        # The file's floats are rounded products of integer and scale.
        if not np.allclose(restored, v.const, rtol=1e-6, atol=1e-12):
            return None
        return self.rw.const(q, f"{v.name}_int8", quant)

    def _bias(self, v: Value, inputs: list[Value]) -> Value | None:
        """Return a bias as int32 at the scale of input times weights.

        `inputs` are the int8 input and weights.
        """
        x = inputs[0].type
        w = inputs[1].type
        if v.const is None or w.quant is None:
            return None
        # The accumulator has this scale, so the bias is added as it is.
        data, quant = quantize_bias(v.const, x.scale, w.quant)
        return self.rw.const(data, f"{v.name}_int32", quant)


def _activations(op: Op, inputs: list[Value]) -> Iterator[Value]:
    """Yield the inputs in the role of activations, rather than weights or shapes."""
    for i, v in enumerate(inputs):
        if op.spec.role(i) == "act":
            yield v


def _uniform_scale(constant: Array) -> Quant | None:
    """Return a scale at which a constant of equal elements is exact.

    The element is 127 steps, or 0. None for other constants.
    """
    elements = constant.reshape(-1)
    if not elements.size or not (elements == elements[0]).all():
        return None
    magnitude = abs(float(elements[0]))
    return Quant.per_tensor(magnitude / 127 or 1.0)


def _has_multiplier(op: Op, inputs: list[Value], out: Quant) -> bool:
    """Return whether TFLite can requantize the result of `op` to the scale `out`.

    Only ops without weights that have an output scale of their own are limited.
    """
    if op.spec.quant is not QuantRule.FREE or "weight" in op.spec.roles:
        return True

    # The multiplier is the quotient of both scales.
    finest_input = min(v.type.scale for v in _activations(op, inputs))
    return out.scale[0] >= MIN_OUTPUT_SCALE_RATIO * finest_input


def _rounded_form(spec: OpDef) -> OpDef | None:
    """Return the form of a function with any output scale and onnxruntime's rounding.

    None if it has none. Clamps do not need one: they fold into other ops as they are.
    """
    if isinstance(spec, Softmax):
        return RoundedSoftmax(spec.beta)
    if isinstance(spec, Unary) and spec.kind not in (*ACTIVATIONS, "clamp"):
        return Function(spec.kind, astuple(spec))
    return None


def _has_weights(op: Op) -> bool:
    """Return whether onnxruntime quantizes the float weights of `op`.

    It does so for convolutions, and for products with a bias.
    """
    if not op.spec.channel_flow.has_weights:
        return False
    is_convolution = op.inputs[1].type.rank == 4
    return is_convolution or len(op.inputs) > 2


def _range(t: TensorType) -> tuple[float, float]:
    """Return the least and the largest number of an int8 tensor."""
    return (-128 - t.zero_point) * t.scale, (127 - t.zero_point) * t.scale
