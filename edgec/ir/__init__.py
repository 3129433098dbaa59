"""The intermediate representation: typed SSA graphs, their text form, their checks and their numpy meaning."""

from edgec.ir.build import Builder
from edgec.ir.graph import Graph, Op, Value
from edgec.ir.interp import fold, interp
from edgec.ir.opdef import (
    CEmitter,
    OnnxNode,
    OpDef,
    QuantRule,
    Refusal,
    Sample,
    TfliteCode,
    TfliteOp,
    Uncertain,
    Versions,
    edgetpu_rule,
)
from edgec.ir.text import parse, print_graph
from edgec.ir.types import Array, Quant, TensorType
from edgec.ir.verify import verify

__all__ = [
    "Array",
    "Builder",
    "CEmitter",
    "Graph",
    "OnnxNode",
    "Op",
    "OpDef",
    "Quant",
    "QuantRule",
    "Refusal",
    "Sample",
    "TensorType",
    "TfliteCode",
    "TfliteOp",
    "Uncertain",
    "Value",
    "Versions",
    "edgetpu_rule",
    "fold",
    "interp",
    "parse",
    "print_graph",
    "verify",
]
