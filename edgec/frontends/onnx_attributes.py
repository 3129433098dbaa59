"""Attributes and tensors of ONNX nodes as Python values and arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    numpy_helper,
)

from edgec.errors import InputError, UnsupportedError
from edgec.frontends.onnx_file import type_name
from edgec.ir import Array, Value
from edgec.ops.cast import FOUR_BITS, ONNX_TYPES

MAX_SPARSE = 1 << 28
"""The most elements of a sparse tensor, which a small file may have."""


def read_attributes(node: NodeProto, opset: int, at: str) -> dict[str, Any]:
    """Return the attributes of a node by name.

    at: the place of the node, for messages. Raises ValueError for an attribute of
    another type than ONNX's schema has.
    """
    # Attributes unknown to the schema are left to the op's reader.
    kinds = _kinds(node.op_type, opset)
    for a in node.attribute:
        expected = kinds.get(a.name, a.type)
        if a.type != expected:
            kind_name = AttributeProto.AttributeType.Name(a.type)
            expected_name = AttributeProto.AttributeType.Name(expected)
            raise ValueError(
                f"the attribute {a.name} is of type {kind_name}, "
                f"where ONNX has {expected_name}"
            )
    return {a.name: _attribute(a, at) for a in node.attribute}


def four_bit(value: Value, *codes: int) -> set[Value]:
    """Return the value alone if it has four bits in the file, else nothing.

    codes: the element types of which one is the value's.
    """
    return {value} if not FOUR_BITS.keys().isdisjoint(codes) else set()


def _attribute(a: AttributeProto, at: str) -> Any:
    """Return an attribute as a Python value, or as an array for a tensor."""
    if a.type == AttributeProto.TENSOR:
        return read_array(a.t, at)
    if a.type == AttributeProto.SPARSE_TENSOR:
        return read_sparse_array(a.sparse_tensor, at)
    if a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        raise ValueError(
            f"the subgraph {a.name} is control flow, "
            "and edgec compiles straight-line models"
        )
    return _plain(a)


def read_array(tensor: TensorProto, at: str) -> Array:
    """Return the elements of a tensor, cast to the IR's type.

    at: its place, for messages. Raises UnsupportedError for an unknown element type,
    InputError for a damaged tensor.
    """
    # Types as complex64 and strings.
    types = ONNX_TYPES | FOUR_BITS
    if tensor.data_type not in types:
        message = (
            f"tensor {tensor.name} has elements of type {type_name(tensor.data_type)}"
        )
        raise UnsupportedError(message, at, "export it as float32")
    dtype = types[tensor.data_type]
    try:
        return np.asarray(numpy_helper.to_array(tensor)).astype(dtype)
    except (ValueError, TypeError) as e:
        message = f"tensor {tensor.name} is damaged: {e}"
        raise InputError(message, at, "copy or export the file again") from e


def read_sparse_array(tensor: SparseTensorProto, at: str) -> Array:
    """Return the elements of a sparse tensor with zeros between them.

    at: its place, for messages. Raises InputError for a damaged tensor.
    """
    values = read_array(tensor.values, at)
    places = read_array(tensor.indices, at)
    shape = tuple(tensor.dims)
    is_possible = min(shape, default=1) >= 0 and prod(shape) <= MAX_SPARSE
    try:
        if not is_possible or (places < 0).any():
            raise ValueError(f"its shape is {list(shape)}, or a place negative")
        dense = np.zeros(shape, values.dtype)
        # Places count elements, or have a number for each axis.
        if places.ndim == 2:
            places = np.ravel_multi_index(tuple(places.T), shape)
        np.put(dense, places, values.reshape(places.shape))
    except (ValueError, IndexError, TypeError) as e:
        message = f"the sparse tensor {tensor.values.name} is damaged: {e}"
        raise InputError(message, at, "copy or export the file again") from e

    return dense


def _plain(a: AttributeProto) -> Any:
    """Return a number, a text or a list of them."""
    value = onnx.helper.get_attribute_value(a)
    if value is None:
        raise ValueError(f"the attribute {a.name} has no value")
    return value.decode() if isinstance(value, bytes) else value


def _schema(op_type: str, opset: int) -> Any:
    """Return the schema of a standard operator, None if this opset has none."""
    try:
        return onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None


@cache
def _kinds(op_type: str, opset: int) -> Mapping[str, int]:
    """Return the types of the attributes of a standard operator."""
    schema = _schema(op_type, opset)
    if schema is None:
        return {}
    return {name: a.type.value for name, a in schema.attributes.items()}


@cache
def default_values(op_type: str, opset: int) -> Mapping[str, Any]:
    """Return the default values of the attributes of a standard operator.

    They hold where a node leaves an attribute out.
    """
    schema = _schema(op_type, opset)
    if schema is None:
        return {}
    values: dict[str, Any] = {}
    for name, a in schema.attributes.items():
        # Without a name, there is no default.
        if a.default_value.name:
            values[name] = _plain(a.default_value)
    return values


def in_known_type(array: Array) -> Array:
    """Return an array cast to one of the IR's types."""
    # The reference computes in types as float64 that the IR does not have.
    number = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return array.astype(ONNX_TYPES[number])


def constant_array(attributes: Mapping[str, Any]) -> Array:
    """Return the array of a Constant node, which has one of several attributes."""
    dtypes = {
        "value_float": "float32",
        "value_floats": "float32",
        "value_int": "int64",
        "value_ints": "int64",
    }
    for name, dtype in dtypes.items():
        if name in attributes:
            return np.array(attributes[name], dtype)
    name = "sparse_value" if "sparse_value" in attributes else "value"
    value: Array = attributes[name]
    return value


def evaluate(
    node: NodeProto, inputs: Sequence[Array | None], version: int
) -> list[Array]:
    """Return the results of a standard operator on constants.

    ONNX's own reference implementation computes them. version: of the operator set.
    """
    from onnx.reference import ReferenceEvaluator

    feeds: dict[str, Array] = {}
    for name, array in zip(node.input, inputs, strict=True):
        if array is not None:
            feeds[name] = array
    starts = [onnx.ValueInfoProto(name=name) for name in feeds if name]
    ends = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "constant", starts, ends)
    imports = [onnx.helper.make_opsetid("", version)]
    model = onnx.helper.make_model(graph, opset_imports=imports)
    results = ReferenceEvaluator(model).run(None, feeds)
    return [np.asarray(array) for array in results]
