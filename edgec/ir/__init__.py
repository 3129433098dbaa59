"""The intermediate representation: typed SSA graphs, their text form, their checks and
their reference interpreter.
"""

from edgec.ir.build import Builder
from edgec.ir.c_struct import CStruct, Table
from edgec.ir.channel_flow import ChannelFlow
from edgec.ir.graph import Graph, State
from edgec.ir.interp import Calls, Observe, Run, fold, interp
from edgec.ir.kernel import (
    PART,
    PARTS,
    Elementwise,
    Kernel,
    KernelCall,
    KernelFamily,
    KernelRounding,
    Pointer,
    Scratch,
    Share,
    constant,
)
from edgec.ir.opdef import (
    Op,
    OpDef,
    QuantRule,
    Refusal,
    Sample,
    TfliteCode,
    Uncertain,
    Versions,
    edgetpu_rule,
)
from edgec.ir.reading import OnnxNode, TfliteOp
from edgec.ir.rounding import Rounding
from edgec.ir.text import parse, print_graph
from edgec.ir.types import Array, Quant, TensorType
from edgec.ir.value import Value
from edgec.ir.verify import verify

__all__ = [
    "PART",
    "PARTS",
    "Array",
    "Builder",
    "CStruct",
    "Calls",
    "ChannelFlow",
    "Elementwise",
    "Graph",
    "Kernel",
    "KernelCall",
    "KernelFamily",
    "KernelRounding",
    "Observe",
    "OnnxNode",
    "Op",
    "OpDef",
    "Pointer",
    "Quant",
    "QuantRule",
    "Refusal",
    "Rounding",
    "Run",
    "Sample",
    "Scratch",
    "Share",
    "State",
    "Table",
    "TensorType",
    "TfliteCode",
    "TfliteOp",
    "Uncertain",
    "Value",
    "Versions",
    "constant",
    "edgetpu_rule",
    "fold",
    "interp",
    "parse",
    "print_graph",
    "verify",
]
