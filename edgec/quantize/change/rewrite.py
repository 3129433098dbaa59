"""Makes the int8 graph of a float graph, from ranges and rounded constants.

A real x and its integer q are related by x = scale * (q - zero_point), as the TFLite
8-bit quantization specification has it. A convolution or matrix product then is

    y = s_x s_w Σ (q_x - z_x) q_w + bias,    bias = s_x s_w q_bias

with int8 q_x and q_w, and int32 q_bias.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from edgec.ir import (
    Array,
    Builder,
    Graph,
    Op,
    Quant,
    QuantRule,
    TensorType,
    Value,
    verify,
)
from edgec.ops.common import quantize_bias
from edgec.ops.quantize import Dequantize, Quantize
from edgec.quantize.change.domains import int8_ops, role
from edgec.quantize.change.params import (
    activation_quant,
    quantize_activation,
    quantize_weight,
    weight_quant,
)
from edgec.quantize.change.scales import activation_scales
from edgec.quantize.observe.ranges import Range, constant_range


@dataclass(frozen=True)
class RoundedParameters:
    """Constants that are not rounded to the nearest integer.

    Attributes:
        weights: int8 weights, by op.
        biases: real biases in place of the model's, by op.
    """

    weights: Mapping[Op, Array] = field(default_factory=dict)
    biases: Mapping[Op, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Int8Model:
    """A quantized graph.

    Attributes:
        graph: the graph.
        twins: its op for each op of the float graph that became int8.
    """

    graph: Graph
    twins: Mapping[Op, Op]


def rewrite(
    graph: Graph,
    ranges: Mapping[Value, Range],
    rounded: RoundedParameters | None = None,
    in_float: Collection[Op] = (),
) -> Int8Model:
    """Return the int8 form of a float graph with known ranges of its values.

    in_float: the ops that stay float.
    """
    # Which ops become int8 decides which values must share a scale.
    chosen = int8_ops(graph, ranges, in_float)
    scales = activation_scales(graph, chosen, ranges)
    rewriter = _Rewriter(graph, chosen, scales, rounded or RoundedParameters())
    result = rewriter.run()
    verify(result, "quantized")
    return Int8Model(result, rewriter.twins)


@dataclass(frozen=True)
class Integers:
    """The integers of an op's weight and bias, and their scales."""

    weight: Array
    weight_quant: Quant
    bias: Array | None
    bias_quant: Quant | None


def integers(op: Op, x_scale: float, rounded: RoundedParameters) -> Integers:
    """Return the integers of an op with weights.

    x_scale: the scale of its input; the bias has the scale of input times weight.
    """
    at = _positions(op)
    weight = _array(op.inputs[at["weight"]])
    bias = _array(op.inputs[at["bias"]]) if "bias" in at else None
    given_bias = rounded.biases.get(op)
    axis = op.spec.weight_axis if op.spec.per_channel else None
    # The scale is of the model's own bias, so that corrections of it change no weight.
    quant = weight_quant(weight, axis, x_scale, given_bias if bias is None else bias)

    int8_weight = rounded.weights.get(op)
    if int8_weight is None:
        int8_weight = quantize_weight(weight, quant)

    # Bias correction can give an op a bias that the model does not have.
    real_bias = bias if given_bias is None else given_bias
    if real_bias is None:
        return Integers(int8_weight, quant, None, None)

    int32_bias, bias_quant = quantize_bias(real_bias, x_scale, quant)

    return Integers(int8_weight, quant, int32_bias, bias_quant)


def renew(op: Op, twin: Op, rounded: RoundedParameters) -> None:
    """Give the int8 twin of an op the constants that `rounded` has for it.

    op: the float op.
    twin: its int8 form, which is changed.
    rounded: new constants; the ranges are as they were.
    """
    at = _positions(op)
    constants = integers(op, twin.inputs[at["act"]].type.scale, rounded)
    weight = twin.inputs[at["weight"]]
    twin.inputs[at["weight"]] = _with_elements(
        weight, constants.weight, constants.weight_quant
    )
    if constants.bias is not None:
        # A bias that the model does not have was appended.
        i = at.get("bias", len(op.inputs))
        bias = twin.inputs[i]
        twin.inputs[i] = _with_elements(bias, constants.bias, constants.bias_quant)


def _with_elements(v: Value, array: Array, quant: Quant | None) -> Value:
    """Return a constant like `v` with other elements."""
    return Value(v.name, replace(v.type, quant=quant), np.asarray(array, order="C"))


def _positions(op: Op) -> dict[str, int]:
    """Return the position of an op's input of each role."""
    return {role(op, i): i for i in range(len(op.inputs))}


