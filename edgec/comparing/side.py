"""One of the two that are compared: a network, and something that runs it and shows
what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgec.comparing.changes import Changes
from edgec.ir import Array, Graph, Op, Value
from edgec.ir.interp import run_op

Look = Callable[[Value, Array], None]
"""Is given each value and its array, which it must not keep."""
See = Callable[[Value, Array], Array | None]
"""The same; what it returns is put in the value's place. None: nothing."""
Sample = Mapping[str, Array]


class Side(Protocol):
    """A network as something runs it. name: as a person gave it; how: what runs it, for
    people.

    parts: its ops in order, by the segment that they are in; with `complete` they have
    their constants. channels_last: whether the last axis of images is that of channels.
    same_code: whether `force` runs what `run` does; else it is the law of each op, or
    code that gives the same. changes: of the channels of values that are not as they
    came.
    """

    name: str
    how: str
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    parts: Mapping[str, Graph]
    complete: bool
    channels_last: bool
    same_code: bool
    changes: Changes

    def run(self, inputs: Sample, see: Look) -> dict[str, Array]:
        """One inference; shows inputs and results in order, those that can be seen;
        returns the outputs by name.
        """

    def force(self, inputs: Sample, see: See) -> None:
        """The same; what `see` returns for a value is what later ops read in its place."""

    def close(self) -> None:
        """Free what it holds."""


@dataclass(frozen=True)
class Placed:
    """An op and the part that it is in."""

    op: Op
    part: str


def ops_of(side: Side) -> list[Placed]:
    """All ops that write one value."""
    return [
        Placed(op, part)
        for part, g in side.parts.items()
        for op in g.ops
        if len(op.outputs) == 1
    ]


def values_of(side: Side) -> dict[str, Value]:
    """Every value that is no constant, by name."""
    graphs = side.parts.values()
    found = {v.name: v for g in graphs for v in g.values() if v.const is None}
    return {
        **{v.name: v for v in (*side.inputs, *side.outputs) if v.const is None},
        **found,
    }


def walk(parts: Mapping[str, Graph], inputs: Sample, see: See) -> dict[str, Array]:
    """Run graphs, one after the other, by each op's own law; what `see` returns is what
    later ops read.
    """
    known: dict[str, Array] = {}

    def put(v: Value, array: Array) -> None:
        other = see(v, array)
        known[v.name] = array if other is None else other

    for g in parts.values():
        for v in g.inputs:
            if v.name not in known:
                put(v, inputs[v.name])
        for op in g.ops:
            env = {v: known[v.name] for v in op.inputs if v.const is None}
            for v, array in zip(op.outputs, run_op(op, env), strict=True):
                put(v, array)
        known |= {v.name: v.const for v in g.outputs if v.const is not None}
    return known
