"""Values: the tensors that operations read and write."""

from __future__ import annotations

from dataclasses import dataclass

from edgec.ir.types import Array, TensorType


@dataclass(eq=False)
class Value:
    """One tensor: a graph input, a constant, or the result of exactly one op."""

    name: str
    type: TensorType
    const: Array | None = None

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"
