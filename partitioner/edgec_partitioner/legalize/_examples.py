"""Random tensors for the example graphs of the rewrites."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Builder, Graph, OpDef, Quant, TensorType, Value
from edgec.ops.unary import Relu

Shape = tuple[int, ...]


def integer(rng: np.random.Generator, low: int, high: int) -> int:
    """Return a random integer from `low` to `high` - 1."""
    return int(rng.integers(low, high))


def integers(rng: np.random.Generator, low: int, high: int, count: int) -> Shape:
    """Return `count` random integers from `low` to `high` - 1."""
    return tuple(int(n) for n in rng.integers(low, high, count))


def flag(rng: np.random.Generator) -> bool:
    """Return True or False with equal probability."""
    return bool(rng.integers(2))


def choice(rng: np.random.Generator, names: Sequence[str]) -> str:
    """Return one of the names."""
    return str(rng.choice(names))


def scale_between(rng: np.random.Generator, low: float, high: float) -> float:
    """Return a random scale that float32 holds exactly."""
    return float(np.float32(rng.uniform(low, high)))


def random_quant(rng: np.random.Generator, scale: float) -> Quant:
    """Return a quantization of one scale with a random int8 zero point."""
    return Quant.per_tensor(scale, integer(rng, -128, 128))


def channel_scales(
    rng: np.random.Generator, low: float, high: float, count: int
) -> tuple[float, ...]:
    """Return a random scale for each of `count` channels, exact in float32.

    low, high: the range of the scales.
    """
    scales = rng.uniform(low, high, count)
    rounded = scales.astype(np.float32)
    return tuple(float(scale) for scale in rounded)


def bias_quant(input_scale: float, weights: Quant) -> Quant:
    """Return the quantization of a bias: input scale times weight scale.

    The product is rounded to float32, as TFLite stores it.
    """
    factor = np.float32(input_scale)
    products = [factor * np.float32(scale) for scale in weights.scale]
    scales = tuple(float(product) for product in products)
    return Quant(scales, weights.zero_point, weights.axis)


def weight_quant(
    rng: np.random.Generator, scale: float, low: float, high: float, count: int
) -> Quant:
    """Return a quantization of weights per tensor or per channel, at random.

    scale: the one scale of the tensor.
    low, high: the range of the scales of the channels.
    count: the number of output channels, along the first axis.
    """
    scales = channel_scales(rng, low, high, count)
    per_channel = rng.random() < 0.5
    if not per_channel:
        return Quant.per_tensor(scale)

    zero_points = (0,) * count
    return Quant(scales, zero_points, 0)


def int8_input(build: Builder, shape: Shape, quant: Quant, name: str = "x") -> Value:
    """Add an int8 input to the graph."""
    return build.input(name, TensorType(shape, "int8", quant))


def int8_weights(
    build: Builder, rng: np.random.Generator, shape: Shape, quant: Quant
) -> Value:
    """Add random int8 weights from -127 to 127, under the name "w"."""
    # TFLite leaves out -128, so that every weight can change its sign.
    integers = rng.integers(-127, 128, shape)
    data = integers.astype(np.int8)
    return build.const(data, "w", quant)


def int32_bias(
    build: Builder, rng: np.random.Generator, count: int, limit: int, quant: Quant
) -> Value:
    """Add a random int32 bias from -limit to limit - 1, under the name "b".

    count: the number of output channels.
    """
    integers = rng.integers(-limit, limit, count)
    data = integers.astype(np.int32)
    return build.const(data, "b", quant)


def float_constant(
    build: Builder, rng: np.random.Generator, shape: Shape | int, name: str
) -> Value:
    """Add a float32 constant of normally distributed elements."""
    data = rng.normal(size=shape)
    rounded = data.astype(np.float32)
    return build.const(rounded, name)


def float_image(build: Builder, rng: np.random.Generator, low: int, high: int) -> Value:
    """Add a float input [1, H, W, C], with sizes from `low` to `high` - 1."""
    height, width = integers(rng, low, high, 2)
    channels = integer(rng, low, high)

    shape = (1, height, width, channels)
    return build.input("x", TensorType(shape))


def relu(build: Builder, x: Value) -> Value:
    """Add a ReLU that keeps the quantization of its input.

    Many rewrites apply only between ops that map, as a ReLU does.
    """
    return build.add(Relu(), [x], quant=x.type.quant)


def with_output(build: Builder, y: Value) -> Graph:
    """Return the graph with `y` as its only output."""
    build.graph.outputs = [y]
    return build.graph


def one_op(build: Builder, spec: OpDef, x: Value) -> Graph:
    """Return the graph whose output is the result of an op on `x`."""
    return with_output(build, build.add(spec, [x]))
