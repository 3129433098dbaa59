"""Where values lie: values that share the bytes of others, so that calls that only copy
have nothing left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from edgec.ir import Graph, KernelCall, Pointer, Struct, Value
from edgec.ops.concat import CONCAT
from edgec.ops.shape import COPY, GATHER

Calls = Sequence[tuple[KernelCall, ...]]
"""What each op of a graph asks for."""


@dataclass(frozen=True, eq=False)
class Place:
    """`at` bytes after the first byte of a value that has bytes of its own."""

    root: Value
    at: int = 0


Places = Mapping[Value, Place]
"""Where every input and every computed value lies."""


@dataclass(frozen=True, eq=False)
class Copy:
    """A call that does no more than copy adjacent bytes."""

    source: Pointer
    target: Pointer
    nbytes: int


def copy_of(call: KernelCall) -> Copy | None:
    """The call as a copy of adjacent bytes; None where it is none."""
    source, target, *rest = call.operands
    if not isinstance(source, Pointer) or source.value.const is not None:
        return None
    if call.kernel == CONCAT:
        rows, row, pitch = (n for n in rest if isinstance(n, int))
        dense = rows == 1 or row == pitch
        nbytes = rows * row
    elif call.kernel == COPY:
        dense = True
        nbytes = source.value.type.nbytes
    elif call.kernel in GATHER and isinstance(rest[0], Struct):
        dense = _is_dense(rest[0])
        nbytes = target.value.type.nbytes if isinstance(target, Pointer) else 0
    else:
        return None
    if dense and isinstance(target, Pointer):
        return Copy(source, target, nbytes)
    return None


def concat_slot(call: KernelCall, v: Value) -> tuple[Pointer, int] | None:
    """Where a call puts the channels of the first pixel of `v`, and elements from pixel
    to pixel there.

    None where it does not join all channels of each pixel with others.
    """
    if call.kernel != CONCAT:
        return None
    source, target, rows, row, pitch = call.operands
    assert isinstance(source, Pointer)
    assert isinstance(target, Pointer)
    assert isinstance(pitch, int)
    size = v.type.np_dtype.itemsize
    if source.value is not v or (rows, row) != (
        prod(v.type.shape[:-1]),
        size * v.type.shape[-1],
    ):
        return None
    return target, pitch // size


def _is_dense(gather: Struct) -> bool:
    """Whether an ek_gather_t walks one run of adjacent elements."""
    dims = gather.fields["dim"]
    strides = gather.fields["stride"]
    assert isinstance(dims, Sequence)
    assert isinstance(strides, Sequence)
    walk = [(d, s) for d, s in zip(dims, strides, strict=True) if d != 1]
    return walk in ([], [(walk[0][0] if walk else 0, 1)])


def places(graph: Graph, calls: Calls, peak: Callable[[Places], int]) -> Places:
    """Where each value lies.

    What is copied from a part of a value is that part. What is copied to a part of a
    value, as the inputs of a concat are, is written there at once. The caller owns a
    graph's inputs and outputs: they share no bytes, but other values may lie in them.
    peak: the bytes that live at most with such places; those that need more are not
    taken.
    """
    found = _Places(graph, peak)
    copies = [
        [c for call in some if (c := copy_of(call)) is not None] for some in calls
    ]
    whole = [some for some, of in zip(copies, calls, strict=True) if len(of) == 1]
    for copy in (
        c for some in whole for c in some if c.source.value.type.nbytes == c.nbytes
    ):
        found.view(copy)
    for some in copies:
        if not found.offer(some):
            for copy in some:
                found.offer([copy])
    return found.known


def apart(graph: Graph) -> Places:
    """Every value with bytes of its own."""
    return {
        v: Place(v)
        for v in [*graph.inputs, *(v for op in graph.ops for v in op.outputs)]
    }


class _Places:
    """Places as they are found."""

    def __init__(self, graph: Graph, peak: Callable[[Places], int]) -> None:
        self.known: Places = apart(graph)
        self._caller = {*graph.inputs, *graph.outputs}
        self._peak = peak
        self._least: int | None = None

    def view(self, copy: Copy) -> None:
        """Let the target lie in the source, whatever that needs."""
        self.known = self._moved(self.known, copy.target, copy.source, copy.nbytes)

    def offer(self, copies: Sequence[Copy]) -> bool:
        """Let each target lie in its source, or the other way round; not if more bytes
        live then: tells that.
        """
        where = self.known
        for c in copies:
            where = self._moved(where, c.target, c.source, c.nbytes)
            where = self._moved(where, c.source, c.target, c.nbytes)
        if where is not self.known:
            self._least = self._peak(self.known) if self._least is None else self._least
            peak = self._peak(where)
            if peak > self._least:
                return False
            self.known = where
            self._least = peak
        return True

    def _moved(
        self, where: Places, inner: Pointer, outer: Pointer, nbytes: int
    ) -> Places:
        """Places after a value, and all that share its bytes, went to where `outer`
        points; as before where it may not.

        It moves only as a whole, and only if the caller does not own it.
        """
        (own, at), (root, to) = address(inner, where), address(outer, where)
        if at or own is root or own in self._caller or own.type.nbytes != nbytes:
            return where
        return {
            v: Place(root, to + p.at) if p.root is own else p for v, p in where.items()
        }


def address(x: Pointer, where: Places) -> tuple[Value, int]:
    """The value whose bytes a computed tensor's pointer points at, and at which of
    them.
    """
    base = where[x.value]
    return base.root, base.at + x.offset * x.value.type.np_dtype.itemsize


def is_done(call: KernelCall, where: Places) -> bool:
    """Whether a call copies bytes to where they are."""
    copy = copy_of(call)
    return copy is not None and address(copy.source, where) == address(
        copy.target, where
    )
