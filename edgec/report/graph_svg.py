"""A graph as an SVG picture: one box for each operation, coloured by place; graph.js lets people look around in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from edgec.report.layers import Drawing, draw

_STEP = 68
_HEIGHT = 40
_MARGIN = 20
_CHARACTER = 6.7
"""Width of a character of the labels."""


@dataclass(frozen=True)
class Box:
    """What is drawn as one node: a tensor that enters the model, or an op (then `index` is its number).

    classes: of the element, which the style colours by. weight: of a bar at the lower edge, 0 to 1; None: no bar.
    """

    title: str
    below: str
    classes: str
    index: int | None = None
    weight: float | None = None

    @property
    def width(self) -> float:
        """Wide enough for its texts."""
        return max(72.0, _CHARACTER * max(len(self.title), len(self.below)) + 24)


def picture(boxes: Sequence[Box], edges: Mapping[tuple[int, int], bool], label: str) -> str:
    """An `<svg>` element; the nodes of ops have `data-op`. Empty without boxes.

    edges: from box to box, and whether each crosses from one segment to another. label: for those who cannot see it.
    """
    if not boxes:
        return ""
    drawing = draw([b.width for b in boxes], list(edges))
    width, height = drawing.width + 2 * _MARGIN, drawing.rows * _STEP + 2 * _MARGIN
    lines = [_line(points, cross) for points, cross in zip(drawing.edges, edges.values(), strict=True)]
    nodes = [_node(box, drawing, i) for i, box in enumerate(boxes)]
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" data-width="{width:.0f}" data-height="{height:.0f}"'
    named = f'role="group" aria-label="{escape(label, quote=True)}"'
    return f'<svg id="graph" {size} {named}>\n' + "\n".join([*lines, *nodes]) + "\n</svg>"


def short(text: str) -> str:
    """As much of a name as a box holds."""
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


def _node(box: Box, drawing: Drawing, i: int) -> str:
    x, y = drawing.x[i] + _MARGIN, _y(drawing.row[i])
    rect = (
        f'<rect x="{-box.width / 2:.1f}" y="{-_HEIGHT / 2}" width="{box.width:.1f}" height="{_HEIGHT}" rx="7"/>'
        f'<text y="-4">{escape(box.title)}</text><text class="type" y="12">{escape(box.below)}</text>'
    )
    if box.weight is not None:
        wide = (box.width - 8) * box.weight
        rect += (
            f'<rect class="weight" x="{4 - box.width / 2:.1f}" y="{_HEIGHT / 2 - 4}" width="{wide:.1f}" height="3"/>'
        )
    mark = f'<circle cx="{box.width / 2 - 2:.1f}" cy="{-_HEIGHT / 2 + 2}" r="6"/>' if "rewritten" in box.classes else ""
    number = f' data-op="{box.index}" tabindex="0" role="button"' if box.index is not None else ""
    return f'<g class="{box.classes}"{number} transform="translate({x:.1f} {y:.1f})">{rect}{mark}</g>'
