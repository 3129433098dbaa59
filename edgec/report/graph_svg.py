"""A graph as an SVG picture: one box for each operation, coloured by place; graph.js
lets people look around in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from edgec.report.folding import HEIGHT, Folded, fold
from edgec.report.layers import draw
from edgec.report.markup import html, joined

_CHARACTER = 6.7
"""Width of a character of the labels."""


@dataclass(frozen=True)
class NodeBox:
    """What is drawn as one node: a tensor that enters the model, or an op (then `index`
    is its number).

    classes: of the element, which the style colours by. weight: of a bar at the lower
    edge, 0 to 1; None: no bar.
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


def picture(
    boxes: Sequence[NodeBox], edges: Mapping[tuple[int, int], bool], label: str
) -> Markup:
    """An `<svg>` element; the nodes of ops have `data-op`.

    Empty without boxes.

    edges: from box to box, and whether each crosses from one segment to another. label:
    for those who cannot see it.
    """
    if not boxes:
        return Markup()
    folded = fold(draw([b.width for b in boxes], list(edges)), [b.width for b in boxes])
    lines = [
        html('<path class="edge{}" d="{}"/>', " crossing" * cross, path)
        for path, cross in zip(folded.paths(), edges.values(), strict=True)
    ]
    nodes = [_node(box, folded, i) for i, box in enumerate(boxes)]
    return html(
        '<svg id="graph" viewBox="0 0 {w:.0f} {h:.0f}" data-width="{w:.0f}" '
        'data-height="{h:.0f}" role="group" '
        'aria-label="{label}">\n{parts}\n</svg>',
        w=folded.width,
        h=folded.height,
        label=label,
        parts=joined([*lines, *nodes], "\n"),
    )


def short(text: str) -> str:
    """As much of a name as a box holds."""
    return text if len(text) <= 26 else text[:25] + "…"


def _node(box: NodeBox, folded: Folded, i: int) -> Markup:
    x, y = folded.nodes[i]
    parts = [
        html(
            '<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}" rx="7"/>',
            -box.width / 2,
            -HEIGHT / 2,
            box.width,
            HEIGHT,
        ),
        html(
            '<text y="-4">{}</text><text class="type" y="12">{}</text>',
            box.title,
            box.below,
        ),
    ]
    if box.weight is not None:
        at = (4 - box.width / 2, HEIGHT / 2 - 4, (box.width - 8) * box.weight)
        parts.append(
            html(
                '<rect class="weight" x="{:.1f}" y="{}" width="{:.1f}" height="3"/>',
                *at,
            )
        )
    if "rewritten" in box.classes:
        parts.append(
            html('<circle cx="{}" cy="{}" r="6"/>', box.width / 2 - 2, -HEIGHT / 2 + 2)
        )
    number: str = ""
    if box.index is not None:
        number = html(' data-op="{}" tabindex="0" role="button"', box.index)
    form = '<g class="{}"{} transform="translate({:.1f} {:.1f})">{}</g>'
    return html(form, box.classes, number, x, y, joined(parts))
