"""Draws the error along the graph as SVG.

There are three lines over the layers in order: the noise that each layer adds, the
noise it inherits from its inputs, and both together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from edgec.comparing.result import Layer
from edgec.report.markup import html, joined

HEIGHT = 280
LEFT = 44
RIGHT_MARGIN = 12
TOP = 14
PLOT_HEIGHT = HEIGHT - TOP - 34
"""Size of the chart and its plot area, px."""
LAYER_WIDTH = 13.0
"""Least width of a layer, px."""
MIN_WIDTH = 620.0
CEILING_DB = 70.0
"""Better ratios lie on the upper edge, dB."""
FLOOR_DB = -40.0
SERIES = (
    ("own", "own_centred_db"),
    ("inherited", "inherited_db"),
    ("whole", "centred_db"),
)
"""CSS class of each line, and the field of a layer that it shows."""


@dataclass(frozen=True)
class _ChartAxes:
    """The maps of layers and decibels to pixels.

    Attributes:
        layers: number of layers
        width: width of the chart, px
        low: lowest ratio of the scale, dB
    """

    layers: int
    width: float
    low: int

    @property
    def step(self) -> float:
        """Return the width of a layer, px."""
        return (self.width - LEFT - RIGHT_MARGIN) / self.layers

    def x(self, i: int) -> float:
        """Return the middle of layer `i`, px."""
        plot_width = self.width - LEFT - RIGHT_MARGIN
        return LEFT + (i + 0.5) * plot_width / self.layers

    def y(self, db: float) -> float:
        """Return the height of a ratio, px."""
        span = CEILING_DB - self.low
        below_top = CEILING_DB - min(db, CEILING_DB)
        return TOP + below_top / span * PLOT_HEIGHT


def along(layers: Sequence[Layer]) -> Markup:
    """Return the chart of the compared layers, or nothing without any."""
    if not layers:
        return Markup()
    axes = _axes(layers)
    parts = [*_rules(axes), *_lines(layers, axes), *_targets(layers, axes)]
    parts.append(
        html(
            '<text x="{:.0f}" y="{}">layer, in the order in which they run</text>',
            axes.width / 2,
            HEIGHT - 4,
        )
    )
    return html(
        '<svg class="chart" viewBox="0 0 {:.0f} {}" style="min-width:{:.0f}px" '
        'role="img" aria-label="{}">{}</svg>',
        axes.width,
        HEIGHT,
        axes.width,
        "signal to noise of each layer, dB",
        joined(parts),
    )


def _axes(layers: Sequence[Layer]) -> _ChartAxes:
    """Return axes on which all layers and their ratios have a place."""
    width = max(MIN_WIDTH, LEFT + RIGHT_MARGIN + LAYER_WIDTH * len(layers))
    low = 0.0
    for layer in layers:
        for _, field in SERIES:
            low = min(low, _ratio_or(layer, field, 0.0))
    return _ChartAxes(len(layers), width, 10 * math.floor(low / 10))


def _ratio_or(layer: Layer, field: str, default: float) -> float:
    """Return a ratio of a layer, or a default if it is unknown, dB."""
    ratio = _ratio(layer, field)
    return default if ratio is None else ratio


def _lines(layers: Sequence[Layer], axes: _ChartAxes) -> Iterator[Markup]:
    """Yield the line of each series."""
    for name, field in SERIES:
        points = []
        for i, layer in enumerate(layers):
            db = _ratio(layer, field)
            if db is not None:
                points.append(f"{axes.x(i):.1f} {axes.y(db):.1f}")
        if points:
            path = " L".join(points)
            yield html('<path class="line {}" d="M{}"/>', name, path)


def _targets(layers: Sequence[Layer], axes: _ChartAxes) -> Iterator[Markup]:
    """Yield an area for each layer, which the page's script makes clickable."""
    for i, layer in enumerate(layers):
        yield html(
            '<rect class="hit{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}" '
            'data-layer="{}"><title>{}</title></rect>',
            "" if layer.fault is None else " fault",
            axes.x(i) - axes.step / 2,
            TOP,
            axes.step,
            PLOT_HEIGHT,
            layer.index,
            f"{layer.index} {layer.kind} {layer.value}",
        )


def _rules(axes: _ChartAxes) -> Iterator[Markup]:
    """Yield a rule and a figure every 10 dB."""
    right = axes.width - RIGHT_MARGIN
    for db in range(int(axes.low), int(CEILING_DB) + 1, 10):
        height = axes.y(float(db))
        yield html('<path class="rule" d="M{} {:.1f}H{:.0f}"/>', LEFT, height, right)

        figure = f"{db}" if db < CEILING_DB else f"≥{db}"
        yield html(
            '<text class="left" x="{}" y="{:.1f}">{}</text>',
            LEFT - 6,
            height + 4,
            figure,
        )


def _ratio(layer: Layer, field: str) -> float | None:
    """Return a ratio of a layer within the scale, dB, or None if it is unknown."""
    ratio = getattr(layer, field)
    if ratio is None or math.isnan(ratio):
        return None

    within = min(max(ratio, FLOOR_DB), CEILING_DB)
    return float(within)
