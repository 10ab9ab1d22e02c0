"""A layered layout: ranks, crossing reduction, places, then columns and routes for the edges.

Sugiyama, Tagawa and Toda (1981): rank by longest path, order each rank by the median of its neighbours, then place it.
Chains of kernels are long and thin, so the ranks are cut into columns (layout_columns.py); an edge runs where no box
stands (layout_routes.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from fusionscope.app.figures.layout_columns import Column, fold
from fusionscope.app.figures.layout_routes import Router

Size = tuple[float, float]  # width, height in pixels at scale 1
Point = tuple[float, float]  # centre, in the same pixels
Edge = tuple[str, str]
Route = tuple[Point, ...]

GAP_X = 28.0
SWEEPS, PLACEMENTS = 8, 8
LONGEST_CHAIN = 12  # edges over more ranks than this get no dummy vertices: they would push everything aside
DUMMY_WIDTH = 6.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Where boxes stand and edges run, the top left corner at (0, 0)."""

    places: dict[str, Point]
    routes: dict[Edge, Route]
    outs: dict[str, Route]  # from a box to the lower rim
    ins: dict[str, Route]  # from the upper rim to a box
    columns: list[Column]
    size: Size


@dataclass(slots=True)
class _Layers:
    """Vertices in ranks. Numbers below `real` are the caller's; the rest are dummies on long edges."""

    real: int
    ranks: list[list[int]]
    above: list[list[int]]
    below: list[list[int]]
    width: list[float]
    chains: dict[tuple[int, int], list[int]]


def layered(
    sizes: Mapping[str, Size],
    edges: Iterable[Edge],
    viewport: Size,
    parts: Mapping[str, int] | None = None,
    rims: Iterable[str] = (),
) -> Layout:
    """Boxes in ranks with edges pointing down, in the fewest columns that let `viewport` show them largest.

    `sizes` are in schedule order: an edge against it says nothing about the ranks. `parts`: the number of the part of
    the model that a box belongs to; columns are cut between parts where they can be. `rims`: boxes that edges from
    outside lead to.
    """
    names = list(sizes)
    if not names:
        return Layout({}, {}, {}, {}, [], (0.0, 0.0))
    number = {name: i for i, name in enumerate(names)}
    wanted = list(dict.fromkeys((a, b) for a, b in edges if a != b))
    pairs = sorted((number[a], number[b]) for a, b in wanted if number[a] < number[b])
    rank = _ranks(len(names), pairs)
    layers = _layers([sizes[name][0] for name in names], pairs, rank)
    _reduce_crossings(layers)
    x = _place(layers)
    heights = [max((sizes[names[v]][1] for v in row if v < layers.real), default=0.0) for row in layers.ranks]
    spans = [_span(row, x, layers) for row in layers.ranks]
    marks = [min((parts[names[v]] for v in row if v < layers.real), default=0) for row in layers.ranks] if parts else []
    grid = fold(spans, heights, marks, viewport)
    places = {name: grid.place(rank[v], x[v]) for v, name in enumerate(names)}
    router = Router(grid, {name: (rank[v], places[name], sizes[name][1]) for v, name in enumerate(names)})
    for a, b in wanted:
        chain = layers.chains.get((number[a], number[b]))
        middle = None if chain is None else [(r, x[v]) for r, v in enumerate(chain, start=rank[number[a]] + 1)]
        router.add(a, b, middle)
    outs, ins = ({name: way(name) for name in rims} for way in (router.way_out, router.way_in))
    return _moved(Layout(places, router.routes, outs, ins, grid.columns_of(rank, names), grid.size))


def _moved(layout: Layout) -> Layout:
    """Everything moved so that what leaves the grid, the routes around it, is inside the size too."""
    routes = [*layout.routes.values(), *layout.outs.values(), *layout.ins.values()]
    xs = [0.0, layout.size[0], *(x for route in routes for x, _ in route)]
    ys = [0.0, layout.size[1], *(y for route in routes for _, y in route)]
    left, top = min(xs), min(ys)

    def moved(route: Route) -> Route:
        return tuple((x - left, y - top) for x, y in route)

    return Layout(
        {name: (x - left, y - top) for name, (x, y) in layout.places.items()},
        {edge: moved(route) for edge, route in layout.routes.items()},
        {name: moved(route) for name, route in layout.outs.items()},
        {name: moved(route) for name, route in layout.ins.items()},
        [Column(column.left - left, column.right - left, column.names) for column in layout.columns],
        (max(xs) - left, max(ys) - top),
    )


