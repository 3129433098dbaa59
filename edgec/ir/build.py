"""Builder: appends ops to a graph, inferring types and keeping names unique."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from edgec.ir.graph import Graph, Names
from edgec.ir.opdef import Op, OpDef
from edgec.ir.types import Array, Quant, TensorType
from edgec.ir.value import Value


class Builder:
    """Appends to `graph`.

    `source` is the name of the file's node that is being read, for messages.
    """

    def __init__(self, graph: Graph | str) -> None:
        self.graph = Graph(graph) if isinstance(graph, str) else graph
        self.source = ""
        self._names = Names(v.name for v in self.graph.values())

    def name(self, base: str) -> str:
        """A name that no value has yet."""
        return self._names.new(base or "t")

    def reserve(self, names: Iterable[str]) -> None:
        """Keep these names for values that will be renamed to them."""
        self._names.take(names)

    def input(self, name: str, type_: TensorType) -> Value:
        """A new graph input."""
        value = Value(self.name(name), type_)
        self.graph.inputs.append(value)
        return value

    def const(self, array: Array, name: str = "c", quant: Quant | None = None) -> Value:
        """A new constant."""
        array = np.asarray(array, order="C")
        return Value(
            self.name(name),
            TensorType(tuple(array.shape), str(array.dtype), quant),
            array,
        )

    def value(self, name: str, type_: TensorType) -> Value:
        """A value that a later `add(..., outputs=[...])` will write."""
        return Value(self.name(name), type_)

    def add(
        self,
        spec: OpDef,
        inputs: Sequence[Value],
        name: str = "",
        quant: Quant | None = None,
    ) -> Value:
        """Append an op with one output, whose type is inferred (`quant` gives its
        scale); returns that output.
        """
        types = spec.infer(*(v.type for v in inputs))
        assert len(types) == 1, f"{spec.kind} has {len(types)} outputs: use add_multi"
        type_ = types[0] if quant is None else types[0].with_quant(quant)
        out = Value(self.name(name or spec.kind), type_)
        self.write(spec, inputs, [out])
        return out

    def add_multi(
        self, spec: OpDef, inputs: Sequence[Value], name: str = ""
    ) -> list[Value]:
        """Append an op with several outputs."""
        types = spec.infer(*(v.type for v in inputs))
        outs = [Value(self.name(name or spec.kind), t) for t in types]
        self.write(spec, inputs, outs)
        return outs

    def write(
        self, spec: OpDef, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> Op:
        """Append an op that writes given values; their types must be what the op infers
        (scales excepted).
        """
        types = spec.infer(*(v.type for v in inputs))
        for v, t in zip(outputs, types, strict=True):
            if (v.type.shape, v.type.dtype) != (t.shape, t.dtype):
                raise ValueError(
                    f"{spec.kind} gives {t}, but {v.name} is declared {v.type}"
                )
        op = Op(spec, list(inputs), list(outputs), self.source)
        self.graph.ops.append(op)
        return op
