"""Rewriter: edits a graph in place while it knows who writes and who reads every value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgec.ir import Array, Graph, Op, OpDef, Quant, TensorType, Value
from edgec.ir.graph import Names


class Rewriter:
    """The editing hand of a pass. `changed` tells whether anything was edited."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.changed = False
        self.producer = graph.producers()
        self._users = graph.users()
        self._live = set(graph.ops)
        self._names = Names(v.name for v in graph.values())

    # ---- looking
    # ----------------------------------------------------------------------------------
    def ops(self, *kinds: str) -> Iterator[Op]:
        """The ops that were there at the start and still are, of these kinds (of all
        without any).
        """
        for op in list(self.graph.ops):
            if op in self._live and (not kinds or op.kind in kinds):
                yield op

    def users(self, value: Value) -> list[Op]:
        """The ops that read a value."""
        return self._users.get(value, [])

    def sole_user(self, value: Value) -> Op | None:
        """The op that alone reads a value; None when several do or the graph returns
        it.
        """
        users = self.users(value)
        return users[0] if len(users) == 1 and value not in self.graph.outputs else None

    def made_by(self, value: Value, *kinds: str) -> Op | None:
        """The op that writes a value, if it is of one of these kinds (of any without)."""
        op = self.producer.get(value)
        return op if op is not None and (not kinds or op.kind in kinds) else None

    def private(self, value: Value, *kinds: str) -> Op | None:
        """`made_by`, if in addition nothing but one op reads the value."""
        if self.sole_user(value) is not None:
            return self.made_by(value, *kinds)
        return None

    # ---- making
    # ----------------------------------------------------------------------------------
    def name(self, base: str) -> str:
        """A name that no value has."""
        return self._names.new(base)

    def const(self, array: Array, name: str, quant: Quant | None = None) -> Value:
        """A new constant."""
        array = np.asarray(array, order="C")
        return Value(
            self.name(name),
            TensorType(tuple(array.shape), str(array.dtype), quant),
            array,
        )

    def add(
        self,
        before: Op,
        spec: OpDef,
        inputs: Sequence[Value],
        name: str,
        quant: Quant | None = None,
    ) -> Value:
        """A new op right before another one; returns its output."""
        (type_,) = spec.infer(*(v.type for v in inputs))
        out = Value(
            self.name(name), type_ if quant is None else type_.with_quant(quant)
        )
        op = Op(spec, list(inputs), [out], before.source)
        self.graph.ops.insert(self.graph.ops.index(before), op)
        self._live.add(op)
        self.producer[out] = op
        for v in op.inputs:
            self._users.setdefault(v, []).append(op)
        self.changed = True
        return out

    # ---- changing
    # ----------------------------------------------------------------------------------
    def update(
        self, op: Op, spec: OpDef | None = None, inputs: Sequence[Value] | None = None
    ) -> None:
        """Give an op another spec or other inputs; what it writes keeps its name and
        type.
        """
        op.spec = spec or op.spec
        if inputs is not None:
            before = op.inputs
            op.inputs = list(inputs)
            for v in op.inputs:
                self._users.setdefault(v, []).append(op)
            for v in before:
                self._users[v].remove(op)
            for v in before:
                self._collect(v)
        self.changed = True

    def absorb(
        self,
        op: Op,
        user: Op,
        spec: OpDef | None = None,
        inputs: Sequence[Value] | None = None,
    ) -> None:
        """Let `op` write what its only user `user` writes; the user goes."""
        old = op.output
        assert self.sole_user(old) is user, f"{old.name} has other readers"
        op.source = joined(op.source, user.source)
        self._detach(user)
        op.outputs = user.outputs
        del self.producer[old]
        for v in op.outputs:
            self.producer[v] = op
        self.update(op, spec, inputs)
        for v in user.inputs:
            self._collect(v)

    def forward(self, op: Op, value: Value) -> bool:
        """Let every reader of the op's output read `value`, and drop the op.

        Not possible, and then False, when the types differ, or when the graph returns
        the output under a name of its own and `value` is an input, a constant or
        another output.
        """
        old = op.output
        if old.type != value.type:
            return False
        if old in self.graph.outputs:
            if value not in self.producer or value in self.graph.outputs:
                return False
            value.name = old.name
        for user in self.users(old):
            user.inputs = [value if v is old else v for v in user.inputs]
        self._users.setdefault(value, []).extend(self._users.pop(old, []))
        self.graph.outputs = [value if v is old else v for v in self.graph.outputs]
        self.remove(op)
        return True

    def remove(self, op: Op) -> None:
        """Drop an op that nothing reads, and what only it read."""
        self._detach(op)
        for v in op.outputs:
            self.producer.pop(v, None)
        for v in op.inputs:
            self._collect(v)
        self.changed = True

    def _detach(self, op: Op) -> None:
        self.graph.ops.remove(op)
        self._live.discard(op)
        for v in op.inputs:
            self._users[v].remove(op)

    def _collect(self, value: Value) -> None:
        """Remove the writer of a value that is not needed any more."""
        op = self.producer.get(value)
        if op is not None and not any(
            self.users(v) or v in self.graph.outputs for v in op.outputs
        ):
            self.remove(op)


def joined(*sources: str) -> str:
    """The sources of ops that became one."""
    return "+".join(dict.fromkeys(s for s in sources if s))


def scalar(value: Value) -> float | None:
    """The element of a constant all of whose elements are equal."""
    c = value.const
    if c is None or c.size == 0 or not (c == c.reshape(-1)[0]).all():
        return None
    return float(c.reshape(-1)[0])


def channel_vector(value: Value, shape: tuple[int, ...]) -> Array | None:
    """A constant that broadcasts over `shape` along its last axis only, as a vector of
    that axis' length.

    None for others, and where `shape` is a scalar's, which has no channels.
    """
    c = value.const
    if (
        c is None
        or not shape
        or c.ndim > len(shape)
        or any(d != 1 for d in c.shape[:-1])
    ):
        return None
    if c.ndim and c.shape[-1] not in (1, shape[-1]):
        return None
    return np.broadcast_to(c.reshape(-1), (shape[-1],))
