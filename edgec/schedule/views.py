"""Where values lie: values in the bytes of others, so that copies become unnecessary.

A slice is a view of the value that it is cut from, and the inputs of a concat are
written to its result at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from edgec.ir import Graph, KernelCall, Pointer, Value
from edgec.ir.c_structs import GatherParams
from edgec.ops.concat import CONCAT
from edgec.ops.shape import COPY, GATHER

Calls = Sequence[tuple[KernelCall, ...]]
"""The calls of each op of a graph."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where a value lies.

    Attributes:
        root: a value that has bytes of its own
        at: offset from its first byte
    """

    root: Value
    at: int = 0


Places = Mapping[Value, Place]
"""The place of every input and every computed value."""


@dataclass(frozen=True, eq=False)
class Copy:
    """A call that only copies adjacent bytes.

    Attributes:
        source: where they are
        target: where they go
        nbytes: how many
    """

    source: Pointer
    target: Pointer
    nbytes: int


def copy_of(call: KernelCall) -> Copy | None:
    """Return a call as a copy of adjacent bytes; None if it does something else."""
    source, target, *rest = call.operands
    if not isinstance(source, Pointer) or not isinstance(target, Pointer):
        return None
    # A constant has no place in the arena for its copy to be.
    if source.value.const is not None:
        return None

    if call.kernel == CONCAT:
        nbytes = _concat_bytes(rest)
    elif call.kernel == COPY:
        nbytes = source.value.type.nbytes
    elif call.kernel in GATHER and isinstance(rest[0], GatherParams):
        nbytes = target.value.type.nbytes if _is_dense(rest[0]) else None
    else:
        nbytes = None
    return None if nbytes is None else Copy(source, target, nbytes)


def _concat_bytes(operands: Sequence[object]) -> int | None:
    """Return the bytes that a part of a concat copies; None if they are not adjacent.

    Args:
        operands: those of ek_concat behind source and target: rows, bytes of a row, and
            bytes from row to row of the target
    """
    rows, row, pitch = (n for n in operands if isinstance(n, int))
    is_dense = rows == 1 or row == pitch
    return rows * row if is_dense else None


def _is_dense(p: GatherParams) -> bool:
    """Return whether a gather reads one run of adjacent elements."""
    # Dimensions of 1 take no steps, whatever their stride is.
    loops = [(d, s) for d, s in zip(p.dim, p.stride, strict=True) if d != 1]
    if not loops:
        return True
    return len(loops) == 1 and loops[0][1] == 1


def concat_slot(call: KernelCall, v: Value) -> tuple[Pointer, int] | None:
    """Return where a concat of channels puts the value `v`.

    Returns:
        a pointer to the channels of its first pixel, and the elements from pixel to
        pixel there; None if the call does not join all channels of each pixel of `v`
        with others
    """
    if call.kernel != CONCAT:
        return None
    source, target, rows, row, pitch = call.operands
    assert isinstance(source, Pointer)
    assert isinstance(target, Pointer)
    assert isinstance(pitch, int)
    shape = v.type.shape
    itemsize = v.type.np_dtype.itemsize
    pixels = prod(shape[:-1])
    if source.value is not v or (rows, row) != (pixels, itemsize * shape[-1]):
        return None
    return target, pitch // itemsize


def places(graph: Graph, calls: Calls, peak: Callable[[Places], int]) -> Places:
    """Return where each value lies.

    A copy of a part of a value is that part, and a value that is copied to a part of
    another is written there at once. The caller of the model owns a graph's inputs and
    outputs: they share no bytes, but other values may lie in them.

    Args:
        graph: the graph
        calls: the calls of each op
        peak: returns the most bytes that live with given places; a choice that raises
            it is not taken
    """
    chooser = _PlaceChooser(graph, peak)
    copies = [_copies(op_calls) for op_calls in calls]

    # An op that copies its whole input, such as a reshape, is a view without a choice.
    for op_copies, op_calls in zip(copies, calls, strict=True):
        if len(op_calls) != 1:
            continue
        for copy in op_copies:
            if copy.source.value.type.nbytes == copy.nbytes:
                chooser.view(copy)

    for op_copies in copies:
        # All inputs of a concat together may save what each alone does not.
        if not chooser.offer(op_copies):
            for copy in op_copies:
                chooser.offer([copy])
    return chooser.places


def _copies(calls: Sequence[KernelCall]) -> list[Copy]:
    """Return the copies among the calls of an op."""
    copies = (copy_of(call) for call in calls)
    return [copy for copy in copies if copy is not None]


def apart(graph: Graph) -> Places:
    """Return places that give every value bytes of its own."""
    computed = [v for op in graph.ops for v in op.outputs]
    return {v: Place(v) for v in [*graph.inputs, *computed]}


class _PlaceChooser:
    """Chooses the places of values one copy after the other.

    Attributes:
        places: the places as chosen so far
    """

    def __init__(self, graph: Graph, peak: Callable[[Places], int]) -> None:
        """Begin with bytes of its own for every value.

        Args:
            graph: the graph
            peak: returns the most bytes that live with given places
        """
        self.places: Places = apart(graph)
        self._border = {*graph.inputs, *graph.outputs}
        self._peak = peak
        self._least_peak: int | None = None

    def view(self, copy: Copy) -> None:
        """Let the target of a copy lie in its source, whatever the peak is then."""
        self.places = self._moved(self.places, copy.target, copy.source, copy.nbytes)

    def offer(self, copies: Sequence[Copy]) -> bool:
        """Let the target of each copy lie in its source, or the source in the target.

        Return False if more bytes would live then, so that nothing changes.
        """
        moved = self.places
        for c in copies:
            moved = self._moved(moved, c.target, c.source, c.nbytes)
            moved = self._moved(moved, c.source, c.target, c.nbytes)
        if moved is self.places:
            return True

        # The first peak is asked for late: most graphs have nothing to offer.
        if self._least_peak is None:
            self._least_peak = self._peak(self.places)
        peak = self._peak(moved)
        if peak > self._least_peak:
            return False
        self.places = moved
        self._least_peak = peak
        return True

    def _moved(
        self, where: Places, inner: Pointer, outer: Pointer, nbytes: int
    ) -> Places:
        """Move the value that `inner` points into, and its residents, to `outer`.

        It moves only as a whole, and only if the caller does not own it; else the same
        places are returned.
        """
        address_value, offset = address(inner, where)
        root, target = address(outer, where)
        is_whole = offset == 0 and address_value.type.nbytes == nbytes
        if not is_whole or address_value is root or address_value in self._border:
            return where

        moved = dict(where)
        for v, place in where.items():
            if place.root is address_value:
                moved[v] = Place(root, target + place.at)
        return moved


def address(x: Pointer, where: Places) -> tuple[Value, int]:
    """Return the value whose bytes a pointer points into, and the offset in bytes."""
    base = where[x.value]
    return base.root, base.at + x.offset * x.value.type.np_dtype.itemsize


def is_done(call: KernelCall, where: Places) -> bool:
    """Return whether a call copies bytes to where they already are."""
    copy = copy_of(call)
    if copy is None:
        return False

    source = address(copy.source, where)
    return source == address(copy.target, where)
