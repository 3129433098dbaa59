"""Loop and Scan with a trip count that is known when edgec reads them: as their bodies,
one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
"""Each trip is the body once more in the graph."""

Call = Callable[[FunctionProto, Sequence[Value]], Sequence[Value]]
"""The results of a body for these inputs."""


def body_of(node: NodeProto) -> FunctionProto:
    """The body of a loop as a function; what it reads from outside keeps its name."""
    graph = subgraphs(node)["body"]
    made = FunctionProto(name=node.op_type)
    made.input.extend(i.name for i in graph.input)
    made.output.extend(o.name for o in graph.output)
    for tensor in graph.initializer:
        constant = made.node.add(op_type="Constant", output=[tensor.name])
        constant.attribute.append(
            AttributeProto(name="value", type=AttributeProto.TENSOR, t=tensor)
        )
    made.node.extend(graph.node)
    return made


def loop(
    build: Builder, node: NodeProto, inputs: Sequence[Value | None], call: Call
) -> list[Value]:
    """Loop: as often as its constant count says, or until its condition, constant too,
    says no.
    """
    count, condition, *state = [*inputs, None, None][: max(2, len(inputs))]
    if count is not None and count.const is None:
        raise ComputedError(
            "edgec compiles models without control flow: the trip count", count
        )
    if count is not None and count.const is not None:
        most = int(count.const.item())
    else:
        most = MOST_TRIPS + 1
    body = body_of(node)
    carried = [v for v in state if v is not None]
    going = condition if condition is not None else build.const(np.array(True), "going")
    rows: list[list[Value]] = []
    for trip in range(most):
        if going.const is None:
            raise ComputedError(
                "edgec compiles models without control flow: the condition of the loop",
                going,
            )
        if not going.const.item():
            break
        if trip == MOST_TRIPS:
            raise ValueError(f"more than {MOST_TRIPS} trips")
        going, *results = call(
            body, [build.const(np.array(trip, np.int64), "trip"), going, *carried]
        )
        carried, row = list(results[: len(carried)]), list(results[len(carried) :])
        rows.append(row)
    n_scanned = len(body.output) - 1 - len(carried)
    if n_scanned and not rows:
        raise ValueError("a loop without a trip has scan outputs of unknown shape")
    return [
        *carried,
        *(_stacked(build, [row[i] for row in rows], 0, node) for i in range(n_scanned)),
    ]


def scan(
    build: Builder, node: NodeProto, inputs: Sequence[Value | None], call: Call
) -> list[Value]:
    """Scan (opset 9 and up): one trip for each slice of its inputs."""
    attrs = {a.name: a for a in node.attribute}
    n = attrs["num_scan_inputs"].i
    if "directions" in attrs or (inputs and inputs[0] is None):
        raise ValueError(
            "the Scan of opset 8, which has a batch; export the model with a newer opset"
        )

    def listed(name: str, count: int) -> list[int]:
        return list(attrs[name].ints) if name in attrs else [0] * count

    given = [v for v in inputs if v is not None]
    body = body_of(node)
    carried = given[: len(given) - n]
    scanned = given[len(given) - n :]
    axes = [
        axis_of(a, v.type.rank)
        for a, v in zip(listed("scan_input_axes", n), scanned, strict=True)
    ]
    trips = scanned[0].type.shape[axes[0]]
    if trips > MOST_TRIPS:
        raise ValueError(f"{trips} trips; edgec unrolls up to {MOST_TRIPS}")
    backwards = listed("scan_input_directions", n)
    rows = list[list[Value]]()
    for trip in range(trips):
        places = [trips - 1 - trip if back else trip for back in backwards]
        slices = [
            _slice(build, v, a, p, node)
            for v, a, p in zip(scanned, axes, places, strict=True)
        ]
        results = call(body, [*carried, *slices])
        rows.append(list(results[len(carried) :]))
        carried = list(results[: len(carried)])
    outs = len(body.output) - len(carried)
    reverse = listed("scan_output_directions", outs)
    joined = list[Value]()
    for i, axis in enumerate(listed("scan_output_axes", outs)):
        row = [r[i] for r in (rows[::-1] if reverse[i] else rows)]
        joined.append(_stacked(build, row, axis_of(axis, row[0].type.rank + 1), node))
    return [*carried, *joined]


def _slice(build: Builder, x: Value, axis: int, at: int, node: NodeProto) -> Value:
    """One slice without the axis."""
    cut = build.add(
        slice_axes(x.type, {axis: (at, 1, 1)}), [x], node.name or node.op_type
    )
    shape = tuple(d for i, d in enumerate(x.type.shape) if i != axis)
    return build.add(Reshape(shape), [cut], node.name or node.op_type)


def _stacked(build: Builder, row: Sequence[Value], axis: int, node: NodeProto) -> Value:
    """Values of one shape along a new axis."""
    name = node.name or node.op_type
    shape = (*row[0].type.shape[:axis], 1, *row[0].type.shape[axis:])
    wide = [build.add(Reshape(shape), [v], name) for v in row]
    return build.add(Concat(axis), wide, name) if len(wide) > 1 else wide[0]
