"""Moves transposes to where they cost least, which for a convolutional model is its border.

Front-ends import every image op as transpose → NHWC op → transpose. Take one permutation P. Each value of its rank can
be stored in two ways: A, and B = transpose(A, P). A convolution wants B; the op that the file has wants A; an op with
`OpDef.permute` can work in either. A transpose by P is then nothing but a change of storage, and choosing the storage
of every op so that the fewest bytes change is a minimum cut: ops are nodes, storage A is the source's side, storage B
the sink's, and an edge costs the bytes that are moved when producer and consumers disagree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from edgec.ir import Graph, Op, Quant, TensorType, Value
from edgec.ir.graph import unique
from edgec.ops.shape import Reshape, Transpose
from edgec.passes._mincut import SINK, SOURCE, UNLIMITED, MinCut

Perm = tuple[int, ...]
A, B = 0, 1
"""The two storages. A value that the file's ops see in storage A has side A."""


def run(graph: Graph) -> bool:
    """One cut for each permutation (with its inverse) of the graph, channels-last first, until one helps."""
    return any(_Layout(graph, perm).run() for perm in _permutations(graph))


def channels_last(rank: int) -> Perm:
    """The permutation that makes NHWC of NCHW."""
    return (0, *range(2, rank), 1)


def inverse(perm: Perm) -> Perm:
    """What undoes a permutation."""
    return tuple(perm.index(i) for i in range(len(perm)))


def only_moves_ones(perm: Perm, shape: tuple[int, ...]) -> bool:
    """Whether no dimension other than 1 changes its order, so that the elements stay where they are."""
    kept = [p for p in perm if shape[p] != 1]
    return kept == sorted(kept)


def _permutations(graph: Graph) -> list[Perm]:
    cost: dict[Perm, int] = {}
    for op in graph.ops:
        if isinstance(op.spec, Transpose):
            perm = op.spec.perm
            last = channels_last(len(perm))
            key = last if last in (perm, inverse(perm)) else min(perm, inverse(perm))
            cost[key] = cost.get(key, 0) + op.output.type.nbytes
    return sorted(cost, key=lambda p: (len(p) < 4 or p != channels_last(len(p)), -cost[p], p))


@dataclass
class _Layout:
    """One permutation's problem: whose storage is free (`side`), which transposes are mere changes of it (`root`)."""

    graph: Graph
    perm: Perm
    side: dict[Value, int] = field(default_factory=dict)
    free: set[Op] = field(default_factory=set)
    root: dict[Value, Value] = field(default_factory=dict)
    """The value that a linked transpose copies, through any number of them."""

    def __post_init__(self) -> None:
        self.rank = len(self.perm)
        self.alternative = (self.perm, inverse(self.perm))
        """What brings a value of each side to its other storage."""
        self.prefer = B if self.rank >= 4 and self.perm == channels_last(self.rank) else None

    def run(self) -> bool:
        """Find the sides, cut, and rewrite if the cut is better than what is there."""
        self._find_sides()
        if not self.free:
            return False
        storage = self._cut()
        if storage is None:
            return False
        _Rewrite(self, storage).run()
        return True

    # ---- what is free ---------------------------------------------------------------------------------------------
    def is_free(self, op: Op) -> bool:
        """Whether the op can work in either storage."""
        if isinstance(op.spec, Transpose) or any(v.type.rank != self.rank for v in op.outputs):
            return False
        data = list(self.moved(op))
        if not any(v.const is None for v in data):
            return False
        if not op.spec.elementwise and any(v.type.rank != self.rank for v in data):
            return False
        return all(op.spec.permute(p, op) is not None for p in self.alternative)

    def moved(self, op: Op) -> Iterator[Value]:
        """The inputs whose axes move with the op's: all of an elementwise op, else those that are images."""
        roles = op.spec.roles
        for i, v in enumerate(op.inputs):
            if op.spec.elementwise or roles[min(i, len(roles) - 1)] == "act":
                yield v

    def tied(self, op: Op) -> Iterator[Value]:
        """The values whose storage the op decides."""
        yield from (v for v in self.moved(op) if v.const is None and v.type.rank == self.rank)
        yield from op.outputs

    def _find_sides(self) -> None:
        """Ops tie values into groups; transposes by P lead from a group of side A to one of side B."""
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
            x, y = op.inputs[0] if op.inputs else None, op.outputs[0]
            if isinstance(op.spec, Transpose) and x is not None and x.const is None:
                for start, perm in enumerate(self.alternative):
                    gx, gy = find(x), find(y)
                    fits = gx is not gy and sides.get(gx, start) == start and sides.get(gy, 1 - start) == 1 - start
                    if op.spec.perm == perm and fits and y not in self.root:
                        sides[gx], sides[gy] = start, 1 - start
                        self.root[y] = self.root.get(x, x)
        self.side = {v: sides[g] for v in self.graph.values() if (g := find(v)) in sides}
        self.free = {op for op in ops if op.outputs[0] in self.side}

    # ---- the cut --------------------------------------------------------------------------------------------------
    def _cut(self) -> dict[Op, int] | None:
        """The storage that each free op shall work in; None when it is as good as it is."""
        graph, nodes = MinCut(), dict[Op, int]()
        unit = len(self.free) + 1  # preferences together weigh less than one byte
        for op in self.graph.ops:
            if op in self.free:
                nodes[op] = graph.node()
                keep = self.side[op.outputs[0]] if self.prefer is None else self.prefer
                if keep == B:
                    graph.edge(nodes[op], SINK, 1)
                else:
                    graph.edge(SOURCE, nodes[op], 1)
        producers, consumers = self._ends()
        cost = 0
        for cell, maker in producers.items():
            bytes_moved = 0 if only_moves_ones(self.alternative[self.side[cell]], cell.type.shape) else cell.type.nbytes
            made = self._terminal(cell) if maker is None else nodes[maker]
            read = [self._terminal(v) if op is None else nodes[op] for v, op in consumers.get(cell, [])]
            _connect(graph, made, read, bytes_moved * unit)
            stored = self.side[cell]
            cost += bytes_moved * unit * any(self.side[v] != stored for v, _ in consumers.get(cell, []))
        cost += sum(self.side[op.outputs[0]] != self.prefer for op in self.free) if self.prefer is not None else 0
        best, source_side = graph.solve()
        if best >= cost:
            return None
        return {op: A if node in source_side else B for op, node in nodes.items()}

    def _terminal(self, v: Value) -> int:
        return SOURCE if self.side[v] == A else SINK

    def _ends(self) -> tuple[dict[Value, Op | None], dict[Value, list[tuple[Value, Op | None]]]]:
        """For each stored value: the free op that makes it, and its readers (None: not free, wants it as it is)."""
        makers = {v: op for op in self.free for v in op.outputs}
        producers = {v: makers.get(v) for v in self.side if v not in self.root}
        consumers: dict[Value, list[tuple[Value, Op | None]]] = {}
        for op in self.graph.ops:
            tied = set(self.tied(op)) if op in self.free else set()
            for v in dict.fromkeys(op.inputs):
                if v in self.side and op.outputs[0] not in self.root:
                    cell = self.root.get(v, v)
                    consumers.setdefault(cell, []).append((v, op if v in tied else None))
        for v in dict.fromkeys(self.graph.outputs):
            if v in self.side:
                consumers.setdefault(self.root.get(v, v), []).append((v, None))
        return producers, consumers


