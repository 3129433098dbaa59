"""A node of a model file, as the op that reads it sees it: its attributes, its values,
and a builder for the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgec.ir.attributes import Attributes, TfliteOptions
from edgec.ir.build import Builder
from edgec.ir.rounding import Rounding
from edgec.ir.types import Array, TensorType
from edgec.ir.value import Value


class ComputedError(ValueError):
    """A value depends on the model's inputs where edgec needs a constant."""

    def __init__(self, what: str, *values: Value) -> None:
        """Report `what`, which is one of `values`."""
        names = ", ".join(v.name for v in values)
        super().__init__(
            f"{what} ({names}) is computed at run time; edgec needs it to be constant"
        )
        self.values = values
        self.inputs: frozenset[str] = frozenset()
        """Names of the model's inputs that the values depend on; a reader sets them."""


@dataclass
class OnnxNode:
    """An ONNX node as `from_onnx` sees it.

    Attributes:
        op_type: name of the ONNX operator
        name: base name of the values it becomes
        attrs: attributes decoded to Python
        inputs: None for absent optional ones
        n_outputs: number of outputs that the file names
        opset: version of the operator set
        build: builder of the graph
        uint8: quantized values that are int8 here and uint8 in the file; readers that
            make such values add them
        four_bit: constants and inputs of 8 bits here and four in the file
    """

    op_type: str
    name: str
    attrs: Attributes
    inputs: list[Value | None]
    n_outputs: int
    opset: int
    build: Builder
    uint8: set[Value] = field(default_factory=set)
    four_bit: set[Value] = field(default_factory=set)

    def input(self, i: int) -> Value:
        """Return a required input; raises ValueError when it is absent."""
        value = self.optional(i)
        if value is None:
            raise ValueError(f"input {i} is missing")
        return value

    def optional(self, i: int) -> Value | None:
        """Return an optional input, None when it is absent."""
        return self.inputs[i] if i < len(self.inputs) else None

    def const(self, i: int) -> Array | None:
        """Return the elements of input `i`, None when it is absent.

        Raises ComputedError when it is no constant.
        """
        value = self.optional(i)
        if value is None:
            return None

        if value.const is None:
            raise ComputedError(f"input {i}", value)

        return value.const


@dataclass
class TfliteOp:
    """A TFLite operator as `from_tflite` sees it.

    Its values are int8 where the file has quantized uint8.

    Attributes:
        name: of the builtin, or "custom" and the name of the custom operator
        options: fields of the schema's table, None without one; bytes of a custom
            operator
        version: of its opcode entry
        inputs: None for absent optional ones
        outputs: declared outputs, which `from_tflite` writes
        build: builder of the graph
        uint8: whether an operand of the file's operator is quantized uint8
        kept: inputs that are variables, each with its value at the next call;
            `from_tflite` sets them
        intermediates: types of the tensors that the kernel computes on the way
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

    @property
    def rounding(self) -> Rounding:
        """The arithmetic of TFLite's kernel for the operands of the file."""
        return Rounding.of_tflite(self.uint8)

    def input(self, i: int) -> Value:
        """Return a required input; raises ValueError when it is absent."""
        value = self.inputs[i] if i < len(self.inputs) else None
        if value is None:
            raise ValueError(f"input {i} is missing")
        return value

    def const(self, i: int) -> Array:
        """Return the elements of input `i`.

        Raises ComputedError when it is no constant, ValueError when it is absent.
        """
        value = self.input(i)
        if value.const is None:
            raise ComputedError(f"input {i}", value)

        return value.const

    def ignore(self, *fields: str) -> None:
        """Record fields of the options as read: they have no effect here."""
        if isinstance(self.options, TfliteOptions):
            self.options.ignore(*fields)

    def present(self) -> list[Value]:
        """Return the inputs that are not absent."""
        return [v for v in self.inputs if v is not None]
