"""What a .tflite file keeps between calls: resource variables, and tensors that are
variable, as a graph's state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from edgec.errors import UnsupportedError
from edgec.frontends.tflite_file import FileOperator, TfliteFile, as_int8, text
from edgec.ir import Array, Builder, Graph, State, TensorType, Value
from edgec.ops.shape import Reshape

OPERATORS = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")

Key = tuple[str, str] | int
"""Which variable: the container and the name of a resource, or the index of a tensor."""


@dataclass
class Variables:
    """The variables of a file while its operators are read in order.

    before: what a variable was at the call's begin, where it was read before it was
    written; now: what it is. handles: the variables that tensors stand for. initial:
    what CALL_ONCE gives them.
    """

    file: TfliteFile
    build: Builder
    before: dict[Key, Value] = field(default_factory=dict)
    now: dict[Key, Value] = field(default_factory=dict)
    handles: dict[int, Key] = field(default_factory=dict)
    initial: dict[Key, Array] = field(default_factory=dict)

    def operator(
        self,
        o: FileOperator,
        values: dict[int, Value],
        value: Callable[[int], Value],
        run: Callable[[TfliteFile], Variables],
    ) -> None:
        """Follow one of OPERATORS. value: of a tensor. run: follows the operators of
        another subgraph.
        """
        handle = self.handles.get(o.inputs[0]) if o.inputs else None
        if o.name == "CALL_ONCE":
            once = self.file.model.subgraphs[o.options.initSubgraphIndex]
            if once is self.file.subgraph or len(
                once.inputs if once.inputs is not None else ()
            ):
                raise UnsupportedError(
                    "CALL_ONCE of a subgraph with inputs",
                    o.at,
                    "convert the model again",
                )
            called = run(replace(self.file, subgraph=once))
            for key, v in called.now.items():
                if v.const is None:
                    what = (
                        f"the variable {v.name} begins as something that is "
                        "computed at run time"
                    )
                    raise UnsupportedError(
                        what,
                        o.at,
                        "convert the model with variables that begin as constants",
                    )
                self.initial[key] = v.const
        elif o.name == "VAR_HANDLE":
            self.handles[o.outputs[0]] = (
                text(o.options.container),
                text(o.options.sharedName),
            )
        elif handle is None:
            raise UnsupportedError(
                "the variable hangs on what is computed at run time",
                o.at,
                "convert the model again",
            )
        elif o.name == "READ_VARIABLE":
            name = handle[1] if isinstance(handle, tuple) else ""
            type_ = as_int8(self.file.type(o.outputs[0]))
            values[o.outputs[0]] = self.read(
                handle, name or self.file.name(o.outputs[0]), type_
            )
        else:
            self.now[handle] = value(o.inputs[1])

    def read(self, key: Key, name: str, type_: TensorType) -> Value:
        """What a variable is now."""
        if key not in self.now:
            self.now[key] = self.before[key] = self.build.input(name, type_)
        return self.now[key]

    def tensor(self, i: int) -> Value:
        """What a tensor that is variable is now."""
        return self.read(i, self.file.name(i), as_int8(self.file.type(i)))

    def keep(self, kept: dict[Value, Value]) -> None:
        """Take in what became of tensors that are variable."""
        for key, v in self.now.items():
            self.now[key] = kept.get(v, v)

    def finish(self, graph: Graph) -> None:
        """Let the graph keep the variables. One that nothing writes is a constant."""
        for key, before in self.before.items():
            initial = self.initial.get(key, _reset(before.type))
            if self.now[key] is before:
                graph.inputs.remove(before)
                before.const = initial
            else:
                self._pair(graph, before, self.now[key], initial)

    def _pair(self, graph: Graph, before: Value, after: Value, initial: Array) -> None:
        if not (
            _form(after.type) == _form(before.type) == (initial.shape, initial.dtype)
        ):
            what = (
                f"the variable {before.name} is {before.type}, and becomes {after.type}"
            )
            raise UnsupportedError(
                what,
                str(self.file.path),
                "convert the model with variables of one shape",
            )
        if after in graph.outputs or after in graph.inputs or after.const is not None:
            self.build.source = before.name
            after = self.build.add(
                Reshape(after.type.shape),
                [after],
                f"{before.name}_next",
                after.type.quant,
            )
        graph.outputs.append(after)
        graph.state.append(State(before.name, after.name, initial))


def _reset(type_: TensorType) -> Array:
    """What TFLite resets a variable to: reals that are zero, of int16 as of floats."""
    zero = type_.zero_point if type_.dtype == "int8" and type_.quant is not None else 0
    return np.full(type_.shape, zero, type_.np_dtype)


def _form(type_: TensorType) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    return type_.shape, type_.np_dtype
