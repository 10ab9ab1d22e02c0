"""What became of each graph's planned peak between two runs: its height, its place, and what is alive there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.anchors import objects
from fusionscope.storage.queries.changes import Change
from fusionscope.storage.queries.diff_work import named, together
from fusionscope.storage.queries.identity import Op, Pairing, match, ops_of_buffers, values_of_buffers
from fusionscope.storage.text import bytes_, nearly


@dataclass(frozen=True, slots=True)
class _Peak:
    """The first step of a graph's plan with most bytes alive."""

    graph_id: str
    function: str | None
    direction: str | None
    bytes: int
    buffer: str | None  # that is allocated there


@dataclass(frozen=True, slots=True)
class _Live:
    """A buffer that is alive at the peak of its graph's plan."""

    name: str  # graph_id/buffer
    category: str
    bytes: int | None


class _Side:
    """The peaks of one run, what is alive at them, and what its buffers hold."""

    def __init__(self, con: DuckDBPyConnection, run_id: str) -> None:
        self.graphs = objects(con, run_id, "peak")
        self.peaks = {peak.graph_id: peak for peak in fetch(con, _Peak, f"{_PEAK} {_PEAKS}", [run_id])}
        self.live = {live.name: live for live in fetch(con, _Live, f"{_PEAK} {_ALIVE}", [run_id])}
        self.values = values_of_buffers(con, run_id)
        held = ops_of_buffers(con, run_id)
        unknown = [live for name, live in self.live.items() if not held[name]]
        self.ops = held | {
            live.name: frozenset({Op("", "", "", "", f"a buffer ({live.category})", ordinal)})
            for ordinal, live in enumerate(unknown)
        }

    def value(self, buffers: frozenset[str]) -> frozenset[Op]:
        """The values that the buffers hold, without what was inlined on the way to them."""
        return together(self.values, buffers & self.values.keys()) or together(self.ops, buffers)

    def at(self, peak: _Peak) -> frozenset[str]:
        """The buffer at whose allocation the peak is reached."""
        name = f"{peak.graph_id}/{peak.buffer}"
        return frozenset({name} & self.ops.keys())


def changes(con: DuckDBPyConnection, before: str, after: str) -> list[Change]:
    """Peaks that are higher, lower or elsewhere; then buffers alive at one of them only, or with another size."""
    old, new = _Side(con, before), _Side(con, after)
    same = match(old.ops, new.ops)
    return [
        *sorted(_peaks(old, new, same), key=lambda change: -change.weight),
        *sorted(_live_sets(old, new, same), key=lambda change: -change.weight),
    ]


def _peaks(old: _Side, new: _Side, same: Iterable[Pairing]) -> Iterator[Change]:
    for pair in match(old.graphs, new.graphs):
        both = [*(old.peaks.get(name) for name in pair.a), *(new.peaks.get(name) for name in pair.b)]
        if len(pair.a) != 1 or len(pair.b) != 1 or None in both:
            continue
        a, b = (peak for peak in both if peak is not None)
        elsewhere = not any(old.at(a) <= p.a and new.at(b) <= p.b for p in same)
        if a.bytes != b.bytes or elsewhere:
            yield Change(
                "memory",
                "moved" if elsewhere else "changed",
                f"peak of {_of(b)}",
                before=_peak_words(a, old, exact=nearly(a.bytes, b.bytes)),
                after=_peak_words(b, new, exact=nearly(a.bytes, b.bytes)),
                weight=float(abs(b.bytes - a.bytes)),
                graph=b.graph_id,
            )


def _of(peak: _Peak) -> str:
    """`forward`, `forward (backward)`, `forward from line 23` for what Dynamo named torch_dynamo_resume_in_…"""
    resumed = _RESUMED.fullmatch(peak.function or "")
    function = f"{resumed[1]} from line {resumed[2]}" if resumed else peak.function or "the graph"
    return f"{function} (backward)" if peak.direction == "backward" else function


_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")


def _peak_words(peak: _Peak, side: _Side, *, exact: bool) -> str:
    """`4.01 MiB, when sum at model.py:28 is allocated`."""
    what, where = named(side.value(side.at(peak)))
    size = f"{peak.bytes:,} B" if exact else bytes_(peak.bytes)
    return f"{size}, when {what}{f' at {where}' if where else ''} is allocated"


def _live_sets(old: _Side, new: _Side, same: Iterable[Pairing]) -> Iterator[Change]:
    for pair in same:
        a, b = pair.a & old.live.keys(), pair.b & new.live.keys()
        sizes = _size(old.live, a), _size(new.live, b)
        if (a and b and sizes[0] == sizes[1]) or not (a or b):
            continue
        yield Change(
            "memory",
            "new" if not a else "gone" if not b else "changed",
            *named(new.value(b) or old.value(a)),
            before=_live_words(old.live, a),
            after=_live_words(new.live, b),
            weight=float(abs((sizes[1] or 0) - (sizes[0] or 0))),
            objects_before=tuple(sorted(a)),
            objects_after=tuple(sorted(b)),
            graph=min(b or a).rpartition("/")[0],
        )


def _size(live: Mapping[str, _Live], names: Iterable[str]) -> int | None:
    """Bytes of these buffers; None where it is not known of one."""
    sizes = [live[name].bytes for name in names]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _live_words(live: Mapping[str, _Live], names: frozenset[str]) -> str | None:
    """`2 MiB intermediate`; None where there is none."""
    if not names:
        return None
    categories = ", ".join(sorted({live[name].category for name in names}))
    return f"{bytes_(_size(live, names)) or 'unknown size'} {categories}"


_PEAK = """
WITH graph AS (
    SELECT graph_id, function, direction FROM graphs
    LEFT JOIN (SELECT run_id, compile_id, phase, function FROM compiles) USING (run_id, compile_id)
    WHERE run_id = $1 AND stage = 'post_grad' AND coalesce(phase, 'drive') = 'drive'
),
peak AS (
    SELECT graph_id, step, live_bytes AS bytes, buffer FROM memory_points WHERE run_id = $1 AND basis = 'plan'
    QUALIFY row_number() OVER (PARTITION BY graph_id ORDER BY live_bytes DESC, step) = 1
)"""
_PEAKS = "SELECT graph_id, function, direction, bytes, buffer FROM graph JOIN peak USING (graph_id)"
# What the call found is not counted in live_bytes, so it is left out here as well.
_ALIVE = """
SELECT graph_id || '/' || buffers.buffer AS name, category, buffers.bytes
FROM (SELECT * FROM buffers WHERE run_id = $1) buffers JOIN graph USING (graph_id) JOIN peak USING (graph_id)
WHERE allocated_at <= step AND coalesce(freed_at > step, true)
"""
