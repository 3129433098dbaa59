"""Float graph → mixed int8 graph, by the TFLite 8-bit quantization specification."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, Quant, QuantRule, TensorType, Value, verify
from edgec.ops.quantize import Dequantize, Quantize
from edgec.quantize.domains import int8_ops, role
from edgec.quantize.lower import lower
from edgec.quantize.observers import Range, calibrate, constant_range
from edgec.quantize.params import (
    activation_quant,
    quantize_activation,
    quantize_bias,
    quantize_weight,
    weight_quant,
)
from edgec.quantize.scales import activation_scales


def is_quantized(graph: Graph) -> bool:
    """Whether any op already computes on quantized integers."""
    return any(v.type.is_quantized for op in graph.ops for v in op.inputs)


def quantize(graph: Graph, samples: Sequence[Mapping[str, Array]], method: str = "minmax") -> Graph:
    """The int8 form of a float graph, its ranges calibrated on `samples` by the named range method.

    Inputs and outputs keep their names and types; ops without an int8 form stay float32 between conversions.
    Raises InputError when there is no sample.
    """
    lowered = lower(graph)
    return quantize_ranges(lowered, calibrate(lowered, samples, method))


def assumed(graph: Graph, seed: int = 0) -> Graph:
    """`quantize` with one random sample in [0, 1] instead of calibration data.

    Only for questions that the scales hardly change (what would map where); the result is not fit to run.
    """
    return quantize(graph, [random_sample(graph, seed)])


def evenly(graph: Graph) -> Graph:
    """`quantize` with one made-up range for every value, so that nothing is run and no two scales keep ops apart.

    Only to see which ops TFLite's quantizer would make int8; the result is not fit to run.
    """
    lowered = lower(graph)
    return quantize_ranges(lowered, {v: (-1.0, 1.0) for v in lowered.values() if v.type.dtype == "float32"})


def random_sample(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Reproducible inputs that any graph accepts: reals in [0, 1), all of int8 and uint8, index 0."""
    rng = np.random.default_rng(seed)
    return {v.name: _random(v.type, rng) for v in graph.inputs}


def _random(t: TensorType, rng: np.random.Generator) -> Array:
    if t.dtype == "float32":
        return rng.random(t.shape, np.float32)
    if t.dtype == "bool":
        return np.ones(t.shape, bool)
    if t.dtype not in ("int8", "uint8"):  # an index: zero is always legal
        return np.zeros(t.shape, t.np_dtype)
    info = np.iinfo(t.np_dtype)
    return rng.integers(info.min, info.max + 1, t.shape).astype(t.np_dtype)


def quantize_ranges(graph: Graph, ranges: Mapping[Value, Range]) -> Graph:
    """The int8 form of a float graph with known ranges of its values."""
    chosen = int8_ops(graph, ranges)
    rewriter = _Rewriter(graph, chosen, activation_scales(graph, chosen, ranges))
    result = rewriter.run()
    verify(result, "quantized")
    return result


class _Rewriter:
    """Copies a graph op by op; every value has a form as declared, an int8 form, or both, made when first needed."""

    def __init__(self, graph: Graph, chosen: set[Op], scales: Mapping[Value, Quant]) -> None:
        self.graph, self.chosen, self.scales = graph, chosen, scales
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
        return self.build.graph

    def _reserve_output_names(self) -> None:
        """The model's outputs keep their names, whatever is inserted before them."""
        self.output_name = {v: self.build.name(v.name) for v in self.graph.producers() if v in self.graph.outputs}

    def _result(self, v: Value, type_: TensorType) -> Value:
        """The new value that an op writes for `v`; an output's own name is for the form as declared."""
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
        for v, t in zip(op.outputs, op.spec.infer(*(i.type for i in inputs)), strict=True):
            quantized = t.dtype == "int8"
            out = self._result(v, replace(t, quant=self.scales[v]) if quantized else v.type)
            (self.int8 if quantized else self.plain)[v] = out
            outputs.append(out)
        self.build.write(op.spec, inputs, outputs)

    def _input(self, op: Op, i: int, v: Value, same: Quant | None) -> Value:
        if role(op, i) != "act":
            return self._plain(v)
        if v.const is None:
            return self._quantized(v, same or self.scales[v])
        quant = same or activation_quant(constant_range(v.const))
        return self._shared(v, quant, lambda: self.build.const(quantize_activation(_array(v), quant), v.name, quant))

    def _weights(self, op: Op, inputs: list[Value]) -> None:
        """Replace weight and bias by their integer forms; the bias's scale follows from input and weight."""
        at = {role(op, i): i for i in range(len(op.inputs))}
        x, w = inputs[at["act"]], op.inputs[at["weight"]]
        bias = op.inputs[at["bias"]] if "bias" in at else None
        axis = op.spec.weight_axis if op.spec.per_channel else None
        quant = weight_quant(_array(w), axis, x.type.scale, bias.const if bias is not None else None)
        inputs[at["weight"]] = self._shared(
            w, quant, lambda: self.build.const(quantize_weight(_array(w), quant), w.name, quant)
        )
        if bias is not None:
            data, bias_quant = quantize_bias(_array(bias), x.type.scale, quant)
            inputs[at["bias"]] = self._shared(bias, bias_quant, lambda: self.build.const(data, bias.name, bias_quant))

    def _plain(self, v: Value) -> Value:
        """The form as declared; a float32 one is dequantized if only the int8 one exists."""
        if v not in self.plain:
            if v.const is not None:
                self.plain[v] = self.build.const(v.const, v.name, v.type.quant)
            else:
                name = self.output_name.get(v)
                out = Value(name, v.type) if name else self.build.value(f"{v.name}_f32", v.type)
                self.build.write(Dequantize(), [self.int8[v]], [out])
                self.plain[v] = out
        return self.plain[v]

    def _quantized(self, v: Value, quant: Quant) -> Value:
        """An int8 form with this scale: the one its op wrote, or a conversion."""
        own = self.int8.get(v)
        if own is not None and own.type.quant == quant:
            return own
        source = own or self.plain[v]
        return self._shared(v, quant, lambda: self.build.add(Quantize(), [source], f"{v.name}_int8", quant))

    def _shared(self, v: Value, quant: Quant, make: Callable[[], Value]) -> Value:
        """Made once for each value and scale."""
        key = (v, quant)
        if key not in self.other:
            self.other[key] = make()
        return self.other[key]


def _array(v: Value) -> Array:
    assert v.const is not None, f"{v.name} is no constant"
    return v.const