class _Rewriter:
    """Copies a graph op by op.

    Every value has a form as declared, an int8 form, or both; each is made when it is
    first needed.

    Attributes:
        graph: the float graph.
        chosen: the ops that become int8.
        scales: the quantization of every value of an int8 op.
        rounded: the constants that are not rounded to the nearest integer.
        twins: the int8 op for each op that became int8.
        declared: the form as declared of each value.
        int8: the form that an int8 op wrote, of each value.
        shared: conversions and constants, by value and scale.
    """

    def __init__(
        self,
        graph: Graph,
        chosen: set[Op],
        scales: Mapping[Value, Quant],
        rounded: RoundedParameters,
    ) -> None:
        self.graph = graph
        self.chosen = chosen
        self.scales = scales
        self.rounded = rounded
        self.twins: dict[Op, Op] = {}
        self.build = Builder(Graph(graph.name))
        self.declared: dict[Value, Value] = {}
        self.int8: dict[Value, Value] = {}
        self.shared: dict[tuple[Value, Quant], Value] = {}

    def run(self) -> Graph:
        """Make all changes in the copy, and return it."""
        # Inputs keep their names and types: their int8 form is a conversion.
        for v in self.graph.inputs:
            self.declared[v] = self.build.input(v.name, v.type)

        self._reserve_output_names()
        for op in self.graph.ops:
            self.build.source = op.source
            if op in self.chosen:
                self._write_int8(op)
            else:
                self._write_as_declared(op)

        self.build.graph.outputs = [self._declared(v) for v in self.graph.outputs]
        self.build.graph.state = [*self.graph.state]

        return self.build.graph

    def _reserve_output_names(self) -> None:
        """Keep the names of the model's outputs, whatever is inserted before them."""
        self.output_name = {
            v: self.build.name(v.name)
            for v in self.graph.producers()
            if v in self.graph.outputs
        }

    def _result(self, v: Value, type_: TensorType) -> Value:
        """Return the new value that an op writes for `v`.

        A model output's own name is for the form as declared.
        """
        if v in self.output_name:
            if type_.dtype == v.type.dtype:
                return Value(self.output_name[v], type_)
            return self.build.value(f"{v.name}_int8", type_)

        return self.build.value(v.name, type_)

    def _write_as_declared(self, op: Op) -> None:
        """Copy an op that stays float."""
        # What only int8 ops wrote is dequantized here.
        inputs = [self._declared(v) for v in op.inputs]
        outputs = [self._result(v, v.type) for v in op.outputs]
        self.build.write(op.spec, inputs, outputs)
        self.declared.update(zip(op.outputs, outputs, strict=True))

    def _write_int8(self, op: Op) -> None:
        """Write the int8 form of an op."""
        # A SAME op moves integers: its inputs must have the scale of its results.
        same = self.scales[op.outputs[0]] if op.spec.quant is QuantRule.SAME else None
        inputs = [self._input(op, i, v, same) for i, v in enumerate(op.inputs)]
        if "weight" in op.spec.roles:
            self._quantize_parameters(op, inputs)

        types = op.spec.infer(*(i.type for i in inputs))
        outputs: list[Value] = []
        for v, t in zip(op.outputs, types, strict=True):
            # Some results of an int8 op are no int8 (the indices of an argmax).
            if t.dtype == "int8":
                out = self._result(v, replace(t, quant=self.scales[v]))
                self.int8[v] = out
            else:
                out = self._result(v, v.type)
                self.declared[v] = out
            outputs.append(out)

        self.build.write(op.spec, inputs, outputs)
        self.twins[op] = self.build.graph.ops[-1]

    def _input(self, op: Op, i: int, v: Value, same: Quant | None) -> Value:
        """Return the form of input `i` that an int8 op reads.

        same: the scale that all activations of the op have; None: each its own.
        """
        if role(op, i) != "act":
            return self._declared(v)

        if v.const is None:
            return self._quantized(v, same or self.scales[v])

        quant = same or activation_quant(constant_range(v.const))

        def make() -> Value:
            ints = quantize_activation(_array(v), quant)
            return self.build.const(ints, v.name, quant)

        return self._shared(v, quant, make)

    def _quantize_parameters(self, op: Op, inputs: list[Value]) -> None:
        """Replace weight and bias by their integer forms.

        Constants that several ops read are shared, unless they were rounded for one op.

        inputs: those of the int8 op, which are changed.
        """
        at = _positions(op)
        constants = integers(op, inputs[at["act"]].type.scale, self.rounded)
        weight = op.inputs[at["weight"]]
        form = partial(
            self.build.const, constants.weight, weight.name, constants.weight_quant
        )
        if op in self.rounded.weights:
            inputs[at["weight"]] = form()
        else:
            inputs[at["weight"]] = self._shared(weight, constants.weight_quant, form)

        if constants.bias is None or constants.bias_quant is None:
            return

        if "bias" not in at:
            # A step gave the op a bias that the model does not have.
            name = f"{op.output.name}_bias"
            bias = self.build.const(constants.bias, name, constants.bias_quant)
            inputs.append(bias)
            return

        bias = op.inputs[at["bias"]]
        form = partial(
            self.build.const, constants.bias, bias.name, constants.bias_quant
        )
        if op in self.rounded.biases:
            inputs[at["bias"]] = form()
        else:
            inputs[at["bias"]] = self._shared(bias, constants.bias_quant, form)

    def _declared(self, v: Value) -> Value:
        """Return the form as declared.

        It is dequantized if only the int8 form exists, once for all readers.
        """
        if v in self.declared:
            return self.declared[v]

        if v.const is not None:
            self.declared[v] = self.build.const(v.const, v.name, v.type.quant)
            return self.declared[v]

        # An output of the model has its own name reserved for this form.
        name = self.output_name.get(v)
        out = Value(name, v.type) if name else self.build.value(f"{v.name}_f32", v.type)
        self.build.write(Dequantize(), [self.int8[v]], [out])
        self.declared[v] = out

        return out

    def _quantized(self, v: Value, quant: Quant) -> Value:
        """Return an int8 form with this scale: that of its producer, or a conversion.

        A conversion from another int8 form requantizes it.
        """
        written = self.int8.get(v)
        if written is not None and written.type.quant == quant:
            return written

        source = written or self.declared[v]

        def make() -> Value:
            return self.build.add(Quantize(), [source], f"{v.name}_int8", quant)

        return self._shared(v, quant, make)

    def _shared(self, v: Value, quant: Quant, make: Callable[[], Value]) -> Value:
        """Return the result of `make`, made once for each value and scale.

        make: makes a conversion or a constant.
        """
        key = (v, quant)
        if key not in self.shared:
            self.shared[key] = make()
        return self.shared[key]


def _array(v: Value) -> Array:
    assert v.const is not None, f"{v.name} is not a constant"
    return v.const
