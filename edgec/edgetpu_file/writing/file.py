"""Writes the compiled file of a network of fully connected layers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from edgec_runtime.edgetpu_file.flatbuffer import DamagedError
from numpy.typing import NDArray

from edgec.edgetpu_file.reuse.packing import DEPTH, dense, up
from edgec.edgetpu_file.reuse.source import (
    INT8,
    UINT8,
    Network,
    Operation,
    Tensor,
    read_network,
)
from edgec.edgetpu_file.reuse.window import Tap
from edgec.edgetpu_file.writing.container import (
    Border,
    Borders,
    caching_executable,
    executing_executable,
    file,
    package,
)
from edgec.edgetpu_file.writing.dense import (
    LARGEST_ROWS,
    MOST,
    caching_program,
    executing_program,
    narrow_bytes,
)
from edgec.edgetpu_file.writing.layers import DenseLayer
from edgec.errors import InputError
from edgec.ops.edgetpu_law import clamps, multiplier

_COMPILER = "cl/"
"""What edgetpu_compiler 16 states as its version: these are its files, byte for byte."""
_INT8_ZERO = 128
_UNIT = 8


class NotWrittenError(Exception):
    """A network is none that is written here."""


def written(network: bytes, where: str) -> bytes:
    """Return the compiled file of a network.

    Args:
        network: a quantized .tflite file
        where: its place, for messages

    Raises:
        InputError: the file is damaged, or has something that is not written here
    """
    try:
        return _written(read_network(network))
    except (NotWrittenError, DamagedError, ValueError) as e:
        raise InputError(
            f"edgec cannot write the Edge TPU's program of {where}: {e}",
            at="--edgetpu-compiler own",
            hint="leave the option out: edgetpu_compiler compiles it, or the CPU runs it",
        ) from None


def _written(network: Network) -> bytes:
    layers = [*_layers(network)]
    if sum(layer.rows for layer in layers) > LARGEST_ROWS:
        raise NotWrittenError("its parameters do not fit the chip's memory")
    borders = Borders(_border(network.inputs), _border(network.outputs))
    parameters = b"".join(layer.parameters for layer in layers)
    caching, executing = caching_program(layers), executing_program(layers)

    def whole(token: int) -> bytes:
        executables = [
            executing_executable(executing, narrow_bytes(layers), token, borders),
            caching_executable(caching, parameters, token, borders),
        ]
        return file(package(executables, _COMPILER), borders)

    # A default would not be written: so the token is of a file with another one.
    digest = hashlib.sha256(whole(1)).digest()
    return whole(int.from_bytes(digest[:8], "little") | 1)


def _border(tensors: Sequence[Tensor]) -> Border:
    if len(tensors) != 1:
        raise NotWrittenError(f"it has {len(tensors)} inputs or outputs, and not one")
    (tensor,) = tensors
    return Border(
        tensor.name,
        tensor.shape,
        tensor.type,
        tensor.scale,
        tensor.zero_point,
        up(tensor.shape[-1], _UNIT),
    )


def _layers(network: Network) -> Iterator[DenseLayer]:
    """Yield the layers: each has to follow the one before it."""
    for tensor in network.inputs:
        _check(tensor)
    last = network.inputs[0] if network.inputs else None
    count = 0
    for operation in network.operations:
        if operation.source is not last:
            raise NotWrittenError(f"{operation.name} does not follow the last operator")
        _check(operation.outputs[0])
        if operation.kind == "QUANTIZE":
            _check_same(operation)
        elif operation.kind == "FULLY_CONNECTED":
            count += 1
            yield _layer(operation)
        else:
            raise NotWrittenError(
                f"{operation.name} is neither FULLY_CONNECTED nor QUANTIZE"
            )
        last = operation.outputs[0]
    if not count or network.outputs != (last,):
        raise NotWrittenError("it is not a chain of fully connected layers")


def _check(tensor: Tensor) -> None:
    if tensor.type not in (UINT8, INT8) or len(tensor.scales) != 1:
        raise NotWrittenError(f"{tensor.name} is not of int8 or uint8 with one scale")
    if len(tensor.shape) != 2 or tensor.shape[0] != 1:
        shape = " x ".join(map(str, tensor.shape))
        raise NotWrittenError(f"{tensor.name} has the shape {shape} and not 1 x N")
    if not 1 <= tensor.shape[1] <= MOST:
        raise NotWrittenError(
            f"{tensor.name} has {tensor.shape[1]} elements, and at most {MOST} are written"
        )


def _check_same(operation: Operation) -> None:
    """Check that a QUANTIZE changes the type alone, which the chip does not see."""
    before, after = operation.source, operation.outputs[0]
    if (before.scale, before.zero_point) != (after.scale, after.zero_point):
        raise NotWrittenError(f"{operation.name} changes the scale or zero point")


def _layer(operation: Operation) -> DenseLayer:
    x, w, y = operation.source, operation.needed(1), operation.outputs[0]
    weights = _weights(operation)
    outputs, inputs = weights.shape
    heads, has_biases = _heads(operation)
    order = [Tap(0, 0, word) for word in range(up(inputs, DEPTH) // DEPTH)]
    zero = w.zero_points[0]
    alone = len(w.scales) == 1
    return DenseLayer(
        inputs=inputs,
        outputs=outputs,
        parameters=dense(weights.reshape(outputs, 1, 1, inputs), heads, zero, order),
        heads=len(heads),
        in_zero=x.zero_point,
        weight_zero=zero,
        out_zero=y.zero_point,
        multiplier=multiplier(x.scale, w.scale, y.scale) if alone else 1.0,
        clamps=clamps(y.scale, y.zero_point, operation.activation),
        biases=has_biases,
    )


def _weights(operation: Operation) -> NDArray[np.uint8]:
    """Return the weights [outputs, inputs]."""
    x, w, y = operation.source, operation.needed(1), operation.outputs[0]
    if w.data is None or w.data.dtype != np.uint8 or not w.scales:
        raise NotWrittenError(f"{operation.name} has no constant weights of 8 bits")
    if w.data.shape != (y.shape[1], x.shape[1]):
        raise NotWrittenError(f"{operation.name} has weights of another shape")
    if operation.options is not None and operation.options.integer(1, 1):
        raise NotWrittenError(f"{operation.name} has its weights in another order")
    return w.data


def _heads(operation: Operation) -> tuple[list[NDArray[Any]], bool]:
    """Return what each output has before its weights, and whether these are biases."""
    x, w, y = operation.source, operation.needed(1), operation.outputs[0]
    bias = operation.inputs[2] if len(operation.inputs) > 2 else None
    if bias is not None and bias.data is None:
        raise NotWrittenError(f"{operation.name} has biases that are not constant")
    biases = None if bias is None else bias.data
    if biases is not None and not biases.any():
        biases = None
    if len(w.scales) == 1:
        return ([], False) if biases is None else ([biases.astype(np.int32)], True)
    if biases is not None:
        raise NotWrittenError(
            f"{operation.name} has biases beside a scale for each output"
        )
    if set(w.zero_points) != {_INT8_ZERO}:
        raise NotWrittenError(f"{operation.name} has several zero points")
    factors = [multiplier(x.scale, scale, y.scale) for scale in w.scales]
    zeros = np.full(len(factors), _INT8_ZERO, np.int32)
    return [np.array(factors, np.float32), zeros], False
