"""Precision: named operations stay in float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

from edgec.errors import InputError, did_you_mean
from edgec.ir import Op
from edgec.quantize.change.channel_groups import whole
from edgec.quantize.change.state import QuantizationState

FLOAT = "float"
"""The precision of an operation that does not become int8."""


@dataclass(frozen=True)
class Precision:
    """Keep operations in float32, between conversions.

    Attributes:
        floats: the names of their nodes or results, as the model's file or
            `edgec explain` has them; with * and ? for any characters.
    """

    floats: tuple[str, ...] = ()
    name: ClassVar[str] = "precision"
    changes: ClassVar[str] = "precision"

    def run(self, state: QuantizationState) -> None:
        """Set the precision of the named operations.

        Raises InputError for a name without an operation.
        """
        precision: dict[Op, str] = {}
        for text in self.floats:
            named = _named(state.graph.ops, text)
            if not named:
                known = [name for op in state.graph.ops for name in _names(op)]
                what = f"no operation is called {text}{did_you_mean(text, known)}"
                raise InputError(
                    what,
                    "--float-ops",
                    "edgec explain lists operations and the nodes that they are from",
                )
            precision |= dict.fromkeys(named, FLOAT)
        state.precision = precision


def _named(ops: Sequence[Op], text: str) -> list[Op]:
    """Return the operations of a name.

    A result of exactly this name goes before nodes of this name, and these before
    patterns: a name may hold the characters * and ? itself.
    """
    writing = [op for op in ops if text in _result_names(op)]
    if writing:
        return writing

    from_node = [op for op in ops if text in _names(op)]
    if from_node:
        return from_node

    return [op for op in ops if any(fnmatchcase(name, text) for name in _names(op))]


def _names(op: Op) -> list[str]:
    """Return the names of an operation's results, and of the nodes that it came from."""
    names = _result_names(op)
    if op.source:
        # Nodes that were fused are joined by a plus.
        names += [op.source, *op.source.split("+")]
    return names


def _result_names(op: Op) -> list[str]:
    """Return the names of the results, also as they were before channels were split."""
    names = []
    for v in op.outputs:
        names += [v.name, whole(v.name)]
    return names


STEP = Precision
