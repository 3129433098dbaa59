"""What a .tflite file holds: tensors with their types and data, and operators, before
they mean anything.
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
"""What stands before the name of a custom operator."""

_OPAQUE_DTYPE = "object"
_MOST_DIMENSIONS = 32
"""More than any tensor has, and no more than numpy takes."""
_INTEGERS = ("int8", "uint8", "int16", "int32")
# an offset up to this says nothing: the elements are in the flatbuffer
_PLACEHOLDER = 1
_PLAIN_SCALES = "quantize the model with one scale for each tensor or channel"
_DTYPES = {
    number: name.lower()
    for name, number in vars(schema.TensorType).items()
    if isinstance(number, int)
}
_OPCODES = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}


@contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """Any failure while a file is read is an InputError: a damaged one can fail
    anywhere in the generated reader.
    """
    try:
        yield
    except (InputError, UnsupportedError):
        raise
    except Exception as e:
        hint = "the file is damaged or cut short: copy or export it again"
        raise InputError(
            f"{path.name} cannot be read as TFLite ({type(e).__name__}: {e})",
            str(path),
            hint,
        ) from e


@dataclass(frozen=True)
class FileOperator:
    """One operator: the builtin's name, or `CUSTOM` and the custom one's; tensors by
    index, absent inputs negative.

    builtin: its number in TFLite's schema. options: the schema's object, None, or the
    bytes of a custom operator. uint8: whether it has a quantized uint8 tensor. at:
    where it is, for messages. intermediates: of its own tensors. int16: whether it has
    a quantized int16 tensor that is no variable.
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
        """As edgetpu_compiler's users write it: the builtin's name, or CUSTOM:<name>."""
        if self.name.startswith(CUSTOM):
            return self.name.replace(CUSTOM, "CUSTOM:", 1)
        return self.name


