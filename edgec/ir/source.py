"""The operators of a model file as the file has them, before anything is optimised or
rewritten.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgec.ir.graph import Graph


@dataclass(frozen=True)
class SourceOperator:
    """One operator of a TFLite file, for those who judge the file as it is.

    index: its place in the file. opcode: the builtin's name, or "CUSTOM:" and the
    custom one's. builtin: its number in TFLite's schema. version: of its opcode entry.
    reads: the tensors that it reads, by index, without constants and absent ones.
    writes: the tensors that it writes. outputs: their names. graph: what this operator
    alone means, as edgec's operations; its inputs are what the operator reads. What
    edgec cannot read is opaque (see ops/opaque.py).
    """

    index: int
    opcode: str
    builtin: int
    version: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    outputs: tuple[str, ...]
    graph: Graph
