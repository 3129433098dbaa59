"""How many cycles a core takes for an op by the kernels that are chosen for it: what bench-arm measured, fitted.

A file beside each core's table has cycles for each multiply-accumulate, and for each element that is written and read,
by kind of op, for bytes and for other elements (make cpu-table writes them). They stand for ops of the size that
networks have; what a call costs whatever its size is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from edgec.ir import Op
from edgec.schedule.cores import TABLES


class Rate(NamedTuple):
    """Cycles for each multiply-accumulate, element written, and element read."""

    mac: float
    written: float
    read: float


OTHER = "other"
"""In place of a kind: those that were not measured."""


def is_known(core: str) -> bool:
    """Whether a core, named as compilers do, was measured."""
    return (TABLES / f"{core}.cycles.json").is_file()


@cache
def rates(core: str) -> Mapping[tuple[str, bool], Rate]:
    """Of a core that was measured, by kind of op and whether it reads bytes."""
    found: dict[str, dict[str, list[float]]] = json.loads((TABLES / f"{core}.cycles.json").read_text())
    return {(kind, size == "bytes"): Rate(*rate) for size, kinds in found.items() for kind, rate in kinds.items()}


def cycles(op: Op, core: str) -> float:
    """Of one op, by one thread of a core that was measured. What only names bytes otherwise takes none."""
    if op.spec.view:
        return 0.0
    table, of_bytes = rates(core), op.inputs[0].type.dtype in ("int8", "uint8")
    rate = table.get((op.kind, of_bytes)) or table[OTHER, of_bytes]
    written = sum(v.type.size for v in op.outputs)
    read = sum(v.type.size for v in op.inputs if v.const is None)
    return rate.mac * op.spec.macs(op) + rate.written * written + rate.read * read
