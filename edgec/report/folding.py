"""A drawing that is much higher than wide, cut into columns side by side: the whole of
a deep network fits a screen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from edgec.report.layers import Drawing

STEP = 68
HEIGHT = 40
"""From row to row, and of a node, px."""
_MARGIN = 20.0
_GUTTER = 36.0
_LANE = 6.0
_LANES = 12
_VIEW = (4.0, 3.0)
"""What a screen has for it, about."""
_BETTER = 1.15
"""One more column must make everything larger by so much."""
_MOST = 16


@dataclass(frozen=True)
class Folded:
    """Where everything is, px. first: of each column, its first row. shift: from the
    drawing's x to the picture's. gutter: where the tracks before each column begin.
    lanes: how many there are, at most.
    """

    drawing: Drawing
    first: list[int]
    shift: list[float]
    gutter: list[float]
    width: float
    height: float
    top: float
    lanes: int

    @property
    def nodes(self) -> list[tuple[float, float]]:
        """Centres, px."""
        return [
            self.at(x, row)
            for x, row in zip(self.drawing.x, self.drawing.row, strict=True)
        ]

    def at(self, x: float, row: int) -> tuple[float, float]:
        """Where a point of the drawing is in the picture."""
        column = self.column(row)
        return x + self.shift[column], self.top + (
            row - self.first[column]
        ) * STEP + HEIGHT / 2

    def column(self, row: int) -> int:
        """In which column a row is."""
        return bisect_right(self.first, row) - 1

    def paths(self) -> list[str]:
        """Of each edge: upright where it begins, bends and ends; around the columns
        where it goes to the next.
        """
        lanes = self._lanes()
        return [
            " ".join(self._path(i, points, lanes))
            for i, points in enumerate(self.drawing.edges)
        ]

    def _path(
        self,
        edge: int,
        points: Sequence[tuple[float, int]],
        lanes: dict[tuple[int, int], int],
    ) -> Iterator[str]:
        x, y = self.at(*points[0])
        y += HEIGHT / 2
        yield f"M{x:.1f} {y:.1f}"
        for i, (before, (to_x, to_row)) in enumerate(pairwise(points)):
            (to, centre), column = self.at(to_x, to_row), self.column(to_row)
            to_y = centre - (HEIGHT / 2 if i == len(points) - 2 else 0)
            if column != self.column(before[1]):
                out = _LANE * lanes[edge, column]
                low = (
                    self.top
                    + (before[1] - self.first[column - 1]) * STEP
                    + HEIGHT
                    + 10
                    + out
                )
                up = self.gutter[column] + out
                yield (
                    f"V{low:.1f} H{up:.1f} "
                    f"V{self.top - 10 - _LANE * self.lanes + out:.1f} "
                    f"H{to:.1f} V{to_y:.1f}"
                )
            else:
                middle = (y + to_y) / 2
                yield f"C{x:.1f} {middle:.1f} {to:.1f} {middle:.1f} {to:.1f} {to_y:.1f}"
            x = to
            y = to_y

    def _lanes(self) -> dict[tuple[int, int], int]:
        """By edge and the column it goes on in: which of the tracks around the columns
        it takes.
        """
        found: dict[tuple[int, int], int] = {}
        for column, row in enumerate(self.first[1:], 1):
            over = [
                (-p[0], edge)
                for edge, points in enumerate(self.drawing.edges)
                for p, q in pairwise(points)
                if q[1] == row
            ]
            found |= {
                (edge, column): lane % self.lanes
                for lane, (_, edge) in enumerate(sorted(over))
            }
        return found


def fold(drawing: Drawing, widths: Sequence[float]) -> Folded:
    """In as many columns as make it largest on a screen. widths: of the nodes."""
    spans = _spans(drawing, widths)
    over = _passing(drawing)
    best = _columns(drawing, spans, [0], 0)
    for n in range(2, min(_MOST, drawing.rows // 4) + 1):
        first = _breaks(drawing.rows, over, n)
        found = _columns(
            drawing, spans, first, min(_LANES, max(over[row] for row in first[1:]))
        )
        if _scale(found) > _BETTER * _scale(best):
            best = found
    return best


def _scale(f: Folded) -> float:
    return min(_VIEW[0] / f.width, _VIEW[1] / f.height)


def _spans(drawing: Drawing, widths: Sequence[float]) -> list[tuple[float, float]]:
    """Of each row, from where to where."""
    low = [drawing.width] * drawing.rows
    high = [0.0] * drawing.rows
    points = [
        (x, row, w / 2)
        for x, row, w in zip(drawing.x, drawing.row, widths, strict=True)
    ]
    points += [(x, row, 2.0) for edge in drawing.edges for x, row in edge]
    for x, row, half in points:
        low[row], high[row] = min(low[row], x - half), max(high[row], x + half)
    return list(zip(low, high, strict=True))


def _passing(drawing: Drawing) -> list[int]:
    """How many edges come into each row from the one above."""
    over = [0] * drawing.rows
    for edge in drawing.edges:
        for _, row in edge[1:]:
            over[row] += 1
    return over


def _breaks(rows: int, over: Sequence[int], n: int) -> list[int]:
    """The first rows of n columns of about one height, where few edges go on."""
    each = rows / n
    reach = max(1, int(each / 6))
    found = [0]
    for i in range(1, n):
        near = range(
            max(found[-1] + 1, round(i * each) - reach),
            min(rows - 1, round(i * each) + reach) + 1,
        )
        found.append(min(near, key=lambda row: (over[row], abs(row - i * each))))
    return found


def _columns(
    drawing: Drawing, spans: Sequence[tuple[float, float]], first: list[int], lanes: int
) -> Folded:
    shift = []
    gutter = []
    right = _MARGIN
    for i, (start, end) in enumerate(pairwise([*first, drawing.rows])):
        if i:
            gutter.append(right + _GUTTER / 2)
            right += _GUTTER + _LANE * lanes
        else:
            gutter.append(0.0)
        low = min((s[0] for s in spans[start:end]), default=0.0)
        shift.append(right - low)
        right += max((s[1] for s in spans[start:end]), default=0.0) - low
    most = max(b - a for a, b in pairwise([*first, drawing.rows]))
    room = (_LANE * lanes + 10) * (len(first) > 1)
    height = 2 * (_MARGIN + room) + max(1, most) * STEP - (STEP - HEIGHT)
    return Folded(
        drawing, first, shift, gutter, right + _MARGIN, height, _MARGIN + room, lanes
    )
