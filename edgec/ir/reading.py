"""A node of a model file, as the op that reads it sees it: its attributes, its values,
and a builder for its graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgec.ir.attributes import Attributes, TfliteOptions
from edgec.ir.build import Builder
from edgec.ir.types import Array, TensorType
from edgec.ir.value import Value


class ComputedError(ValueError):
    """A value hangs on the model's inputs where edgec needs a constant."""

    def __init__(self, what: str, *values: Value) -> None:
        names = ", ".join(v.name for v in values)
        super().__init__(
            f"{what} ({names}) is computed at run time; edgec needs it to be constant"
        )
        self.values = values
        self.inputs: frozenset[str] = frozenset()
        """The model's inputs that they hang on, once a reader has found them."""


@dataclass
class OnnxNode:
    """An ONNX node as `from_onnx` sees it: attributes decoded to Python, absent
    optional inputs None.

    uint8: the quantized values that are int8 here and uint8 in the file; readers that
    make such values add them.
    """

    op_type: str
    name: str
    attrs: Attributes
    inputs: list[Value | None]
    n_outputs: int
    opset: int
    build: Builder
    uint8: set[Value] = field(default_factory=set)

    def input(self, i: int) -> Value:
        """A required input."""
        value = self.inputs[i] if i < len(self.inputs) else None
        if value is None:
            raise ValueError(f"input {i} is missing")
        return value

    def optional(self, i: int) -> Value | None:
        """An optional input."""
        return self.inputs[i] if i < len(self.inputs) else None

    def const(self, i: int) -> Array | None:
        """The constant given as input `i`, None when the input is absent; a computed
        value is refused.
        """
        value = self.optional(i)
        if value is None:
            return None
        if value.const is None:
            raise ComputedError(f"input {i}", value)
        return value.const


@dataclass
class TfliteOp:
    """A TFLite operator as `from_tflite` sees it: `options` are the fields of the
    schema's table (None when the file has none), of a custom operator its bytes.

    Its values are int8 where the file has quantized uint8; `uint8` tells that the
    file's operator has such a tensor. kept: its inputs that are variables, each with
    what it is at the next call; `from_tflite` says so. intermediates: types of what its
    kernel computes on the way.
    """

    name: str
    options: Any
    version: int
    inputs: list[Value | None]
    outputs: list[Value]
    build: Builder
    uint8: bool = False
    kept: dict[Value, Value] = field(default_factory=dict)
    intermediates: tuple[TensorType, ...] = ()

    def input(self, i: int) -> Value:
        """A required input."""
        value = self.inputs[i] if i < len(self.inputs) else None
        if value is None:
            raise ValueError(f"input {i} is missing")
        return value

    def const(self, i: int) -> Array:
        """The constant given as input `i`."""
        value = self.input(i)
        if value.const is None:
            raise ComputedError(f"input {i}", value)
        return value.const

    def ignore(self, *fields: str) -> None:
        """Let these fields of the options be whatever they are: they have no effect
        here.
        """
        if isinstance(self.options, TfliteOptions):
            self.options.ignore(*fields)

    def present(self) -> list[Value]:
        """The inputs that are there."""
        return [v for v in self.inputs if v is not None]
