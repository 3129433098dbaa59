"""The weights of a layer: their shape, and how they are packed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgec.edgetpu_file.reuse import packing
from edgec.edgetpu_file.reuse.source import Operation
from edgec.edgetpu_file.reuse.window import Tap
from edgec.ops.edgetpu_law import multiplier

ZERO = 128
"""The zero point of weights with a scale for each channel."""


class OtherNetworkError(ValueError):
    """The compiled file is of another network, or has something not understood."""


def require(holds: bool, otherwise: str) -> None:
    """Refuse a file or network of which something does not hold."""
    if not holds:
        raise OtherNetworkError(otherwise)


@dataclass(frozen=True)
class LayerShape:
    """The shape of a layer with weights.

    Attributes:
        outputs, inputs: channels; each output of a depthwise one reads one input
        kernel: height and width
        depthwise: whether it is one with several inputs
        positions: places of the image where it is applied
    """

    outputs: int
    inputs: int
    kernel: tuple[int, int]
    depthwise: bool
    positions: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the weights, as they are packed."""
        if self.depthwise:
            return (*self.kernel, self.outputs)
        return (self.outputs, *self.kernel, self.inputs)

    @property
    def places(self) -> int:
        """Return the places of the kernel."""
        return self.kernel[0] * self.kernel[1]

    @property
    def words(self) -> int:
        """Return the words of channels of a position."""
        return packing.up(self.inputs, packing.DEPTH) // packing.DEPTH

    def size(self, heads: int) -> int:
        """Return the bytes of its parameters."""
        if self.depthwise:
            return packing.depthwise_size(self.outputs, self.places, heads)
        return packing.dense_size(self.outputs, self.places * self.words, heads)

    def packed(
        self,
        weights: NDArray[np.uint8],
        heads: Sequence[NDArray[Any]],
        zero_point: int,
        order: Sequence[Tap],
    ) -> bytes:
        """Return its parameters, from weights in its own shape."""
        pack = packing.depthwise if self.depthwise else packing.dense
        return pack(weights, heads, zero_point, order)


def layer_shape(operation: Operation) -> LayerShape:
    """Return the shape of an operator's layer.

    Raises OtherNetworkError: its weights are not understood.
    """
    shape = operation.needed(1).shape
    positions = math.prod(operation.outputs[0].shape[:-1])
    if operation.kind == "FULLY_CONNECTED" and len(shape) == 2:
        return LayerShape(shape[0], shape[1], (1, 1), False, positions)
    if operation.kind == "CONV_2D" and len(shape) == 4:
        return LayerShape(shape[0], shape[3], (shape[1], shape[2]), False, positions)
    if operation.kind == "DEPTHWISE_CONV_2D" and len(shape) == 4:
        kernel, inputs = (shape[1], shape[2]), operation.source.shape[-1]
        # One channel has no others beside it: it is a convolution.
        if inputs == 1:
            return LayerShape(shape[3], 1, kernel, False, positions)
        if inputs == shape[3]:
            return LayerShape(shape[3], shape[3], kernel, True, positions)
    raise OtherNetworkError(f"the weights of {operation.name} are not understood")


@dataclass(frozen=True)
class LayerWeights:
    """The weights of a layer.

    Attributes:
        values: the weights in the shape of the layer
        zero_point: theirs, which pads them
        multiplier: of all outputs; 1.0 where each has its own
        heads: what each output has before its weights, without biases
        biases: the biases; None where there are none
        by_channel: whether each channel has a scale
    """

    values: NDArray[np.uint8]
    zero_point: int
    multiplier: float
    heads: tuple[NDArray[Any], ...]
    biases: NDArray[Any] | None
    by_channel: bool


def layer_weights(operation: Operation, layer: LayerShape) -> LayerWeights:
    """Return the weights of an operator's layer.

    Raises OtherNetworkError: they are not understood.
    """
    tensor = operation.needed(1)
    if tensor.data is None or not tensor.scales:
        raise OtherNetworkError(f"the weights of {operation.name} are not constants")
    values = tensor.data
    if operation.kind == "DEPTHWISE_CONV_2D" and not layer.depthwise:
        values = values.transpose(3, 1, 2, 0)
    values = values.reshape(layer.shape)
    third = operation.inputs[2] if len(operation.inputs) > 2 else None
    biases = None if third is None else third.data
    source, output = operation.source.scale, operation.outputs[0].scale
    each = [multiplier(source, scale, output) for scale in tensor.scales]
    require(
        all(0 < factor < math.inf for factor in each),
        f"the scales of {operation.name} are beyond float32",
    )
    if len(each) == 1:
        zero = tensor.zero_point
        return LayerWeights(values, zero, each[0], (), biases, False)

    if len(each) != layer.outputs or set(tensor.zero_points) != {ZERO}:
        raise OtherNetworkError(f"the scales of {operation.name} are not understood")
    if biases is not None and np.any(biases):
        raise OtherNetworkError(
            f"{operation.name} has biases and a scale for each channel, which is not "
            "understood"
        )
    zeros = np.full(layer.outputs, ZERO, "<i4")
    if len(set(each)) == 1:
        return LayerWeights(values, ZERO, each[0], (zeros,), None, True)
    return LayerWeights(values, ZERO, 1.0, (np.array(each, "<f4"), zeros), None, True)