def _connect(graph: MinCut, made: int, read: list[int], cost: int) -> None:
    """`cost` once, if any reader is on another side than the maker, however many readers share the moved copy."""
    if len(set(read)) == 1:
        graph.edge(made, read[0], cost)
        graph.edge(read[0], made, cost)
    elif read and cost:
        to_b, to_a = graph.node(), graph.node()
        graph.edge(made, to_b, cost)
        graph.edge(to_a, made, cost)
        for r in set(read):
            graph.edge(to_b, r, UNLIMITED)
            graph.edge(r, to_a, UNLIMITED)


class _Rewrite:
    """Writes the graph anew with the chosen storages; transposes appear where a value is read in the other one."""

    def __init__(self, layout: _Layout, storage: dict[Op, int]) -> None:
        self.layout, self.graph, self.storage = layout, layout.graph, storage
        self.ops: list[Op] = []
        self.stored = {(v, layout.side[v]): v for v in self.graph.inputs if v in layout.side}
        """The value that holds a cell in a storage, as far as the ops so far have written it."""
        self.names = {v.name for v in self.graph.values()}
        self.copies = {(r, layout.side[v]): v for v, r in reversed(layout.root.items())}
        """The value that a removed transpose wrote, per cell and side: a new transpose may write it again."""
        self.constants: dict[tuple[Value, Perm], Value] = {}
        self.made: list[tuple[Value, str]] = []
        """New values and the names that they would like to have."""

    def run(self) -> None:
        """In the order of the graph; each new transpose stands before the first op that needs it."""
        for op in self.graph.ops:
            if op.outputs[0] in self.layout.root:
                continue
            if op in self.storage and self.storage[op] != self.layout.side[op.outputs[0]]:
                self._permuted(op)
            else:
                op.inputs = [self._as_is(v, op.source) for v in op.inputs]
                self.ops.append(op)
                self.stored |= {(v, self.layout.side[v]): v for v in op.outputs if v in self.layout.side}
        for v in dict.fromkeys(self.graph.outputs):
            self._output(v)
        self.graph.ops = self.ops
        self._rename()

    def _permuted(self, op: Op) -> None:
        """The op in the other storage."""
        side = self.layout.side[op.outputs[0]]
        perm, moved = self.layout.alternative[side], set(self.layout.moved(op))
        spec = op.spec.permute(perm, op)
        assert spec is not None, f"{op!r} cannot be permuted by {perm}"
        inputs = [self._moved(v, perm, op) if v in moved else self._as_is(v, op.source) for v in op.inputs]
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
        self.ops.append(Op(Reshape(shape), [self._as_is(v, op.source)], [aligned], op.source))
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
            array = np.ascontiguousarray(v.const.reshape((1,) * lead + v.const.shape).transpose(perm))
            quant = v.type.quant
            if quant is not None and quant.axis is not None:
                quant = replace(quant, axis=quant.axis + lead)
            type_ = _permuted_type(TensorType((1,) * lead + v.type.shape, v.type.dtype, quant), perm)
            self.constants[v, perm] = self._new(v.name, type_)
            self.constants[v, perm].const = array
        return self.constants[v, perm]

    def _as_is(self, v: Value, source: str) -> Value:
        return self._read(v, self.layout.side[v], source) if v in self.layout.side else v

    def _read(self, v: Value, storage: int, source: str) -> Value:
        """The cell of `v` in a storage, transposed if nothing has written it so yet."""
        cell = self.layout.root.get(v, v)
        if (cell, storage) not in self.stored:
            x = self.stored[cell, 1 - storage]
            perm = self.layout.alternative[1 - storage]
            y = cell if storage == self.layout.side[cell] else self.copies.get((cell, storage))
            y = y if y is not None else self._new(cell.name, _permuted_type(x.type, perm))
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
