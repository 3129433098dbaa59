"""Loop and Scan with a trip count known at compile time, unrolled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import AttributeProto, FunctionProto, NodeProto

from edgec.frontends.onnx_file import subgraphs
from edgec.ir import Builder, Value
from edgec.ir.reading import ComputedError
from edgec.ops.common import axis_of
from edgec.ops.concat import Concat
from edgec.ops.shape import Reshape
from edgec.ops.slice import slice_axes

MOST_TRIPS = 1024
"""The limit of trips: each one is a copy of the body in the graph."""

Call = Callable[[FunctionProto, Sequence[Value]], Sequence[Value]]
"""A function that adds a body to the graph, and returns its results."""


def body_of(node: NodeProto) -> FunctionProto:
    """Return the body of a loop as a function.

    Values that it reads from outside keep their names.
    """
    graph = subgraphs(node)["body"]
    function = FunctionProto(name=node.op_type)
    function.input.extend(i.name for i in graph.input)
    function.output.extend(o.name for o in graph.output)
    # A function has no initializers.
    for tensor in graph.initializer:
        constant = function.node.add(op_type="Constant", output=[tensor.name])
        value = AttributeProto(name="value", type=AttributeProto.TENSOR, t=tensor)
        constant.attribute.append(value)
    function.node.extend(graph.node)
    return function


def loop(
    build: Builder, node: NodeProto, inputs: Sequence[Value | None], call: Call
) -> list[Value]:
    """Unroll a Loop, and return its results.

    Its trip count and its condition must be constant; it ends with either.
    """
    # Both may be left out at the end of the inputs.
    count, condition, *state = [*inputs, None, None][: max(2, len(inputs))]
    max_trips = _trip_count(count)
    body = body_of(node)
    carried = [v for v in state if v is not None]
    if condition is None:
        condition = build.const(np.array(True), "going")

    rows: list[list[Value]] = []
    for trip in range(max_trips):
        if not _goes_on(condition):
            break
        if trip == MOST_TRIPS:
            raise ValueError(f"more than {MOST_TRIPS} trips")
        # The body gets the number of the trip as a constant, so that its arithmetic
        # folds.
        number = build.const(np.array(trip, np.int64), "trip")
        condition, *results = call(body, [number, condition, *carried])
        rows.append(results[len(carried) :])
        carried = results[: len(carried)]

    scan_outputs = len(body.output) - 1 - len(carried)
    if scan_outputs and not rows:
        raise ValueError("a loop without a trip has scan outputs of unknown shape")
    stacked: list[Value] = []
    for i in range(scan_outputs):
        stacked.append(_stacked(build, [row[i] for row in rows], 0, node))
    return [*carried, *stacked]


def _trip_count(count: Value | None) -> int:
    """Return the trip count of a Loop, a number beyond the limit if it has none.

    Raises ComputedError if it is not constant.
    """
    if count is None:
        return MOST_TRIPS + 1
    if count.const is None:
        message = "edgec compiles models without control flow: the trip count"
        raise ComputedError(message, count)
    return int(count.const.item())


def _goes_on(condition: Value) -> bool:
    """Return the value of a loop's condition.

    Raises ComputedError if it is not constant.
    """
    if condition.const is None:
        message = (
            "edgec compiles models without control flow: the condition of the loop"
        )
        raise ComputedError(message, condition)
    return bool(condition.const.item())


def scan(
    build: Builder, node: NodeProto, inputs: Sequence[Value | None], call: Call
) -> list[Value]:
    """Unroll a Scan (opset 9 and up), and return its results.

    There is one trip for each slice of its scanned inputs.
    """
    attributes = {a.name: a for a in node.attribute}
    if "directions" in attributes or (inputs and inputs[0] is None):
        raise ValueError(
            "the Scan of opset 8, which has a batch; "
            "export the model with a newer opset"
        )
    count = attributes["num_scan_inputs"].i
    present = [v for v in inputs if v is not None]
    # States come first, then the scanned inputs.
    carried = present[: len(present) - count]
    scanned = present[len(present) - count :]

    axes: list[int] = []
    input_axes = _integers(attributes, "scan_input_axes", count)
    for axis, v in zip(input_axes, scanned, strict=True):
        axes.append(axis_of(axis, v.type.rank))
    trips = scanned[0].type.shape[axes[0]]
    if trips > MOST_TRIPS:
        raise ValueError(f"{trips} trips; edgec unrolls up to {MOST_TRIPS}")

    body = body_of(node)
    backwards = _integers(attributes, "scan_input_directions", count)
    rows: list[list[Value]] = []
    for trip in range(trips):
        slices: list[Value] = []
        for v, axis, back in zip(scanned, axes, backwards, strict=True):
            # A direction of 1 scans from the end.
            place = trips - 1 - trip if back else trip
            slices.append(_slice(build, v, axis, place, node))
        results = list(call(body, [*carried, *slices]))
        rows.append(results[len(carried) :])
        carried = results[: len(carried)]

    outputs = len(body.output) - len(carried)
    reverse = _integers(attributes, "scan_output_directions", outputs)
    output_axes = _integers(attributes, "scan_output_axes", outputs)
    stacked: list[Value] = []
    for i, output_axis in enumerate(output_axes):
        row = [results[i] for results in rows]
        # An output direction of 1 prepends each trip's result.
        if reverse[i]:
            row.reverse()
        axis = axis_of(output_axis, row[0].type.rank + 1)
        stacked.append(_stacked(build, row, axis, node))
    return [*carried, *stacked]


def _integers(
    attributes: Mapping[str, AttributeProto], name: str, count: int
) -> list[int]:
    """Return the integers of an attribute, zeros if it is absent."""
    if name not in attributes:
        return [0] * count
    return list(attributes[name].ints)


def _slice(build: Builder, x: Value, axis: int, place: int, node: NodeProto) -> Value:
    """Return one slice of `x`, without the axis.

    place: the index along the axis.
    """
    name = node.name or node.op_type
    spec = slice_axes(x.type, {axis: (place, 1, 1)})
    cut = build.add(spec, [x], name)
    shape = list(x.type.shape)
    del shape[axis]
    return build.add(Reshape(tuple(shape)), [cut], name)


def _stacked(build: Builder, row: Sequence[Value], axis: int, node: NodeProto) -> Value:
    """Return values of one shape joined along a new axis.

    row: one value for each trip.
    """
    name = node.name or node.op_type
    shape = list(row[0].type.shape)
    shape.insert(axis, 1)
    # A new dimension of 1, along which the rows are joined.
    wide = [build.add(Reshape(tuple(shape)), [v], name) for v in row]
    if len(wide) == 1:
        return wide[0]
    return build.add(Concat(axis), wide, name)
