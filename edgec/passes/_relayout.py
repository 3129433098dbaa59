"""Rewrites a graph so that some ops work in the other storage order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from edgec.ir import Op, Quant, TensorType, Value
from edgec.ir.graph import unique
from edgec.ops.shape import Reshape, Transpose
from edgec.passes._storage import Perm, Storage


class Relayout:
    """Rewrites the graph of `layout` so that each free op works as `storage` assigns.

    A transpose appears where a value is read in an order in which no op wrote it. The
    words of this class: a *cell* is a value that an op of the file writes, with all
    its copies in either storage order.

    Attributes:
        stored: the value that holds a cell in a storage order, among the ops written
            so far.
        copies: for each cell and order, the output of a removed transpose. A new
            transpose may write that value again.
        constants: permuted constants, by the original and the permutation.
        new_values: values that were created, each with the name it should get.
    """

    def __init__(self, layout: Storage, storage: Mapping[Op, int]) -> None:
        self.layout = layout
        self.graph = layout.graph
        self.storage = storage
        self.ops: list[Op] = []
        self.stored: dict[tuple[Value, int], Value] = {}
        self._record(self.graph.inputs)

        # New values need names that no value has yet.
        self.names = {v.name for v in self.graph.values()}
        # Reversed, so that the first of several copies wins.
        self.copies = {(r, layout.side[v]): v for v, r in reversed(layout.root.items())}
        self.constants: dict[tuple[Value, Perm], Value] = {}
        self.new_values: list[tuple[Value, str]] = []

    def run(self) -> None:
        """Rewrite the ops in the order of the graph.

        Each new transpose stands before the first op that needs its output.
        """
        for op in self.graph.ops:
            if op.outputs[0] in self.layout.root:
                continue
            if self._changes_side(op):
                self._permuted(op)
            else:
                op.inputs = [self._as_is(v, op.source) for v in op.inputs]
                self.ops.append(op)
                self._record(op.outputs)
        # An output may be in either order by now.
        for v in dict.fromkeys(self.graph.outputs):
            self._output(v)
        self.graph.ops = self.ops
        self._rename()

    def _changes_side(self, op: Op) -> bool:
        """Return whether `op` shall work in another order than it does now."""
        if op not in self.storage:
            return False
        return self.storage[op] != self.layout.side[op.outputs[0]]

    def _record(self, values: list[Value]) -> None:
        """Note that these values hold their cells in their present order."""
        for v in values:
            if v in self.layout.side:
                self.stored[v, self.layout.side[v]] = v

    def _permuted(self, op: Op) -> None:
        """Append the op in the other storage order."""
        side = self.layout.side[op.outputs[0]]
        perm = self.layout.alternative[side]
        # `Storage.is_free` has checked that the op can be permuted.
        spec = op.spec.permute(perm, op)
        assert spec is not None, f"{op!r} cannot be permuted by {perm}"

        moved = set(self.layout.moved(op))
        inputs: list[Value] = []
        for v in op.inputs:
            if v in moved:
                inputs.append(self._moved(v, perm, op))
            else:
                inputs.append(self._as_is(v, op.source))

        outputs: list[Value] = []
        for old in op.outputs:
            new = self._new(old.name, _permuted_type(old.type, perm))
            self.stored[old, 1 - side] = new
            outputs.append(new)
        self.ops.append(Op(spec, inputs, outputs, op.source))

    def _moved(self, v: Value, perm: Perm, op: Op) -> Value:
        """Return the permuted form of an input of a permuted op."""
        if v.const is not None:
            return self._constant(v, perm)
        if v.type.rank == len(perm):
            return self._read(v, 1 - self.layout.side[v], op.source)
        if v.type.size == 1:
            return self._as_is(v, op.source)

        # A value of lower rank broadcasts: align its axes to the right, then permute.
        shape = (1,) * (len(perm) - v.type.rank) + v.type.shape
        aligned = self._new(v.name, v.type.with_shape(shape))
        source = self._as_is(v, op.source)
        self.ops.append(Op(Reshape(shape), [source], [aligned], op.source))
        permuted = self._new(v.name, _permuted_type(aligned.type, perm))
        self.ops.append(Op(Transpose(perm), [aligned], [permuted], op.source))
        return permuted

    def _constant(self, v: Value, perm: Perm) -> Value:
        """Return a constant aligned to the rank of `perm` and permuted."""
        assert v.const is not None
        if v.const.size == 1 and v.type.rank < len(perm):
            return v
        if (v, perm) not in self.constants:
            lead = len(perm) - v.type.rank
            aligned = v.const.reshape((1,) * lead + v.const.shape)

            # The quantized axis moves with the new leading dimensions.
            quant = v.type.quant
            if quant is not None and quant.axis is not None:
                quant = replace(quant, axis=quant.axis + lead)
            aligned_type = TensorType(aligned.shape, v.type.dtype, quant)
            permuted = self._new(v.name, _permuted_type(aligned_type, perm))
            permuted.const = np.ascontiguousarray(aligned.transpose(perm))
            self.constants[v, perm] = permuted
        return self.constants[v, perm]

    def _as_is(self, v: Value, source: str) -> Value:
        """Return a value in the storage order of the original graph."""
        if v in self.layout.side:
            return self._read(v, self.layout.side[v], source)
        return v

    def _read(self, v: Value, storage: int, source: str) -> Value:
        """Return the cell of `v` in a storage order.

        A transpose is appended if nothing has written the cell in this order yet.
        """
        cell = self.layout.root.get(v, v)
        if (cell, storage) in self.stored:
            return self.stored[cell, storage]

        # The producer comes first in the graph, so the other order is stored.
        x = self.stored[cell, 1 - storage]
        perm = self.layout.alternative[1 - storage]
        # The original value, or else a copy that the file had, keeps its name.
        if storage == self.layout.side[cell]:
            y = cell
        elif (cell, storage) in self.copies:
            y = self.copies[cell, storage]
        else:
            y = self._new(cell.name, _permuted_type(x.type, perm))
        self.ops.append(Op(Transpose(perm), [x], [y], source))
        self.stored[cell, storage] = y
        return y

    def _output(self, v: Value) -> None:
        """Write a graph output under its own name."""
        stored = self._as_is(v, v.name)
        if stored is not v:
            # Two outputs of one cell cannot be the same value.
            self.ops.append(Op(Reshape(v.type.shape), [stored], [v], v.name))

    def _new(self, base: str, type_: TensorType) -> Value:
        """Create a value with a unique name made from `base`."""
        value = Value(unique(base, self.names.__contains__), type_)
        self.names.add(value.name)
        self.new_values.append((value, base))
        return value

    def _rename(self) -> None:
        """Give new values the names of the values they replaced."""
        # The ops that had these names may be gone.
        names = {v.name for v in self.graph.values()}
        for value, name in self.new_values:
            if name not in names:
                value.name = name
                names.add(name)


def _permuted_type(t: TensorType, perm: Perm) -> TensorType:
    """Return the type of a tensor of type `t` after a transpose."""
    # A permutation also moves the axis of the scales.
    quant = t.quant
    if quant is not None and quant.axis is not None:
        quant = Quant(quant.scale, quant.zero_point, perm.index(quant.axis))
    return TensorType(tuple(t.shape[p] for p in perm), t.dtype, quant)
