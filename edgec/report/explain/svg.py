"""Draws the graph of a partition report as SVG: a box for each op, coloured by place."""

from __future__ import annotations

from collections.abc import Sequence

from edgec_partitioner.explain import ExplainReport, OpRow

from edgec.report.graph_svg import NodeBox, picture, short


def graph_svg(r: ExplainReport) -> str:
    """Return an `<svg>` element, or "" without ops; the nodes of ops have `data-op`."""
    # The report has ops only; inputs are the tensors that no op writes.
    inputs = _inputs(r.ops)

    boxes = [NodeBox(short(name), type_, "io") for name, type_ in inputs.items()]
    boxes += [_box(op) for op in r.ops]
    return picture(boxes, _edges(list(inputs), r.ops), f"graph of {r.model}")


def _inputs(ops: Sequence[OpRow]) -> dict[str, str]:
    """Return the name and type of each tensor that enters the model."""
    produced = {name for op in ops for name in op.outputs}
    inputs = {}
    for op in ops:
        for name, type_ in zip(op.inputs, op.input_types, strict=True):
            if name not in produced:
                inputs[name] = type_
    return inputs


def _box(op: OpRow) -> NodeBox:
    """Return the box of an op, with its number for the page's script."""
    classes = f"op {place_class(op)}"
    if op.rewrites:
        classes += " rewritten"
    return NodeBox(op.kind, short(op.output), classes, op.index)


def _edges(inputs: Sequence[str], ops: Sequence[OpRow]) -> dict[tuple[int, int], bool]:
    """Return the edges, and whether each crosses from one segment to another.

    The boxes are numbered with the model's inputs first.
    """
    producers = {name: node for node, name in enumerate(inputs)}
    # An input of the model is in no segment: its edges cross nothing.
    segments: list[str | None] = [None] * len(inputs)
    edges = {}
    for op in ops:
        node = len(segments)
        for name in op.inputs:
            producer = producers[name]
            segment = segments[producer]
            edges[producer, node] = segment is not None and segment != op.segment
        segments.append(op.segment)
        for name in op.outputs:
            producers[name] = node
    return edges


def place_class(op: OpRow) -> str:
    """Return the CSS class of an op: edgetpu, uncertain or cpu."""
    # An uncertain op on the Edge TPU was wanted there (--optimistic).
    if op.place == "cpu" and op.verdict == "uncertain":
        return "uncertain"
    return op.place
