"""Values: the tensors that operations read and write."""

from __future__ import annotations

from dataclasses import dataclass

from edgec.ir.types import Array, TensorType


@dataclass(eq=False)
class Value:
    """One tensor: a graph input, a constant, or the result of exactly one op.

    Attributes:
        name: unique in its graph
        type: shape, element type and quantization
        const: elements of a constant, else None
    """

    name: str
    type: TensorType
    const: Array | None = None

    def __repr__(self) -> str:
        """Return the name and the type, as in the text form."""
        return f"%{self.name}: {self.type}"
