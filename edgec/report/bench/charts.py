"""Pictures of latencies and vitals as SVG: a histogram, latency by inference, clock and
temperature by time.

Colours are of the page's style, by class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from edgec.report.bench.histogram import Bin
from edgec.report.markup import html, joined

_WIDTH = 560
_HEIGHT = 250
_LEFT = 54
_RIGHT = 12
_TOP = 14
_BOTTOM = 40
_MOST = 4000
"""Points of a picture; of more, each column keeps its lowest, its highest and one
between.
"""


@dataclass(frozen=True)
class Launched:
    """One launch: all its inferences, ms, and how many of them are from before it was
    steady.
    """

    ms: Sequence[float]
    warmup: int


@dataclass(frozen=True)
class Curve:
    """Values over time, s; None where nothing is known. classes: of its element."""

    points: Sequence[tuple[float, float | None]]
    classes: str
    unit: str


@dataclass(frozen=True)
class _Scale:
    """From values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (
            self.end - self.start
        )

    def ticks(self, about: int) -> list[float]:
        """Round numbers between the ends."""
        rough = (self.high - self.low) / about
        ten = 10.0 ** math.floor(math.log10(rough))
        step = next(ten * m for m in (1, 2, 5, 10) if ten * m >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def histogram_svg(
    bins: Sequence[Bin], marks: Sequence[tuple[str, float]], unit: str
) -> Markup:
    """marks: names of percentiles and where they are.

    A wide last bin, of the slowest, is as wide as the others.
    """
    if len(bins) < 2:
        return Markup()
    wide = bins[-1].high - bins[-1].low > 1.5 * (bins[0].high - bins[0].low)
    usual = bins[:-1] if wide else bins
    x = _Scale(
        usual[0].low, usual[-1].high, _LEFT, _WIDTH - _RIGHT - (54 if wide else 0)
    )
    y = _Scale(0, max(b.count for b in bins), _HEIGHT - _BOTTOM, _TOP + 16)
    parts = [_grid(y, lambda v: f"{v:.0f}"), _below(x, unit)]
    for b in usual:
        parts.append(_bar(x.at(b.low), x.at(b.high), y, b, unit))
    if wide:
        last = bins[-1]
        parts.append(_bar(x.end + 18, x.end + 50, y, last, unit, "tail"))
        parts.append(_text(x.end + 34, _HEIGHT - 6, f"to {_figure(last.high)}"))
    for i, (name, value) in enumerate(marks):
        at = min(x.at(value), x.end + 34) if value <= usual[-1].high or wide else x.end
        top = _TOP + 4 + 11 * (i % 2)
        parts.append(
            html('<path class="mark" d="M{:.1f} {}V{}"/>', at, _HEIGHT - _BOTTOM, top)
        )
        parts.append(_text(at, _TOP + 1 + 11 * (i % 2), name, "label"))
    return _svg(parts, f"histogram of latencies, {unit}")


def _bar(
    left: float, right: float, y: _Scale, b: Bin, unit: str, classes: str = ""
) -> Markup:
    top = y.at(b.count)
    said = f"{b.count} from {_figure(b.low)} to {_figure(b.high)} {unit}"
    return html(
        '<rect class="column {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" '
        'height="{:.1f}"><title>{}</title></rect>',
        classes,
        left,
        top,
        max(0.5, right - left - 1),
        y.start - top,
        said,
    )


def inferences_svg(launches: Sequence[Launched], unit: str) -> Markup:
    """Every inference of every launch, side by side; those before a launch was steady
    in another colour.

    What is above the scale, which is made for the steady ones, lies on its upper edge.
    """
    steady = [ms for one in launches for ms in one.ms[one.warmup :]]
    total = sum(len(one.ms) for one in launches)
    if len(steady) < 2:
        return Markup()
    low = min(steady)
    high = max(steady)
    room = 0.08 * (high - low) or 0.1 * high or 1.0
    x = _Scale(0, total, _LEFT, _WIDTH - _RIGHT)
    y = _Scale(max(0.0, low - room), high + room, _HEIGHT - _BOTTOM, _TOP)
    parts = [_grid(y, _figure)]
    start = 0
    for i, one in enumerate(launches):
        left = x.at(start)
        right = x.at(start + len(one.ms))
        band = (" odd" * (i % 2), left, _TOP, right - left, _HEIGHT - _BOTTOM - _TOP)
        parts.append(
            html(
                '<rect class="launch{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>',
                *band,
            )
        )
        parts.append(_text((left + right) / 2, _HEIGHT - _BOTTOM + 16, str(i + 1)))
        edge = x.at(start + one.warmup)
        parts.append(
            html(
                '<path class="steady" d="M{:.1f} {}V{}"/>',
                edge,
                _TOP,
                _HEIGHT - _BOTTOM,
            )
        )
        share = max(3, _MOST * len(one.ms) // total)
        for classes, found in (
            ("dots warm", _thinned(one.ms[: one.warmup], 0, share)),
            ("dots", _thinned(one.ms[one.warmup :], one.warmup, share)),
        ):
            dots = "".join(
                f"M{x.at(start + n):.1f} {y.at(min(ms, y.high)):.1f}h0"
                for n, ms in found
            )
            parts += [html('<path class="{}" d="{}"/>', classes, dots)] if dots else []
        start += len(one.ms)
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, "launch"))
    return _svg(parts, f"latency of each inference, {unit}, by launch")


