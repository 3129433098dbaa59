"""Folds a graph drawing that is much higher than wide into columns side by side.

The whole of a deep network then fits one screen. Rows come from `layers.draw`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from edgec.report.layers import Drawing

STEP = 68
"""Distance from one row to the next, px."""
HEIGHT = 40
"""Height of a node, px."""
MARGIN = 20.0
"""Free space around the picture, px."""
GUTTER = 36.0
"""Free space between two columns, without the tracks of edges, px."""
LANE = 6.0
"""Distance between two tracks of edges that go on in the next column, px."""
MAX_LANES = 12
"""Tracks between two columns; with more edges, several share a track."""
TURN = 10
"""Distance from a node to the first track above or below the columns, px."""
VIEW_WIDTH, VIEW_HEIGHT = (4.0, 3.0)
"""Proportions of the area that a screen has for the picture, about."""
MIN_GAIN = 1.15
"""One more column must enlarge everything by this factor."""
MAX_COLUMNS = 16
MIN_ROWS_PER_COLUMN = 4


@dataclass(frozen=True)
class Folded:
    """The positions of all parts of a folded drawing.

    Attributes:
        drawing: the layered drawing in one column
        first: first row of each column
        shift: of each column, picture x minus drawing x, px
        gutter: of each column, where the tracks before it begin, px
        width: width of the picture, px
        height: height of the picture, px
        top: upper edge of the first row, px
        lanes: number of tracks between two columns
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
        """Return the centre of each node in the picture, px."""
        positions = zip(self.drawing.x, self.drawing.row, strict=True)
        return [self.at(x, row) for x, row in positions]

    def at(self, x: float, row: int) -> tuple[float, float]:
        """Return the picture position of a point of the drawing, px."""
        column = self.column(row)
        # Every column begins at the same height.
        row_in_column = row - self.first[column]
        y = self.top + row_in_column * STEP + HEIGHT / 2
        return x + self.shift[column], y

    def column(self, row: int) -> int:
        """Return the column that contains `row`."""
        return bisect_right(self.first, row) - 1

    def paths(self) -> list[str]:
        """Return the SVG path of each edge.

        An edge is vertical where it begins, bends and ends. Between two columns it goes
        below the first, up in the gutter and over the second.
        """
        lanes = self._lanes()
        return [
            " ".join(self._path(edge, points, lanes))
            for edge, points in enumerate(self.drawing.edges)
        ]

    def _path(
        self,
        edge: int,
        points: Sequence[tuple[float, int]],
        lanes: dict[tuple[int, int], int],
    ) -> Iterator[str]:
        """Yield the commands of one edge's SVG path."""
        x, y = self.at(*points[0])
        y += HEIGHT / 2
        yield f"M{x:.1f} {y:.1f}"

        last = len(points) - 2
        for i, (start, end) in enumerate(pairwise(points)):
            end_x, end_y = self.at(*end)

            if i == last:
                # The edge ends at the node's upper side, not at its centre.
                end_y -= HEIGHT / 2

            # Neighbouring points are a row apart, so at most one column further.
            column = self.column(end[1])
            if column != self.column(start[1]):
                lane = lanes[edge, column]
                yield self._detour(start[1], column, lane, end_x, end_y)
            else:
                middle = (y + end_y) / 2
                yield (
                    f"C{x:.1f} {middle:.1f} {end_x:.1f} {middle:.1f} "
                    f"{end_x:.1f} {end_y:.1f}"
                )
            x = end_x
            y = end_y

    def _detour(
        self, start_row: int, column: int, lane: int, end_x: float, end_y: float
    ) -> str:
        """Return the path commands from the previous column around to `column`."""
        offset = LANE * lane
        row_in_column = start_row - self.first[column - 1]
        below = self.top + row_in_column * STEP + HEIGHT + TURN + offset
        across = self.gutter[column] + offset
        above = self.top - TURN - LANE * self.lanes + offset
        return f"V{below:.1f} H{across:.1f} V{above:.1f} H{end_x:.1f} V{end_y:.1f}"

    def _lanes(self) -> dict[tuple[int, int], int]:
        """Return the track of each pair of an edge and the column it goes on in."""
        # A track belongs to one edge and the column that the edge enters.
        lanes: dict[tuple[int, int], int] = {}
        for column, first_row in enumerate(self.first[1:], 1):
            crossing = []
            for edge, points in enumerate(self.drawing.edges):
                for start, end in pairwise(points):
                    if end[1] == first_row:
                        crossing.append((-start[0], edge))

            # The rightmost edge takes the first track: tracks do not cross then.
            for lane, (_, edge) in enumerate(sorted(crossing)):
                lanes[edge, column] = lane % self.lanes
        return lanes


