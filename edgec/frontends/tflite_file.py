"""The contents of a .tflite file: tensors with types and data, and operators.

Operators are not interpreted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edgec.errors import InputError, UnsupportedError
from edgec.frontends.tflite_packed import dense, int4
from edgec.ir import Array, Quant, TensorType
from edgec.ir.graph import unique
from edgec.ir.types import DTYPES

CUSTOM = "custom "
"""The prefix of the name of a custom operator."""

_OPAQUE_DTYPE = "object"
MAX_DIMENSIONS = 32
"""More than any tensor has, and no more than numpy takes."""
_INTEGERS = ("int8", "uint8", "int16", "int32")
_PLACEHOLDER = 1
"""An offset up to this is none: the elements are in the flatbuffer."""
_PLAIN_SCALES = "quantize the model with one scale for each tensor or channel"
_DTYPES = {
    number: name.lower()
    for name, number in vars(schema.TensorType).items()
    if isinstance(number, int)
}
_OPCODES = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}


@contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """Turn any failure of the block into an InputError.

    A damaged file can fail anywhere in the generated reader.
    """
    try:
        yield
    except (InputError, UnsupportedError):
        raise
    except Exception as e:
        message = f"{path.name} cannot be read as TFLite ({type(e).__name__}: {e})"
        hint = "the file is damaged or cut short: copy or export it again"
        raise InputError(message, str(path), hint) from e


@dataclass(frozen=True)
class FileOperator:
    """One operator.

    Attributes:
        name: the name of the builtin, or `CUSTOM` and the name of the custom one.
        builtin: its number in TFLite's schema.
        version: its version.
        inputs, outputs: tensors by index; absent inputs are negative.
        options: the schema's object, None, or the bytes of a custom operator.
        uint8: whether it has a quantized uint8 tensor.
        at: its place, for messages.
        intermediates: the types of its own tensors.
        int16: whether it has a quantized int16 tensor that is no variable.
    """

    name: str
    builtin: int
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Any
    uint8: bool
    at: str
    intermediates: tuple[TensorType, ...] = ()
    int16: bool = False

    @property
    def opcode(self) -> str:
        """The name in edgetpu_compiler's logs: the builtin's, or CUSTOM:<name>."""
        if self.name.startswith(CUSTOM):
            return self.name.replace(CUSTOM, "CUSTOM:", 1)
        return self.name


@dataclass(frozen=True)
class TfliteFile:
    """A subgraph of a file, the main one at first.

    Attributes:
        path: the path, for messages.
        model: the parsed file.
        subgraph: the parsed subgraph.
        any_type: whether element types that edgec cannot compute with are accepted.
        raw: the bytes of the file.
    """

    path: Path
    model: Any
    subgraph: Any
    any_type: bool = False
    raw: bytes = b""

    @classmethod
    def load(cls, path: Path, any_type: bool = False) -> TfliteFile:
        """Return the parsed file. Call it within `damage_told`.

        Raises InputError for other files than TFLite's.
        """
        return cls.parse(path.read_bytes(), path, any_type)

    @classmethod
    def parse(cls, data: bytes, path: Path, any_type: bool = False) -> TfliteFile:
        """Return the parsed file from its bytes; `path` is for messages."""
        if data[4:8] != b"TFL3":
            message = (
                f"{path.name} is not a TFLite file: its identifier is {data[4:8]!r}"
            )
            raise InputError(message, str(path), "give a .tflite file, whole")
        model = schema.ModelT.InitFromPackedBuf(data)
        if not model.subgraphs:
            raise ValueError("it holds no subgraph")
        return cls(path, model, model.subgraphs[0], any_type, data)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The input tensors."""
        return _indices(self.subgraph.inputs)

    @property
    def outputs(self) -> tuple[int, ...]:
        """The output tensors."""
        return _indices(self.subgraph.outputs)

    def operators(self) -> Iterator[FileOperator]:
        """Yield the operators in the order they run."""
        for number, operator in enumerate(self.subgraph.operators or ()):
            yield self._operator(number, operator)

    def _operator(self, number: int, operator: Any) -> FileOperator:
        """Return one operator of the schema in a form without flatbuffers.

        number: its position in the subgraph.
        """
        code = self.model.operatorCodes[operator.opcodeIndex]
        # Old files have only the deprecated code, of 8 bits.
        builtin = max(int(code.builtinCode), int(code.deprecatedBuiltinCode))
        name = _OPCODES.get(builtin, f"number {builtin}")
        options = operator.builtinOptions
        if name == "CUSTOM":
            name = f"{CUSTOM}{text(code.customCode)}"
            options = operator.customOptions

        inputs = _indices(operator.inputs)
        outputs = _indices(operator.outputs)
        present = [i for i in (*inputs, *outputs) if i >= 0]
        intermediates = _indices(operator.intermediates)
        return FileOperator(
            name=name,
            builtin=builtin,
            version=int(code.version or 1),
            inputs=inputs,
            outputs=outputs,
            options=options,
            uint8=any(self._is_uint8(i) for i in present),
            at=f"operator {number} ({name}), {self.path}",
            intermediates=tuple(self.type(i) for i in intermediates),
            int16=any(self.is_int16(i) for i in present),
        )

    def name(self, i: int) -> str:
        """Return the name of a tensor.

        If a file gives one name to several tensors, the later ones are numbered.
        """
        return self._names[i]

    @cached_property
    def _names(self) -> list[str]:
        names: dict[str, None] = {}
        for i, tensor in enumerate(self.subgraph.tensors):
            # Names identify values in messages, bundles and reports.
            base = text(tensor.name) or f"tensor{i}"
            names[unique(base, names.__contains__)] = None
        return list(names)

    def type(self, i: int) -> TensorType:
        """Return the declared type of a tensor.

        Raises UnsupportedError for element types beyond the IR's.
        """
        tensor = self.subgraph.tensors[i]
        dtype = self._dtype(i)
        shape = _indices(tensor.shape)
        if len(shape) > MAX_DIMENSIONS:
            message = f"tensor {self.name(i)} has {len(shape)} dimensions"
            hint = "the file is damaged: export it again"
            raise UnsupportedError(message, str(self.path), hint)
        quantization = tensor.quantization
        if quantization is not None and quantization.details is not None:
            # The generated classes of the details end with a T.
            kind = type(quantization.details).__name__[:-1]
            raise self._unread(i, f"{kind} of its elements", _PLAIN_SCALES)

        t = TensorType(shape, dtype, _quant(quantization, shape))
        if t.dtype in _INTEGERS and t.quant is not None:
            self._check_quant(i, t, t.quant)
        return t

    def _dtype(self, i: int) -> str:
        """Return the element type of a tensor, int8 for constants of 4 bits."""
        number = self.subgraph.tensors[i].type
        dtype = "int8" if self._is_int4(i) else _DTYPES.get(number, f"type {number}")
        if dtype in DTYPES:
            return dtype
        if not self.any_type:
            message = f"tensor {self.name(i)} has the unsupported element type {dtype}"
            hint = "edgec reads float32, float16 weights, int8 and uint8"
            raise UnsupportedError(message, str(self.path), hint)
        return dtype if dtype in np.sctypeDict else _OPAQUE_DTYPE

    def _is_uint8(self, i: int) -> bool:
        """Return whether a tensor is of quantized uint8.

        A tensor of types that edgec does not compute with is not.
        """
        if self.subgraph.tensors[i].type != schema.TensorType.UINT8:
            return False
        t = self.type(i)
        return as_int8(t) != t

    def is_int16(self, i: int) -> bool:
        """Return whether a tensor's int16 are floats inside the graph."""
        if self.subgraph.tensors[i].type != schema.TensorType.INT16:
            return False
        return not self.is_variable(i) and self.type(i).quant is not None

    def _check_quant(self, i: int, t: TensorType, quant: Quant) -> None:
        """Raise InputError for scales and zero points that no converter writes."""
        fault = _quant_fault(t, quant, computed=not self._stored(i))
        if fault:
            message = f"tensor {self.name(i)} is {t} with {fault}"
            hint = "the file is damaged, or its converter is: convert the model again"
            raise InputError(message, str(self.path), hint)

    def open_dims(self, i: int) -> list[bool] | None:
        """Return which dimensions the file leaves open, None without a statement."""
        signature = self.subgraph.tensors[i].shapeSignature
        return None if signature is None else [int(d) < 0 for d in signature]

    def has_data(self, i: int) -> bool:
        """Return whether a tensor is constant."""
        data = self.model.buffers[self.subgraph.tensors[i].buffer].data
        return self._stored(i) or (data is not None and self.type(i).size == 0)

    def check_unwritten(self, i: int) -> None:
        """Raise InputError if the file has elements of an input or a result."""
        if self._stored(i):
            message = (
                f"tensor {self.name(i)} is both constant and an input or the "
                "result of an operator"
            )
            hint = "the file is damaged: convert the model again"
            raise InputError(message, str(self.path), hint)

    def _stored(self, i: int) -> bool:
        """Return whether the file has elements of a tensor.

        They are in the flatbuffer, behind it, or in another file.
        """
        tensor = self.subgraph.tensors[i]
        # Large models have elements behind the flatbuffer, at an offset.
        buffer = self.model.buffers[tensor.buffer]
        inside = buffer.data is not None and len(buffer.data) > 0
        return inside or bool(tensor.externalBuffer) or buffer.offset > _PLACEHOLDER

    def _is_int4(self, i: int) -> bool:
        """Return whether a tensor is a constant of 4 bits.

        It is read as int8 of the same scale.
        """
        is_int4 = self.subgraph.tensors[i].type == schema.TensorType.INT4
        return is_int4 and self._stored(i)

    def is_variable(self, i: int) -> bool:
        """Return whether a tensor keeps its elements from one inference to the next."""
        return bool(self.subgraph.tensors[i].isVariable)

    def data(self, i: int) -> Array:
        """Return the elements of a constant, quantized uint8 as int8."""
        t = self.type(i)
        tensor = self.subgraph.tensors[i]
        sparse = tensor.sparsity
        if tensor.externalBuffer:
            feature = "its elements in a file of their own"
            raise self._unread(i, feature, "convert the model to one file")
        stored = self._bytes(i)
        if self._is_int4(i):
            if sparse is not None:
                feature = "sparse elements of 4 bits"
                raise self._unread(i, feature, "convert the model with dense weights")
            return int4(stored, t.shape)

        array = np.frombuffer(stored, t.np_dtype)
        if sparse is None:
            array = array.reshape(t.shape)
        else:
            array = dense(array, sparse, t.shape)
        if as_int8(t) == t:
            return array
        # Subtracting 128 flips the highest bit.
        return (array ^ 0x80).view(np.int8)

    def _bytes(self, i: int) -> bytes:
        """Return the contents of a tensor's buffer.

        They are in the flatbuffer, or (for large models) behind it in the file.
        """
        buffer = self.model.buffers[self.subgraph.tensors[i].buffer]
        if buffer.offset <= _PLACEHOLDER:
            return bytes(np.asarray(buffer.data, np.uint8))
        data = self.raw[buffer.offset : buffer.offset + buffer.size]
        if len(data) < buffer.size:
            raise ValueError(
                f"the elements of {self.name(i)} end after byte {len(self.raw)}, "
                "the last of the file"
            )
        return data

    def _unread(self, i: int, feature: str, hint: str) -> UnsupportedError:
        """Return the error about a valid feature that edgec does not read."""
        return UnsupportedError(
            f"tensor {self.name(i)} has {feature}, which edgec does not read",
            str(self.path),
            hint,
        )


