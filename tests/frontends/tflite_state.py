"""A .tflite file with variables, as a streaming converter writes them, and LiteRT's
calls of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from edgec.ir import Array
from tests.frontends.tflite_operators import packed

START = np.array([[1, -2, 3, 4]], np.float32)


class _File:
    """Appends tensors and operators to subgraphs."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.subgraphs = []
        self.model.buffers = [schema.BufferT()]
        self.model.operatorCodes = []

    def subgraph(self) -> Any:
        sub = schema.SubGraphT()
        sub.tensors = []
        sub.operators = []
        sub.inputs = []
        sub.outputs = []
        self.model.subgraphs.append(sub)
        return sub

    def tensor(
        self,
        sub: Any,
        name: str,
        shape: Sequence[int],
        type_: str = "FLOAT32",
        data: Array | None = None,
    ) -> int:
        t = schema.TensorT()
        t.name = name.encode()
        t.shape = np.array(shape, np.int32)
        t.type = getattr(schema.TensorType, type_)
        t.buffer = 0
        if data is not None:
            t.buffer = len(self.model.buffers)
            self.model.buffers.append(schema.BufferT())
            self.model.buffers[-1].data = np.frombuffer(data.tobytes(), np.uint8)
        sub.tensors.append(t)
        return len(sub.tensors) - 1

    def op(
        self,
        sub: Any,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        table: str,
        **fields: Any,
    ) -> None:
        code = schema.OperatorCodeT()
        op = schema.OperatorT()
        builtin = getattr(schema.BuiltinOperator, name)
        code.builtinCode = builtin
        code.deprecatedBuiltinCode = min(builtin, 127)
        code.version = 1
        op.opcodeIndex = len(self.model.operatorCodes)
        op.inputs = list(inputs)
        op.outputs = list(outputs)
        op.builtinOptionsType = getattr(schema.BuiltinOptions, table)
        op.builtinOptions = getattr(schema, f"{table}T")()
        for field, value in fields.items():
            setattr(op.builtinOptions, field, value)
        self.model.operatorCodes.append(code)
        sub.operators.append(op)

    def handle(self, sub: Any, name: str) -> int:
        at = self.tensor(sub, f"{name}_handle", (), "RESOURCE")
        self.op(
            sub,
            "VAR_HANDLE",
            (),
            (at,),
            "VarHandleOptions",
            sharedName=name,
            container="",
        )
        return at

    def read(self, sub: Any, handle: int, name: str) -> int:
        at = self.tensor(sub, name, (1, 4))
        self.op(sub, "READ_VARIABLE", (handle,), (at,), "ReadVariableOptions")
        return at

    def assign(self, sub: Any, handle: int, value: int) -> None:
        self.op(sub, "ASSIGN_VARIABLE", (handle, value), (), "AssignVariableOptions")


def stateful() -> bytes:
    """y = sum + x, which `sum` then is; z = what x was at the call before last.

    `sum` begins as START, `old` as zeros; `sum` is returned as well as kept; `fixed`,
    as START, is only read; `fresh` is written before it is read.
    """
    f = _File()
    main = f.subgraph()
    once = f.subgraph()
    for name, value in (
        ("sum", START),
        ("old", 0 * START),
        ("older", 0 * START),
        ("fixed", START),
        ("fresh", START),
    ):
        f.assign(
            once,
            f.handle(once, name),
            f.tensor(once, f"{name}_start", (1, 4), data=value.astype(np.float32)),
        )
    f.op(main, "CALL_ONCE", (), (), "CallOnceOptions", initSubgraphIndex=1)
    x = f.tensor(main, "x", (1, 4))

    def add(a: int, b: int, name: str) -> int:
        at = f.tensor(main, name, (1, 4))
        f.op(main, "ADD", (a, b), (at,), "AddOptions")
        return at

    total, old, older, fresh = (
        f.handle(main, n) for n in ("sum", "old", "older", "fresh")
    )
    y = add(f.read(main, total, "sum_read"), x, "y")
    f.assign(main, total, y)
    was = f.read(main, old, "old_read")
    z = add(
        f.read(main, older, "older_read"),
        f.read(main, f.handle(main, "fixed"), "fixed_read"),
        "z",
    )
    f.assign(main, older, was)
    f.assign(main, old, x)
    f.assign(main, fresh, z)
    w = add(f.read(main, fresh, "fresh_read"), y, "w")
    main.inputs = [x]
    main.outputs = [y, w]
    return packed(f.model)


BUILTIN = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES


def litert_calls(
    data: bytes,
    inputs: Iterable[Array],
    kind: OpResolverType = OpResolverType.BUILTIN_REF,
) -> Iterator[list[Array]]:
    """The outputs of one call after the other."""
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    (given,) = interpreter.get_input_details()
    for x in inputs:
        interpreter.set_tensor(given["index"], x)
        interpreter.invoke()
        yield [
            interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()
        ]
