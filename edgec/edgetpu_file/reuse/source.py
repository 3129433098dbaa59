"""Reads the quantized network of a .tflite file as an Edge TPU sees it.

The chip's integers are unsigned: int8 values and zero points are given plus 128, which
changes no real number. Numbers of operators, types and options are those of TFLite's
schema (tensorflow/compiler/mlir/lite/schema/schema.fbs).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from edgec_runtime.bundle.tflite_file import is_tflite
from edgec_runtime.edgetpu_file.flatbuffer import DamagedError, Table
from numpy.typing import NDArray

UINT8, INT8, INT32 = 3, 9, 2
_SIGN = 128
_TYPES = {UINT8: "u1", INT8: "i1", INT32: "<i4"}
KINDS = {
    0: "ADD",
    1: "AVERAGE_POOL_2D",
    2: "CONCATENATION",
    3: "CONV_2D",
    4: "DEPTHWISE_CONV_2D",
    9: "FULLY_CONNECTED",
    22: "RESHAPE",
    25: "SOFTMAX",
    114: "QUANTIZE",
}
"""Names of the operators that `reuse` understands, by their numbers."""
_ACTIVATION = {0: 0, 1: 5, 2: 1, 3: 3, 4: 4, 9: 0}
"""The field of the fused activation in the options of an operator, by its number."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the network.

    Attributes:
        name: its name
        shape: its dimensions
        type: its type's number in TFLite's schema
        scales: of the whole, or of each output channel
        zero_points: the same, of unsigned integers
        data: the values of a constant, unsigned where it is int8
    """

    name: str
    shape: tuple[int, ...]
    type: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    data: NDArray[Any] | None

    @property
    def scale(self) -> float:
        """Return the scale of the whole tensor."""
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """Return the zero point of the whole tensor."""
        return self.zero_points[0]


@dataclass(frozen=True)
class Operation:
    """An operator of the network.

    Attributes:
        kind: a value of KINDS, or a number
        inputs, outputs: its tensors; None for an absent one
        activation: 0 none, 1 RELU, 2 RELU_N1_TO_1, 3 RELU6
        options: its table of options
        index: its place among the operators
    """

    kind: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    activation: int
    options: Table | None
    index: int

    @property
    def name(self) -> str:
        """Return how messages call it."""
        return f"operator {self.index} ({self.kind}, {self.outputs[0].name})"

    @property
    def source(self) -> Tensor:
        """Return the first input."""
        return self.needed(0)

    def needed(self, index: int) -> Tensor:
        """Return an input that must be there."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise DamagedError(f"operator {self.index} has no input {index}")
        return tensor


@dataclass(frozen=True)
class Network:
    """A network.

    Attributes:
        operations: its operators in order
        inputs, outputs: its tensors
    """

    operations: tuple[Operation, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def read_network(data: bytes) -> Network:
    """Return the network of a .tflite file.

    Raises:
        DamagedError: the file is damaged, or has several graphs
    """
    if not is_tflite(data):
        raise DamagedError("it is not a .tflite file")
    model = Table.root(data)
    graphs, buffers = model.tables(2), model.tables(4)
    if len(graphs) != 1:
        raise DamagedError(f"it has {len(graphs)} graphs")
    codes = [max(c.integer(0, 1), c.integer(3)) for c in model.tables(1)]
    tensors = [_tensor(table, buffers) for table in graphs[0].tables(0)]
    operations = tuple(_operations(graphs[0].tables(3), codes, tensors))
    return Network(
        operations,
        tuple(_at(tensors, i) for i in graphs[0].integers(1)),
        tuple(_at(tensors, i) for i in graphs[0].integers(2)),
    )


def _at(tensors: list[Tensor], index: int) -> Tensor:
    if not 0 <= index < len(tensors):
        raise DamagedError(f"tensor {index} of {len(tensors)} is used")
    return tensors[index]


def _operations(
    tables: tuple[Table, ...], codes: list[int], tensors: list[Tensor]
) -> Iterator[Operation]:
    for index, table in enumerate(tables):
        code = table.integer(0, signed=False)
        if code >= len(codes):
            raise DamagedError(f"an operator has the code {code} of {len(codes)}")
        number = codes[code]
        options = table.table(4)
        activation = 0
        if options is not None and number in _ACTIVATION:
            activation = options.integer(_ACTIVATION[number], 1)
        outputs = tuple(_at(tensors, i) for i in table.integers(2))
        if not outputs:
            raise DamagedError(f"operator {index} has no output")
        yield Operation(
            KINDS.get(number, f"number {number}"),
            tuple(None if i < 0 else _at(tensors, i) for i in table.integers(1)),
            outputs,
            activation,
            options,
            index,
        )


def _tensor(table: Table, buffers: tuple[Table, ...]) -> Tensor:
    kind = table.integer(1, 1, signed=False)
    sign = _SIGN if kind == INT8 else 0
    scales, zero_points = _quantization(table)
    shape = table.integers(0)
    content = None
    index = table.integer(2, signed=False)
    if kind in _TYPES and index < len(buffers):
        span = buffers[index].span(0)
        if span is not None and span.size:
            values = np.frombuffer(span.of(table.data), _TYPES[kind])
            if min(shape, default=1) < 0 or values.size != int(np.prod(shape)):
                raise DamagedError(
                    f"a tensor of shape {shape} has {values.size} values"
                )
            content = values.reshape(shape)
            if sign:
                content = (content.astype(np.int16) + sign).astype(np.uint8)
    return Tensor(
        table.text(3),
        shape,
        kind,
        scales,
        tuple(zero + sign for zero in zero_points),
        content,
    )


def _quantization(table: Table) -> tuple[tuple[float, ...], tuple[int, ...]]:
    quantization = table.table(4)
    span = None if quantization is None else quantization.span(2, 4)
    if quantization is None or span is None:
        return (), ()
    scales = struct.unpack(f"<{span.size // 4}f", span.of(table.data))
    zero_points = quantization.integers(3, 8)
    if len(zero_points) != len(scales):
        raise DamagedError("a tensor has scales without zero points")
    return scales, zero_points
