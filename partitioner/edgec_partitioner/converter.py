"""What the usual converter would hand to the stock compiler: onnx2tf, then TFLite's
full-integer quantizer.

A model from PyTorch or ONNX has no TFLite file of its own, and the stock compiler takes
nothing else. What people give it comes from converters, which do of themselves some of
what edgec calls a rewrite for the Edge TPU. Their own pages and the logs of files that
they wrote say:

- the file's inputs and outputs are channels-last and int8: whoever runs it converts
  them (`borders`). Files that came from Keras often have uint8 ones, with a QUANTIZE
  that maps; only where the operator behind it is refused does that matter: then the
  compiler stops at once;
- a border that is not SAME is a PAD before a VALID window, of maximum pools too;
- transposes vanish into the channels-last layout, but one that stands before a reshape
  stays there (`UNDONE`);
- a clamp without a name is MAXIMUM and MINIMUM, a hard sigmoid the operations of its
  definition; a hard-swish stays HARD_SWISH, a leaky rectifier LEAKY_RELU, a GELU is
  GELU; a grouped convolution is split;
- every operation that has an int8 form gets it; versions are those of TensorFlow 2.8,
  which the compiler can read.

What a converter writes as many operators, though TFLite has none for it (instance
normalisation, grid sample), stays one operation here, which the compiler cannot map.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Graph, Op, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import Clamp
from edgec.ops.arithmetic import Maximum, Minimum
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.shape import Transpose
from edgec.ops.slice import Slice
from edgec_partitioner.legalize import legalize, odd_pads, rewrites

UNDONE = frozenset({"sink_transposes"})
"""Passes of edgec that improve the graph beyond what a converter does."""

_FLOAT = frozenset({"hard_sigmoid"})
_INT8 = frozenset({"transpose_conv_pads"})
"""Rewrites of edgec that every converter makes, or something with as many operators
that maps as well.
"""

_LAST = (0, 2, 3, 1)
_FIRST = (0, 3, 1, 2)


def float_form(graph: Graph) -> Graph:
    """Of an optimised float graph, before it is quantized."""
    made, _ = legalize(graph, exact=False, disabled=rewrites().keys() - _FLOAT)
    r = Rewriter(made)
    for op in r.ops("clamp", "conv2d"):
        _clamp(r, op) if op.kind == "clamp" else _split_groups(r, op)
    return made


def int8_form(graph: Graph) -> Graph:
    """Of a quantized graph: its operations are the operators of the converter's file,
    and the `borders`.
    """
    made, _ = legalize(graph, exact=True, disabled=rewrites().keys() - _INT8)
    r = Rewriter(made)
    for op in r.ops(*odd_pads.KINDS):
        spec = op.spec
        counted = isinstance(spec, Conv2D | DepthwiseConv2D | MaxPool2D) or (
            isinstance(spec, AveragePool2D) and spec.count_pads
        )
        if counted and spec.tflite_padding(op) is None:  # type: ignore[attr-defined]
            odd_pads.pad_apart(r, op)
    return made


def borders(graph: Graph) -> set[Op]:
    """The operations that bring the graph's float, channels-first inputs and outputs to
    those of the converter's file.

    They are not in the file: who runs it does them before and after.
    """
    inputs = set(graph.inputs)
    outputs = set(graph.outputs)
    readers = graph.users()
    found = set[Op]()
    for op in graph.ops:
        if op.inputs[0] in inputs and _converts(op, _LAST):
            found.add(op)
            inputs |= set(op.outputs)
    for op in reversed(graph.ops):
        ends = op.outputs[0] in outputs and not readers.get(op.outputs[0])
        if ends and _converts(op, _FIRST):
            found.add(op)
            outputs.add(op.inputs[0])
            readers[op.inputs[0]] = [
                user for user in readers[op.inputs[0]] if user is not op
            ]
    return found


def _converts(op: Op, perm: tuple[int, ...]) -> bool:
    return isinstance(op.spec, Quantize | Dequantize) or (
        isinstance(op.spec, Transpose) and op.spec.perm == perm
    )


def _split_groups(r: Rewriter, op: Op) -> None:
    """A grouped convolution as slices of the channels, a convolution of each, and their
    concatenation.

    onnx2tf does so on demand, and there is no other way: at the version of grouped ones
    the compiler gives up.
    """
    x, w, *bias = op.inputs
    depth = w.type.shape[3]
    groups = x.type.shape[3] // depth
    if groups == 1 or any(v.const is None for v in (w, *bias)):
        return
    parts, (o, name) = list[Value](), (w.type.shape[0] // groups, op.output.name)
    for g in range(groups):
        own = slice(g * o, (g + 1) * o)
        part = Slice((0, 0, 0, g * depth), (*x.type.shape[:3], depth), (1, 1, 1, 1))
        constants = [
            r.const(v.const[own], f"{v.name}_{g}", v.type.quant)
            for v in (w, *bias)
            if v.const is not None
        ]
        parts.append(
            r.add(
                op,
                op.spec,
                [r.add(op, part, [x], f"{name}_in{g}"), *constants],
                f"{name}_{g}",
            )
        )
    r.update(op, Concat(3), parts)


def _clamp(r: Rewriter, op: Op) -> None:
    spec = op.spec
    x = op.inputs[0]
    if not isinstance(spec, Clamp) or x.type.dtype != "float32":
        return
    if spec.low is not None and spec.high is not None:
        x = r.add(
            op,
            Maximum(),
            [x, r.const(np.array(spec.low, np.float32), f"{x.name}_low")],
            f"{op.output.name}_low",
        )
    if spec.high is not None:
        r.update(
            op,
            Minimum(),
            [x, r.const(np.array(spec.high, np.float32), f"{op.output.name}_high")],
        )
    elif spec.low is not None:
        r.update(
            op,
            Maximum(),
            [x, r.const(np.array(spec.low, np.float32), f"{op.output.name}_low")],
        )
