"""Which values of a graph can be stored permuted, and which transposes are nothing but
a change of storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from edgec.ir import Graph, Op, Value
from edgec.ops.shape import Transpose

Perm = tuple[int, ...]
A = 0
B = 1
"""The two storages of a problem: B is A transposed by its permutation."""


def channels_last(rank: int) -> Perm:
    """The permutation that makes NHWC of NCHW."""
    return (0, *range(2, rank), 1)


def inverse(perm: Perm) -> Perm:
    """What undoes a permutation."""
    return tuple(perm.index(i) for i in range(len(perm)))


def only_moves_ones(perm: Perm, shape: tuple[int, ...]) -> bool:
    """Whether no dimension other than 1 changes its order, so that the elements stay
    where they are.
    """
    kept = [p for p in perm if shape[p] != 1]
    return kept == sorted(kept)


@dataclass
class Storage:
    """One permutation's problem: whose storage is free (`side`), which transposes are
    mere changes of it (`root`).
    """

    graph: Graph
    perm: Perm
    side: dict[Value, int] = field(default_factory=dict)
    free: set[Op] = field(default_factory=set)
    root: dict[Value, Value] = field(default_factory=dict)
    """The value that a linked transpose copies, through any number of them."""

    def __post_init__(self) -> None:
        self.rank = len(self.perm)
        self.makers = self.graph.producers()
        self.alternative = (self.perm, inverse(self.perm))
        """What brings a value of each side to its other storage."""
        self._find_sides()

    def is_free(self, op: Op) -> bool:
        """Whether the op can work in either storage."""
        if isinstance(op.spec, Transpose) or any(
            v.type.rank != self.rank for v in op.outputs
        ):
            return False
        data = list(self.moved(op))
        if not any(v.const is None for v in data):
            return False
        if not op.spec.elementwise and any(v.type.rank != self.rank for v in data):
            return False
        return all(op.spec.permute(p, op) is not None for p in self.alternative)

    def moved(self, op: Op) -> Iterator[Value]:
        """The inputs whose axes move with the op's: all of an elementwise op, else
        those that are images.
        """
        roles = op.spec.roles
        for i, v in enumerate(op.inputs):
            if op.spec.elementwise or roles[min(i, len(roles) - 1)] == "act":
                yield v

    def tied(self, op: Op) -> Iterator[Value]:
        """The values whose storage the op decides."""
        yield from (
            v for v in self.moved(op) if v.const is None and v.type.rank == self.rank
        )
        yield from op.outputs

    def _find_sides(self) -> None:
        """Ops tie values into groups; transposes by P lead from a group of side A to
        one of side B.
        """
        group: dict[Value, Value] = {}

        def find(v: Value) -> Value:
            while group.get(v, v) is not v:
                group[v] = v = group.get(group[v], group[v])
            return v

        ops = [op for op in self.graph.ops if self.is_free(op)]
        for op in ops:
            first, *rest = self.tied(op)
            for v in rest:
                group[find(v)] = find(first)
        sides: dict[Value, int] = {}
        for op in self.graph.ops:
            x = op.inputs[0] if op.inputs else None
            y = op.outputs[0]
            if isinstance(op.spec, Transpose) and x is not None and x.const is None:
                for start, perm in enumerate(self.alternative):
                    gx = find(x)
                    gy = find(y)
                    fits = (
                        gx is not gy
                        and sides.get(gx, start) == start
                        and sides.get(gy, 1 - start) == 1 - start
                    )
                    if op.spec.perm == perm and fits and y not in self.root:
                        sides[gx], sides[gy] = start, 1 - start
                        self.root[y] = self.root.get(x, x)
        self.side = {
            v: sides[g] for v in self.graph.values() if (g := find(v)) in sides
        }
        self.free = {op for op in ops if op.outputs[0] in self.side}