def _thinned(
    series: Sequence[float], first: int, most: int
) -> Iterator[tuple[int, float]]:
    """(number, ms); nothing that stands out is lost."""
    each = max(1, math.ceil(3 * len(series) / most)) if len(series) > most else 1
    for at in range(0, len(series), each):
        numbers = range(at, min(at + each, len(series)))
        ordered = sorted(numbers, key=series.__getitem__)
        for n in sorted({ordered[0], ordered[len(ordered) // 2], ordered[-1]}):
            yield first + n, series[n]


def over_time_svg(
    line: Curve, span: tuple[float, float], marks: Sequence[tuple[float, str]]
) -> Markup:
    """A line over seconds. marks: moments, and what happened then."""
    known = [v for _, v in line.points if v is not None]
    if not known:
        return Markup()
    low = min(known)
    high = max(known)
    room = max(0.15 * (high - low), 0.03 * abs(high), 0.5)
    x = _Scale(span[0], max(span[1], span[0] + 1e-3), _LEFT, _WIDTH - _RIGHT)
    y = _Scale(max(0.0, low - room), high + room, _HEIGHT - _BOTTOM, _TOP)
    parts = [_grid(y, _figure), _below(x, "s")]
    for at, said in marks:
        form = '<path class="alarm" d="M{:.1f} {}V{}"><title>{}</title></path>'
        parts.append(html(form, x.at(at), _TOP, _HEIGHT - _BOTTOM, said))
    pairs = [(x.at(t), y.at(v)) for t, v in line.points if v is not None]
    path = " L".join(f"{a:.1f} {b:.1f}" for a, b in pairs)
    parts.append(html('<path class="line {}" d="M{}"/>', line.classes, path))
    parts += [
        html('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="2.5"/>', line.classes, a, b)
        for a, b in pairs
    ]
    return _svg(parts, f"{line.unit} over time")


# ---- axes


def _svg(parts: Sequence[Markup], label: str) -> Markup:
    form = '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    return html(form, _WIDTH, _HEIGHT, label, joined(parts))


def _text(x: float, y: float, text: str, classes: str = "tick") -> Markup:
    return html('<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>', classes, x, y, text)


def _grid(y: _Scale, write: Callable[[float], str]) -> Markup:
    parts = []
    for value in y.ticks(4):
        at = y.at(value)
        parts.append(
            html('<path class="rule" d="M{} {:.1f}H{}"/>', _LEFT, at, _WIDTH - _RIGHT)
        )
        parts.append(_text(_LEFT - 6, at + 4, write(value), "tick left"))
    return joined(parts)


def _below(x: _Scale, unit: str) -> Markup:
    ticks = [_text(x.at(v), _HEIGHT - _BOTTOM + 16, _figure(v)) for v in x.ticks(5)]
    return joined([*ticks, _text((x.start + x.end) / 2, _HEIGHT - 6, unit)])


def _figure(value: float) -> str:
    return f"{value:.5g}"
