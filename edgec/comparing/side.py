"""Defines a side of a comparison: a network, and an executor that shows its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgec.comparing.changes import Changes
from edgec.ir import Array, Graph, Op, Value
from edgec.ir.interp import run_op

Look = Callable[[Value, Array], None]
"""Receives each value and its array, which it must not keep."""
See = Callable[[Value, Array], Array | None]
"""Receives each value and its array; returns a replacement, or None for none."""
Sample = Mapping[str, Array]
"""The inputs of one inference, by name."""


class Side(Protocol):
    """A network and the executor that runs it.

    Attributes:
        name: the network, as the user named it
        how: the executor, for people
        inputs: the inputs of the network
        outputs: the outputs of the network
        parts: the ops in order of execution, by segment
        complete: whether the ops of `parts` have their constants
        channels_last: whether channels are the last axis of images
        same_code: whether `force` runs the code that `run` does; otherwise it runs the
            reference of each op, or code with the same results
        changes: values whose channels differ from the original model's
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
        """Run one inference and return the outputs by name.

        `see` receives the inputs and all visible results in order.
        """

    def force(self, inputs: Sample, see: See) -> None:
        """Run one inference in which later ops read the arrays that `see` returns."""

    def close(self) -> None:
        """Free the resources of the executor."""


@dataclass(frozen=True)
class Placed:
    """An op and the name of its segment."""

    op: Op
    part: str


def ops_of(side: Side) -> list[Placed]:
    """Return all ops with a single output."""
    ops = []
    for part, graph in side.parts.items():
        for op in graph.ops:
            # An op with several results has no single error.
            if len(op.outputs) == 1:
                ops.append(Placed(op, part))
    return ops


def values_of(side: Side) -> dict[str, Value]:
    """Return every value other than constants, by name."""

    values = {}
    for value in (*side.inputs, *side.outputs):
        if value.const is None:
            values[value.name] = value

    for graph in side.parts.values():
        for value in graph.values():
            if value.const is None:
                values[value.name] = value
    return values


def walk(parts: Mapping[str, Graph], inputs: Sample, see: See) -> dict[str, Array]:
    """Run segments one after the other by the reference of each op.

    Later ops read the arrays that `see` returns. The result has all values by name.
    """
    arrays: dict[str, Array] = {}

    def put(value: Value, array: Array) -> None:
        replacement = see(value, array)
        arrays[value.name] = array if replacement is None else replacement

    for graph in parts.values():
        for value in graph.inputs:
            # Results of earlier segments are there already.
            if value.name not in arrays:
                put(value, inputs[value.name])
        for op in graph.ops:
            # Constants are in the op.
            operands = {v: arrays[v.name] for v in op.inputs if v.const is None}

            results = run_op(op, operands)
            for value, array in zip(op.outputs, results, strict=True):
                put(value, array)
        # An output that is constant is computed by no op.
        for value in graph.outputs:
            if value.const is not None:
                arrays[value.name] = value.const
    return arrays
