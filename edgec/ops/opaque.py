"""The stand-in for an operator that edgec cannot read: only its types are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.errors import UnsupportedError
from edgec.ir import (
    Array,
    KernelCall,
    Op,
    OpDef,
    Sample,
    TensorType,
    Versions,
    edgetpu_rule,
)


@dataclass(frozen=True)
class Opaque(OpDef):
    """An operator of a model file that edgec cannot read.

    It stands in the graphs that `explain` looks at, never in one that is compiled:
    front-ends make it on demand alone.

    Attributes:
        name: of the operator in its file format
        why: reason for which it cannot be read
        types: (element type, shape) of each output
    """

    name: str
    why: str
    types: tuple[tuple[str, tuple[int, ...]], ...]

    kind = "opaque"
    opaque: ClassVar[bool] = True
    edgetpu: ClassVar[bool] = True
    edgetpu_versions = {"UNIDIRECTIONAL_SEQUENCE_LSTM": Versions(1)}

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the declared types."""
        return tuple(TensorType(shape, dtype) for dtype, shape in self.types)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Return zeros, so that the scales of the other tensors can be made up."""
        return [np.zeros(t.shape, t.np_dtype) for t in yt]

    def c(self, op: Op) -> KernelCall:
        """Raise UnsupportedError: there is no kernel."""
        raise UnsupportedError(
            f"edgec cannot compile the operator {self.name}",
            op.source,
            "see docs/supported-ops.md",
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield nothing: the elements of the result are unknown."""
        return iter(())

    @edgetpu_rule(fix="export the model without it, and do its work on the raw outputs")
    def _unread_operator(self, op: Op) -> str | None:
        """An operator that edgec cannot read maps only if it is a
        UNIDIRECTIONAL_SEQUENCE_LSTM.
        """
        # The Edge TPU has this operator, whatever edgec makes of it.
        return None if self.name in self.edgetpu_versions else self.why
