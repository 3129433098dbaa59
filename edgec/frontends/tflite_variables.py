"""The state that a .tflite file keeps between calls.

It consists of resource variables and of variable tensors.
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
"""A variable: the container and the name of a resource, or the index of a tensor."""


@dataclass
class Variables:
    """The variables of a file while its operators are read in order.

    Attributes:
        before: the value of each variable at the begin of a call, if it is read before
            it is written.
        now: the present value of each variable.
        handles: the variables that tensors stand for.
        initial: the values that CALL_ONCE assigns.
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
        """Follow one of OPERATORS.

        values: of tensors, by index. value: returns the value of a tensor. run: follows
        the operators of another subgraph. Raises UnsupportedError.
        """
        if o.name == "CALL_ONCE":
            self._call_once(o, run)
            return
        if o.name == "VAR_HANDLE":
            key = (text(o.options.container), text(o.options.sharedName))
            self.handles[o.outputs[0]] = key
            return

        handle = self.handles.get(o.inputs[0]) if o.inputs else None
        if handle is None:
            message = "which variable is meant is computed at run time"
            raise UnsupportedError(message, o.at, "convert the model again")
        if o.name == "READ_VARIABLE":
            result = o.outputs[0]
            # The name of the resource, for messages and state.
            name = handle[1] if isinstance(handle, tuple) else ""
            type_ = as_int8(self.file.type(result))
            values[result] = self.read(handle, name or self.file.name(result), type_)
        else:
            self.now[handle] = value(o.inputs[1])

    def _call_once(
        self, o: FileOperator, run: Callable[[TfliteFile], Variables]
    ) -> None:
        """Take the initial values from the subgraph of a CALL_ONCE.

        Raises UnsupportedError if it has inputs or computes values at run time.
        """
        once = self.file.model.subgraphs[o.options.initSubgraphIndex]
        inputs = () if once.inputs is None else once.inputs
        if once is self.file.subgraph or len(inputs):
            message = "CALL_ONCE of a subgraph with inputs"
            raise UnsupportedError(message, o.at, "convert the model again")

        called = run(replace(self.file, subgraph=once))
        for key, v in called.now.items():
            if v.const is None:
                message = (
                    f"the variable {v.name} begins as something that is "
                    "computed at run time"
                )
                hint = "convert the model with variables that begin as constants"
                raise UnsupportedError(message, o.at, hint)
            self.initial[key] = v.const

    def read(self, key: Key, name: str, type_: TensorType) -> Value:
        """Return the present value of a variable.

        Before any write, it is an input of the graph.
        """
        if key not in self.now:
            before = self.build.input(name, type_)
            self.before[key] = before
            self.now[key] = before
        return self.now[key]

    def tensor(self, i: int) -> Value:
        """Return the present value of a variable tensor.

        i: the index of the tensor.
        """
        return self.read(i, self.file.name(i), as_int8(self.file.type(i)))

    def keep(self, kept: dict[Value, Value]) -> None:
        """Record the new values of variable tensors, by their former values."""
        for key, v in self.now.items():
            self.now[key] = kept.get(v, v)

    def finish(self, graph: Graph) -> None:
        """Let the graph keep the variables.

        A variable without a write is a constant.
        """
        for key, before in self.before.items():
            initial = self.initial.get(key)
            if initial is None:
                initial = _reset(before.type)
            after = self.now[key]
            if after is before:
                graph.inputs.remove(before)
                before.const = initial
            else:
                self._pair(graph, before, after, initial)

    def _pair(self, graph: Graph, before: Value, after: Value, initial: Array) -> None:
        """Add a state: the graph's input `before` is `after` at the next call."""
        form = _form(before.type)
        if _form(after.type) != form or form != (initial.shape, initial.dtype):
            message = (
                f"the variable {before.name} is {before.type}, and becomes {after.type}"
            )
            hint = "convert the model with variables of one shape"
            raise UnsupportedError(message, str(self.file.path), hint)

        # A state needs an output of its own.
        if after in graph.outputs or after in graph.inputs or after.const is not None:
            self.build.source = before.name
            spec = Reshape(after.type.shape)
            name = f"{before.name}_next"
            after = self.build.add(spec, [after], name, after.type.quant)
        graph.outputs.append(after)
        graph.state.append(State(before.name, after.name, initial))


def _reset(type_: TensorType) -> Array:
    """Return the value to which TFLite resets a variable.

    It stands for zero, of int16 as of floats.
    """
    zero = 0
    if type_.dtype == "int8" and type_.quant is not None:
        zero = type_.zero_point
    return np.full(type_.shape, zero, type_.np_dtype)


def _form(type_: TensorType) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    return type_.shape, type_.np_dtype
