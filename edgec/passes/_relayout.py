"""Writes a graph anew with another storage for some ops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from edgec.ir import Op, Quant, TensorType, Value
from edgec.ir.graph import unique
from edgec.ops.shape import Reshape, Transpose
from edgec.passes._storage import Perm, Storage


class Relayout:
    """`storage` says how each free op shall work; transposes appear where a value is
    read in another storage.
    """

    def __init__(self, layout: Storage, storage: Mapping[Op, int]) -> None:
        self.layout = layout
        self.graph = layout.graph
        self.storage = storage
        self.ops: list[Op] = []
        self.stored = {
            (v, layout.side[v]): v for v in self.graph.inputs if v in layout.side
        }
        """The value that holds a cell in a storage, as far as the ops so far have
        written it.
        """
        self.names = {v.name for v in self.graph.values()}
        self.copies = {(r, layout.side[v]): v for v, r in reversed(layout.root.items())}
        """The value that a removed transpose wrote, per cell and side: a new transpose
        may write it again.
        """
        self.constants: dict[tuple[Value, Perm], Value] = {}
        self.made: list[tuple[Value, str]] = []
        """New values and the names that they would like to have."""

    def run(self) -> None:
        """In the order of the graph; each new transpose stands before the first op that
        needs it.
        """
        for op in self.graph.ops:
            if op.outputs[0] in self.layout.root:
                continue
            if (
                op in self.storage
                and self.storage[op] != self.layout.side[op.outputs[0]]
            ):
                self._permuted(op)
            else:
                op.inputs = [self._as_is(v, op.source) for v in op.inputs]
                self.ops.append(op)
                self.stored |= {
                    (v, self.layout.side[v]): v
                    for v in op.outputs
                    if v in self.layout.side
                }
        for v in dict.fromkeys(self.graph.outputs):
            self._output(v)
        self.graph.ops = self.ops
        self._rename()

    def _permuted(self, op: Op) -> None:
        """The op in the other storage."""
        side = self.layout.side[op.outputs[0]]
        perm = self.layout.alternative[side]
        moved = set(self.layout.moved(op))
        spec = op.spec.permute(perm, op)
        assert spec is not None, f"{op!r} cannot be permuted by {perm}"
        inputs = [
            self._moved(v, perm, op) if v in moved else self._as_is(v, op.source)
            for v in op.inputs
        ]
        outputs = [self._new(v.name, _permuted_type(v.type, perm)) for v in op.outputs]
        for old, new in zip(op.outputs, outputs, strict=True):
            self.stored[old, 1 - side] = new
        self.ops.append(Op(spec, inputs, outputs, op.source))

    def _moved(self, v: Value, perm: Perm, op: Op) -> Value:
        """An input of a permuted op."""
        if v.const is not None:
            return self._constant(v, perm)
        if v.type.rank == len(perm):
            return self._read(v, 1 - self.layout.side[v], op.source)
        if v.type.size == 1:
            return self._as_is(v, op.source)
        shape = (1,) * (len(perm) - v.type.rank) + v.type.shape
        aligned = self._new(v.name, v.type.with_shape(shape))
        self.ops.append(
            Op(Reshape(shape), [self._as_is(v, op.source)], [aligned], op.source)
        )
        out = self._new(v.name, _permuted_type(aligned.type, perm))
        self.ops.append(Op(Transpose(perm), [aligned], [out], op.source))
        return out

    def _constant(self, v: Value, perm: Perm) -> Value:
        """A constant, aligned to the rank and permuted."""
        assert v.const is not None
        if v.const.size == 1 and v.type.rank < len(perm):
            return v
        if (v, perm) not in self.constants:
            lead = len(perm) - v.type.rank
            array = np.ascontiguousarray(
                v.const.reshape((1,) * lead + v.const.shape).transpose(perm)
            )
            quant = v.type.quant
            if quant is not None and quant.axis is not None:
                quant = replace(quant, axis=quant.axis + lead)
            type_ = _permuted_type(
                TensorType((1,) * lead + v.type.shape, v.type.dtype, quant), perm
            )
            self.constants[v, perm] = self._new(v.name, type_)
            self.constants[v, perm].const = array
        return self.constants[v, perm]

    def _as_is(self, v: Value, source: str) -> Value:
        if v in self.layout.side:
            return self._read(v, self.layout.side[v], source)
        return v

    def _read(self, v: Value, storage: int, source: str) -> Value:
        """The cell of `v` in a storage, transposed if nothing has written it so yet."""
        cell = self.layout.root.get(v, v)
        if (cell, storage) not in self.stored:
            x = self.stored[cell, 1 - storage]
            perm = self.layout.alternative[1 - storage]
            y = self.copies.get((cell, storage))
            if storage == self.layout.side[cell]:
                y = cell
            if y is not None:
                y = y
            else:
                y = self._new(cell.name, _permuted_type(x.type, perm))
            self.ops.append(Op(Transpose(perm), [x], [y], source))
            self.stored[cell, storage] = y
        return self.stored[cell, storage]

    def _output(self, v: Value) -> None:
        """A graph output, under its own name."""
        got = self._as_is(v, v.name)
        if got is not v:
            self.ops.append(Op(Reshape(v.type.shape), [got], [v], v.name))

    def _new(self, base: str, type_: TensorType) -> Value:
        value = Value(unique(base, self.names.__contains__), type_)
        self.names.add(value.name)
        self.made.append((value, base))
        return value

    def _rename(self) -> None:
        """Give new values the names of those that they replaced."""
        taken = {v.name for v in self.graph.values()}
        for value, name in self.made:
            if name not in taken:
                value.name = name
                taken.add(name)


def _permuted_type(t: TensorType, perm: Perm) -> TensorType:
    quant = t.quant
    if quant is not None and quant.axis is not None:
        quant = Quant(quant.scale, quant.zero_point, perm.index(quant.axis))
    return TensorType(tuple(t.shape[p] for p in perm), t.dtype, quant)
