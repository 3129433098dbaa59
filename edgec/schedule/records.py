"""Kernel calls as JSON: to tell calls apart, and to make them again without the model.

The files of `edgec tune` have a record of each call. A record has the types of constant
arrays, and as many of their values as it takes to make similar arrays.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgec.ir import (
    Array,
    CStruct,
    Kernel,
    KernelCall,
    Pointer,
    Scratch,
    Table,
    TensorType,
    Value,
)
from edgec.ir.kernel import kernel_named

Record = Mapping[str, Any]
"""A call as JSON's own types."""

MAX_TABLE_VALUES = 16
"""Values of a one-dimensional table in a record.

They are taken at the same positions of each table of a length, so that the bias and the
multiplier of a channel stay together.
"""

_LEVELS = re.compile(r"([xyab]_)?zero|low|high|([xyab]_)?(mul|multiplier|shift|bits)")
"""Fields of structs that no schedule depends on: they tell where numbers lie, not how
many there are.
"""


def record(call: KernelCall) -> Record:
    """Return a call as JSON, with samples of its constants."""
    return _CallWriter(has_values=True).call(call)


def signature(call: KernelCall) -> str:
    """Return a text that is the same for all calls with the same best schedule.

    It consists of the plain kernels, and a hash of sizes and types.
    """
    call_json = _CallWriter(has_values=False).call(call)
    text = json.dumps(call_json, sort_keys=True)
    kernels = "+".join(c.kernel.name for c in (call, *call.then))
    return f"{kernels}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def call_of_record(call_json: Record) -> KernelCall:
    """Return the call of a record, with constants like those that it had.

    The constants are the same each time. Raises KeyError, TypeError or ValueError for
    JSON that is no record.
    """
    return _CallReader().call(call_json)


@dataclass
class _CallWriter:
    """Writes calls as JSON.

    Attributes:
        has_values: whether values are written that no schedule depends on
        numbers: the tensors so far, numbered by their first use
    """

    has_values: bool
    numbers: dict[Value, int] = field(default_factory=dict)

    def call(self, call: KernelCall) -> dict[str, Any]:
        """Return a call, and the calls that follow it."""
        call_json: dict[str, Any] = {
            "kernel": call.kernel.name,
            "operands": [self.operand(x) for x in call.operands],
        }
        if call.then:
            call_json["then"] = [self.call(c) for c in call.then]

        return call_json

    def operand(self, x: object) -> Any:
        """Return an operand, or a field of a struct."""
        match x:
            case Pointer():
                return self.pointer(x)
            case Table():
                hint = {"hint": x.hint} if self.has_values else {}
                return {"table": self.table(x.array), **hint}
            case Kernel():
                return x.name
            case Scratch():
                return {"scratch": x.nbytes}
            case CStruct():
                fields = {n: self.field(n, v) for n, v in x.given().items()}
                return {"struct": x.ctype, "fields": fields}
            case list() | tuple():
                return [self.operand(v) for v in x]

        return self.scalar(x)

    def pointer(self, x: Pointer) -> dict[str, Any]:
        """Return a pointer to a constant, or to a numbered tensor."""
        if x.value.const is not None:
            return {"constant": self.table(x.value.const), "offset": x.offset}

        number = self.numbers.setdefault(x.value, len(self.numbers))
        type_ = [x.value.type.dtype, *x.value.type.shape]
        return {"tensor": number, "type": type_, "offset": x.offset}

    def scalar(self, x: object) -> Any:
        """Return a number, or the name of an enumerator."""
        match x:
            case bool() | np.bool_() | int() | np.integer():
                return int(x)
            case float() | np.floating():
                # repr reads back exactly, and JSON has no infinities.
                return {"float": repr(float(x)) if self.has_values else ""}
            case str():
                return x
            case Sequence():
                return [self.operand(v) for v in x]

        raise TypeError(f"{x!r} is not an operand")

    def field(self, name: str, x: object) -> Any:
        """Return a field of a struct."""
        if not self.has_values and isinstance(x, int) and _LEVELS.fullmatch(name):
            return ""

        return self.operand(x)

    def table(self, array: Array) -> dict[str, Any]:
        """Return the type of an array, and samples or statistics of its values."""
        type_ = {"type": [str(array.dtype), *array.shape]}
        if not self.has_values or not array.size:
            return type_

        # Tables with a value for each channel are sampled, weights only drawn anew.
        if array.ndim == 1:
            count = min(array.size, MAX_TABLE_VALUES)
            positions = np.linspace(0, array.size - 1, count).astype(int)
            values = array[positions].tolist()
            samples = [repr(v) if isinstance(v, float) else int(v) for v in values]
            return {**type_, "some": samples}

        wide = array.astype(np.float64)
        moments = (wide.mean(), wide.std(), wide.min(), wide.max())
        return {**type_, "like": [float(f"{moment:.6g}") for moment in moments]}


@dataclass
class _CallReader:
    """Makes calls from JSON.

    Attributes:
        rng: draws weights
        tensors: the tensors so far, by their numbers
    """

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    tensors: dict[int, Value] = field(default_factory=dict)

    def call(self, call_json: Record) -> KernelCall:
        """Return a call, with the calls that follow it."""
        operands = tuple(self.operand(x) for x in call_json["operands"])
        then = tuple(self.call(c) for c in call_json.get("then", ()))
        return KernelCall(kernel_named(call_json["kernel"]), operands, then)

    def operand(self, x: Any) -> Any:
        """Return an operand, or a field of a struct."""
        if isinstance(x, list):
            return [self.operand(v) for v in x]
        if not isinstance(x, dict):
            return x
        if "tensor" in x or "constant" in x:
            return self.pointer(x)
        if "table" in x:
            return Table(self.table(x["table"]), x["hint"])
        if "scratch" in x:
            return Scratch(x["scratch"])
        if "struct" in x:
            return self.struct(x)

        return float(x["float"])

    def pointer(self, x: dict[str, Any]) -> Pointer:
        """Return a pointer to a constant, or to a tensor."""
        if "constant" in x:
            array = self.table(x["constant"])
            type_ = TensorType(array.shape, str(array.dtype))
            return Pointer(Value("c", type_, array), x["offset"])

        number = x["tensor"]
        dtype, *shape = x["type"]
        value = Value(f"t{number}", TensorType(tuple(shape), dtype))
        return Pointer(self.tensors.setdefault(number, value), x["offset"])

    def struct(self, x: dict[str, Any]) -> CStruct:
        """Return a struct."""
        fields = {name: self.operand(value) for name, value in x["fields"].items()}
        return CStruct.registry[x["struct"]](**fields)

    def table(self, table_json: Record) -> Array:
        """Return an array like the one that was recorded."""
        dtype, *shape = table_json["type"]
        if "some" in table_json:
            samples = [
                float(v) if isinstance(v, str) else v for v in table_json["some"]
            ]

            # Each sample is repeated over its part of the channels.
            positions = np.arange(shape[0]) * len(samples) // shape[0]
            repeated: Array = np.array(samples)[positions].astype(dtype)
            return repeated

        if "like" not in table_json:
            return np.zeros(shape, dtype)

        mean, std, low, high = table_json["like"]
        drawn: Array = np.clip(self.rng.normal(mean, std, shape), low, high)
        if not dtype.startswith("float"):
            drawn = np.rint(drawn)

        return drawn.astype(dtype)
