"""A look into a .tflite file: the operators, and what is left for the CPU in a file that edgetpu_compiler wrote.

The compiler replaces what it maps by operators of one custom kind, and keeps every other operator with the names of
its tensors; the inputs and outputs of the file keep name, type and shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ai_edge_litert import schema_py_generated as schema

CUSTOM_OP = "edgetpu-custom-op"
_OPCODES = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}


@dataclass(frozen=True)
class Operator:
    """One operator of a file: its opcode (CUSTOM:<name> for a custom one), and the names of what it reads and writes.

    inputs: those that are computed or fed, without constants.
    """

    opcode: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Border:
    """An input or output of a file."""

    name: str
    type: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Outline:
    """What matters here of a .tflite file."""

    operators: tuple[Operator, ...]
    inputs: tuple[Border, ...]
    outputs: tuple[Border, ...]

    @property
    def left(self) -> tuple[Operator, ...]:
        """The operators that are for the CPU."""
        return tuple(op for op in self.operators if op.opcode != f"CUSTOM:{CUSTOM_OP}")

    @property
    def pieces(self) -> int:
        """How many operators are for the Edge TPU."""
        return len(self.operators) - len(self.left)

    def ready(self, left: Iterable[Operator]) -> tuple[Operator, ...]:
        """Those of `left` that wait for none of `left`.

        The compiler maps the first set of operators that it can, with everything that is ready by then; so what is
        ready and not mapped was refused for its own sake.
        """
        left = tuple(left)
        late = {name for op in left for name in op.outputs}
        return tuple(op for op in left if not late.intersection(op.inputs))


def read(data: bytes) -> Outline:
    """Raises ValueError for what is no .tflite file, or a damaged one."""
    if data[4:8] != b"TFL3":
        raise ValueError(f"its identifier is {data[4:8]!r}, not TFL3")
    try:
        model = schema.ModelT.InitFromPackedBuf(data)
        if not model.subgraphs:
            raise ValueError("it holds no subgraph")
        graph = model.subgraphs[0]
        return Outline(
            tuple(_operator(model, graph, op) for op in graph.operators),
            tuple(_border(graph.tensors[i]) for i in graph.inputs),
            tuple(_border(graph.tensors[i]) for i in graph.outputs),
        )
    except Exception as e:  # a damaged flatbuffer can fail anywhere in the generated reader
        raise ValueError(f"it cannot be read ({type(e).__name__}: {e})") from e


def _operator(model: Any, graph: Any, op: Any) -> Operator:
    code = model.operatorCodes[op.opcodeIndex]
    builtin = max(int(code.builtinCode), int(code.deprecatedBuiltinCode))
    opcode = _OPCODES.get(builtin, str(builtin))
    if opcode == "CUSTOM":
        opcode = f"CUSTOM:{_text(code.customCode)}"
    inputs = tuple(_text(graph.tensors[i].name) for i in op.inputs if i >= 0 and not _constant(model, graph.tensors[i]))
    return Operator(opcode, inputs, tuple(_text(graph.tensors[i].name) for i in op.outputs))


def _constant(model: Any, tensor: Any) -> bool:
    data = model.buffers[tensor.buffer].data
    return data is not None and len(data) > 0


def _border(tensor: Any) -> Border:
    shape = () if tensor.shape is None else tuple(int(d) for d in tensor.shape)
    return Border(_text(tensor.name), int(tensor.type), shape)


def _text(name: bytes | str | None) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name or ""
