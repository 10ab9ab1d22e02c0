"""Folding: the ranks of a long graph cut into columns, between repeated parts of the model where that is possible."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

GAP_Y, GAP_COLUMN = 40.0, 84.0
MOST_COLUMNS = 40


@dataclass(frozen=True, slots=True)
class Column:
    """A column of boxes, by name from top to bottom."""

    left: float
    right: float
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """Ranks in columns. `tops` and `heights` are of the rows; `shifts` move a column's x to its place."""

    column: list[int]
    tops: list[float]
    heights: list[float]
    shifts: list[float]
    edges: list[tuple[float, float]]  # left and right end of each column
    size: tuple[float, float]

    def place(self, rank: int, x: float) -> tuple[float, float]:
        """Centre of a box of `rank` that was placed at `x`."""
        return x + self.shifts[self.column[rank]], self.tops[rank] + self.heights[rank] / 2

    def columns_of(self, ranks: Sequence[int], names: Sequence[str]) -> list[Column]:
        """What stands in each column; `ranks` belong to `names`."""
        inside: list[list[tuple[int, str]]] = [[] for _ in self.edges]
        for rank, name in zip(ranks, names, strict=True):
            inside[self.column[rank]].append((rank, name))
        return [
            Column(left, right, tuple(name for _, name in sorted(found, key=lambda placed: placed[0])))
            for (left, right), found in zip(self.edges, inside, strict=True)
        ]


def fold(
    spans: Sequence[tuple[float, float]], heights: list[float], parts: Sequence[int], viewport: tuple[float, float]
) -> Grid:
    """The grid that `viewport` shows largest. `spans` and `heights` are of the ranks, `parts` mark where one begins."""
    ends = list(accumulate(height + GAP_Y for height in heights))
    breaks = [rank for rank, (before, part) in enumerate(pairwise(parts), start=1) if part != before]
    most = min(len(heights), MOST_COLUMNS)
    folded = [_grid(spans, heights, _cuts(ends, breaks, count)) for count in range(1, most + 1)]
    return max(folded, key=lambda grid: min(viewport[0] / grid.size[0], viewport[1] / max(grid.size[1], 1.0), 1.0))


def _cuts(ends: list[float], breaks: list[int], count: int) -> list[int]:
    """First ranks of the columns after the first: as even as can be, at a break where one is within half a column."""
    share = ends[-1] / count
    found = []
    for k in range(1, count):
        even = bisect_left(ends, k * share) + 1
        near = min(breaks, key=lambda rank: abs(ends[rank - 1] - k * share), default=even)
        found.append(near if abs(ends[near - 1] - k * share) < share / 2 else even)
    return sorted({cut for cut in found if cut < len(ends)})


def _grid(spans: Sequence[tuple[float, float]], heights: list[float], cuts: list[int]) -> Grid:
    """Columns that begin at the cuts, set side by side."""
    column, tops, shifts, edges = [], [], [], []
    reached, tallest = 0.0, 0.0
    for number, (first, end) in enumerate(pairwise([0, *cuts, len(heights)])):
        left, right = min(lo for lo, _ in spans[first:end]), max(hi for _, hi in spans[first:end])
        shifts.append(reached - left)
        edges.append((reached, reached + right - left))
        reached += right - left + GAP_COLUMN
        tops += list(accumulate((height + GAP_Y for height in heights[first : end - 1]), initial=0.0))
        column += [number] * (end - first)
        tallest = max(tallest, tops[-1] + heights[end - 1])
    return Grid(column, tops, heights, shifts, edges, (max(reached - GAP_COLUMN, 1.0), math.ceil(tallest)))