def fold(drawing: Drawing, widths: Sequence[float]) -> Folded:
    """Fold a drawing into the number of columns that makes it largest on a screen.

    `widths` has the width of each node, px.
    """
    extents = _row_extents(drawing, widths)
    incoming = _incoming_edges(drawing)

    # More columns make the picture wider and cut edges: each must be worth it.
    best = _fold_at(drawing, extents, [0], 0)
    limit = min(MAX_COLUMNS, drawing.rows // MIN_ROWS_PER_COLUMN)
    for columns in range(2, limit + 1):
        first = _column_breaks(drawing.rows, incoming, columns)

        # Edges that go on in the next column need a track each.
        crossing = max(incoming[row] for row in first[1:])
        candidate = _fold_at(drawing, extents, first, min(MAX_LANES, crossing))
        if _scale(candidate) > MIN_GAIN * _scale(best):
            best = candidate
    return best


def _scale(folded: Folded) -> float:
    """Return how large the picture is when it fills the screen, in relative units."""
    # The picture keeps its proportions, so the tighter side decides.
    return min(VIEW_WIDTH / folded.width, VIEW_HEIGHT / folded.height)


def _row_extents(
    drawing: Drawing, widths: Sequence[float]
) -> list[tuple[float, float]]:
    """Return the smallest and the largest x of each row, px."""
    low = [drawing.width] * drawing.rows
    high = [0.0] * drawing.rows

    def include(x: float, row: int, half_width: float) -> None:
        low[row] = min(low[row], x - half_width)
        high[row] = max(high[row], x + half_width)

    for x, row, width in zip(drawing.x, drawing.row, widths, strict=True):
        include(x, row, width / 2)
    for edge in drawing.edges:
        for x, row in edge:
            include(x, row, 2.0)
    return list(zip(low, high, strict=True))


def _incoming_edges(drawing: Drawing) -> list[int]:
    """Return how many edges come into each row from the row above."""
    incoming = [0] * drawing.rows
    for edge in drawing.edges:
        for _, row in edge[1:]:
            incoming[row] += 1
    return incoming


def _column_breaks(rows: int, incoming: Sequence[int], columns: int) -> list[int]:
    """Return the first rows of columns of about one height, where few edges cross."""
    height = rows / columns
    # A sixth of a column is hardly seen, and often spares many crossing edges.
    reach = max(1, int(height / 6))
    first = [0]
    for i in range(1, columns):
        target = i * height
        earliest = max(first[-1] + 1, round(target) - reach)
        latest = min(rows - 1, round(target) + reach)

        candidates = range(earliest, latest + 1)
        costs = {row: (incoming[row], abs(row - target)) for row in candidates}
        first.append(min(candidates, key=costs.__getitem__))
    return first


def _fold_at(
    drawing: Drawing,
    extents: Sequence[tuple[float, float]],
    first: list[int],
    lanes: int,
) -> Folded:
    """Fold a drawing into columns that begin at the rows `first`."""
    shift = []
    gutter = []
    right = MARGIN
    columns = list(pairwise([*first, drawing.rows]))
    for i, (start, end) in enumerate(columns):
        if i == 0:
            gutter.append(0.0)
        else:
            gutter.append(right + GUTTER / 2)
            right += GUTTER + LANE * lanes
        # Each column is as narrow as its own rows, not as the widest of all.
        low = min((extent[0] for extent in extents[start:end]), default=0.0)
        high = max((extent[1] for extent in extents[start:end]), default=0.0)
        shift.append(right - low)
        right += high - low

    # Tracks above and below are needed only between columns.
    turn = LANE * lanes + TURN if len(first) > 1 else 0
    rows = max(1, max(end - start for start, end in columns))
    height = 2 * (MARGIN + turn) + rows * STEP - (STEP - HEIGHT)
    return Folded(
        drawing=drawing,
        first=first,
        shift=shift,
        gutter=gutter,
        width=right + MARGIN,
        height=height,
        top=MARGIN + turn,
        lanes=lanes,
    )
