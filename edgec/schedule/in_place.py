"""Results that take the memory of an operand which nothing reads later.

The bytes of the operand are in the cache already, so that writing there saves the
memory traffic of a fresh buffer. A kernel says which of its operands allow it
(`Kernel.in_place`).
"""

from __future__ import annotations

from collections.abc import Sequence

from edgec.ir import Graph, KernelCall, Pointer, Value
from edgec.schedule.fuse import FusedStep
from edgec.schedule.liveness import LiveBytes, tensors
from edgec.schedule.views import Place, Places


def in_place(
    graph: Graph,
    plain_steps: Sequence[FusedStep],
    steps: Sequence[FusedStep],
    where: Places,
) -> Places:
    """Return the places after every possible result took the place of an operand.

    plain_steps: the steps with calls of plain kernels. steps: the same with the chosen
    variants, some of them joined. where: the places before.
    """
    plain_calls = {step.ops: step.calls for step in plain_steps}
    border = {*graph.inputs, *graph.outputs}
    used = [tensors(step.calls) for step in steps]
    moves = _Moves(where, used, border)

    for i, step in enumerate(steps):
        # A variant keeps the promise of the plain kernel that it replaces, while a
        # joined step has a kernel of its own.
        calls = plain_calls.get(step.ops, step.calls)
        if len(calls) != 1 or len(step.calls) != 1:
            continue

        result = tensors(calls)[-1]
        for operand in _overwritable(calls[0]):
            if moves.move(operand, result, i):
                break

    return moves.where


class _Moves:
    """Places, and the bytes that live, while results move.

    Attributes:
        where: the places so far
        used: the tensors that each step reads and writes
        border: values that the caller owns
        sharing: the values that lie in the bytes of a value
    """

    def __init__(
        self, where: Places, used: Sequence[Sequence[Value]], border: set[Value]
    ) -> None:
        self.where = dict(where)
        self.used = used
        self.border = border
        self.sharing: dict[Value, list[Value]] = {}
        for value, place in where.items():
            self.sharing.setdefault(place.root, []).append(value)

        self.living = LiveBytes(len(used), self.where, border)
        for i, values in enumerate(used):
            self.living.add(i, values)

    def move(self, operand: Value, result: Value, step: int) -> bool:
        """Move the result of a step to the place of an operand; return whether it did.

        A move that makes more bytes live at once is undone.
        """
        if not self._is_free(operand, result, step):
            return False

        place = self.where[operand]
        peak = self.living.peak()
        undo = self.living.move(result, place.root)

        # The operand may be a small part of a large buffer, which lives longer now.
        if self.living.peak() > peak:
            undo()
            return False

        # Whatever lay in the result's bytes moves with it.
        for value in self.sharing.pop(result):
            self.where[value] = Place(place.root, place.at + self.where[value].at)
            self.sharing[place.root].append(value)

        return True

    def _is_free(self, operand: Value, result: Value, step: int) -> bool:
        """Return whether nobody needs the bytes of an operand after a step."""
        if operand.type.np_dtype.itemsize != result.type.np_dtype.itemsize:
            return False
        if operand.type.size != result.type.size:
            return False

        # The caller's tensors stay where they are, and a result that already lies in
        # another value has its place for a reason.
        root = self.where[operand].root
        if root in self.border or result in self.border:
            return False
        if self.where[result].root is not result or self.living.last(root) > step:
            return False

        # Other operands of the step may be parts of the same bytes.
        sharing = [v for v in self.used[step] if self.where[v].root is root]
        return all(value is operand for value in sharing)


def _overwritable(call: KernelCall) -> list[Value]:
    """Return the operands whose memory the kernel can give to its result."""
    pointers = [x for x in call.operands if isinstance(x, Pointer)]

    # Fused calls read other tensors, and with an offset the elements of operand and
    # result are not at the same places.
    if call.then or not pointers or any(x.offset for x in pointers):
        return []

    shape = pointers[-1].value.type.shape
    values: list[Value] = []
    for position in call.kernel.in_place:
        operand = call.operands[position]
        if not isinstance(operand, Pointer):
            continue

        # A broadcast operand is read again after the first element was written.
        value = operand.value
        is_whole = value.const is None and value.type.shape == shape
        if is_whole and value not in values:
            values.append(value)

    return values
