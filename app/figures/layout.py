"""A layered layout for kernel graphs: ranks, crossing reduction, and columns folded to the shape of the viewport.

Sugiyama, Tagawa and Toda (1981): rank by longest path, order each rank by the median of its neighbours, then place it.
Chains of kernels are long and thin, so the ranks are cut into columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

Size = tuple[float, float]  # width, height in pixels at scale 1
Point = tuple[float, float]  # centre, in the same pixels

GAP_X, GAP_Y, GAP_COLUMN = 28.0, 40.0, 96.0
SWEEPS, PLACEMENTS = 8, 8
LONGEST_CHAIN = 12  # edges over more ranks than this get no dummy vertices: they would push everything aside
DUMMY_WIDTH = 6.0
MOST_COLUMNS = 40


@dataclass(slots=True)
class _Layers:
    """Vertices in ranks. Numbers below `real` are the caller's; the rest are dummies on long edges."""

    real: int
    ranks: list[list[int]]
    above: list[list[int]]
    below: list[list[int]]
    width: list[float]


@dataclass(slots=True)
class _Folding:
    """A cut of the ranks into columns: size of the picture, column of each rank, shift of each column to the right."""

    width: float
    height: float
    columns: list[int]
    shifts: list[float]


def layered(sizes: Mapping[str, Size], edges: Iterable[tuple[str, str]], viewport: Size) -> dict[str, Point]:
    """Centre of each box, edges pointing down, in the fewest columns that let `viewport` show it largest."""
    names = list(sizes)
    if not names:
        return {}
    number = {name: i for i, name in enumerate(names)}
    pairs = sorted({(number[a], number[b]) for a, b in edges if a != b})
    rank = _ranks(len(names), pairs)
    layers = _layers([sizes[name][0] for name in names], pairs, rank)
    _reduce_crossings(layers)
    x = _place(layers)
    heights = [0.0] * len(layers.ranks)
    for name, r in zip(names, rank, strict=True):
        heights[r] = max(heights[r], sizes[name][1])
    return _fold(
        sizes, {name: x[i] for name, i in number.items()}, dict(zip(names, rank, strict=True)), heights, viewport
    )


def _ranks(count: int, pairs: list[tuple[int, int]]) -> list[int]:
    """Longest path from a source; a pure source then moves down to its first user. Cycles stay as they are found."""
    below: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for a, b in pairs:
        below[a].append(b)
        waiting[b] += 1
    sources = {v for v in range(count) if not waiting[v]}
    rank, ready = [0] * count, sorted(sources)
    for v in ready:
        for w in below[v]:
            rank[w] = max(rank[w], rank[v] + 1)
            waiting[w] -= 1
            if not waiting[w]:
                ready.append(w)
    for v in sources:
        if below[v]:
            rank[v] = min(rank[w] for w in below[v]) - 1
    used = {r: i for i, r in enumerate(sorted(set(rank)))}
    return [used[r] for r in rank]


def _layers(widths: list[float], pairs: list[tuple[int, int]], rank: list[int]) -> _Layers:
    """Ranks with a chain of dummies along every edge that skips ranks."""
    ranks: list[list[int]] = [[] for _ in range(max(rank) + 1)]
    for v, r in enumerate(rank):
        ranks[r].append(v)
    layers = _Layers(len(widths), ranks, [[] for _ in widths], [[] for _ in widths], list(widths))
    for a, b in pairs:
        if 0 < rank[b] - rank[a] <= LONGEST_CHAIN:
            _chain(layers, a, b, range(rank[a] + 1, rank[b]))
    return layers


def _chain(layers: _Layers, a: int, b: int, between: range) -> None:
    """Join `a` to `b` through one dummy in each rank between them."""
    last = a
    for r in between:
        dummy = len(layers.width)
        layers.width.append(DUMMY_WIDTH)
        layers.above.append([last])
        layers.below.append([])
        layers.below[last].append(dummy)
        layers.ranks[r].append(dummy)
        last = dummy
    layers.below[last].append(b)
    layers.above[b].append(last)


