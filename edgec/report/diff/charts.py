"""The error along the graph as SVG: for each layer in order its own noise, what it
inherits, and both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from edgec.comparing.result import Layer
from edgec.report.markup import html, joined

_HEIGHT = 280
_LEFT = 44
_RIGHT = 12
_TOP = 14
_BOTTOM = 34
_EACH = 13.0
_LEAST = 620.0
_CEILING = 70.0
"""dB: what is better lies on the upper edge."""
SERIES = (
    ("own", "own_centred_db"),
    ("inherited", "inherited_db"),
    ("whole", "centred_db"),
)


def along(layers: Sequence[Layer]) -> Markup:
    """Empty without layers that are judged."""
    if not layers:
        return Markup()
    width = max(_LEAST, _LEFT + _RIGHT + _EACH * len(layers))
    known = [
        v for one in layers for _, key in SERIES if (v := _db(one, key)) is not None
    ]
    low = min([0.0, *known])
    low = 10 * math.floor(low / 10)

    def x(i: int) -> float:
        return _LEFT + (i + 0.5) * (width - _LEFT - _RIGHT) / len(layers)

    def y(db: float) -> float:
        return _TOP + (_CEILING - min(db, _CEILING)) / (_CEILING - low) * (
            _HEIGHT - _TOP - _BOTTOM
        )

    parts = [*_rules(width, low, y)]
    for name, key in SERIES:
        points = [
            (x(i), y(v))
            for i, one in enumerate(layers)
            if (v := _db(one, key)) is not None
        ]
        if points:
            line = " L".join(f"{a:.1f} {b:.1f}" for a, b in points)
            parts.append(html('<path class="line {}" d="M{}"/>', name, line))
    for i, one in enumerate(layers):
        said = f"{one.index} {one.kind} {one.value}"
        fault = " fault" * (one.fault is not None)
        form = (
            '<rect class="hit{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}" '
            'data-layer="{}"><title>{}</title></rect>'
        )
        step = (width - _LEFT - _RIGHT) / len(layers)
        parts.append(
            html(
                form,
                fault,
                x(i) - step / 2,
                _TOP,
                step,
                _HEIGHT - _TOP - _BOTTOM,
                one.index,
                said,
            )
        )
    parts.append(
        html(
            '<text x="{:.0f}" y="{}">layer, in the order in which they run</text>',
            width / 2,
            _HEIGHT - 4,
        )
    )
    return html(
        '<svg class="chart" viewBox="0 0 {:.0f} {}" style="min-width:{:.0f}px" '
        'role="img" aria-label="{}">{}</svg>',
        width,
        _HEIGHT,
        width,
        "signal to noise of each layer, dB",
        joined(parts),
    )


def _rules(width: float, low: float, y: object) -> Iterator[Markup]:
    assert callable(y), "y is a scale"
    for db in range(int(low), int(_CEILING) + 1, 10):
        at = y(float(db))
        yield html(
            '<path class="rule" d="M{} {:.1f}H{:.0f}"/>', _LEFT, at, width - _RIGHT
        )
        said = f"{db}" if db < _CEILING else f"≥{db}"
        yield html(
            '<text class="left" x="{}" y="{:.1f}">{}</text>', _LEFT - 6, at + 4, said
        )


def _db(one: Layer, key: str) -> float | None:
    value = getattr(one, key)
    if value is None or math.isnan(value):
        return None
    return float(min(max(value, -40.0), _CEILING))
