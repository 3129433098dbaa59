"""Random graphs of several ops: what is fused, lies in other values, runs in bands of
rows or in one loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgec.ir import Builder, OpDef, Quant, TensorType, Value
from edgec.ops.activation import Clamp
from edgec.ops.binary import Add, Mul
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.unary import HardSwish, Logistic, Relu
from tests.harness import random_inputs
from tests.schedule.layers import Layer, Pick

_ACTS = ("none", "none", "relu", "relu6")


@dataclass
class _Maker:
    """Adds ops of one type to a graph."""

    one: Pick
    build: Builder
    dtype: str
    count: int = 0

    def input(self, shape: tuple[int, ...]) -> Value:
        """One more; what it is read by first may be followed, as no input can be."""
        self.count += 1
        x = self.build.input(
            f"x{self.count}", TensorType(shape, self.dtype, self._quant(-3))
        )
        return self.add(Clamp(-90.0, 90.0), [x]) if self.one.chance(0.7) else x

    def add(self, spec: OpDef, values: list[Value], zero: int | None = None) -> Value:
        """An op, with the scale 1 where its result is int8."""
        self.count += 1
        y = self.build.add(spec, values, f"y{self.count}")
        y.type = y.type.with_quant(
            self._quant(self.one(-128, -3, 0, 7) if zero is None else zero)
        )
        return y

    def conv(self, x: Value, out: int, k: int = 1, spec: OpDef | None = None) -> Value:
        """A convolution with weights that keep its result in range."""
        depthwise = isinstance(spec, DepthwiseConv2D)
        c = x.type.shape[3]
        out = c if depthwise else out
        shape, terms = (
            ((1, k, k, c), k * k) if depthwise else ((out, k, k, c), k * k * c)
        )
        rng = self.one.rng
        spec = spec or Conv2D(act=self.one(*_ACTS))
        if self.dtype == "float32":
            w = rng.normal(size=shape) / terms**0.5
            values = [
                self.build.const(a.astype(np.float32), "c")
                for a in (w, rng.normal(size=out))
            ]
            return self.add(spec, [x, *values])
        scales = tuple(float(s) for s in rng.uniform(50, 100, out) / 5000 / terms**0.5)
        if out > 1:
            quant = Quant(scales, (0,) * out, 3 if depthwise else 0)
        else:
            quant = Quant.per_tensor(scales[0])
        w = self.build.const(rng.integers(-127, 128, shape).astype(np.int8), "w", quant)
        bias = rng.integers(-3000, 3000, out).astype(np.int32)
        return self.add(
            spec, [x, w, self.build.const(bias, "b", Quant.per_tensor(1.0))]
        )

    def _quant(self, zero: int) -> Quant | None:
        return Quant.per_tensor(1.0, zero) if self.dtype == "int8" else None


def _inverted(m: _Maker) -> list[Value]:
    """Pointwise, depthwise, pointwise; with a residual sum."""
    one = m.one
    c = one(3, 4, 8, 16)
    wide = one(0, 8, 17, 48)
    k = one(2, 3, 3, 5)
    stride = one(1, 1, 2)
    x = m.input((one(1, 1, 2), one(5, 9, 16), one(4, 11), c))
    y = m.conv(x, wide) if wide else x
    pads = (k // 2, one(k - 1 - k // 2, k // 2), k // 2, k - 1 - k // 2)
    y = m.conv(y, 0, k, DepthwiseConv2D((stride, stride), pads, act=one(*_ACTS)))
    y = m.conv(y, one(c, c, 6, 24)) if one.chance(0.8) else y
    if y.type.shape == x.type.shape:
        y = m.add(Add(one("none", "relu")), [x, y] if one.chance(0.5) else [y, x])
    else:
        y = y
    return [y]


def _branches(m: _Maker) -> list[Value]:
    """Results side by side in one, read by others again."""
    one = m.one
    x = m.input((1, one(4, 7), one(3, 8), one(3, 8, 16)))
    parts = [
        m.conv(x, one(4, 8, 13), k, Conv2D((1, 1), (k // 2,) * 4, act=one(*_ACTS)))
        for k in (1, one(1, 3))
    ]
    if one.chance(0.3):
        parts.append(x)
    zero = parts[0].type.quant.zero_point[0] if parts[0].type.quant else 0
    both = m.add(Concat(3), parts, zero if one.chance(0.6) else None)
    y = m.conv(both, one(4, 9))
    return [y, both] if one.chance(0.2) else [y]


def _chain(m: _Maker) -> list[Value]:
    """Elementwise ops one after the other, of one value and of two."""
    one = m.one
    shape = (1, one(3, 6), one(5, 8), one(3, 8, 17))
    x = m.input(shape)
    y = m.conv(x, shape[3]) if one.chance(0.6) else x
    for _ in range(one(2, 3, 4)):
        kind = one("relu", "swish", "gate", "add", "mul")
        if kind in ("relu", "swish"):
            y = m.add(Relu() if kind == "relu" else HardSwish(), [y])
        elif kind == "gate":
            y = m.add(Mul(), [y, m.add(Logistic(), [y])])
        else:
            y = m.add(
                Add(one(*_ACTS)) if kind == "add" else Mul(),
                [y, one(x, m.input(shape))],
            )
    return [y]


def _of(dtype: str, shape: Callable[[_Maker], list[Value]]) -> Callable[[Pick], Layer]:
    def make(one: Pick) -> Layer:
        build = Builder("block")
        build.graph.outputs = shape(_Maker(one, build, dtype))
        return Layer(
            f"{shape.__name__[1:]} {dtype}",
            build.graph,
            random_inputs(build.graph, one(*range(1 << 10))),
        )

    return make


MAKERS = tuple(
    _of(dtype, shape)
    for dtype in ("float32", "int8")
    for shape in (_inverted, _branches, _chain)
)
