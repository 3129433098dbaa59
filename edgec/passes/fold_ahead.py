"""Folds a constant factor or term per channel into the layers that read the result.

A factor goes into their weights, a term into their biases:

    conv(k * x, w, b) = conv(x, k * w, b)
    conv(x + t, w, b) = conv(x, w, b + sum(w * t))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, ChannelFlow, Graph, Op, Value
from edgec.ir.rewrite import Rewriter, channel_vector
from edgec.ops.binary import Add, Mul
from edgec.passes._linear import bias_of, columns

WEIGHT_INPUT = 1
BIAS_INPUT = 2
"""The positions of weights and bias among the inputs of a layer."""


def run(graph: Graph) -> bool:
    """Fold each factor or term whose result is read by linear layers only.

    Examples are the normalisation of a model's input and an affine block behind an
    activation function.
    """
    rw = Rewriter(graph)
    for op in rw.ops("mul", "add"):
        layers = rw.users(op.output)
        channelwise = _channelwise(op)
        if channelwise is None or not layers or op.output in graph.outputs:
            continue
        if not all(_is_layer_of(op.output, layer) for layer in layers):
            continue
        if op.kind == "mul":
            _fold_factor(rw, op, layers, channelwise)
        elif any(layer.spec.border() is not None for layer in layers):
            # The zeros that the layer reads around the image had no term added.
            _exchange(rw, op, channelwise)
        else:
            _fold_term(rw, op, layers, channelwise)
    return rw.changed


@dataclass(frozen=True)
class _Channelwise:
    """A product or sum of a value and a constant per channel.

    Attributes:
        x: the computed operand.
        constant: the other operand, float64 [C].
    """

    x: Value
    constant: Array


def _channelwise(op: Op) -> _Channelwise | None:
    """Return the operands of a float product or sum with a constant per channel.

    None if the op broadcasts the value, has an activation, or an infinite constant.
    """
    if getattr(op.spec, "act", "") != "none":
        return None
    for x, c in (op.inputs, op.inputs[::-1]):
        constant = channel_vector(c, x.type.shape)
        if constant is None or x.const is not None or x.type != op.output.type:
            continue
        # Infinity times a zero weight would be NaN.
        if x.type.dtype != "float32" or not np.isfinite(constant).all():
            return None
        return _Channelwise(x, constant.astype(np.float64))
    return None


def _is_layer_of(value: Value, op: Op) -> bool:
    """Return whether `op` is a float layer with constant weights that reads `value`."""
    if op.spec.channel_flow not in (ChannelFlow.SUMS, ChannelFlow.DEPTHWISE):
        return False
    if op.inputs[0] is not value or op.output.type.dtype != "float32":
        return False
    if any(v.const is None for v in op.inputs[1:]):
        return False
    weights = op.inputs[WEIGHT_INPUT].type
    # A row of a fully connected layer may hold several pixels, or part of one.
    return weights.rank == 4 or weights.shape[1] % value.type.shape[-1] == 0


def _fold_factor(
    rw: Rewriter, op: Op, layers: Sequence[Op], operands: _Channelwise
) -> None:
    """Multiply the factor into the weights of the layers."""
    weights = {}
    for layer in layers:
        # The factor belongs to input channels, one column of the weights each.
        weights[layer] = _weights(layer) * columns(layer, operands.constant)
    _replace(rw, op, operands.x, WEIGHT_INPUT, weights)


def _fold_term(
    rw: Rewriter, op: Op, layers: Sequence[Op], operands: _Channelwise
) -> None:
    """Add to the biases of the layers what they compute from the term."""
    biases = {}
    for layer in layers:
        # Without a border, each output has all terms of the sum.
        biases[layer] = bias_of(layer) + _product(layer, operands.constant)
    _replace(rw, op, operands.x, BIAS_INPUT, biases)


def _product(layer: Op, term: Array) -> Array:
    """Return the sum over all weights times the term, [output channels]."""
    products = _weights(layer) * columns(layer, term)
    output_axis = layer.spec.weight_axis
    summed_axes = tuple(i for i in range(products.ndim) if i != output_axis)
    total: Array = products.sum(summed_axes)
    return total


def _replace(
    rw: Rewriter, op: Op, x: Value, position: int, arrays: Mapping[Op, Array]
) -> None:
    """Let all layers read `x` in place of the op's output, with new constants.

    `arrays` has the new weights or biases of each layer, float64. Nothing changes if
    float32 cannot hold one of them.
    """
    constants: dict[Op, Array] = {}
    # Products in double are rounded once.
    with np.errstate(over="ignore", invalid="ignore"):
        for layer, array in arrays.items():
            constants[layer] = array.astype(np.float32)
    if not all(np.isfinite(array).all() for array in constants.values()):
        return

    for layer, array in constants.items():
        inputs = list(layer.inputs)
        if position < len(inputs):
            inputs[position] = rw.const(array, inputs[position].name)
        else:
            bias_name = f"{inputs[WEIGHT_INPUT].name}_bias"
            inputs.append(rw.const(array, bias_name))
        rw.update(layer, inputs=inputs)
    rw.forward(op, x)


def _exchange(rw: Rewriter, op: Op, operands: _Channelwise) -> None:
    """Rewrite x * k + b as (x + b / k) * k.

    Only the factor can be folded into a layer with a border: zeros times a factor are
    zeros.
    """
    product = rw.private(operands.x, "mul")
    if product is None:
        return
    # The product must itself be a constant factor for each channel.
    factors = _channelwise(product)
    if factors is None:
        return

    with np.errstate(all="ignore"):
        shift = (operands.constant / factors.constant).astype(np.float32)
    if not np.isfinite(shift).all():
        return
    if (shift == shift[0]).all():
        shift = shift[0]

    # The constant is added before it now, divided by the factor.
    (factor,) = (v for v in product.inputs if v is not factors.x)
    term = rw.const(shift, factor.name)
    shifted = rw.add(op, Add(), [factors.x, term], operands.x.name)
    rw.update(op, Mul(), [shifted, factor])


def _weights(op: Op) -> Array:
    """Return the weights of a layer in double."""
    w = op.inputs[WEIGHT_INPUT].const
    assert w is not None
    return w.astype(np.float64)
