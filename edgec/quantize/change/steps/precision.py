"""Precision per op: those that int8 hurts are left in float32."""

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


@dataclass(frozen=True)
class Precision:
    """The ops of these names stay float32, between conversions.

    floats: of nodes or of results as the model's file, or `edgec explain`, has them;
    with * and ? for any characters.
    """

    floats: tuple[str, ...] = ()
    name: ClassVar[str] = "precision"
    changes: ClassVar[str] = "precision"

    def run(self, work: QuantizationState) -> None:
        """Raises InputError for a name that no op has."""
        found: dict[Op, str] = {}
        for text in self.floats:
            named = _called(work.graph.ops, text)
            if not named:
                known = [name for op in work.graph.ops for name in _names(op)]
                what = f"no operation is called {text}{did_you_mean(text, known)}"
                raise InputError(
                    what,
                    "--float-ops",
                    "edgec explain lists operations and the nodes that they are from",
                )
            found |= dict.fromkeys(named, FLOAT)
        work.precision = found


def _called(ops: Sequence[Op], text: str) -> list[Op]:
    """Those that write a result of this name; else those from a node of this name; else
    those of names like it.
    """
    writing = [
        op for op in ops if any(text in (v.name, whole(v.name)) for v in op.outputs)
    ]
    exact = writing or [op for op in ops if text in _names(op)]
    return exact or [
        op for op in ops if any(fnmatchcase(name, text) for name in _names(op))
    ]


def _names(op: Op) -> list[str]:
    """Of its results, also before `separate` parted them, and of the nodes that it came
    from: all of them, and each.
    """
    return [
        *(name for v in op.outputs for name in (v.name, whole(v.name))),
        *([op.source, *op.source.split("+")] if op.source else []),
    ]


STEP = Precision
