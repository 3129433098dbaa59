"""The graph of a partition report as an SVG picture: one box for each op, coloured by
place.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgec_partitioner.explain import ExplainReport, OpRow

from edgec.report.graph_svg import NodeBox, picture, short


def graph_svg(r: ExplainReport) -> str:
    """An `<svg>` element; the nodes of ops have `data-op`. Empty without ops."""
    return picture(*_graph(r.ops), f"graph of {r.model}")


def _graph(ops: Sequence[OpRow]) -> tuple[list[NodeBox], dict[tuple[int, int], bool]]:
    """The nodes, the model's inputs first; the edges; and whether each edge crosses
    from one segment to another.
    """
    made = {name for op in ops for name in op.outputs}
    entering = {
        n: t
        for op in ops
        for n, t in zip(op.inputs, op.input_types, strict=True)
        if n not in made
    }
    boxes = [NodeBox(short(name), type_, "io") for name, type_ in entering.items()]
    writer = {name: i for i, name in enumerate(entering)}
    edges: dict[tuple[int, int], bool] = {}
    for op in ops:
        node = len(boxes)
        boxes.append(
            NodeBox(
                op.kind,
                short(op.output),
                f"op {place_class(op)}{' rewritten' * bool(op.rewrites)}",
                op.index,
            )
        )
        for name in op.inputs:
            first = writer[name]
            edges[first, node] = (
                first >= len(entering)
                and ops[first - len(entering)].segment != op.segment
            )
        writer.update(dict.fromkeys(op.outputs, node))
    return boxes, edges


def place_class(op: OpRow) -> str:
    """How an op is coloured: edgetpu, uncertain or cpu."""
    return "uncertain" if op.place == "cpu" and op.verdict == "uncertain" else op.place
