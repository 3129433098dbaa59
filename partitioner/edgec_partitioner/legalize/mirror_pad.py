"""A border that repeats the image becomes a concatenation of its rows and columns.

Pattern: a PAD that mirrors, repeats the edge or wraps around, of at most 4 elements on
each side, not over the batch. Replacement: for each padded axis, unit-step SLICEs of
the rows of the border, one row each where they run backwards, and a CONCATENATION with
the image. Proof: no element changes, and axes are padded one after the other as the
definition has it. Pays inside of an Edge TPU region; a wider border takes more slices
than a transfer costs.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, OpDef, Quant, TensorType
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.pad import Pad
from edgec.ops.slice import slice_axes
from edgec.ops.unary import Relu

KINDS = ("pad",)
BOUND = 0.0

_WIDEST = 4


def rewrite(r: Rewriter, op: Op) -> bool:
    """One axis after the other."""
    spec = op.spec
    x = op.inputs[0]
    if (
        not isinstance(spec, Pad)
        or spec.mode == "constant"
        or x.type.quant != op.output.type.quant
    ):
        return False
    if (
        any(map(any, spec.pads[:-3]))
        or max(p for pads in spec.pads for p in pads) > _WIDEST
    ):
        return False
    for axis, pads in enumerate(spec.pads):
        if any(pads):
            places = np.pad(np.arange(x.type.shape[axis]), pads, mode=spec.mode)  # type: ignore[call-overload]
            runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
            parts = [
                x
                if len(run) == x.type.shape[axis]
                else r.add(op, _taken(x.type, axis, run), [x], f"{x.name}_row")
                for run in runs
            ]
            if len(parts) > 1:
                x = r.add(op, Concat(axis), parts, f"{op.output.name}_axis{axis}")
            else:
                x = parts[0]
    return r.forward(op, x)


def _taken(x: TensorType, axis: int, run: Array) -> OpDef:
    return slice_axes(x, {axis: (int(run[0]), len(run), 1)})


def example(rng: np.random.Generator) -> Graph:
    """Every mode on any of height, width and channels."""
    build = Builder("mirror_pad")
    q = Quant.per_tensor(0.1, int(rng.integers(-128, 128)))
    x = build.input("x", TensorType((1, *map(int, rng.integers(2, 7, 3))), "int8", q))
    mode = str(rng.choice(["reflect", "symmetric", "edge", "wrap"]))
    top = [min(_WIDEST, d - (mode == "reflect")) for d in x.type.shape[1:]]
    pads = [(int(rng.integers(0, n + 1)), int(rng.integers(0, n + 1))) for n in top]
    pads[rng.integers(3)] = (1, 0)
    padded = build.add(Pad(((0, 0), *pads), mode), [build.add(Relu(), [x], quant=q)])
    build.graph.outputs = [build.add(Relu(), [padded], quant=q)]
    return build.graph
