"""Makes the int8 graph of a float graph, from ranges and rounded constants."""

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
class Int8:
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
    left: Collection[Op] = (),
) -> Int8:
    """Return the int8 form of a float graph with known ranges of its values.

    left: the ops that stay float.
    """
    chosen = int8_ops(graph, ranges, left)
    scales = activation_scales(graph, chosen, ranges)
    rewriter = _Rewriter(graph, chosen, scales, rounded or RoundedParameters())
    result = rewriter.run()
    verify(result, "quantized")
    return Int8(result, rewriter.twins)


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
    given_weight = rounded.weights.get(op)
    if given_weight is None:
        given_weight = quantize_weight(weight, quant)
    wanted = bias if given_bias is None else given_bias
    if wanted is None:
        return Integers(given_weight, quant, None, None)
    return Integers(given_weight, quant, *quantize_bias(wanted, x_scale, quant))


def renew(op: Op, twin: Op, rounded: RoundedParameters) -> None:
    """Give the int8 twin of an op the constants that `rounded` has for it."""
    at = _positions(op)
    made = integers(op, twin.inputs[at["act"]].type.scale, rounded)
    weight = twin.inputs[at["weight"]]
    twin.inputs[at["weight"]] = _with(weight, made.weight, made.weight_quant)
    if made.bias is not None:
        # A bias that the model does not have was appended.
        i = at.get("bias", len(op.inputs))
        twin.inputs[i] = _with(twin.inputs[i], made.bias, made.bias_quant)


def _with(v: Value, array: Array, quant: Quant | None) -> Value:
    """Return a constant like `v` with other elements."""
    return Value(v.name, replace(v.type, quant=quant), np.asarray(array, order="C"))


def _positions(op: Op) -> dict[str, int]:
    """Return the position of an op's input of each role."""
    return {role(op, i): i for i in range(len(op.inputs))}


class _Rewriter:
    """Copies a graph op by op.

    Every value has a form as declared, an int8 form, or both; each is made when it is
    first needed.
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
        self.plain: dict[Value, Value] = {}
        self.int8: dict[Value, Value] = {}
        self.other: dict[tuple[Value, Quant], Value] = {}

    def run(self) -> Graph:
        for v in self.graph.inputs:
            self.plain[v] = self.build.input(v.name, v.type)
        self._reserve_output_names()
        for op in self.graph.ops:
            self.build.source = op.source
            self._int8_op(op) if op in self.chosen else self._plain_op(op)
        self.build.graph.outputs = [self._plain(v) for v in self.graph.outputs]
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

    def _plain_op(self, op: Op) -> None:
        inputs = [self._plain(v) for v in op.inputs]
        outputs = [self._result(v, v.type) for v in op.outputs]
        self.build.write(op.spec, inputs, outputs)
        self.plain.update(zip(op.outputs, outputs, strict=True))

    def _int8_op(self, op: Op) -> None:
        same = self.scales[op.outputs[0]] if op.spec.quant is QuantRule.SAME else None
        inputs = [self._input(op, i, v, same) for i, v in enumerate(op.inputs)]
        if "weight" in op.spec.roles:
            self._weights(op, inputs)
        outputs: list[Value] = []
        for v, t in zip(
            op.outputs, op.spec.infer(*(i.type for i in inputs)), strict=True
        ):
            quantized = t.dtype == "int8"
            out = self._result(
                v, replace(t, quant=self.scales[v]) if quantized else v.type
            )
            (self.int8 if quantized else self.plain)[v] = out
            outputs.append(out)
        self.build.write(op.spec, inputs, outputs)
        self.twins[op] = self.build.graph.ops[-1]

    def _input(self, op: Op, i: int, v: Value, same: Quant | None) -> Value:
        if role(op, i) != "act":
            return self._plain(v)
        if v.const is None:
            return self._quantized(v, same or self.scales[v])
        quant = same or activation_quant(constant_range(v.const))
        return self._shared(
            v,
            quant,
            lambda: self.build.const(
                quantize_activation(_array(v), quant), v.name, quant
            ),
        )

    def _weights(self, op: Op, inputs: list[Value]) -> None:
        """Replace weight and bias by their integer forms.

        Constants that several ops read are shared, unless they were rounded for one op.
        """
        at = _positions(op)
        made = integers(op, inputs[at["act"]].type.scale, self.rounded)
        weight = op.inputs[at["weight"]]
        form = partial(self.build.const, made.weight, weight.name, made.weight_quant)
        if op in self.rounded.weights:
            inputs[at["weight"]] = form()
        else:
            inputs[at["weight"]] = self._shared(weight, made.weight_quant, form)
        if made.bias is None or made.bias_quant is None:
            return

        if "bias" not in at:
            name = f"{op.output.name}_bias"
            inputs.append(self.build.const(made.bias, name, made.bias_quant))
            return
        bias = op.inputs[at["bias"]]
        form = partial(self.build.const, made.bias, bias.name, made.bias_quant)
        if op in self.rounded.biases:
            inputs[at["bias"]] = form()
        else:
            inputs[at["bias"]] = self._shared(bias, made.bias_quant, form)

    def _plain(self, v: Value) -> Value:
        """Return the form as declared; it is dequantized if only the int8 form exists."""
        if v not in self.plain:
            if v.const is not None:
                self.plain[v] = self.build.const(v.const, v.name, v.type.quant)
            else:
                name = self.output_name.get(v)
                if name:
                    out = Value(name, v.type)
                else:
                    out = self.build.value(f"{v.name}_f32", v.type)
                self.build.write(Dequantize(), [self.int8[v]], [out])
                self.plain[v] = out
        return self.plain[v]

    def _quantized(self, v: Value, quant: Quant) -> Value:
        """Return an int8 form with this scale: its op's own, or a conversion."""
        own = self.int8.get(v)
        if own is not None and own.type.quant == quant:
            return own
        source = own or self.plain[v]
        return self._shared(
            v,
            quant,
            lambda: self.build.add(Quantize(), [source], f"{v.name}_int8", quant),
        )

    def _shared(self, v: Value, quant: Quant, make: Callable[[], Value]) -> Value:
        """Return what `make` makes, once for each value and scale."""
        key = (v, quant)
        if key not in self.other:
            self.other[key] = make()
        return self.other[key]


def _array(v: Value) -> Array:
    assert v.const is not None, f"{v.name} is no constant"
    return v.const
