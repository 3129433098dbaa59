"""The graph of a partition report as an SVG picture: one box for each op, coloured by place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from edgec_partitioner.explain import OpRow, Report

from edgec.report.layers import Drawing, draw

_STEP = 68
_HEIGHT = 40
_MARGIN = 20
_CHARACTER = 6.7
"""Width of a character of the labels."""


@dataclass(frozen=True)
class _Box:
    """What is drawn as one node: a tensor that enters the model, or an op (then `index` is its number)."""

    title: str
    below: str
    classes: str
    index: int | None = None

    @property
    def width(self) -> float:
        return max(72.0, _CHARACTER * max(len(self.title), len(self.below)) + 24)


def graph_svg(r: Report) -> str:
    """An `<svg>` element; the nodes of ops have `data-op`. Empty without ops."""
    if not r.ops:
        return ""
    boxes, edges, crossing = _graph(r.ops)
    drawing = draw([b.width for b in boxes], edges)
    width, height = drawing.width + 2 * _MARGIN, drawing.rows * _STEP + 2 * _MARGIN
    lines = [_line(points, cross) for points, cross in zip(drawing.edges, crossing, strict=True)]
    nodes = [_node(box, drawing, i) for i, box in enumerate(boxes)]
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" data-width="{width:.0f}" data-height="{height:.0f}"'
    label = escape(f"graph of {r.model}", quote=True)
    return f'<svg id="graph" {size} role="group" aria-label="{label}">\n' + "\n".join([*lines, *nodes]) + "\n</svg>"


def _graph(ops: Sequence[OpRow]) -> tuple[list[_Box], list[tuple[int, int]], list[bool]]:
    """The nodes, the model's inputs first; the edges; and whether each edge crosses from one segment to another."""
    made = {name for op in ops for name in op.outputs}
    entering = {n: t for op in ops for n, t in zip(op.inputs, op.input_types, strict=True) if n not in made}
    boxes = [_Box(_short(name), type_, "io") for name, type_ in entering.items()]
    writer = {name: i for i, name in enumerate(entering)}
    edges: dict[tuple[int, int], bool] = {}
    for op in ops:
        node = len(boxes)
        boxes.append(
            _Box(op.kind, _short(op.output), f"op {place_class(op)}{' rewritten' * bool(op.rewrites)}", op.index)
        )
        for name in op.inputs:
            first = writer[name]
            edges[first, node] = first >= len(entering) and ops[first - len(entering)].segment != op.segment
        writer.update(dict.fromkeys(op.outputs, node))
    return boxes, list(edges), list(edges.values())


def place_class(op: OpRow) -> str:
    """How an op is coloured: edgetpu, uncertain or cpu."""
    return "uncertain" if op.place == "cpu" and op.verdict == "uncertain" else op.place


def _short(text: str) -> str:
    return text if len(text) <= 26 else text[:25] + "…"


def _y(row: int) -> float:
    return _MARGIN + row * _STEP + _HEIGHT / 2


def _line(points: Sequence[tuple[float, int]], crossing: bool) -> str:
    """A smooth line through the points, upright at each."""
    return f'<path class="edge{" crossing" * crossing}" d="{" ".join(_path(points))}"/>'


def _path(points: Sequence[tuple[float, int]]) -> Iterator[str]:
    x, y = points[0][0], _y(points[0][1]) + _HEIGHT / 2
    yield f"M{x + _MARGIN:.1f} {y:.1f}"
    for i, (to_x, to_row) in enumerate(points[1:], 2):
        to_y = _y(to_row) - (_HEIGHT / 2 if i == len(points) else 0)
        middle = (y + to_y) / 2
        a, b = x + _MARGIN, to_x + _MARGIN
        yield f"C{a:.1f} {middle:.1f} {b:.1f} {middle:.1f} {b:.1f} {to_y:.1f}"
        x, y = to_x, to_y


def _node(box: _Box, drawing: Drawing, i: int) -> str:
    x, y = drawing.x[i] + _MARGIN, _y(drawing.row[i])
    rect = (
        f'<rect x="{-box.width / 2:.1f}" y="{-_HEIGHT / 2}" width="{box.width:.1f}" height="{_HEIGHT}" rx="7"/>'
        f'<text y="-4">{escape(box.title)}</text><text class="type" y="12">{escape(box.below)}</text>'
    )
    mark = f'<circle cx="{box.width / 2 - 2:.1f}" cy="{-_HEIGHT / 2 + 2}" r="6"/>' if "rewritten" in box.classes else ""
    number = f' data-op="{box.index}" tabindex="0" role="button"' if box.index is not None else ""
    return f'<g class="{box.classes}"{number} transform="translate({x:.1f} {y:.1f})">{rect}{mark}</g>'
