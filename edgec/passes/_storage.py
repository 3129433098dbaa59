"""Storage orders of values: natural or permuted.

`Storage` finds the values that can be stored permuted, and the transposes that do
nothing but change the storage order of a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from edgec.analysis.value_groups import ValueGroups
from edgec.ir import Graph, Op, Value
from edgec.ops.shape import Transpose

Perm = tuple[int, ...]
A = 0
B = 1
"""The two storage orders: B is A transposed by the permutation of the problem."""


def channels_last(rank: int) -> Perm:
    """Return the permutation from NCHW to NHWC for a tensor of this rank."""
    return (0, *range(2, rank), 1)


def inverse(perm: Perm) -> Perm:
    """Return the permutation that undoes `perm`."""
    return tuple(perm.index(i) for i in range(len(perm)))


def only_moves_ones(perm: Perm, shape: tuple[int, ...]) -> bool:
    """Return whether a transpose moves no dimension other than 1.

    The elements of the tensor then stay where they are, as in a reshape.
    """
    longer_than_one = [p for p in perm if shape[p] != 1]
    return longer_than_one == sorted(longer_than_one)


def permutation(op: Op | None) -> Perm | None:
    """Return the permutation of a transpose, None for any other op."""
    if op is None or not isinstance(op.spec, Transpose):
        return None
    return op.spec.perm


@dataclass
class Storage:
    """The layout problem of a graph for one permutation.

    Attributes:
        graph: the graph; it is not changed.
        perm: the permutation from storage order A to storage order B.
        side: the storage order (A or B) of each value in the graph as it stands, for
            values that could have the other one too.
        free: the ops that can work in either storage order.
        root: for the output of each transpose that only changes the storage order,
            the value it copies, through any number of such transposes.
        alternative: the permutation from each storage order to the other.
    """

    graph: Graph
    perm: Perm
    side: dict[Value, int] = field(default_factory=dict)
    free: set[Op] = field(default_factory=set)
    root: dict[Value, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rank = len(self.perm)
        self.makers = self.graph.producers()
        self.alternative = (self.perm, inverse(self.perm))
        self._find_sides()

    def is_free(self, op: Op) -> bool:
        """Return whether `op` can work in either storage order."""
        if permutation(op) is not None:
            return False
        # The permutation has the rank of the outputs.
        if any(v.type.rank != self.rank for v in op.outputs):
            return False

        # An op without computed images has no order to choose.
        data = list(self.moved(op))
        if all(v.const is not None for v in data):
            return False
        # Only elementwise ops align operands of a lower rank by broadcasting.
        if not op.spec.elementwise and any(v.type.rank != self.rank for v in data):
            return False
        return all(op.spec.permute(p, op) is not None for p in self.alternative)

    def moved(self, op: Op) -> Iterator[Value]:
        """Yield the inputs whose axes are permuted together with the op.

        These are all inputs of an elementwise op, and the images of others.
        """
        roles = op.spec.roles
        for i, v in enumerate(op.inputs):
            # The last role holds for all further inputs, as for those of a concat.
            role = roles[min(i, len(roles) - 1)] if roles else None
            if op.spec.elementwise or role == "act":
                yield v

    def tied(self, op: Op) -> Iterator[Value]:
        """Yield the values whose storage order is decided by the op."""
        for v in self.moved(op):
            if v.const is None and v.type.rank == self.rank:
                yield v
        yield from op.outputs

    def _find_sides(self) -> None:
        """Fill `side`, `free` and `root`.

        Free ops tie their values into groups of one storage order. A transpose by the
        permutation leads from a group in order A to a group in order B, a transpose by
        its inverse from B to A.
        """
        candidates = [op for op in self.graph.ops if self.is_free(op)]
        groups = ValueGroups()
        for op in candidates:
            first, *others = self.tied(op)
            for v in others:
                groups.join(first, v)

        group_side: dict[Value, int] = {}
        for op in self.graph.ops:
            perm = permutation(op)
            if perm is not None and op.inputs[0].const is None:
                self._link(op, perm, groups, group_side)

        # Values without a link to a transpose keep their order.
        for v in self.graph.values():
            group = groups.find(v)
            if group in group_side:
                self.side[v] = group_side[group]
        self.free = {op for op in candidates if op.outputs[0] in self.side}

    def _link(
        self, op: Op, perm: Perm, groups: ValueGroups, group_side: dict[Value, int]
    ) -> None:
        """Record a transpose as a change of storage order, if the sides agree.

        Sides found by earlier transposes stay: a transpose that contradicts them is an
        op like any other.
        """
        x = op.inputs[0]
        y = op.outputs[0]
        for start, candidate in enumerate(self.alternative):
            if perm != candidate or y in self.root:
                continue
            source = groups.find(x)
            target = groups.find(y)
            # A transpose within one group would give the group both orders.
            if source is target:
                continue
            if group_side.get(source, start) != start:
                continue
            if group_side.get(target, 1 - start) != 1 - start:
                continue
            group_side[source] = start
            group_side[target] = 1 - start
            self.root[y] = self.root.get(x, x)
