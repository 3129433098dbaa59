"""Draws latencies and vitals as SVG charts.

There is a histogram, the latency of each inference, and clock and temperature over
time. The page's style gives the colours, by CSS class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from edgec.report.bench.histogram import Bin
from edgec.report.markup import html, joined

WIDTH = 560
HEIGHT = 250
"""Size of a chart, px."""
LEFT = 54
RIGHT = WIDTH - 12
TOP = 14
BOTTOM = HEIGHT - 40
"""Edges of the plot area in a chart, px."""
MAX_POINTS = 4000
"""A chart with more inferences shows three of each column: lowest, middle, highest."""
TAIL_GAP = 18
TAIL_WIDTH = 32
"""Place of the wide last bin of a histogram, beside the others, px."""


@dataclass(frozen=True)
class Launched:
    """One launch of a bench.

    Attributes:
        ms: latency of every inference, ms
        warmup: number of inferences before the latency was steady
    """

    ms: Sequence[float]
    warmup: int


@dataclass(frozen=True)
class Curve:
    """A quantity over time.

    Attributes:
        points: pairs of a time (s) and a value, None if the device did not report it
        classes: CSS classes of the line
        unit: unit of the values
    """

    points: Sequence[tuple[float, float | None]]
    classes: str
    unit: str


@dataclass(frozen=True)
class _Scale:
    """A linear map of values from `low` to `high` to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, about: int) -> list[float]:
        """Return about this many multiples of 1, 2 or 5 times a power of ten."""
        rough_step = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(rough_step))
        steps = [power * factor for factor in (1, 2, 5, 10)]
        step = next(step for step in steps if step >= rough_step * 0.999)

        # 1e-9: an end that is a multiple of the step is a tick in spite of rounding.
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def histogram_svg(
    bins: Sequence[Bin], marks: Sequence[tuple[str, float]], unit: str
) -> Markup:
    """Return a histogram of latencies, or nothing for fewer than two bins.

    A wide last bin, of the slowest inferences, is drawn as a bar beside the others.

    Args:
        bins: counts of latencies, from `histogram`
        marks: name and value of each percentile
        unit: unit of the latencies
    """
    if len(bins) < 2:
        return Markup()
    usual, tail = _split_tail(bins)
    right = RIGHT - (54 if tail else 0)
    x = _Scale(usual[0].low, usual[-1].high, LEFT, right)
    highest = max(b.count for b in bins)
    y = _Scale(0, highest, BOTTOM, TOP + 16)

    parts = [_y_axis(y, lambda count: f"{count:.0f}"), _x_axis(x, unit)]
    for b in usual:
        parts.append(_bar((x.at(b.low), x.at(b.high)), y, b, unit))
    tail_left = x.end + TAIL_GAP
    tail_middle = tail_left + TAIL_WIDTH / 2
    if tail:
        sides = (tail_left, tail_left + TAIL_WIDTH)
        parts.append(_bar(sides, y, tail, unit, "tail"))
        parts.append(_text(tail_middle, HEIGHT - 6, f"to {_figure(tail.high)}"))

    for i, (name, value) in enumerate(marks):
        if value <= usual[-1].high or tail:
            at = min(x.at(value), tail_middle)
        else:
            at = x.end
        # Labels of close percentiles alternate between two heights.
        label_y = TOP + 1 + 11 * (i % 2)
        form = '<path class="mark" d="M{:.1f} {}V{}"/>'
        parts.append(html(form, at, BOTTOM, label_y + 3))
        parts.append(_text(at, label_y, name, "label"))
    return _svg(parts, f"histogram of latencies, {unit}")


def _split_tail(bins: Sequence[Bin]) -> tuple[Sequence[Bin], Bin | None]:
    """Return the bins of equal width, and the wider last bin if there is one."""
    # At one scale, the bin of the outliers would squeeze all others.
    usual_width = bins[0].high - bins[0].low
    last_width = bins[-1].high - bins[-1].low
    if last_width > 1.5 * usual_width:
        return bins[:-1], bins[-1]
    return bins, None


def _bar(
    sides: tuple[float, float], y: _Scale, b: Bin, unit: str, classes: str = ""
) -> Markup:
    """Return the bar of a bin between two sides, px."""
    left, right = sides
    top = y.at(b.count)
    tooltip = f"{b.count} from {_figure(b.low)} to {_figure(b.high)} {unit}"
    return html(
        '<rect class="column {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" '
        'height="{:.1f}"><title>{}</title></rect>',
        classes,
        left,
        top,
        max(0.5, right - left - 1),
        y.start - top,
        tooltip,
    )


