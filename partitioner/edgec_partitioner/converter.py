"""The file that the usual converter would give to the stock compiler.

That converter is onnx2tf, then TFLite's full-integer quantizer.

A model from PyTorch or ONNX has no TFLite file of its own, and the stock compiler takes
nothing else. People give it files from converters, and converters make some of the
rewrites that edgec makes for the Edge TPU. Their own pages and the logs of files that
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

An operation that a converter writes as many operators, since TFLite has none for it
(instance normalisation, grid sample), stays one operation here, and the compiler cannot
map it.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Graph, Op, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.activation import Clamp
from edgec.ops.arithmetic import Maximum, Minimum
from edgec.ops.concat import Concat
from edgec.ops.pool import AveragePool2D
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.shape import Transpose
from edgec.ops.slice import Slice
from edgec_partitioner.legalize import legalize, odd_pads, rewrites

UNDONE = frozenset({"sink_transposes"})
"""Passes of edgec that improve the graph beyond what a converter does."""

_FLOAT = frozenset({"hard_sigmoid"})
_INT8 = frozenset({"transpose_conv_pads"})
"""Rewrites of edgec that every converter makes, or an equivalent with as many operators
that maps as well.
"""

_TO_CHANNELS_LAST = (0, 2, 3, 1)
_TO_CHANNELS_FIRST = (0, 3, 1, 2)


def float_form(graph: Graph) -> Graph:
    """Return the converter's form of an optimised float graph.

    It is not quantized yet.
    """
    disabled = rewrites().keys() - _FLOAT
    result, _ = legalize(graph, exact=False, disabled=disabled)
    r = Rewriter(result)
    for op in r.ops("clamp", "conv2d"):
        if op.kind == "clamp":
            _clamp(r, op)
        else:
            _split_groups(r, op)
    return result


def int8_form(graph: Graph) -> Graph:
    """Return the converter's form of a quantized graph.

    Its operations are the operators of the converter's file, and the `borders`.
    """
    disabled = rewrites().keys() - _INT8
    result, _ = legalize(graph, exact=True, disabled=disabled)
    r = Rewriter(result)
    for op in r.ops():
        spec = op.spec
        if not isinstance(spec, odd_pads.OPS):
            continue
        # A PAD is not the same where the mean leaves its zeros out.
        leaves_out = isinstance(spec, AveragePool2D) and not spec.count_pads
        if not leaves_out and spec.tflite_padding(op) is None:
            odd_pads.pad_apart(r, op, spec)
    return result


def borders(graph: Graph) -> set[Op]:
    """Return the operations that convert inputs and outputs for the converter's file.

    The graph has float, channels-first ones. These operations are not in the file: its
    user does them before and after.
    """
    return _input_conversions(graph) | _output_conversions(graph)


def _input_conversions(graph: Graph) -> set[Op]:
    """Return the conversions between the inputs and the first other ops."""
    inputs = set(graph.inputs)
    conversions: set[Op] = set()
    for op in graph.ops:
        if op.inputs[0] in inputs and _converts(op, _TO_CHANNELS_LAST):
            conversions.add(op)
            # Another conversion may follow.
            inputs.update(op.outputs)
    return conversions


def _output_conversions(graph: Graph) -> set[Op]:
    """Return the conversions between the last other ops and the outputs.

    A conversion of a value that another op reads too is in the file.
    """
    outputs = set(graph.outputs)
    users = graph.users()
    conversions: set[Op] = set()
    for op in reversed(graph.ops):
        x = op.inputs[0]
        y = op.outputs[0]
        # A further user needs the converted value inside of the file.
        if y not in outputs or users.get(y):
            continue
        if _converts(op, _TO_CHANNELS_FIRST):
            conversions.add(op)
            outputs.add(x)
            users[x] = [user for user in users[x] if user is not op]
    return conversions


def _converts(op: Op, perm: tuple[int, ...]) -> bool:
    """Return whether `op` changes the type of a tensor, or permutes it by `perm`."""
    if isinstance(op.spec, Transpose):
        return op.spec.perm == perm
    return isinstance(op.spec, Quantize | Dequantize)


def _split_groups(r: Rewriter, op: Op) -> None:
    """Rewrite a grouped convolution as a convolution of each slice of the channels.

    A concatenation follows. onnx2tf does so on demand, and there is no other way: at
    the version of grouped convolutions the compiler gives up.
    """
    x, w, *bias = op.inputs
    depth = w.type.shape[3]
    groups = x.type.shape[3] // depth
    if groups == 1 or any(v.const is None for v in (w, *bias)):
        return
    parts = [_group(r, op, i, groups) for i in range(groups)]
    r.update(op, Concat(3), parts)


def _group(r: Rewriter, op: Op, i: int, groups: int) -> Value:
    """Return the result of group `i` of a grouped convolution."""
    x, w, *bias = op.inputs
    depth = w.type.shape[3]
    outputs = w.type.shape[0] // groups
    # Each group has its own filters and reads its own channels.
    rows = slice(i * outputs, (i + 1) * outputs)

    inputs: list[Value] = []
    for v in (w, *bias):
        if v.const is not None:
            inputs.append(r.const(v.const[rows], f"{v.name}_{i}", v.type.quant))
    name = op.output.name
    begin = (0, 0, 0, i * depth)
    cut = Slice(begin, (*x.type.shape[:3], depth), (1, 1, 1, 1))
    channels = r.add(op, cut, [x], f"{name}_in{i}")
    return r.add(op, op.spec, [channels, *inputs], f"{name}_{i}")


def _clamp(r: Rewriter, op: Op) -> None:
    """Rewrite a float clamp as MAXIMUM, MINIMUM or both."""
    spec = op.spec
    x = op.inputs[0]
    name = op.output.name
    if not isinstance(spec, Clamp) or x.type.dtype != "float32":
        return
    # MAXIMUM comes first; a single bound replaces the clamp itself.
    if spec.low is not None and spec.high is not None:
        low = r.const(np.array(spec.low, np.float32), f"{x.name}_low")
        x = r.add(op, Maximum(), [x, low], f"{name}_low")
    if spec.high is not None:
        high = r.const(np.array(spec.high, np.float32), f"{name}_high")
        r.update(op, Minimum(), [x, high])
    elif spec.low is not None:
        low = r.const(np.array(spec.low, np.float32), f"{name}_low")
        r.update(op, Maximum(), [x, low])
