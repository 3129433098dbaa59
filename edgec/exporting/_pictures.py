"""Gives an int8 graph an input of pixels: uint8 [1, height, width, channels]."""

from __future__ import annotations

from edgec_runtime import Preprocess, TensorInfo

from edgec.errors import InputError
from edgec.ir import Builder, Graph, Quant, TensorType, Value
from edgec.ops.quantize import Quantize

_SHIFT = 128
"""Between int8 and uint8 of the same real value."""
_MOVES = ("quantize", "transpose", "reshape")
"""Ops between a model's input and its first int8 value in NHWC."""


def with_pixels(graph: Graph, info: TensorInfo, preprocess: Preprocess) -> Graph:
    """Return the graph from its first int8 value on, behind an input of pixels.

    Pixels q are 0…255, and stand for real = scale · (q − zero point): what the model's
    preprocessing makes of them. QUANTIZE, which the Edge TPU has, brings them to int8.

    Args:
        graph: of int8, with one input
        info: the model's input
        preprocess: what its numbers are

    Raises:
        InputError: the input is no picture with the same numbers in all channels, or is
            not quantized at once
    """
    inner = _first_int8(graph)
    build = Builder(Graph(graph.name))
    quant = pixel_quant(info, preprocess)
    outer = build.input("pixels", TensorType(inner.type.shape, "uint8", quant))
    # Whatever made this value of the model's own input is not needed any more.
    fresh = build.value(inner.name, inner.type)
    graph.replace(inner, fresh)
    build.write(Quantize("int8"), [outer], [fresh])
    build.graph.ops += graph.ops
    build.graph.outputs = graph.outputs
    build.graph.drop_unused()
    return build.graph


def _first_int8(graph: Graph) -> Value:
    """Return the first int8 value in NHWC behind the only input."""
    if len(graph.inputs) != 1:
        raise InputError(
            f"the model has {len(graph.inputs)} inputs; Frigate gives one picture",
            hint="export a detector of single pictures",
        )
    value = graph.inputs[0]
    users = graph.users()
    while value.type.dtype != "int8" or value.type.shape[-1] != 3:
        readers = users.get(value, [])
        # Two readers would need the value in float as well.
        if len(readers) != 1 or readers[0].spec.kind not in _MOVES:
            raise InputError(
                f"the model's input {graph.inputs[0].name} is not quantized at once",
                hint="compile with --calibrate photos/ --budget 0%",
            )
        value = readers[0].outputs[0]
    return value


def pixel_quant(info: TensorInfo, preprocess: Preprocess) -> Quant:
    """Return the scale and zero point of pixels 0…255 for a preprocessing.

        real = (k · q − mean) / std = k / std · (q − mean / k)

    with k = 1/255 for the range 0_1, else 1. Zero points are integers: mean / k is
    rounded, by at most half a level.

    Raises:
        InputError: mean or std differ between channels
    """
    if info.quant is not None:
        # An integer input: pixels are its numbers, shifted for int8.
        shift = _SHIFT if info.numpy_dtype.kind == "i" else 0
        zero_point = info.quant.zero_point[0] + shift
        return Quant((info.quant.scale[0],), (zero_point,))
    values = preprocess.values
    means = set(values.mean)
    deviations = set(values.std)
    if len(means) != 1 or len(deviations) != 1:
        raise InputError(
            "the model's preprocessing differs between channels, and a uint8 input has "
            "one scale",
            at=info.name,
            hint="export a model trained on pixels of 0…1 (--preprocess 0_1)",
        )
    k = 1 / 255 if values.range == "0_1" else 1.0
    mean = means.pop()
    zero_point = min(max(round(mean / k), 0), 255)
    return Quant((k / deviations.pop(),), (zero_point,))
