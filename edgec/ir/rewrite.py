"""A rewriter of graphs that knows the producer and the users of every value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from edgec.ir import Array, Graph, Op, OpDef, Quant, TensorType, Value
from edgec.ir.graph import Names

S = TypeVar("S", bound=OpDef)
"""A type of spec that a pass looks for."""


class Rewriter:
    """The editor of a graph in a pass.

    Attributes:
        graph: the graph, edited in place
        changed: whether anything was edited
        producer: the op that writes each value
    """

    def __init__(self, graph: Graph) -> None:
        """Begin to edit a graph."""
        self.graph = graph
        self.changed = False
        self.producer = graph.producers()
        self._users = graph.users()

        # Ops still in the graph, for loops that remove ops as they go.
        self._live = set(graph.ops)
        self._names = Names(v.name for v in graph.values())

    # ---- looking
    # ----------------------------------------------------------------------------------
    def ops(self, *kinds: str) -> Iterator[Op]:
        """Yield the ops of some kinds, all without any.

        They are those of the graph at the start of the loop that are still in it when
        their turn comes.
        """
        for op in list(self.graph.ops):
            if op in self._live and (not kinds or op.kind in kinds):
                yield op

    def matches(self, *types: type[S]) -> Iterator[tuple[Op, S]]:
        """Yield the ops whose spec is of one of these types, each with its spec.

        They are those of the graph at the start of the loop that are still in it when
        their turn comes.
        """
        for op in self.ops():
            if isinstance(op.spec, types):
                yield op, op.spec

    def producer_of(self, value: Value, *types: type[S]) -> tuple[Op, S] | None:
        """Return the op that writes a value, with its spec of one of these types.

        None where no op writes it, or an op of another type.
        """
        op = self.producer.get(value)
        if op is None or not isinstance(op.spec, types):
            return None

        return op, op.spec

    def users(self, value: Value) -> list[Op]:
        """Return the ops that read a value."""
        return self._users.get(value, [])

    def sole_user(self, value: Value) -> Op | None:
        """Return the only op that reads a value.

        None when several ops read it, or the graph returns it.
        """
        users = self.users(value)
        if len(users) != 1 or value in self.graph.outputs:
            return None

        return users[0]

    def made_by(self, value: Value, *kinds: str) -> Op | None:
        """Return the op that writes a value, if it is of one of these kinds.

        Without kinds it may be of any.
        """
        op = self.producer.get(value)
        if op is None or (kinds and op.kind not in kinds):
            return None

        return op

    def private(self, value: Value, *kinds: str) -> Op | None:
        """Return `made_by`, if in addition only one op reads the value."""
        if self.sole_user(value) is None:
            return None
        return self.made_by(value, *kinds)

    # ---- making
    # ----------------------------------------------------------------------------------
    def name(self, base: str) -> str:
        """Return a name that no value has."""
        return self._names.new(base)

    def const(self, array: Array, name: str, quant: Quant | None = None) -> Value:
        """Return a new constant, whose name is made unique."""
        array = np.asarray(array, order="C")
        type_ = TensorType(tuple(array.shape), str(array.dtype), quant)
        return Value(self.name(name), type_, array)

    def add(
        self,
        before: Op,
        spec: OpDef,
        inputs: Sequence[Value],
        name: str,
        quant: Quant | None = None,
    ) -> Value:
        """Insert an op right before another one, and return its output.

        Its type is inferred; quant: the quantization of an op that does not fix it.
        """
        (type_,) = spec.infer(*(v.type for v in inputs))
        if quant is not None:
            type_ = type_.with_quant(quant)

        out = Value(self.name(name), type_)
        op = Op(spec, list(inputs), [out], before.source)

        # The operands of `before` are written earlier, so that the new op may read
        # them.
        self.graph.ops.insert(self.graph.ops.index(before), op)
        self._live.add(op)
        self.producer[out] = op
        for value in op.inputs:
            self._users.setdefault(value, []).append(op)

        self.changed = True

        return out

    # ---- changing
    # ----------------------------------------------------------------------------------
    def update(
        self,
        op: Op,
        spec: OpDef | None = None,
        inputs: Sequence[Value] | None = None,
    ) -> None:
        """Give an op another spec or other inputs.

        Its outputs keep their names and types. Ops that only it needed are removed.
        """
        op.spec = spec or op.spec
        if inputs is not None:
            before = op.inputs
            op.inputs = list(inputs)
            for value in op.inputs:
                self._users.setdefault(value, []).append(op)
            for value in before:
                self._users[value].remove(op)
            # Only now, since a value may be among the old and the new inputs.
            for value in before:
                self._collect(value)

        self.changed = True

    def absorb(
        self,
        op: Op,
        user: Op,
        spec: OpDef | None = None,
        inputs: Sequence[Value] | None = None,
    ) -> None:
        """Merge `user`, the only user of `op`, into `op`.

        `op` gets the outputs of `user`, and another spec or other inputs.
        """
        old = op.output
        assert self.sole_user(old) is user, f"{old.name} has other readers"

        # Messages name both nodes.
        op.source = joined(op.source, user.source)

        self._detach(user)
        op.outputs = user.outputs
        del self.producer[old]
        for value in op.outputs:
            self.producer[value] = op

        self.update(op, spec, inputs)
        for value in user.inputs:
            self._collect(value)

    def forward(self, op: Op, value: Value) -> bool:
        """Let every user of the op's output read `value`, and remove the op.

        That is impossible, and then False, when the types differ, or when the graph
        returns the output under a name of its own and `value` is an input, a constant
        or another output.
        """
        old = op.output
        if old.type != value.type:
            return False

        # Outputs of the graph keep their names.
        if old in self.graph.outputs:
            if value not in self.producer or value in self.graph.outputs:
                return False
            value.name = old.name

        for user in self.users(old):
            user.inputs = [value if v is old else v for v in user.inputs]

        moved_users = self._users.pop(old, [])
        self._users.setdefault(value, []).extend(moved_users)
        self.graph.outputs = [value if v is old else v for v in self.graph.outputs]
        self.remove(op)

        return True

    def remove(self, op: Op) -> None:
        """Remove an op whose results nothing needs, and the ops that only it needed."""
        self._detach(op)
        for value in op.outputs:
            self.producer.pop(value, None)

        for value in op.inputs:
            self._collect(value)

        self.changed = True

    def _detach(self, op: Op) -> None:
        """Take an op out of the graph, and from the users of its inputs."""
        self.graph.ops.remove(op)
        self._live.discard(op)
        for value in op.inputs:
            self._users[value].remove(op)

    def _collect(self, value: Value) -> None:
        """Remove the producer of a value, if nothing needs its results any more."""
        op = self.producer.get(value)
        if op is None:
            return

        if any(self.users(v) or v in self.graph.outputs for v in op.outputs):
            return

        self.remove(op)


def joined(*sources: str) -> str:
    """Return the source of an op that was several, e.g. "conv1+relu1"."""
    return "+".join(dict.fromkeys(s for s in sources if s))


def scalar(value: Value) -> float | None:
    """Return the element of a constant whose elements are all equal; else None."""
    array = value.const
    if array is None or array.size == 0:
        return None

    # A tensor of equal elements acts as a scalar.
    first = array.reshape(-1)[0]
    if not (array == first).all():
        return None

    return float(first)


def channel_vector(value: Value, shape: tuple[int, ...]) -> Array | None:
    """Return a constant that broadcasts over `shape` along its last axis only.

    The result is a vector of that axis' length; None for other constants, and where
    `shape` is a scalar's, which has no channels.
    """
    array = value.const
    if array is None or not shape or array.ndim > len(shape):
        return None

    # All axes but the last must broadcast.
    if any(size != 1 for size in array.shape[:-1]):
        return None

    if array.ndim and array.shape[-1] not in (1, shape[-1]):
        return None

    return np.broadcast_to(array.reshape(-1), (shape[-1],))
