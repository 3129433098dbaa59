"""Types of the inputs and outputs of an ONNX graph."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from edgec.errors import UnsupportedError
from edgec.frontends.onnx_file import static_shape, type_name
from edgec.ir import TensorType
from edgec.ops.cast import FOUR_BITS, ONNX_TYPES

WIDTHS = {TensorProto.FLOAT16: "float16", TensorProto.DOUBLE: "float64"}
"""Floats that are float32 inside of the graph, and as in the file at the interface."""
_TYPES = ONNX_TYPES | FOUR_BITS
"""The element types of the interface."""


def _is_read(element_type: int) -> bool:
    """Return whether a tensor at the interface may have this type; 0 is undefined."""
    return element_type in (0, *_TYPES) and element_type != TensorProto.BFLOAT16


def input_type(
    info: onnx.ValueInfoProto,
    shape: tuple[int, ...] | None,
    at: str,
    sides: tuple[int, int],
) -> TensorType:
    """Return the static type of an input.

    shape: a shape for it. at: its place, for messages. sides: the likely height and
    width of a picture. Raises UnsupportedError for an input that is no tensor of a
    readable type, InputError for a wrong shape.
    """
    if info.type.WhichOneof("value") != "tensor_type":
        message = f"input {info.name} is not a tensor"
        raise UnsupportedError(message, at, "export a model whose inputs are tensors")
    tensor = info.type.tensor_type
    element_type = tensor.elem_type
    if element_type == 0 or not _is_read(element_type):
        message = f"input {info.name} has elements of type {type_name(element_type)}"
        raise UnsupportedError(message, at, "export the model as float32")

    # A missing shape is unknown, an empty one a scalar's.
    dims = list(tensor.shape.dim) if tensor.HasField("shape") else None
    dtype = WIDTHS.get(element_type, _TYPES[element_type])
    return TensorType(static_shape(info.name, dims, shape, at, sides), dtype)


def check_output_type(info: onnx.ValueInfoProto, at: str) -> None:
    """Raise UnsupportedError for an output that is no tensor of a readable type.

    A missing type is valid. at: the place of the output, for messages.
    """
    if info.type.WhichOneof("value") not in (None, "tensor_type"):
        message = f"output {info.name} is not a tensor"
        raise UnsupportedError(message, at, "export a model whose outputs are tensors")
    element_type = info.type.tensor_type.elem_type
    if not _is_read(element_type):
        message = f"output {info.name} has elements of type {type_name(element_type)}"
        raise UnsupportedError(message, at, "export the model as float32")
