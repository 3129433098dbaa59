"""A dataflow graph of operations in static single assignment, with static shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

from edgec.ir.opdef import Op
from edgec.ir.types import Array, TensorType
from edgec.ir.value import Value


@dataclass(frozen=True, eq=False)
class State:
    """A tensor that a graph keeps between calls.

    It is an input that has at each call the value that an output had at the call
    before.

    Attributes:
        input, output: names of the graph's input and output, which no pass changes
        initial: value of the input at the first call
    """

    input: str
    output: str
    initial: Array


@dataclass(eq=False)
class Graph:
    """Ops in an order in which every value is written before it is read.

    Attributes:
        name: of the network
        inputs, outputs: boundary tensors, in the order of the model file
        ops: operations in topological order
        state: inputs and outputs that the graph keeps itself; a caller gives and gets
            the others
    """

    name: str
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    state: list[State] = field(default_factory=list)

    def given(self) -> list[Value]:
        """Return the inputs that callers give: those without state."""
        # State names its tensors, which no pass renames.
        state_names = {state.input for state in self.state}
        return [v for v in self.inputs if v.name not in state_names]

    def returned(self) -> list[Value]:
        """Return the outputs that callers get: those without state."""
        state_names = {state.output for state in self.state}
        return [v for v in self.outputs if v.name not in state_names]

    def values(self) -> Iterator[Value]:
        """Yield every value once: inputs, then others in the order of use."""
        groups: list[Sequence[Value]] = [self.inputs]
        for op in self.ops:
            groups += [op.inputs, op.outputs]

        groups.append(self.outputs)

        # A value that several ops read is listed once.
        visited: set[int] = set()
        for value in chain.from_iterable(groups):
            if id(value) not in visited:
                visited.add(id(value))
                yield value

    def constants(self) -> list[Value]:
        """Return every constant that is used."""
        return [v for v in self.values() if v.const is not None]

    def producers(self) -> dict[Value, Op]:
        """Return the op that writes each value."""
        return {v: op for op in self.ops for v in op.outputs}

    def users(self) -> dict[Value, list[Op]]:
        """Return the ops that read each value.

        An op that reads a value twice is listed twice.
        """
        # In the order of the ops.
        users: dict[Value, list[Op]] = {}
        for op in self.ops:
            for value in op.inputs:
                users.setdefault(value, []).append(op)

        return users

    def inputs_behind(self, values: Sequence[Value]) -> frozenset[str]:
        """Return the names of the graph's inputs that values depend on."""
        producers = self.producers()
        stack = list(values)
        visited: set[Value] = set()
        while stack:
            value = stack.pop()
            if value in visited:
                continue
            visited.add(value)

            # Constants and inputs have no producer.
            if value in producers:
                stack += producers[value].inputs

        return frozenset(v.name for v in self.inputs if v in visited)

    def replace(self, old: Value, new: Value) -> None:
        """Let every user of `old`, and the graph's outputs, read `new` instead."""
        # A user may read the value more than once.
        for op in self.ops:
            op.inputs = [new if v is old else v for v in op.inputs]
        self.outputs = [new if v is old else v for v in self.outputs]

    def drop_unused(self) -> bool:
        """Remove the ops whose results nothing needs; return whether there were any."""
        needed = {id(v) for v in self.outputs}
        used_ops: list[Op] = []
        # Backwards, so that all users of a value are seen before its producer.
        for op in reversed(self.ops):
            if any(id(v) in needed for v in op.outputs):
                used_ops.append(op)
                needed.update(id(v) for v in op.inputs)

        changed = len(used_ops) < len(self.ops)
        self.ops = used_ops[::-1]

        return changed

    def unique_name(self, base: str) -> str:
        """Return `base`, or the first of `base_1`, `base_2`, … that no value has."""
        return unique(base, {v.name for v in self.values()}.__contains__)

    def copy(self) -> Graph:
        """Return a deep copy that shares the constants' arrays and the specs."""
        # Constants are shared with the original.
        copies = {v: Value(v.name, v.type, v.const) for v in self.values()}
        ops: list[Op] = []
        for op in self.ops:
            inputs = [copies[v] for v in op.inputs]
            outputs = [copies[v] for v in op.outputs]
            ops.append(Op(op.spec, inputs, outputs, op.source))

        graph_inputs = [copies[v] for v in self.inputs]
        graph_outputs = [copies[v] for v in self.outputs]

        return Graph(self.name, graph_inputs, graph_outputs, ops, [*self.state])

    def __eq__(self, other: object) -> bool:
        """Return whether both graphs have the same text form.

        It has names, types, elements of constants, attributes and sources.
        """
        return isinstance(other, Graph) and self._form() == other._form()

    def _form(self) -> tuple[Any, ...]:
        """Return the content of the text form, as tuples that can be compared.

        Attributes are compared as text, since a NaN equals no number.
        """
        ops = []
        for op in self.ops:
            spec = repr(op.spec)
            ops.append((spec, _names(op.inputs), _typed(op.outputs), op.source))

        constants = []
        for value in self.constants():
            constants.append((value.name, value.type, _bits(value.const)))

        # The initial arrays are a part of the graph.
        states = []
        for state in self.state:
            states.append((state.input, state.output, _bits(state.initial)))

        return (
            self.name,
            _typed(self.inputs),
            _names(self.outputs),
            ops,
            constants,
            states,
        )

    __hash__ = None  # type: ignore[assignment]


def _bits(array: Array | None) -> tuple[Any, ...]:
    """Return an array as a tuple that is equal only for equal bits.

    Arrays with a NaN, and zeros of both signs, compare as they should so.
    """
    if array is None:
        return ()

    return (array.dtype, array.shape, array.tobytes())


def _names(values: Iterable[Value]) -> list[str]:
    """Return the names of values."""
    return [v.name for v in values]


def _typed(values: Iterable[Value]) -> list[tuple[str, TensorType]]:
    """Return the (name, type) pairs of values."""
    return [(v.name, v.type) for v in values]


def unique(base: str, taken: Callable[[str], bool]) -> str:
    """Return the first of base, base_1, base_2, … that is not taken."""
    name = base
    numbers = count(1)
    while taken(name):
        name = f"{base}_{next(numbers)}"

    return name


class Names:
    """A set of names, with new ones as `unique` gives them.

    Many names of one base take a time that is linear in their number, as the next
    number of each base is kept.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        """Start with names that are taken."""
        self._taken = set(taken)
        self._numbers: dict[str, Iterator[int]] = {}

    def new(self, base: str) -> str:
        """Return a name that is not taken, and take it."""
        name = base
        if base in self._taken:
            # Numbers go on after the last one given.
            numbers = self._numbers.setdefault(base, count(1))
            while name in self._taken:
                name = f"{base}_{next(numbers)}"

        self._taken.add(name)

        return name

    def take(self, names: Iterable[str]) -> None:
        """Take names, so that `new` never gives them."""
        self._taken.update(names)