def _quant_fault(t: TensorType, quant: Quant, computed: bool) -> str:
    """Return a description of invalid scales or zero points, "" for valid ones.

    computed: the tensor is not constant. It has a single scale other than 0; a constant
    channel of zeros may have the scale 0.
    """
    scale = np.array(quant.scale)
    valid = np.isfinite(scale) & (scale >= 0)
    if not valid.all() or (computed and not scale.all()):
        first = next(s for s in quant.scale if not 0 < s < np.inf)
        return f"the scale {first}"

    info = np.iinfo(t.np_dtype)
    for zero_point in quant.zero_point:
        if not info.min <= zero_point <= info.max:
            return f"the zero point {zero_point}"

    # A computed tensor has one scale for all of its elements.
    counts = {1}
    if quant.axis is not None and not computed:
        counts.add(t.shape[quant.axis])
    scales = len(quant.scale)
    zero_points = len(quant.zero_point)
    if scales not in counts or zero_points != scales:
        return f"{scales} scales and {zero_points} zero points"
    return ""


def as_int8(t: TensorType) -> TensorType:
    """Return a quantized uint8 type as the int8 type of the same real numbers.

    Other types stay as they are.
    """
    if t.dtype != "uint8" or t.quant is None:
        return t
    zero_points = tuple(z - 128 for z in t.quant.zero_point)
    quant = Quant(t.quant.scale, zero_points, t.quant.axis)
    return t.with_quant(quant, "int8")


