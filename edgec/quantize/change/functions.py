"""What is computed from one value alone, element by element: a rectifier, a sigmoid, x
* sigmoid(x) and the like.

Where it is flat, a range may end: nobody sees the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgec.ir import Array, Op, TensorType, Value
from edgec.ops.softmax import Softmax

Function = Callable[[Array], Array]
"""float32 [n] to float32 [n]."""


def functions(
    v: Value, users: Mapping[Value, Sequence[Op]], outputs: Sequence[Value]
) -> tuple[list[Function], set[Op]]:
    """The functions of `v` that others than such functions see, and the ops of `v` that
    they account for.
    """
    known = {v}
    ops = list[Op]()
    waiting = [v]
    while waiting:
        for op in users.get(waiting.pop(), []):
            if op not in ops and _fits(op, known):
                ops.append(op)
                known.add(op.output)
                waiting.append(op.output)
    seen = [
        op
        for op in ops
        if op.output in outputs or any(u not in ops for u in users.get(op.output, []))
    ]
    return [_function(v, op, ops) for op in seen], {op for op in ops if v in op.inputs}


def _fits(op: Op, known: set[Value]) -> bool:
    if (
        not op.spec.elementwise
        or len(op.outputs) != 1
        or op.output.type.dtype != "float32"
    ):
        return False
    return all(
        i in known or (i.const is not None and i.const.size == 1) for i in op.inputs
    )


def _function(v: Value, last: Op, ops: Sequence[Op]) -> Function:
    """What `last` makes of `v`, by these ops."""

    def run(x: Array) -> Array:
        t = TensorType(x.shape)
        env = {v: x.astype(np.float32)}
        todo = list(ops)
        while last.output not in env:
            op = next(
                op
                for op in todo
                if all(i in env or i.const is not None for i in op.inputs)
            )
            todo.remove(op)
            args = [
                env[i] if i.const is None else i.const.reshape(()) for i in op.inputs
            ]
            types = [
                t if i.const is None else TensorType((), i.type.dtype)
                for i in op.inputs
            ]
            env[op.output] = op.spec.ref(args, types, [t])[0]
        return env[last.output]

    return run


def softmax(op: Op) -> Function | None:
    """Of rows [n, C], where the op is one."""
    if not isinstance(op.spec, Softmax):
        return None
    return lambda rows: op.spec.ref(
        [rows], [TensorType(rows.shape)], [TensorType(rows.shape)]
    )[0]
