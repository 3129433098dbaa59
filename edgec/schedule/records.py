"""Kernel calls put down as JSON: to be told apart, and made again where the model's
file is not.
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
from edgec.ir.c_struct import python_name
from edgec.ir.kernel import kernel_named

Record = Mapping[str, Any]
"""A call as JSON's own types."""

_KEPT = 16
"""Values of a one-dimensional table that a record has: those of the same places of
each, so that what belongs to a channel stays together.
"""

_LEVELS = re.compile(r"([xyab]_)?zero|low|high|([xyab]_)?(mul|multiplier|shift|bits)")
"""Fields that say where numbers lie, not how many there are: no schedule is better for
one than for another.
"""


def record(call: KernelCall) -> Record:
    """A call; of its constant arrays their types, and so much of their values that
    others like them can be made.
    """
    return _CallWriter(values=True).call(call)


def signature(call: KernelCall) -> str:
    """The same for all calls that want the same of a core: the plain kernel, and a hash
    of its sizes and types.
    """
    text = json.dumps(_CallWriter(values=False).call(call), sort_keys=True)
    kernels = "+".join(c.kernel.name for c in (call, *call.then))
    return f"{kernels}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def again(made: Record) -> KernelCall:
    """The call of a record, with constants like those that it had, always the same.

    Raises KeyError, TypeError or ValueError for what is none.
    """
    return _CallReader().call(made)


@dataclass
class _CallWriter:
    """values: whether what schedules do not depend on is written too."""

    values: bool
    known: dict[Value, int] = field(default_factory=dict)

    def call(self, call: KernelCall) -> dict[str, Any]:
        then = {"then": [self.call(c) for c in call.then]} if call.then else {}
        return {
            "kernel": call.kernel.name,
            "operands": [self.operand(x) for x in call.operands],
            **then,
        }

    def operand(self, x: object) -> Any:
        match x:
            case Pointer() if x.value.const is not None:
                return {"constant": self.table(x.value.const), "offset": x.offset}
            case Pointer():
                at = self.known.setdefault(x.value, len(self.known))
                return {
                    "tensor": at,
                    "type": [x.value.type.dtype, *x.value.type.shape],
                    "offset": x.offset,
                }
            case Table():
                return {
                    "table": self.table(x.array),
                    **({"hint": x.hint} if self.values else {}),
                }
            case Kernel():
                return x.name
            case Scratch():
                return {"scratch": x.nbytes}
            case CStruct():
                return {
                    "struct": x.ctype,
                    "fields": {n: self.field(n, v) for n, v in x.given().items()},
                }
            case bool() | np.bool_() | int() | np.integer():
                return int(x)
            case float() | np.floating():
                return {"float": repr(float(x)) if self.values else ""}
            case str():
                return x
            case Sequence():
                return [self.operand(v) for v in x]
        raise TypeError(f"{x!r} is no operand")

    def field(self, name: str, x: object) -> Any:
        if not self.values and isinstance(x, int) and _LEVELS.fullmatch(name):
            return ""
        return self.operand(x)

    def table(self, array: Array) -> dict[str, Any]:
        kind = {"type": [str(array.dtype), *array.shape]}
        if not self.values or not array.size:
            return kind
        if array.ndim == 1:
            picked = array[
                np.linspace(0, array.size - 1, min(array.size, _KEPT)).astype(int)
            ]
            return {
                **kind,
                "some": [
                    repr(v) if isinstance(v, float) else int(v) for v in picked.tolist()
                ],
            }
        wide = array.astype(np.float64)
        return {
            **kind,
            "like": [
                float(f"{n:.6g}")
                for n in (wide.mean(), wide.std(), wide.min(), wide.max())
            ],
        }


@dataclass
class _CallReader:
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    known: dict[int, Value] = field(default_factory=dict)

    def call(self, made: Record) -> KernelCall:
        operands = tuple(self.operand(x) for x in made["operands"])
        return KernelCall(
            kernel_named(made["kernel"]),
            operands,
            tuple(self.call(c) for c in made.get("then", ())),
        )

    def operand(self, x: Any) -> Any:
        if isinstance(x, list):
            return [self.operand(v) for v in x]
        if not isinstance(x, dict):
            return x
        if "tensor" in x:
            dtype, *shape = x["type"]
            kind = TensorType(tuple(shape), dtype)
            return Pointer(
                self.known.setdefault(x["tensor"], Value(f"t{x['tensor']}", kind)),
                x["offset"],
            )
        if "constant" in x:
            array = self.table(x["constant"])
            return Pointer(
                Value("c", TensorType(array.shape, str(array.dtype)), array),
                x["offset"],
            )
        if "table" in x:
            return Table(self.table(x["table"]), x["hint"])
        if "scratch" in x:
            return Scratch(x["scratch"])
        if "struct" in x:
            fields = {
                python_name(name): self.operand(v) for name, v in x["fields"].items()
            }
            return CStruct.registry[x["struct"]](**fields)
        return float(x["float"])

    def table(self, made: Record) -> Array:
        dtype, *shape = made["type"]
        if "some" in made:
            some = np.array(
                [float(v) if isinstance(v, str) else v for v in made["some"]]
            )
            spread: Array = some[np.arange(shape[0]) * len(some) // shape[0]].astype(
                dtype
            )
            return spread
        if "like" not in made:
            return np.zeros(shape, dtype)
        mean, std, low, high = made["like"]
        drawn: Array = np.clip(self.rng.normal(mean, std, shape), low, high)
        drawn = drawn if dtype.startswith("float") else np.rint(drawn)
        return drawn.astype(dtype)