def inner(t: TensorType) -> TensorType:
    """Return the type inside a graph.

    It is int8 for quantized uint8, float32 for quantized int16.
    """
    if t.dtype == "int16" and t.quant is not None:
        return TensorType(t.shape)
    return as_int8(t)


def _indices(vector: Any) -> tuple[int, ...]:
    """Return a vector of the file, empty if absent."""
    return () if vector is None else tuple(int(i) for i in vector)


def _quant(q: Any, shape: tuple[int, ...]) -> Quant | None:
    """Return the scales and zero points of the file, None if absent."""
    if q is None or q.scale is None or len(q.scale) == 0:
        return None
    # The generated reader gives doubles of float32 numbers.
    scale = tuple(float(np.float32(s)) for s in q.scale)
    zero_point = (0,) * len(scale)
    if q.zeroPoint is not None and len(q.zeroPoint):
        zero_point = tuple(int(z) for z in q.zeroPoint)
    if len(scale) == 1:
        return Quant(scale, zero_point)

    # Old converters gave a depthwise bias the dimension of its weights, 3.
    axis = min(int(q.quantizedDimension), len(shape) - 1)
    return Quant(scale, zero_point, axis)


def text(name: bytes | str | None) -> str:
    """Return a string of the file, empty if absent."""
    if isinstance(name, bytes):
        return name.decode("utf-8", "replace")
    return name or ""