def _median(values: list[float]) -> float:
    values.sort()
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def _reduce_crossings(layers: _Layers) -> None:
    """Sort each rank by the median position of its neighbours, sweeping down and up."""
    position = [0.0] * len(layers.width)
    for rank in layers.ranks:
        for i, v in enumerate(rank):
            position[v] = i
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        beside = layers.above if down else layers.below
        for rank in layers.ranks if down else reversed(layers.ranks):
            wish = {v: _median([position[w] for w in beside[v]]) if beside[v] else position[v] for v in rank}
            rank.sort(key=wish.__getitem__)
            for i, v in enumerate(rank):
                position[v] = i


def _place(layers: _Layers) -> list[float]:
    """x of every vertex: near the median of its neighbours, never overlapping its own rank."""
    x = [0.0] * len(layers.width)
    for rank in layers.ranks:
        offsets = _offsets(rank, layers.width)
        for v, offset in zip(rank, offsets, strict=True):
            x[v] = offset - offsets[-1] / 2
    for sweep in range(PLACEMENTS):
        down = sweep % 2 == 0
        beside = layers.above if down else layers.below
        for rank in layers.ranks if down else reversed(layers.ranks):
            wishes = [_median([x[w] for w in beside[v]]) if beside[v] else x[v] for v in rank]
            for v, place in zip(rank, _separated(wishes, _offsets(rank, layers.width)), strict=True):
                x[v] = place
    return x


def _offsets(rank: list[int], width: list[float]) -> list[float]:
    """Distance of each vertex from the first of its rank when all stand as close as they may."""
    offsets = [0.0]
    for left, right in pairwise(rank):
        offsets.append(offsets[-1] + (width[left] + width[right]) / 2 + GAP_X)
    return offsets


def _separated(wishes: list[float], offsets: list[float]) -> list[float]:
    """Places closest to the wishes (least squares) that keep the offsets: pool adjacent violators."""
    blocks: list[tuple[float, int]] = []  # sum of targets, members
    for wish, offset in zip(wishes, offsets, strict=True):
        total, count = wish - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before, members = blocks.pop()
            total, count = total + before, count + members
        blocks.append((total, count))
    starts = [total / count for total, count in blocks for _ in range(count)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


def _fold(
    sizes: Mapping[str, Size], x: dict[str, float], rank: dict[str, int], heights: list[float], viewport: Size
) -> dict[str, Point]:
    """Cut the ranks into columns of equal height, set side by side."""
    tops = [0.0]
    for height in heights:
        tops.append(tops[-1] + height + GAP_Y)
    foldings = [_columns(sizes, x, rank, tops, count) for count in range(1, min(len(heights), MOST_COLUMNS) + 1)]
    best = max(foldings, key=lambda folding: _scale(folding.width, folding.height, viewport))
    first = {column: best.columns.index(column) for column in best.columns}
    return {
        name: (x[name] + best.shifts[best.columns[r]], tops[r] - tops[first[best.columns[r]]] + heights[r] / 2)
        for name, r in rank.items()
    }


def _scale(width: float, height: float, viewport: Size) -> float:
    """How large a picture can be shown; more than its own size is no gain."""
    return min(viewport[0] / width, viewport[1] / height, 1.0)


def _columns(
    sizes: Mapping[str, Size], x: dict[str, float], rank: dict[str, int], tops: list[float], count: int
) -> _Folding:
    """The ranks in `count` columns."""
    share = tops[-1] / count
    columns = [min(count - 1, int((top + bottom) / 2 / share)) for top, bottom in pairwise(tops)]
    left, right = [math.inf] * count, [-math.inf] * count
    for name, r in rank.items():
        half = sizes[name][0] / 2
        left[columns[r]] = min(left[columns[r]], x[name] - half)
        right[columns[r]] = max(right[columns[r]], x[name] + half)
    shifts, reached = [], 0.0
    for lo, hi in zip(left, right, strict=True):
        shifts.append(reached - lo if hi >= lo else reached)
        reached += hi - lo + GAP_COLUMN if hi >= lo else 0.0
    height = max(
        sum(bottom - top for (top, bottom), c in zip(pairwise(tops), columns, strict=True) if c == column)
        for column in set(columns)
    )
    return _Folding(reached - GAP_COLUMN, height - GAP_Y, columns, shifts)
