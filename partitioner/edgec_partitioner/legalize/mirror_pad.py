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

from edgec.ir import Builder, Graph, Op, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.concat import Concat
from edgec.ops.pad import Pad
from edgec.ops.slice import slice_axes
from edgec_partitioner.legalize._examples import (
    choice,
    int8_input,
    integer,
    integers,
    random_quant,
    relu,
    with_output,
)

OPS = (Pad,)
BOUND = 0.0

MAX_BORDER = 4
"""A wider border takes more slices than a transfer costs."""


def rewrite(r: Rewriter, op: Op, spec: Pad) -> bool:
    """Join the image with rows of its border, one axis after the other."""
    x = op.inputs[0]
    if spec.mode == "constant":
        return False
    if x.type.quant != op.output.type.quant:
        return False

    # Images of a batch are not padded.
    if any(map(any, spec.pads[:-3])):
        return False
    widest = max(max(pads) for pads in spec.pads)
    if widest > MAX_BORDER:
        return False

    for axis, pads in enumerate(spec.pads):
        if any(pads):
            x = _pad_axis(r, op, x, axis, spec)
    return r.forward(op, x)


def _pad_axis(r: Rewriter, op: Op, x: Value, axis: int, spec: Pad) -> Value:
    """Return `x` with its border along one axis.

    numpy.pad gives the source row of each row; consecutive rows become one slice.
    """
    size = x.type.shape[axis]
    pads = spec.pads[axis]
    rows = np.pad(np.arange(size), pads, mode=spec.mode)  # type: ignore[call-overload]
    steps = np.diff(rows)
    breaks = np.flatnonzero(steps != 1) + 1

    parts: list[Value] = []
    for run in np.split(rows, breaks):
        # The run of all rows is the image itself.
        if len(run) == size:
            parts.append(x)
            continue
        # Backward runs are single rows, as a slice has steps of 1 only.
        first = int(run[0])
        cut = slice_axes(x.type, {axis: (first, len(run), 1)})
        part = r.add(op, cut, [x], f"{x.name}_row")
        parts.append(part)

    if len(parts) == 1:
        return parts[0]
    name = f"{op.output.name}_axis{axis}"
    return r.add(op, Concat(axis), parts, name)


def example(rng: np.random.Generator) -> Graph:
    """Return a pad of any mode on any of height, width and channels."""
    build = Builder("mirror_pad")
    q = random_quant(rng, 0.1)
    sizes = integers(rng, 2, 7, 3)
    x = int8_input(build, (1, *sizes), q)
    mode = choice(rng, ["reflect", "symmetric", "edge", "wrap"])

    # A reflection does not repeat the edge: it has one row less to offer.
    pads: list[tuple[int, int]] = []
    for size in sizes:
        available = size
        if mode == "reflect":
            available -= 1
        widest = min(MAX_BORDER, available)
        before = integer(rng, 0, widest + 1)
        after = integer(rng, 0, widest + 1)
        pads.append((before, after))

    # At least one axis has a border.
    padded_axis = rng.integers(3)
    pads[padded_axis] = (1, 0)

    spec = Pad(((0, 0), *pads), mode)
    padded = build.add(spec, [relu(build, x)])
    y = relu(build, padded)
    return with_output(build, y)
