"""A builder that appends ops to a graph, infers their types and keeps names unique."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from edgec.ir.graph import Graph, Names
from edgec.ir.opdef import Op, OpDef
from edgec.ir.types import Array, Quant, TensorType
from edgec.ir.value import Value


class Builder:
    """Appends ops to `graph`.

    Attributes:
        graph: the graph
        source: name of the node of the model file that is being read, for messages
    """

    def __init__(self, graph: Graph | str) -> None:
        """Build on a graph, or on a new one of the given name."""
        self.graph = Graph(graph) if isinstance(graph, str) else graph
        self.source = ""

        # Passes build on graphs that have values already.
        self._names = Names(v.name for v in self.graph.values())

    def name(self, base: str) -> str:
        """Return a name that no value has yet."""
        return self._names.new(base or "t")

    def reserve(self, names: Iterable[str]) -> None:
        """Reserve names for values that will be renamed to them."""
        self._names.take(names)

    def input(self, name: str, type_: TensorType) -> Value:
        """Append a graph input, and return it."""
        value = Value(self.name(name), type_)
        self.graph.inputs.append(value)
        return value

    def const(self, array: Array, name: str = "c", quant: Quant | None = None) -> Value:
        """Return a new constant, whose name is made unique."""
        # The C has its constants in row-major order.
        array = np.asarray(array, order="C")
        type_ = TensorType(tuple(array.shape), str(array.dtype), quant)
        return Value(self.name(name), type_, array)

    def value(self, name: str, type_: TensorType) -> Value:
        """Return a value that a later `write` gives a producer."""
        return Value(self.name(name), type_)

    def add(
        self,
        spec: OpDef,
        inputs: Sequence[Value],
        name: str = "",
        quant: Quant | None = None,
    ) -> Value:
        """Append an op with one output, and return the output.

        Its type is inferred; quant: the quantization of an op that does not fix it.
        Raises ValueError when the inputs do not fit.
        """
        types = spec.infer(*(v.type for v in inputs))
        assert len(types) == 1, f"{spec.kind} has {len(types)} outputs: use add_multi"
        type_ = types[0]
        if quant is not None:
            type_ = type_.with_quant(quant)

        # Ops without a name are called by their kind.
        out = Value(self.name(name or spec.kind), type_)
        self.write(spec, inputs, [out])

        return out

    def add_multi(
        self,
        spec: OpDef,
        inputs: Sequence[Value],
        name: str = "",
    ) -> list[Value]:
        """Append an op with several outputs of inferred types, and return them.

        Raises ValueError when the inputs do not fit.
        """
        types = spec.infer(*(v.type for v in inputs))
        outputs = [Value(self.name(name or spec.kind), t) for t in types]
        self.write(spec, inputs, outputs)

        return outputs

    def write(
        self,
        spec: OpDef,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
    ) -> Op:
        """Append an op that writes given values, and return it.

        Raises ValueError when their shapes or element types are not those that the op
        infers; scales may differ.
        """
        types = spec.infer(*(v.type for v in inputs))
        for value, inferred in zip(outputs, types, strict=True):
            declared = value.type
            is_same_shape = declared.shape == inferred.shape
            if not is_same_shape or declared.dtype != inferred.dtype:
                raise ValueError(
                    f"{spec.kind} gives {inferred}, but {value.name} is declared {declared}"
                )

        # The source names the node for messages about this op.
        op = Op(spec, list(inputs), list(outputs), self.source)
        self.graph.ops.append(op)

        return op
