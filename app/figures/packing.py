"""Places for rectangles of memory so that no two overlap."""

from __future__ import annotations

from collections.abc import Sequence

from fusionscope.storage.queries.blocks import Span


def pack(spans: Sequence[Span], end: float, floor: int = 0) -> dict[str, int]:
    """An offset in bytes for each block, from `floor` on: the largest area goes lowest, first fit.

    Blocks that take over each other's memory stand in one row. `end` is the end of the axis.
    """
    chains = _chains(spans)
    lives = {root: (min(map(start_of, c)), max(stop_of(s, end) for s in c)) for root, c in chains.items()}
    heights = {root: max(span.bytes for span in chain) for root, chain in chains.items()}
    placed: list[tuple[float, float, int, int]] = []  # start, stop, bottom, top
    offsets: dict[str, int] = {}
    for root in sorted(chains, key=lambda key: (-heights[key] * (lives[key][1] - lives[key][0]), lives[key], key)):
        start, stop = lives[root]
        taken = [(low, high) for begin, until, low, high in placed if begin < stop and start < until]
        bottom = _lowest(taken, heights[root], floor)
        placed.append((start, stop, bottom, bottom + heights[root]))
        offsets |= {span.key: bottom for span in chains[root]}
    return offsets


def start_of(span: Span) -> float:
    """Where a block begins to be drawn; one from before the step at 0."""
    return span.first or 0.0


def stop_of(span: Span, end: float) -> float:
    """Where a block ends; one that outlives the step at the end of the axis."""
    return end if span.last is None else max(span.last, start_of(span) + end / 1000)


def _lowest(taken: list[tuple[int, int]], height: int, floor: int) -> int:
    """The lowest gap between taken intervals that holds `height`."""
    bottom = floor
    for low, high in sorted(taken):
        if low - bottom >= height:
            break
        bottom = max(bottom, high)
    return bottom


def _chains(spans: Sequence[Span]) -> dict[str, list[Span]]:
    """Blocks by the one whose memory they ended up with."""
    known = {span.key: span for span in spans}
    chains: dict[str, list[Span]] = {}
    for span in spans:
        root = span
        while root.reuses in known and known[root.reuses] is not span:
            root = known[root.reuses]
        chains.setdefault(root.key, []).append(span)
    return chains