def inferences_svg(launches: Sequence[Launched], unit: str) -> Markup:
    """Return a chart of every inference of every launch, side by side.

    Inferences before a launch was steady have another colour. The scale is made for the
    steady ones: slower inferences lie on its upper edge.
    """
    steady = [ms for launch in launches for ms in launch.ms[launch.warmup :]]
    total = sum(len(launch.ms) for launch in launches)
    if len(steady) < 2:
        return Markup()
    x = _Scale(0, total, LEFT, RIGHT)
    y = _padded_scale(min(steady), max(steady))

    parts = [_y_axis(y, _figure)]
    start = 0
    for i, launch in enumerate(launches):
        parts += _launch_frame(i, launch, start, x)
        limit = max(3, MAX_POINTS * len(launch.ms) // total)
        warm = _thinned(launch.ms[: launch.warmup], 0, limit)
        parts += _dots("dots warm", warm, start, x, y)
        rest = _thinned(launch.ms[launch.warmup :], launch.warmup, limit)
        parts += _dots("dots", rest, start, x, y)
        start += len(launch.ms)

    parts.append(_text((LEFT + RIGHT) / 2, HEIGHT - 6, "launch"))
    return _svg(parts, f"latency of each inference, {unit}, by launch")


def _padded_scale(low: float, high: float) -> _Scale:
    """Return the y scale of steady latencies, with some space above and below."""
    # A device with a constant latency needs a scale too.
    room = 0.08 * (high - low) or 0.1 * high or 1.0
    return _Scale(max(0.0, low - room), high + room, BOTTOM, TOP)


def _launch_frame(i: int, launch: Launched, start: int, x: _Scale) -> list[Markup]:
    """Return the background, the number and the end of the warm-up of launch `i`.

    `start` is the number of inferences in the launches before.
    """
    left = x.at(start)
    right = x.at(start + len(launch.ms))
    background = html(
        '<rect class="launch{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>',
        " odd" if i % 2 else "",
        left,
        TOP,
        right - left,
        BOTTOM - TOP,
    )
    number = _text((left + right) / 2, BOTTOM + 16, str(i + 1))
    form = '<path class="steady" d="M{:.1f} {}V{}"/>'
    steady = html(form, x.at(start + launch.warmup), TOP, BOTTOM)
    return [background, number, steady]


def _dots(
    classes: str,
    points: Iterator[tuple[int, float]],
    start: int,
    x: _Scale,
    y: _Scale,
) -> list[Markup]:
    """Return a path of dots, or nothing without points."""
    dots = []
    for number, ms in points:
        # A line of no length with round ends: one path instead of thousands of circles.
        height = y.at(min(ms, y.high))
        dots.append(f"M{x.at(start + number):.1f} {height:.1f}h0")
    if not dots:
        return []
    return [html('<path class="{}" d="{}"/>', classes, "".join(dots))]


def _thinned(
    series: Sequence[float], first: int, limit: int
) -> Iterator[tuple[int, float]]:
    """Yield (number, latency) of about `limit` inferences, all outliers among them."""
    # Minimum, median and maximum of each group: outliers are what a chart is for.
    step = 1
    if len(series) > limit:
        step = max(1, math.ceil(3 * len(series) / limit))
    for start in range(0, len(series), step):
        numbers = range(start, min(start + step, len(series)))
        ordered = sorted(numbers, key=series.__getitem__)
        middle = ordered[len(ordered) // 2]
        for number in sorted({ordered[0], middle, ordered[-1]}):
            yield first + number, series[number]


def over_time_svg(
    line: Curve, span: tuple[float, float], marks: Sequence[tuple[float, str]]
) -> Markup:
    """Return a line chart over time, or nothing if no value is known.

    Args:
        line: the curve
        span: first and last moment, s
        marks: moments (s), and the reasons for throttling reported then
    """
    # A device may not report the clock or the temperature at every moment.
    points = [(t, value) for t, value in line.points if value is not None]
    if not points:
        return Markup()
    values = [value for _, value in points]
    low = min(values)
    high = max(values)
    room = max(0.15 * (high - low), 0.03 * abs(high), 0.5)
    x = _Scale(span[0], max(span[1], span[0] + 1e-3), LEFT, RIGHT)
    y = _Scale(max(0.0, low - room), high + room, BOTTOM, TOP)

    parts = [_y_axis(y, _figure), _x_axis(x, "s")]
    for moment, reason in marks:
        form = '<path class="alarm" d="M{:.1f} {}V{}"><title>{}</title></path>'
        parts.append(html(form, x.at(moment), TOP, BOTTOM, reason))

    pixels = [(x.at(t), y.at(value)) for t, value in points]
    path = " L".join(f"{a:.1f} {b:.1f}" for a, b in pixels)
    parts.append(html('<path class="line {}" d="M{}"/>', line.classes, path))
    for a, b in pixels:
        form = '<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="2.5"/>'
        parts.append(html(form, line.classes, a, b))
    return _svg(parts, f"{line.unit} over time")


# ---- axes


def _svg(parts: Sequence[Markup], label: str) -> Markup:
    form = '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    return html(form, WIDTH, HEIGHT, label, joined(parts))


def _text(x: float, y: float, text: str, classes: str = "tick") -> Markup:
    return html('<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>', classes, x, y, text)


def _y_axis(y: _Scale, write: Callable[[float], str]) -> Markup:
    """Return horizontal rules with figures on their left."""
    parts = []
    for value in y.ticks(4):
        height = y.at(value)
        form = '<path class="rule" d="M{} {:.1f}H{}"/>'
        parts.append(html(form, LEFT, height, RIGHT))
        parts.append(_text(LEFT - 6, height + 4, write(value), "tick left"))
    return joined(parts)


def _x_axis(x: _Scale, unit: str) -> Markup:
    """Return figures below the plot area, and the unit below them."""
    parts = []
    for value in x.ticks(5):
        parts.append(_text(x.at(value), BOTTOM + 16, _figure(value)))
    parts.append(_text((x.start + x.end) / 2, HEIGHT - 6, unit))
    return joined(parts)


def _figure(value: float) -> str:
    return f"{value:.5g}"