@dataclass(frozen=True)
class TfliteFile:
    """The main subgraph of a file.

    `any_type`: also element types that edgec cannot compute with. `raw`: the file.
    """

    path: Path
    model: Any
    subgraph: Any
    any_type: bool = False
    raw: bytes = b""

    @classmethod
    def load(cls, path: Path, any_type: bool = False) -> TfliteFile:
        """Raises InputError for what is no TFLite file; call within `damage_told`."""
        return cls.parse(path.read_bytes(), path, any_type)

    @classmethod
    def parse(cls, data: bytes, path: Path, any_type: bool = False) -> TfliteFile:
        """`load` of what is read already; `path` is for messages."""
        if data[4:8] != b"TFL3":
            hint = "give a .tflite file, whole"
            raise InputError(
                f"{path.name} is not a TFLite file: its identifier is {data[4:8]!r}",
                str(path),
                hint,
            )
        model = schema.ModelT.InitFromPackedBuf(data)
        if not model.subgraphs:
            raise ValueError("it holds no subgraph")
        return cls(path, model, model.subgraphs[0], any_type, data)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The tensors that the caller gives."""
        return _indices(self.subgraph.inputs)

    @property
    def outputs(self) -> tuple[int, ...]:
        """The tensors that the caller gets."""
        return _indices(self.subgraph.outputs)

    def operators(self) -> Iterator[FileOperator]:
        """In the order they run."""
        for number, operator in enumerate(self.subgraph.operators or ()):
            code = self.model.operatorCodes[operator.opcodeIndex]
            builtin = max(int(code.builtinCode), int(code.deprecatedBuiltinCode))
            name = _OPCODES.get(builtin, f"number {builtin}")
            custom = name == "CUSTOM"
            name = f"{CUSTOM}{text(code.customCode)}" if custom else name
            inputs = _indices(operator.inputs)
            outputs = _indices(operator.outputs)
            uint8 = any(i >= 0 and self._is_uint8(i) for i in (*inputs, *outputs))
            options = operator.customOptions if custom else operator.builtinOptions
            at = f"operator {number} ({name}), {self.path}"
            int16 = any(i >= 0 and self.is_int16(i) for i in (*inputs, *outputs))
            between = tuple(self.type(i) for i in _indices(operator.intermediates))
            version = int(code.version or 1)
            yield FileOperator(
                name,
                builtin,
                version,
                inputs,
                outputs,
                options,
                uint8,
                at,
                between,
                int16,
            )

    def name(self, i: int) -> str:
        """The name of a tensor; where a file gives one name to several, the later ones
        are numbered.
        """
        return self._names[i]

    @cached_property
    def _names(self) -> list[str]:
        found: dict[str, None] = {}
        for i, tensor in enumerate(self.subgraph.tensors):
            found[unique(text(tensor.name) or f"tensor{i}", found.__contains__)] = None
        return list(found)

    def type(self, i: int) -> TensorType:
        """The declared type of a tensor.

        Raises UnsupportedError for element types beyond the IR's.
        """
        tensor = self.subgraph.tensors[i]
        if self._is_int4(i):
            dtype = "int8"
        else:
            dtype = _DTYPES.get(tensor.type, f"type {tensor.type}")
        if dtype not in DTYPES:
            if not self.any_type:
                what = f"tensor {self.name(i)} has the unsupported element type {dtype}"
                raise UnsupportedError(
                    what,
                    str(self.path),
                    "edgec reads float32, float16 weights, int8 and uint8",
                )
            dtype = dtype if dtype in np.sctypeDict else _OPAQUE_DTYPE
        shape = _indices(tensor.shape)
        if len(shape) > _MOST_DIMENSIONS:
            what = f"tensor {self.name(i)} has {len(shape)} dimensions"
            raise UnsupportedError(
                what, str(self.path), "the file is damaged: export it again"
            )
        if tensor.quantization is not None and tensor.quantization.details is not None:
            raise self._unread(
                i,
                f"{type(tensor.quantization.details).__name__[:-1]} of its elements",
                _PLAIN_SCALES,
            )
        t = TensorType(shape, dtype, _quant(tensor.quantization, shape))
        if t.dtype in _INTEGERS and t.quant is not None:
            self._check_quant(i, t, t.quant)
        return t

    def _is_uint8(self, i: int) -> bool:
        """Whether a tensor is of quantized uint8; of types that edgec does not compute
        with it is not.
        """
        return self.subgraph.tensors[i].type == schema.TensorType.UINT8 and as_int8(
            self.type(i)
        ) != self.type(i)

    def is_int16(self, i: int) -> bool:
        """Whether a tensor's int16 are floats inside the graph."""
        wide = self.subgraph.tensors[
            i
        ].type == schema.TensorType.INT16 and not self.is_variable(i)
        return wide and self.type(i).quant is not None

    def _check_quant(self, i: int, t: TensorType, quant: Quant) -> None:
        """Raise InputError for scales and zero points that no converter writes."""
        info = np.iinfo(t.np_dtype)
        computed = not self._stored(i)
        scale = np.array(quant.scale)
        sizes = (1,) if quant.axis is None or computed else (1, t.shape[quant.axis])
        wrong = ""
        if (
            not np.isfinite(scale).all()
            or (scale < 0).any()
            or (computed and not scale.all())
        ):
            wrong = f"the scale {next(s for s in quant.scale if not 0 < s < np.inf)}"
        elif not all(info.min <= z <= info.max for z in quant.zero_point):
            wrong = (
                "the zero point "
                f"{next(z for z in quant.zero_point if not info.min <= z <= info.max)}"
            )
        elif len(quant.scale) not in sizes or len(quant.zero_point) != len(quant.scale):
            wrong = f"{len(quant.scale)} scales and {len(quant.zero_point)} zero points"
        if wrong:
            hint = "the file is damaged, or its converter is: convert the model again"
            raise InputError(
                f"tensor {self.name(i)} is {t} with {wrong}", str(self.path), hint
            )

    def open_dims(self, i: int) -> list[bool] | None:
        """Which dimensions the file leaves open, if it says so."""
        signature = self.subgraph.tensors[i].shapeSignature
        return None if signature is None else [int(d) < 0 for d in signature]

    def has_data(self, i: int) -> bool:
        """Whether a tensor is constant."""
        data = self.model.buffers[self.subgraph.tensors[i].buffer].data
        return self._stored(i) or (data is not None and self.type(i).size == 0)

    def check_unwritten(self, i: int) -> None:
        """Raise InputError where the file has elements of a tensor that is given or
        computed.
        """
        if self._stored(i):
            what = (
                f"tensor {self.name(i)} is both constant and an input or the "
                "result "
                "of an operator"
            )
            raise InputError(
                what, str(self.path), "the file is damaged: convert the model again"
            )

    def _stored(self, i: int) -> bool:
        """Whether the file has elements of a tensor: in the flatbuffer or elsewhere."""
        tensor = self.subgraph.tensors[i]
        buffer = self.model.buffers[tensor.buffer]
        inside = buffer.data is not None and len(buffer.data) > 0
        return inside or bool(tensor.externalBuffer) or buffer.offset > _PLACEHOLDER

    def _is_int4(self, i: int) -> bool:
        """Whether a tensor is a constant of 4 bits, which is read as int8 of the same
        scale.
        """
        return self.subgraph.tensors[i].type == schema.TensorType.INT4 and self._stored(
            i
        )

    def is_variable(self, i: int) -> bool:
        """Whether a tensor keeps its elements from one inference to the next."""
        return bool(self.subgraph.tensors[i].isVariable)

    def data(self, i: int) -> Array:
        """The elements of a constant, quantized uint8 as int8."""
        t = self.type(i)
        tensor = self.subgraph.tensors[i]
        if tensor.externalBuffer:
            raise self._unread(
                i,
                "its elements in a file of their own",
                "convert the model to one file",
            )
        sparse = tensor.sparsity
        stored = self._bytes(i)
        if self._is_int4(i):
            if sparse is not None:
                raise self._unread(
                    i,
                    "sparse elements of 4 bits",
                    "convert the model with dense weights",
                )
            return int4(stored, t.shape)
        array = np.frombuffer(stored, t.np_dtype)
        if sparse is None:
            array = array.reshape(t.shape)
        else:
            array = dense(array, sparse, t.shape)
        return array if as_int8(t) == t else (array ^ 0x80).view(np.int8)

    def _bytes(self, i: int) -> bytes:
        """What a tensor's buffer holds: in the flatbuffer, or (as large models have it)
        behind it in the file.
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
        """The error about a valid file that uses what edgec does not read."""
        return UnsupportedError(
            f"tensor {self.name(i)} has {feature}, which edgec does not read",
            str(self.path),
            hint,
        )


def as_int8(t: TensorType) -> TensorType:
    """A quantized uint8 type as the int8 type of the same reals."""
    if t.dtype != "uint8" or t.quant is None:
        return t
    zeros = tuple(z - 128 for z in t.quant.zero_point)
    return t.with_quant(Quant(t.quant.scale, zeros, t.quant.axis), "int8")


def inner(t: TensorType) -> TensorType:
    """The type inside a graph: int8 for quantized uint8, floats for quantized int16."""
    return as_int8(t) if t.dtype != "int16" or t.quant is None else TensorType(t.shape)


def _indices(vector: Any) -> tuple[int, ...]:
    """A vector of the file, which may be absent."""
    return () if vector is None else tuple(int(i) for i in vector)


def _quant(q: Any, shape: tuple[int, ...]) -> Quant | None:
    if q is None or q.scale is None or len(q.scale) == 0:
        return None
    scale = tuple(float(np.float32(s)) for s in q.scale)
    if q.zeroPoint is not None and len(q.zeroPoint):
        zero = tuple(int(z) for z in q.zeroPoint)
    else:
        zero = (0,) * len(scale)
    if len(scale) == 1:
        return Quant(scale, zero)
    # old converters gave a depthwise bias the dimension of its weights, 3
    axis = int(q.quantizedDimension)
    return Quant(scale, zero, axis if axis < len(shape) else len(shape) - 1)


def text(name: bytes | str | None) -> str:
    """A string of the file, which may be absent."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name or ""
