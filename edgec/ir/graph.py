"""Graph: a static single-assignment dataflow graph of operations, with static shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from edgec.ir.opdef import Op
from edgec.ir.types import Array, TensorType
from edgec.ir.value import Value


@dataclass(frozen=True, eq=False)
class State:
    """What a graph keeps between calls: an input that is, at each call, what this
    output was at the call before.

    input, output: names, which no pass changes. initial: the input at the first call.
    """

    input: str
    output: str
    initial: Array


@dataclass(eq=False)
class Graph:
    """Ops in an order in which every value is written before it is read.

    state: those inputs and outputs that are its own; whoever calls it gives and gets
    the others.
    """

    name: str
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    state: list[State] = field(default_factory=list)

    def given(self) -> list[Value]:
        """The inputs that callers give: those that are no state."""
        kept = {s.input for s in self.state}
        return [v for v in self.inputs if v.name not in kept]

    def returned(self) -> list[Value]:
        """The outputs that callers get: those that are no state."""
        kept = {s.output for s in self.state}
        return [v for v in self.outputs if v.name not in kept]

    def values(self) -> Iterator[Value]:
        """Every value once: inputs, then constants and results in the order of use."""
        seen: set[int] = set()
        groups: list[Sequence[Value]] = [self.inputs]
        groups += [[*op.inputs, *op.outputs] for op in self.ops]
        for value in (v for group in [*groups, self.outputs] for v in group):
            if id(value) not in seen:
                seen.add(id(value))
                yield value

    def constants(self) -> list[Value]:
        """Every constant that is read."""
        return [v for v in self.values() if v.const is not None]

    def producers(self) -> dict[Value, Op]:
        """The op that writes each value."""
        return {v: op for op in self.ops for v in op.outputs}

    def users(self) -> dict[Value, list[Op]]:
        """The ops that read each value (an op that reads it twice is listed twice)."""
        users: dict[Value, list[Op]] = {}
        for op in self.ops:
            for v in op.inputs:
                users.setdefault(v, []).append(op)
        return users

    def inputs_behind(self, values: Sequence[Value]) -> frozenset[str]:
        """The names of the inputs that values hang on."""
        made = self.producers()
        todo = list(values)
        seen = set[Value]()
        while todo:
            value = todo.pop()
            if value not in seen:
                seen.add(value)
                todo += made[value].inputs if value in made else ()
        return frozenset(v.name for v in self.inputs if v in seen)

    def replace(self, old: Value, new: Value) -> None:
        """Let every reader of `old`, and the graph's outputs, read `new` instead."""
        for op in self.ops:
            op.inputs = [new if v is old else v for v in op.inputs]
        self.outputs = [new if v is old else v for v in self.outputs]

    def drop_unused(self) -> bool:
        """Remove ops of which no result is needed; tells whether there were any."""
        needed = {id(v) for v in self.outputs}
        kept: list[Op] = []
        for op in reversed(self.ops):
            if any(id(v) in needed for v in op.outputs):
                kept.append(op)
                needed.update(id(v) for v in op.inputs)
        changed = len(kept) < len(self.ops)
        self.ops = kept[::-1]
        return changed

    def unique_name(self, base: str) -> str:
        """`base`, or `base_1`, `base_2`, … when a value already has that name."""
        return unique(base, {v.name for v in self.values()}.__contains__)

    def copy(self) -> Graph:
        """A deep copy that shares the constants' arrays and the specs."""
        twin = {v: Value(v.name, v.type, v.const) for v in self.values()}
        ops = [
            Op(
                o.spec,
                [twin[v] for v in o.inputs],
                [twin[v] for v in o.outputs],
                o.source,
            )
            for o in self.ops
        ]
        inputs = [twin[v] for v in self.inputs]
        outputs = [twin[v] for v in self.outputs]
        return Graph(self.name, inputs, outputs, ops, [*self.state])

    def __eq__(self, other: object) -> bool:
        """Whether both have the same text: names, types, elements of constants,
        attributes and sources.
        """
        return isinstance(other, Graph) and self._form() == other._form()

    def _form(self) -> tuple[Any, ...]:
        """All that the text says, as what can be compared.

        Attributes are compared as text: a NaN equals none.
        """
        ops = []
        for op in self.ops:
            ops.append(
                (repr(op.spec), _names(op.inputs), _typed(op.outputs), op.source)
            )
        constants = [(v.name, v.type, _elements(v.const)) for v in self.constants()]
        state = [(s.input, s.output, _elements(s.initial)) for s in self.state]
        return (
            self.name,
            _typed(self.inputs),
            _names(self.outputs),
            ops,
            constants,
            state,
        )

    __hash__ = None  # type: ignore[assignment]


def _elements(array: Array | None) -> tuple[Any, ...]:
    """An array as what can be compared bit for bit: with its NaN, and with the sign of
    its zeros.
    """
    return () if array is None else (array.dtype, array.shape, array.tobytes())


def _names(values: Iterable[Value]) -> list[str]:
    return [v.name for v in values]


def _typed(values: Iterable[Value]) -> list[tuple[str, TensorType]]:
    return [(v.name, v.type) for v in values]


def unique(base: str, taken: Callable[[str], bool]) -> str:
    """The first of base, base_1, base_2, … that is not taken."""
    if not taken(base):
        return base
    return next(name for n in count(1) if not taken(name := f"{base}_{n}"))


class Names:
    """Names that are taken, and new ones as `unique` gives them: many of one base in
    time that is linear in them.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._numbers = dict[str, Iterator[int]]()

    def new(self, base: str) -> str:
        """A name that is not taken, and is now."""
        name = base
        if base in self._taken:
            numbers = self._numbers.setdefault(base, count(1))
            name = next(
                name for n in numbers if (name := f"{base}_{n}") not in self._taken
            )
        self._taken.add(name)
        return name

    def take(self, names: Iterable[str]) -> None:
        """Give these to nobody."""
        self._taken.update(names)
