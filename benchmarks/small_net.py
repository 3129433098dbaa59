"""A small convolution net, trained in numpy from a fixed seed in seconds, as an ONNX
file: what labelled data needs.

Three convolutions of 3×3 with relu, a linear layer and softmax; input (1, 1, side,
side), the side a multiple of 4.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

from edgec.ir import Array

CHANNELS = (1, 8, 16, 16)
STRIDES = (2, 2, 1)
BATCH = 50
RATE = 4e-3


def train(x: Array, y: Array, path: Path, epochs: int = 20, seed: int = 0) -> None:
    """x: [n, 1, side, side] in 0..1; y: [n] of ten classes; path: where the network
    goes.
    """
    rng = np.random.default_rng(seed)
    weights = start(rng, x.shape[2] // 4)
    moments = [(np.zeros_like(w), np.zeros_like(w)) for w in weights]
    steps = epochs * (len(x) // BATCH)
    for step in range(steps):
        if step % (len(x) // BATCH) == 0:
            order = rng.permutation(len(x))
        some = order[step % (len(x) // BATCH) * BATCH :][:BATCH]
        shift = tuple(rng.integers(-2, 3, 2))
        _, slopes = slopes_of(weights, np.roll(x[some], shift, (2, 3)), y[some])
        rate = RATE * (1 + np.cos(np.pi * step / steps)) / 2
        for w, g, (m, v) in zip(weights, slopes, moments, strict=True):  # Adam
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            w -= (
                rate
                * (m / (1 - 0.9 ** (step + 1)))
                / (np.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-8)
            )
    _write(weights, x.shape[2], path)


def start(rng: np.random.Generator, side: int) -> list[Array]:
    """side: of the last convolution's result.

    Weights [out, in, 3, 3] and biases, by turns; the linear layer's last.
    """
    found: list[Array] = []
    for inputs, outputs in pairwise(CHANNELS):
        found += [
            rng.normal(0, np.sqrt(2 / (9 * inputs)), (outputs, inputs, 3, 3)),
            np.zeros(outputs),
        ]
    inputs = side * side * CHANNELS[-1]
    return [
        w.astype(np.float32)
        for w in (*found, rng.normal(0, inputs**-0.5, (10, inputs)), np.zeros(10))
    ]


def slopes_of(weights: list[Array], x: Array, y: Array) -> tuple[float, list[Array]]:
    """The mean cross entropy, and its slopes with respect to each of the weights."""
    # of each convolution its windows [n, h, w, in·9] and its result
    seen = list[tuple[Array, Array]]()
    for (w, b), stride in zip(
        zip(weights[:-2:2], weights[1:-2:2], strict=True), STRIDES, strict=True
    ):
        windows = windows_of(x, stride)
        x = np.maximum(windows @ w.reshape(len(w), -1).T + b, 0).transpose(0, 3, 1, 2)
        seen.append((windows, x))
    flat = x.reshape(len(x), -1)
    scores = flat @ weights[-2].T + weights[-1]
    scores = np.exp(scores - scores.max(1, keepdims=True))
    error = scores / scores.sum(1, keepdims=True)
    loss = -float(np.log(error[np.arange(len(y)), y]).mean())
    error[np.arange(len(y)), y] -= 1
    error /= len(y)
    slopes = [error.T @ flat, error.sum(0)]
    back = (error @ weights[-2]).reshape(x.shape)
    for i in reversed(range(len(STRIDES))):
        windows, result = seen[i]
        local = (back * (result > 0)).transpose(0, 2, 3, 1)
        w = weights[2 * i]
        slope = local.reshape(-1, len(w)).T @ windows.reshape(-1, windows.shape[-1])
        slopes = [slope.reshape(w.shape), local.sum((0, 1, 2)), *slopes]
        if i:
            back = folded(
                local @ w.reshape(len(w), -1), seen[i - 1][1].shape, STRIDES[i]
            )
    return loss, slopes


def windows_of(x: Array, stride: int) -> Array:
    """[n, c, h, w] to [n, h', w', c·9], padded by one."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    found = sliding_window_view(padded, (3, 3), (2, 3))[
        :, :, ::stride, ::stride
    ].transpose(0, 2, 3, 1, 4, 5)
    return np.ascontiguousarray(found).reshape(*found.shape[:3], -1)


def folded(slopes: Array, shape: tuple[int, ...], stride: int) -> Array:
    """The transpose of `windows_of`."""
    n, c, h, w = shape
    rows, columns = slopes.shape[1:3]
    taps = slopes.reshape(n, rows, columns, c, 3, 3)
    padded = np.zeros((n, c, h + 2, w + 2), slopes.dtype)
    for i, j in np.ndindex(3, 3):
        place = padded[
            :, :, i : i + stride * rows : stride, j : j + stride * columns : stride
        ]
        place += taps[..., i, j].transpose(0, 3, 1, 2)
    return padded[:, :, 1:-1, 1:-1]


def _write(weights: list[Array], side: int, path: Path) -> None:
    nodes = []
    x = "input"
    for i, stride in enumerate(STRIDES):
        given = [x, f"w{2 * i}", f"w{2 * i + 1}"]
        nodes.append(
            helper.make_node(
                "Conv", given, [f"c{i}"], strides=[stride] * 2, pads=[1] * 4
            )
        )
        nodes.append(helper.make_node("Relu", [f"c{i}"], [x := f"r{i}"]))
    nodes.append(helper.make_node("Flatten", [x], ["flat"]))
    nodes.append(helper.make_node("Gemm", ["flat", "w6", "w7"], ["scores"], transB=1))
    nodes.append(helper.make_node("Softmax", ["scores"], ["output"], axis=1))
    graph = helper.make_graph(
        nodes,
        "small_net",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 1, side, side])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 10])],
        [
            numpy_helper.from_array(np.ascontiguousarray(w, np.float32), f"w{i}")
            for i, w in enumerate(weights)
        ],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(path))
