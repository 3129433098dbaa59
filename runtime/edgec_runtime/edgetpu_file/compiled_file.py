"""A .tflite file that edgetpu_compiler has written: operators of the Edge TPU and others.

Tables and fields are those of TFLite's schema
(tensorflow/compiler/mlir/lite/schema/schema.fbs). The operator's data are a map of a
flexbuffer: "4" is the package of the first chip, "7" those of further ones
(tflite/custom_op_data.cc in google-coral/libedgetpu).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Optional, Tuple

from ..bundle.tflite_file import EDGETPU_OPERATOR, is_tflite
from ..errors import InputError
from .executable import Package, read_package
from .flatbuffer import DamagedError, Table, strings_of_map


@dataclass(frozen=True)
class CompiledTensor:
    """A tensor of the file.

    Attributes:
        name: its name
        shape: its dimensions
        type: the number of its type in TFLite's schema
        scale, zero_point: how its integers stand for real numbers; 0 without
    """

    name: str
    shape: Tuple[int, ...]
    type: int
    scale: float
    zero_point: int


@dataclass(frozen=True)
class CompiledOperator:
    """An operator of the file.

    Attributes:
        builtin: the number of the builtin operator in TFLite's schema
        custom: the name of a custom operator
        inputs, outputs: indexes of its tensors; an absent input is negative
        package: the programs of an operator for the Edge TPU
    """

    builtin: int
    custom: str
    inputs: Tuple[int, ...]
    outputs: Tuple[int, ...]
    package: Optional[Package]


@dataclass(frozen=True)
class CompiledFile:
    """A .tflite file with operators for the Edge TPU.

    Attributes:
        data: the file
        tensors: the tensors of its graph
        inputs, outputs: indexes of those of the graph
        operators: its operators in order
    """

    data: bytes
    tensors: Tuple[CompiledTensor, ...]
    inputs: Tuple[int, ...]
    outputs: Tuple[int, ...]
    operators: Tuple[CompiledOperator, ...]

    @property
    def packages(self) -> Tuple[Package, ...]:
        """Return the packages of all operators for the Edge TPU."""
        return tuple(o.package for o in self.operators if o.package is not None)


def read_compiled(data: bytes, where: str) -> CompiledFile:
    """Return what a compiled file consists of.

    Args:
        data: the file, whole
        where: its path, for messages

    Raises:
        InputError: it is not a .tflite file, was not compiled, or is damaged
    """
    if not is_tflite(data):
        raise InputError(
            "the file is not a .tflite file",
            at=where,
            hint="give a file that edgetpu_compiler has written",
        )
    try:
        file = _read(data)
    except (DamagedError, RecursionError, MemoryError) as e:
        raise InputError(
            f"the file cannot be read: {e}",
            at=where,
            hint="the file is damaged or cut short: copy or compile it again",
        ) from None
    if not file.packages:
        raise InputError(
            "the file has no operator for the Edge TPU",
            at=where,
            hint="give a file that edgetpu_compiler has written; its name ends in "
            "_edgetpu.tflite",
        )
    return file


def _read(data: bytes) -> CompiledFile:
    model = Table.root(data)
    codes = [(max(c.integer(0, 1), c.integer(3)), c.text(1)) for c in model.tables(1)]
    graphs = model.tables(2)
    if len(graphs) != 1:
        raise DamagedError(f"it has {len(graphs)} graphs, and compiled files have one")
    tensors = tuple(_tensor(t) for t in graphs[0].tables(0))
    operators = tuple(_operator(t, codes, len(tensors)) for t in graphs[0].tables(3))
    inputs, outputs = graphs[0].integers(1), graphs[0].integers(2)
    _check_indexes((*inputs, *outputs), len(tensors), least=0)
    return CompiledFile(data, tensors, inputs, outputs, operators)


def _operator(
    table: Table, codes: "list[tuple[int, str]]", tensors: int
) -> CompiledOperator:
    code = table.integer(0, signed=False)
    if code >= len(codes):
        raise DamagedError(f"an operator has the code {code} of {len(codes)}")
    builtin, custom = codes[code]
    inputs, outputs = table.integers(1), table.integers(2)
    _check_indexes(inputs, tensors, least=-1)
    _check_indexes(outputs, tensors, least=0)
    package = None
    if custom == EDGETPU_OPERATOR:
        options = table.span(5)
        if options is None:
            raise DamagedError("an operator for the Edge TPU has no data")
        strings = strings_of_map(table.data, options)
        if "4" not in strings:
            raise DamagedError("an operator for the Edge TPU has no package")
        package = read_package(table.data, strings["4"][0])
    return CompiledOperator(builtin, custom, inputs, outputs, package)


def _tensor(table: Table) -> CompiledTensor:
    quantization = table.table(4)
    scale, zero_point = 0.0, 0
    if quantization is not None:
        scales, zero_points = quantization.span(2, 4), quantization.integers(3, 8)
        if scales is not None and scales.size and zero_points:
            (scale,) = struct.unpack_from("<f", table.data, scales.start)
            zero_point = zero_points[0]
    return CompiledTensor(
        table.text(3),
        table.integers(0),
        table.integer(1, 1, signed=False),
        scale,
        zero_point,
    )


def _check_indexes(indexes: Tuple[int, ...], count: int, least: int) -> None:
    for index in indexes:
        if not least <= index < count:
            raise DamagedError(f"tensor {index} of {count} is used")
