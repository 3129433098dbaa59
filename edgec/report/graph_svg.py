"""Draws a graph as an SVG picture with a box for each operation, coloured by place.

The script graph.js lets people zoom and pan in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from edgec.report.folding import HEIGHT, Folded, fold
from edgec.report.layers import draw
from edgec.report.markup import html, joined

CHARACTER_WIDTH = 6.7
"""Width of a character of the labels, px."""
MIN_BOX_WIDTH = 72.0
MAX_LABEL = 26
"""Characters of a label; longer names are cut."""


@dataclass(frozen=True)
class NodeBox:
    """A box of the picture: an op, or a tensor that enters the model.

    Attributes:
        title: first line of text
        below: second line of text
        classes: CSS classes of the element, from which the style takes the colour
        index: number of the op; None for a tensor
        weight: length of a bar at the lower edge, 0 to 1; None for no bar
    """

    title: str
    below: str
    classes: str
    index: int | None = None
    weight: float | None = None

    @property
    def width(self) -> float:
        """Return a width that both texts fit in, px."""
        characters = max(len(self.title), len(self.below))
        return max(MIN_BOX_WIDTH, CHARACTER_WIDTH * characters + 24)


def picture(
    boxes: Sequence[NodeBox], edges: Mapping[tuple[int, int], bool], label: str
) -> Markup:
    """Return an `<svg>` element, or nothing without boxes; ops have `data-op`.

    Args:
        boxes: the nodes; an edge leads to a box of a higher index
        edges: pairs of boxes, and whether the edge crosses from one segment to another
        label: description of the picture for screen readers
    """
    if not boxes:
        return Markup()
    widths = [box.width for box in boxes]
    folded = fold(draw(widths, list(edges)), widths)

    lines = []
    for path, crossing in zip(folded.paths(), edges.values(), strict=True):
        classes = " crossing" if crossing else ""
        lines.append(html('<path class="edge{}" d="{}"/>', classes, path))
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
    """Return as much of a name as fits a box."""
    if len(text) <= MAX_LABEL:
        return text
    return text[: MAX_LABEL - 1] + "…"


def _node(box: NodeBox, folded: Folded, i: int) -> Markup:
    """Return the `<g>` element of box number `i`."""
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
        parts.append(
            html(
                '<rect class="weight" x="{:.1f}" y="{}" width="{:.1f}" height="3"/>',
                4 - box.width / 2,
                HEIGHT / 2 - 4,
                (box.width - 8) * box.weight,
            )
        )

    if "rewritten" in box.classes:
        parts.append(
            html('<circle cx="{}" cy="{}" r="6"/>', box.width / 2 - 2, -HEIGHT / 2 + 2)
        )

    attributes: str = ""
    if box.index is not None:
        attributes = html(' data-op="{}" tabindex="0" role="button"', box.index)
    # The parts of a box are relative to its centre.
    x, y = folded.nodes[i]
    return html(
        '<g class="{}"{} transform="translate({:.1f} {:.1f})">{}</g>',
        box.classes,
        attributes,
        x,
        y,
        joined(parts),
    )