def _span(row: list[int], x: list[float], layers: _Layers) -> tuple[float, float]:
    """Left and right end of a rank."""
    return min(x[v] - layers.width[v] / 2 for v in row), max(x[v] + layers.width[v] / 2 for v in row)


def _ranks(count: int, pairs: list[tuple[int, int]]) -> list[int]:
    """Longest path from a source; a pure source then moves down to its first user. `pairs` point to higher numbers."""
    below: list[list[int]] = [[] for _ in range(count)]
    has_source = [False] * count
    rank = [0] * count
    for a, b in pairs:
        below[a].append(b)
        has_source[b] = True
        rank[b] = max(rank[b], rank[a] + 1)
    for v in range(count):
        if below[v] and not has_source[v]:
            rank[v] = min(rank[w] for w in below[v]) - 1
    used = {r: i for i, r in enumerate(sorted(set(rank)))}
    return [used[r] for r in rank]


def _layers(widths: list[float], pairs: list[tuple[int, int]], rank: list[int]) -> _Layers:
    """Ranks with a chain of dummies along every edge that skips ranks."""
    ranks: list[list[int]] = [[] for _ in range(max(rank) + 1)]
    for v, r in enumerate(rank):
        ranks[r].append(v)
    layers = _Layers(len(widths), ranks, [[] for _ in widths], [[] for _ in widths], list(widths), {})
    for a, b in pairs:
        if 0 < rank[b] - rank[a] <= LONGEST_CHAIN:
            layers.chains[a, b] = _chain(layers, a, b, range(rank[a] + 1, rank[b]))
    return layers


def _chain(layers: _Layers, a: int, b: int, between: range) -> list[int]:
    """Join `a` to `b` through one dummy in each rank between them."""
    last, dummies = a, []
    for r in between:
        dummy = len(layers.width)
        layers.width.append(DUMMY_WIDTH)
        layers.above.append([last])
        layers.below.append([])
        layers.below[last].append(dummy)
        layers.ranks[r].append(dummy)
        dummies.append(dummy)
        last = dummy
    layers.below[last].append(b)
    layers.above[b].append(last)
    return dummies


def _median(values: list[float]) -> float:
    values.sort()
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def _reduce_crossings(layers: _Layers) -> None:
    """Sort each rank by the median position of its neighbours, sweeping down and up until nothing moves."""
    position = [0.0] * len(layers.width)
    for rank in layers.ranks:
        for i, v in enumerate(rank):
            position[v] = i
    still = 0  # sweeps in a row that moved nothing
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        beside = layers.above if down else layers.below
        still += 1
        for rank in layers.ranks if down else reversed(layers.ranks):
            if len(rank) == 1:
                continue
            wish = {v: _median([position[w] for w in beside[v]]) if beside[v] else position[v] for v in rank}
            rank.sort(key=wish.__getitem__)
            for i, v in enumerate(rank):
                if position[v] != i:
                    position[v], still = i, 0
        if still == 2:
            return


def _place(layers: _Layers) -> list[float]:
    """x of every vertex: near the median of its neighbours, never overlapping its own rank."""
    x = [0.0] * len(layers.width)
    offsets = [_offsets(rank, layers.width) for rank in layers.ranks]
    for rank, row in zip(layers.ranks, offsets, strict=True):
        for v, offset in zip(rank, row, strict=True):
            x[v] = offset - row[-1] / 2
    rows = list(zip(layers.ranks, offsets, strict=True))
    still = 0  # sweeps in a row that moved nothing
    for sweep in range(PLACEMENTS):
        down = sweep % 2 == 0
        beside = layers.above if down else layers.below
        still += 1
        for rank, row in rows if down else reversed(rows):
            wishes = [_median([x[w] for w in beside[v]]) if beside[v] else x[v] for v in rank]
            for v, place in zip(rank, _separated(wishes, row) if len(rank) > 1 else wishes, strict=True):
                if abs(x[v] - place) > 0.5:
                    still = 0
                x[v] = place
        if still == 2:
            break
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
