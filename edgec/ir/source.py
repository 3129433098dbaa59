"""The operators of a model file as the file has them, before any rewrite."""

from __future__ import annotations

from dataclasses import dataclass

from edgec.ir.graph import Graph


@dataclass(frozen=True)
class SourceOperator:
    """One operator of a TFLite file, for reports about the file itself.

    Attributes:
        index: place in the file
        opcode: name of the builtin, or "CUSTOM:" and the name of the custom operator
        builtin: number in TFLite's schema
        version: of its opcode entry
        reads: indices of the tensors that it reads, without constants and absent ones
        writes: indices of the tensors that it writes
        outputs: names of these tensors
        graph: this operator alone as edgec's operations, whose inputs are what it
            reads; an operator that edgec cannot read is opaque (see ops/opaque.py)
    """

    index: int
    opcode: str
    builtin: int
    version: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    outputs: tuple[str, ...]
    graph: Graph
