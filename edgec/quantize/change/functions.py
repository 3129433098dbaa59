"""Functions of one value alone, element by element.

They are a rectifier, a sigmoid, x * sigmoid(x) and their like, of one op or several.
Where such a function is flat, a range may end: no consumer sees the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgec.ir import Array, Op, TensorType, Value

Function = Callable[[Array], Array]
"""A function of float32 [n] to float32 [n]."""


def functions(
    v: Value, users: Mapping[Value, Sequence[Op]], outputs: Sequence[Value]
) -> tuple[list[Function], set[Op]]:
    """Return the functions of `v` that the rest of the graph reads.

    Also return the consumers of `v` that belong to these functions.

    users: the users of each value.
    outputs: the outputs of the graph.
    """
    ops = _pointwise_ops(v, users)
    # A result that only other ops of the function read is no result of the function.
    last_ops = []
    for op in ops:
        has_other_user = any(u not in ops for u in users.get(op.output, []))
        if op.output in outputs or has_other_user:
            last_ops.append(op)

    covered = {op for op in ops if v in op.inputs}

    return [_function(v, op, ops) for op in last_ops], covered


def _pointwise_ops(v: Value, users: Mapping[Value, Sequence[Op]]) -> list[Op]:
    """Return the ops that compute from `v` and scalars alone, as they are reached."""
    known = {v}
    ops: list[Op] = []
    waiting = [v]
    while waiting:
        for op in users.get(waiting.pop(), []):
            # A sum of two functions of `v` is reached once both are known.
            if op not in ops and _is_function_of(op, known):
                ops.append(op)
                known.add(op.output)
                waiting.append(op.output)

    return ops


def _is_function_of(op: Op, known: set[Value]) -> bool:
    """Return whether an op computes each element from one element of known values."""
    if not op.spec.elementwise or len(op.outputs) != 1:
        return False

    if op.output.type.dtype != "float32":
        return False

    for v in op.inputs:
        is_scalar = v.const is not None and v.const.size == 1
        if v not in known and not is_scalar:
            return False

    return True


def _function(v: Value, last: Op, ops: Sequence[Op]) -> Function:
    """Return the function from `v` to the result of `last`, computed by `ops`."""

    def run(x: Array) -> Array:
        t = TensorType(x.shape)
        env = {v: x.astype(np.float32)}
        remaining = list(ops)
        # The ops are in the order in which they were reached, which is not always one
        # in which they can run.

        while last.output not in env:
            op = next(op for op in remaining if _is_ready(op, env))
            remaining.remove(op)
            args: list[Array] = []
            types: list[TensorType] = []
            for i in op.inputs:
                if i.const is None:
                    args.append(env[i])
                    types.append(t)
                else:
                    # A scalar broadcasts to any number of elements.
                    args.append(i.const.reshape(()))
                    types.append(TensorType((), i.type.dtype))
            env[op.output] = op.spec.ref(args, types, [t])[0]

        return env[last.output]

    return run


def _is_ready(op: Op, env: Mapping[Value, Array]) -> bool:
    return all(i in env or i.const is not None for i in op.inputs)


def softmax(op: Op) -> Function | None:
    """Return the function of rows [n, C] of a softmax, None for another op."""
    if op.kind != "softmax":
        return None

    def run(rows: Array) -> Array:
        t = TensorType(rows.shape)
        return op.spec.ref([rows], [t], [t])[0]

    return run
