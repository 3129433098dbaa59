"""Finds a bundle's picture, and gives an int8 graph an input of pixels: uint8 [1, height,
width, channels].
"""

from __future__ import annotations

import numpy as np
from edgec_runtime import Bundle, Preprocess, TensorInfo
from edgec_runtime.vision.preprocess import ImageLayout

from edgec.errors import InputError
from edgec.exporting._whole_graph import has_elements
from edgec.ir import Builder, Graph, Quant, TensorType, Value, interp
from edgec.ops.quantize import Quantize

_SHIFT = 128
"""Between int8 and uint8 of the same real value."""


def picture_input(bundle: Bundle) -> tuple[TensorInfo, Preprocess, ImageLayout]:
    """Return the input of a bundle, how a picture becomes it, and its layout.

    Raises InputError unless its one input is a picture.
    """
    manifest = bundle.manifest
    infos = manifest.input_infos()
    preprocess = manifest.preprocess.get(infos[0].name)
    if len(infos) != 1 or preprocess is None:
        raise InputError(
            "the model's input is not a picture",
            at=str(bundle.path),
            hint="export a network with one image input",
        )
    layout = ImageLayout.of(infos[0], preprocess.layout)
    assert layout is not None, "the manifest was checked"
    return infos[0], preprocess, layout


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
    inner = _first_int8(graph, preprocess.layout)
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


def _first_int8(graph: Graph, layout: str) -> Value:
    """Return the first int8 value that is the picture [1, height, width, 3].

    The ops before it move and quantize the model's input, in many ways (a large
    transpose is cut into parts). So each value of this shape is tried with numbers.
    """
    if len(graph.inputs) != 1:
        raise InputError(
            f"the model has {len(graph.inputs)} inputs; Frigate gives one picture",
            hint="export a detector of single pictures",
        )
    model_input = graph.inputs[0]
    shape = model_input.type.shape
    target_shape = (shape[0], *shape[2:], shape[1]) if layout == "nchw" else shape
    for op in graph.ops:
        value = op.outputs[0]
        is_alike = value.type.dtype == "int8" and value.type.shape == target_shape
        if is_alike and _is_picture(graph, value, layout):
            return value
    raise InputError(
        f"the model's input {model_input.name} is not quantized at once",
        hint="compile with --calibrate photos/ --edgetpu all --budget 0%",
    )


def _is_picture(graph: Graph, value: Value, layout: str) -> bool:
    """Return whether a value is the input's own numbers, quantized, in NHWC."""
    quant = value.type.quant
    model_input = graph.inputs[0]
    if quant is None:
        return False
    rng = np.random.default_rng(0)
    numbers = rng.integers(-128, 128, value.type.shape, np.int8)
    # What the input is for these numbers: real values, or integers of its own scale.
    real = (numbers.astype(np.float32) - quant.zero_point[0]) * quant.scale[0]
    own = model_input.type.quant
    if own is not None:
        real = np.round(real / own.scale[0]) + own.zero_point[0]
    if layout == "nchw":
        real = real.transpose(0, 3, 1, 2)
    part = Graph(graph.name, [model_input], [value], [*graph.ops])
    part.drop_unused()
    if not all(has_elements(op) for op in part.ops):
        return False
    array = np.ascontiguousarray(real).astype(model_input.type.np_dtype)
    return np.array_equal(interp(part, {model_input.name: array})[value.name], numbers)


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
