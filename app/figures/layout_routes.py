"""Routes of edges: down between the boxes of a column, else through the gaps between rows and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from fusionscope.app.figures.layout_columns import GAP_COLUMN, GAP_Y, Grid

Point = tuple[float, float]

LANE, LANES = 5.0, 9  # between edges of different sources that share a gap, in pixels
CORRIDOR = 26.0  # above the columns, for edges between columns that are no neighbours


class Router:
    """Collects the points of each edge from the bottom of one box to the top of another.

    `boxes`: name → rank, centre, height. Points with the same x as the one before are joined by a straight line, others
    by a curve; a route through the gaps has corners. Edges of one source share their lanes.
    """

    def __init__(self, grid: Grid, boxes: Mapping[str, tuple[int, Point, float]]) -> None:
        self.routes: dict[tuple[str, str], tuple[Point, ...]] = {}
        self._grid, self._boxes = grid, boxes
        self._lanes: dict[tuple[float, str], int] = {}
        self._used: dict[float, int] = {}

    def add(self, a: str, b: str, middle: Sequence[tuple[int, float]] | None) -> None:
        """Route a → b; `middle`: rank and x of the places kept free for it between the two, None without such."""
        (rank_a, (x_a, y_a), high_a), (rank_b, (x_b, y_b), high_b) = self._boxes[a], self._boxes[b]
        start, end = (x_a, y_a + high_a / 2), (x_b, y_b - high_b / 2)
        column = self._grid.column
        if middle is not None and column[rank_a] == column[rank_b]:
            self.routes[a, b] = (start, *self._between(middle), end)
        else:
            self.routes[a, b] = (start, *self._around(a, rank_a, x_a, rank_b, x_b), end)

    def way_out(self, name: str) -> tuple[Point, ...]:
        """From the bottom of a box to below the picture, straight down where nothing stands below it."""
        rank, (x, y), high = self._boxes[name]
        start, bottom = (x, y + high / 2), self._grid.size[1] + GAP_Y / 4
        column = self._grid.column
        if rank + 1 == len(column) or column[rank + 1] != column[rank]:
            return start, (x, bottom)
        out_y, right = self._below(rank, name), self._gutter(column[rank], name)
        return start, (x, out_y), (right, out_y), (right, bottom)

    def way_in(self, name: str) -> tuple[Point, ...]:
        """From above the picture to the top of a box, straight down where nothing stands above it."""
        rank, (x, y), high = self._boxes[name]
        top, end = -GAP_Y / 4, (x, y - high / 2)
        column = self._grid.column
        if rank == 0 or column[rank - 1] != column[rank]:
            return (x, top), end
        in_y, left = self._above(rank, name), self._gutter(column[rank] - 1, name)
        return (left, top), (left, in_y), (x, in_y), end

    def _below(self, rank: int, source: str) -> float:
        """y in the gap below a row."""
        return self._lane(self._grid.tops[rank] + self._grid.heights[rank] + GAP_Y / 2, source, 3)

    def _above(self, rank: int, source: str) -> float:
        """y in the gap above a row."""
        return self._lane(self._grid.tops[rank] - GAP_Y / 2, source, 3)

    def _between(self, middle: Sequence[tuple[int, float]]) -> list[Point]:
        """Past each rank in between, straight along its row."""
        points = []
        for rank, x in middle:
            shifted, centre = self._grid.place(rank, x)
            half = self._grid.heights[rank] / 2
            points += [(shifted, centre - half), (shifted, centre + half)]
        return points

    def _around(self, source: str, rank_a: int, x_a: float, rank_b: int, x_b: float) -> list[Point]:
        """Out below the row of the source, along the gaps between columns, in above the row of the target."""
        grid = self._grid
        a, b = grid.column[rank_a], grid.column[rank_b]
        out_y, in_y = self._below(rank_a, source), self._above(rank_b, source)
        if -1 <= b - a <= 1:
            x = self._gutter(min(a, b), source)
            return [(x_a, out_y), (x, out_y), (x, in_y), (x_b, in_y)]
        left, right = self._gutter(a, source), self._gutter(b - 1, source)
        y = self._lane(-CORRIDOR - GAP_Y / 2, source, LANES)
        return [(x_a, out_y), (left, out_y), (left, y), (right, y), (right, in_y), (x_b, in_y)]

    def _gutter(self, column: int, source: str) -> float:
        """x in the gap to the right of a column; -1 is the left side of the picture."""
        right = self._grid.edges[column][1] if column >= 0 else -GAP_COLUMN
        return self._lane(right + GAP_COLUMN / 2, source, LANES)

    def _lane(self, gap: float, source: str, lanes: int) -> float:
        """A line in the gap around `gap` that belongs to one source."""
        key = (gap, source)
        if key not in self._lanes:
            self._lanes[key] = self._used.get(gap, 0)
            self._used[gap] = self._lanes[key] + 1
        turn = self._lanes[key] % lanes
        return gap + (turn + 1) // 2 * LANE * (1 if turn % 2 else -1)


def is_cornered(points: Sequence[Point]) -> bool:
    """Whether a route goes through the gaps: it has a level stretch."""
    return any(a[1] == b[1] and a[0] != b[0] for a, b in pairwise(points))
