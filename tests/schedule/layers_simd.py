"""Random ops without weights: of elements, of rows, resizes; sizes around those of
vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from edgec.ir import Builder, OpDef, Quant, Rounding, TensorType
from edgec.ops.argmax import ArgMax
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.norm import InstanceNorm, LayerNorm
from edgec.ops.quantize import Quantize
from edgec.ops.reduce import Mean, Sum
from edgec.ops.resampling import TFLITE_MODES
from edgec.ops.resize import ResizeBilinear
from edgec.ops.softmax import Softmax
from edgec.schedule.variant import variants
from tests.harness import random_array, sample_graph
from tests.schedule.layers import Layer, Pick

_WITH_ACT = {"add": Add, "sub": Sub, "mul": Mul}


@cache
def elementwise(operands: int, dtype: str) -> tuple[OpDef, ...]:
    """The elementwise ops of so many operands that a kernel variant computes, as their
    samples have them.

    They follow from what is registered: an op or a variant that is added is fuzzed
    without being named here.
    """
    found: dict[str, OpDef] = {}
    for cls in OpDef.registry.values():
        for sample in cls.samples():
            per_element = cls.elementwise or cls.kind == "prelu"
            if (
                not per_element
                or [arg.type.dtype for arg in sample.args] != [dtype] * operands
            ):
                continue
            (op,) = sample_graph(sample).ops
            if any(call.kernel in variants() for call in op.calls()):
                found.setdefault(repr(sample.spec), sample.spec)
    return tuple(found.values())


def _layer(
    one: Pick, family: str, spec: OpDef, y: Quant | None, *args: tuple[TensorType, bool]
) -> Layer:
    """One op; each of its operands is constant or not."""
    build = Builder("layer")
    inputs = {}
    values = []
    for i, (t, const) in enumerate(args):
        data = random_array(t, one.rng)
        if t.dtype == "float32" and one.chance(0.2):
            data = (data * 30).astype(np.float32)
        values.append(
            build.const(data, f"c{i}", t.quant) if const else build.input(f"x{i}", t)
        )
        if not const:
            inputs[f"x{i}"] = data
    out = build.add(spec, values, "y")
    if y is not None and out.type.dtype in ("int8", "uint8"):
        out.type = out.type.with_quant(
            out.type.quant if spec.kind in ("logistic", "tanh") else y
        )
    build.graph.outputs = [out]
    return Layer(family, build.graph, inputs)


def _quant(one: Pick, unsigned: bool = False) -> Quant:
    zero = one(0, 3, 128, 255) if unsigned else one(-128, -128, -7, 0, 5, 127)
    return Quant.per_tensor(one(0.05, 0.1, 0.1, 0.2, 0.031, 1.0, 0.0001, 0.7), zero)


def _length(one: Pick) -> int:
    return one(1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 200, 513)


def elements(one: Pick) -> Layer:
    """A function of floats or of bytes, or between them."""
    n = (_length(one),)
    kind = one("float", "float", "bytes", "quantize", "dequantize", "requantize")
    if kind == "float":
        return _layer(
            one,
            "elementwise",
            one(*elementwise(1, "float32")),
            None,
            (TensorType(n), False),
        )
    unsigned = one(False, True)
    x = TensorType(n, "int8", _quant(one))
    if kind == "bytes":
        return _layer(
            one, "elementwise", one(*elementwise(1, "int8")), _quant(one), (x, False)
        )
    to = Quantize("uint8" if unsigned else "int8")
    if kind == "quantize":
        return _layer(
            one, "elementwise", to, _quant(one, unsigned), (TensorType(n), False)
        )
    given = one(x, TensorType(n, "uint8", _quant(one, True)))
    if kind == "dequantize":
        return _layer(
            one, "elementwise", OpDef.registry["dequantize"](), None, (given, False)
        )
    return _layer(one, "elementwise", to, _quant(one, unsigned), (given, False))


def pairs(one: Pick) -> Layer:
    """An op of two operands: of one shape, a number, a row for all, or a column."""
    c = one(1, 3, 8, 15, 16, 17, 24, 33, 64, 100, 130)
    shape = one((c,), (5, c), (2, 3, 4, c))
    other = one(
        shape, shape, (c,), (1,), (*shape[:-1], 1), (1,) * (len(shape) - 1) + (c,)
    )
    const = one(False, True)
    floats = one(False, True)
    kind = one(
        *sorted({spec.kind for spec in elementwise(2, "float32" if floats else "int8")})
    )
    if kind == "prelu":
        other = (c,)
    spec: OpDef
    if kind in _WITH_ACT:
        spec = _WITH_ACT[kind](one("none", "relu", "relu6"))
    else:
        spec = OpDef.registry[kind]()
    if floats:
        return _layer(
            one,
            "binary",
            spec,
            None,
            (TensorType(shape), False),
            (TensorType(other), const),
        )
    a = _quant(one)
    b = _quant(one)
    if kind in ("maximum", "minimum"):
        b = a
    same = a if kind in ("maximum", "minimum") else _quant(one)
    args = [
        (TensorType(shape, "int8", a), False),
        (TensorType(other, "int8", b), const),
    ]
    if one.chance(0.2) and kind != "prelu":
        args.reverse()
    return _layer(one, "binary", spec, same, *args)


def resize(one: Pick) -> Layer:
    """By whole numbers and by others, of few and many channels."""
    h = one(1, 2, 3, 5, 9)
    w = one(1, 3, 4, 7, 20)
    c = one(1, 3, 5, 16, 21, 33, 64, 130, 600)
    size = one(
        (h, w), (2 * h, 2 * w), (4 * h, 4 * w), (one(1, 3, 7, 17), one(2, 5, 9, 25))
    )
    mode = one(*TFLITE_MODES)
    image = TensorType((one(1, 1, 2), h, w, c))
    if one.chance(0.4):
        return _layer(one, "resize", ResizeBilinear(size, mode), None, (image, False))
    image = image.with_quant(Quant.per_tensor(0.1, 3), "int8")
    spec = ResizeBilinear(
        size, mode, rounding=one(Rounding.TFLITE, Rounding.TFLITE_UINT8)
    )
    return _layer(one, "resize", spec, Quant.per_tensor(0.1, 3), (image, False))


def rows(one: Pick) -> Layer:
    """Softmax, sums, means and norms of images with short and long rows, and the
    largest of each pixel's channels.
    """
    c = one(1, 3, 15, 16, 17, 24, 33, 64, 100)
    size = (one(1, 2), one(1, 3, 7, 13), one(1, 5, 11))
    image = TensorType((*size, c))
    kind = one("softmax", "sum", "norm", "layer_norm", "arg")
    if kind == "softmax":
        return _layer(one, "rows", Softmax(), None, (image, False))
    if kind == "sum":
        spec = one(Mean, Sum)((1, 2), one(False, True))
        return _layer(one, "rows", spec, None, (image, False))
    if kind == "norm":
        channels = (TensorType((c,)), True)
        return _layer(
            one,
            "rows",
            InstanceNorm(groups=one(0, 0, 1)),
            None,
            (image, False),
            channels,
            channels,
        )
    if kind == "layer_norm":
        row = (TensorType((c,)), True)
        return _layer(one, "rows", LayerNorm(), None, (image, False), row, row)
    spec = ArgMax(3, one("int64", "int32"), one(False, True))
    return _layer(
        one, "rows", spec, None, (image.with_quant(_quant(one), "int8"), False)
    )


MAKERS: tuple[Callable[[Pick], Layer], ...] = (elements, pairs, resize, rows)
