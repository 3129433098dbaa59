"""Small graphs of floats, with layers large enough that float16 is worth its casts."""

from __future__ import annotations

import numpy as np

from edgec.ir import Array, Builder, TensorType, Value
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.matmul import FullyConnected

ROWS = 32
WIDTH = 64


def dense(build: Builder, x: Value, name: str) -> Value:
    """A fully connected layer whose results are near one, as its inputs are."""
    rng = np.random.default_rng(len(name))
    weights = rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH)
    w = build.const(weights.astype(np.float32), f"{name}_w")
    b = build.const(rng.normal(size=WIDTH).astype(np.float32), f"{name}_b")
    return build.add(FullyConnected(), [x, w, b], name)


def given(build: Builder, name: str = "x") -> Value:
    """An input of the layers."""
    return build.input(name, TensorType((ROWS, WIDTH)))


def noisy(build: Builder, x: Value) -> Value:
    """x + 1000 - 1000: near 1000 floats of 16 bits are halves, and nothing finer."""
    thousand = build.const(np.array(1000, np.float32), "thousand")
    raised = build.add(Add(), [x, thousand], "raised")
    return build.add(Sub(), [raised, thousand], "lowered")


def large(build: Builder, x: Value) -> Value:
    """x * 40000 / 40000: beyond half of the largest float16 on the way."""
    up = build.const(np.array(40000, np.float32), "up")
    down = build.const(np.array(1 / 40000, np.float32), "down")
    scaled = build.add(Mul(), [x, up], "scaled")
    return build.add(Mul(), [scaled, down], "back")


def samples(count: int = 2) -> list[dict[str, Array]]:
    """Inputs named x."""
    rng = np.random.default_rng(9)
    return [
        {"x": rng.normal(size=(ROWS, WIDTH)).astype(np.float32)} for _ in range(count)
    ]
