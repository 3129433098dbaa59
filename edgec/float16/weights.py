"""Rounds the weights of layers to float16 so that their errors cancel.

A weight becomes one of the two numbers of float16 beside it. The nearest one is not the
best: the inputs x of a window are alike, as pixels side by side are, so that the errors d
of its weights add up. Over the windows of samples

    E[(Σ_k d_k x_k)²] = dᵀ M d,   M = E[x xᵀ]

The bias is one more weight, of an input that is always 1. All weights are the nearest
numbers at first. The weight whose step s to its other number lowers dᵀ M d most takes it,

    Δ = 2 s (M d)_k + s² M_kk

one after the other, until no step lowers it: coordinate descent on the objective of
M. Nagel, R. A. Amjad, M. van Baalen, C. Louizos, T. Blankevoort, "Up or Down? Adaptive
Rounding for Post-Training Quantization" (ICML 2020).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from edgec.ir import Array, Op, Run, Value
from edgec.ir.float16 import rounded
from edgec.quantize.change.products import LinearLayer, consumers, linear_layers

WINDOWS = 4096
"""Windows of each layer, over all samples."""
MAX_DEPTH = 1024
"""The most terms of a sum. With more, M takes too long, and errors matter less."""
MAX_STEPS = 256
"""The most weights of one result that are not the nearest numbers."""


def rounded_weights(
    ops: Iterable[Op], run: Run, samples: Sequence[Mapping[str, Array]]
) -> dict[str, Array]:
    """Return weights and biases of layers in float16, by the names of the constants.

    Args:
        ops: ops of a float32 graph; those without constant weights are left out
        run: runs that graph
        samples: its inputs
    """
    layers: dict[Op, LinearLayer] = {}
    for op, layer in linear_layers(ops).items():
        if layer.depth <= MAX_DEPTH:
            layers[op] = layer

    moments = _moments(layers, run, samples)
    halves: dict[str, Array] = {}
    for op, layer in layers.items():
        halves.update(_halves(op, layer, moments[op]))

    return halves


def _moments(
    layers: Mapping[Op, LinearLayer],
    run: Run,
    samples: Sequence[Mapping[str, Array]],
) -> dict[Op, Array]:
    """Return the sum of x xᵀ over windows of each layer, [G, D + 1, D + 1].

    The last element of each x is the 1 of the bias.
    """
    sums: dict[Op, Array] = {}
    for op, layer in layers.items():
        terms = layer.depth + 1
        sums[op] = np.zeros((layer.groups, terms, terms))

    count = -(-WINDOWS // max(1, len(samples)))
    readers = consumers(layers)
    rng = np.random.default_rng(0)

    def observe(v: Value, array: Array) -> None:
        for op in readers.get(v, ()):
            windows = layers[op].windows(array, count, rng)
            sums[op] += _products(windows)

    for sample in samples:
        run(sample, observe)

    return sums


def _products(windows: Array) -> Array:
    """Return the sum of x xᵀ, [G, D + 1, D + 1], of windows [N, G, D] with a 1 each."""
    ones = np.ones_like(windows[..., :1])
    x = np.concatenate([windows, ones], axis=2)

    # Products of matrices are fastest with the groups first.
    by_group = x.transpose(1, 0, 2)
    by_group = np.ascontiguousarray(by_group)
    transposed = by_group.transpose(0, 2, 1)
    products: Array = transposed @ by_group
    return products


def _halves(op: Op, layer: LinearLayer, moments: Array) -> dict[str, Array]:
    """Return the weights and the bias of one layer in float16, by their names."""
    weights = op.inputs[1]
    assert weights.const is not None
    matrix = layer.matrix(weights.const)

    # Without a constant bias the weight of the input 1 is 0, which is a float16.
    last = np.zeros_like(matrix[..., :1])
    biases: list[Value] = []
    for bias in op.inputs[2:3]:
        if bias.const is not None:
            biases.append(bias)
            last += bias.const.reshape(last.shape)

    all_weights = np.concatenate([matrix, last], axis=2)
    halves = _least_error(all_weights, moments)
    named = {weights.name: layer.weights(halves[..., :-1])}
    for bias in biases:
        named[bias.name] = halves[..., -1].reshape(bias.type.shape)

    return named


def _least_error(weights: Array, moments: Array) -> Array:
    """Return float32 weights [G, O, D] in float16, with the least dᵀ M d nearby.

    moments: M of each group, [G, D, D].
    """
    nearest = rounded(weights)
    halves = nearest.astype(np.float64)
    errors = halves - weights

    # The other number lies on the other side of the weight.
    towards = np.where(errors > 0, -np.inf, np.inf).astype(np.float16)
    others = np.nextafter(nearest, towards)
    steps = np.where(errors == 0, 0.0, others - halves)

    slopes = errors @ moments
    diagonal = np.diagonal(moments, axis1=1, axis2=2)
    sizes = diagonal[:, None, :]
    group = np.arange(len(weights))[:, None]
    result = np.arange(weights.shape[1])[None, :]

    for _ in range(MAX_STEPS):
        changes = 2 * steps * slopes + steps * steps * sizes
        best = changes.argmin(axis=2)
        at = (group, result, best)
        is_better = changes[at] < 0
        if not is_better.any():
            break

        # Each result takes one step, and could take it back later.
        step = np.where(is_better, steps[at], 0.0)
        halves[at] += step
        steps[at] -= 2 * step
        slopes += step[..., None] * moments[group, best]

    return halves.astype(np.float16)
