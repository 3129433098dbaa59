"""A constant joined to computed tensors becomes a border of zeros, and what it holds is
added.

Pattern: a CONCATENATION of computed and constant tensors of one scale, not over the
batch. Condition: the constants are zero, or they are joined as channels and the same
for every pixel. Replacement: PADs beside the computed tensors, their CONCATENATION if
there are several, and the ADD of a vector of channels if a constant is not zero. Proof:
PAD fills in the zero point z. ADD of equal scales multiplies by 1/2, 1/2 and 2 in
TFLite's fixed point, all exact, so it gives (x - z) + (c - z) + z: c in the border,
where x = z, and x elsewhere, where c = z. Pays inside of an Edge TPU region.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, Quant, TensorType, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.binary import Add
from edgec.ops.concat import Concat
from edgec.ops.pad import Pad
from edgec.ops.unary import Relu
from edgec_partitioner.legalize._moves import whole

KINDS = ("concat",)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op) -> bool:
    """Pad, join, add."""
    spec = op.spec
    y = op.output.type
    if (
        not isinstance(spec, Concat)
        or not whole(y)
        or any(v.type.quant != y.quant for v in op.inputs)
    ):
        return False
    added = _vector(op, spec.axis)
    computed = [v for v in op.inputs if v.const is None]
    if added is None or len(computed) in (0, len(op.inputs)) or spec.axis < y.rank - 3:
        return False
    joined = _padded(r, op, spec.axis)
    if len(joined) == 1:
        x = joined[0]
    else:
        x = r.add(op, spec, joined, f"{op.output.name}_joined", y.quant)
    if (added == y.zero_point).all():
        return r.forward(op, x)
    r.update(op, Add(), [x, r.const(added, f"{op.output.name}_constants", y.quant)])
    return True


def _vector(op: Op, axis: int) -> Array | None:
    """What the constants hold along the axis, the zero point for all else; None when
    they differ on other axes.
    """
    zero = op.output.type.zero_point
    parts = list[Array]()
    for v in op.inputs:
        rows = np.full((v.type.shape[axis], 1), zero, np.int8)
        if v.const is not None:
            rows = np.moveaxis(v.const, axis, 0).reshape(len(rows), -1)
            if (rows != rows[:, :1]).any() or (
                (rows != zero).any() and axis != op.output.type.rank - 1
            ):
                return None
        parts.append(rows[:, 0])
    return np.concatenate(parts)


def _padded(r: Rewriter, op: Op, axis: int) -> list[Value]:
    """The computed tensors, with borders where a constant was: before them, or behind
    the last.
    """
    found = list[Value]()
    before = 0
    last = max(i for i, v in enumerate(op.inputs) if v.const is None)
    behind = sum(v.type.shape[axis] for v in op.inputs[last + 1 :])
    for i, v in enumerate(op.inputs[: last + 1]):
        if v.const is not None:
            before += v.type.shape[axis]
            continue
        border = (before, behind if i == last else 0)
        pads = tuple(border if a == axis else (0, 0) for a in range(v.type.rank))
        found.append(
            r.add(op, Pad(pads), [v], f"{v.name}_padded", v.type.quant)
            if any(border)
            else v
        )
        before = 0
    return found


def example(rng: np.random.Generator) -> Graph:
    """Constants before, between and behind: of channels with any elements, of rows and
    columns with zeros.
    """
    build = Builder("concat_constant")
    q = Quant.per_tensor(0.1, int(rng.integers(-128, 128)))
    shape = [1, *map(int, rng.integers(1, 6, 3))]
    axis = int(rng.integers(1, 4))
    zeros = axis != 3 or rng.random() < 0.3
    x = [
        _sized(build, f"x{i}", shape, axis, q, rng)
        for i in range(int(rng.integers(1, 4)))
    ]
    parts: list[Value] = [build.add(Relu(), [v], quant=q) for v in x]
    for i in range(2 if zeros else int(rng.integers(1, 3))):
        size = int(rng.integers(1, 4))
        if zeros:
            held = np.full(size, q.zero_point[0])
        else:
            held = rng.integers(-128, 128, size)
        if not zeros and i == 0:
            held[0] = -128 if q.zero_point[0] >= 0 else 127
        array = np.broadcast_to(
            held.reshape([-1 if a == axis else 1 for a in range(4)]),
            _with(shape, axis, size),
        )
        parts.insert(
            int(rng.integers(len(parts) + 1)),
            build.const(array.astype(np.int8), f"c{i}", q),
        )
    build.graph.outputs = [build.add(Relu(), [build.add(Concat(axis), parts)], quant=q)]
    return build.graph


def _sized(
    build: Builder,
    name: str,
    shape: Sequence[int],
    axis: int,
    q: Quant,
    rng: np.random.Generator,
) -> Value:
    return build.input(
        name, TensorType(_with(shape, axis, int(rng.integers(1, 5))), "int8", q)
    )


def _with(shape: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])
