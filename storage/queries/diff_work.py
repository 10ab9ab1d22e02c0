"""What became of the work between two runs: fusion groups, kernels, and what is alive at the peak of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.anchors import label
from fusionscope.storage.queries.changes import Change
from fusionscope.storage.queries.identity import Op, Pairing, Things, match, ops_of_buffers, ops_of_groups
from fusionscope.storage.queries.kernel_match import kernel_matches
from fusionscope.storage.queries.rooflines import Judged
from fusionscope.storage.text import bytes_, microseconds, shortened


def changes(con: DuckDBPyConnection, before: str, after: str, noise_us: float) -> list[Change]:
    """Groups, kernels and live buffers that differ.

    A kernel's time has no spread of its own, so it counts as changed where its total moved by more than `noise_us`, the
    width of the model's own 10–90 % interval.
    """
    return [
        *sorted(_groups(con, before, after), key=lambda change: -change.weight),
        *sorted(_kernels(con, before, after, noise_us), key=lambda change: -change.weight),
        *sorted(_live_sets(con, before, after), key=lambda change: -change.weight),
    ]


def _groups(con: DuckDBPyConnection, before: str, after: str) -> Iterator[Change]:
    old, new = ops_of_groups(con, before), ops_of_groups(con, after)
    moved = [_traffic(con, run) for run in (before, after)]
    for pair in _absorbed(match(old, new), old, new):
        if (status := _status(pair, old, new)) is None:
            continue
        ops = _together(old, pair.a) | _together(new, pair.b)
        yield Change(
            "groups",
            status,
            *_named(ops),
            before=_in_words(pair.a, old, moved[0]),
            after=_in_words(pair.b, new, moved[1]),
            weight=float(max(_sum(moved[0], pair.a), _sum(moved[1], pair.b))),
            objects_before=tuple(sorted(pair.a)),
            objects_after=tuple(sorted(pair.b)),
        )


def _absorbed(pairs: list[Pairing], old: Things, new: Things) -> list[Pairing]:
    """Put a group that is alone beside the group of the other run that computes all of it, among other things."""
    whole = [pair for pair in pairs if pair.a and pair.b]
    for alone in (pair for pair in pairs if not (pair.a and pair.b)):
        ops = _together(old, alone.a) | _together(new, alone.b)
        for place, pair in enumerate(whole):
            if ops and ops <= (_together(old, pair.a) if alone.b else _together(new, pair.b)):
                whole[place] = Pairing(pair.a | alone.a, pair.b | alone.b, pair.matched_by)
                break
        else:
            whole.append(alone)
    return whole


def _status(pair: Pairing, old: Things, new: Things) -> str | None:
    """What became of the groups on one side on the other; None where it is the same group."""
    if not pair.a or not pair.b:
        return "new" if pair.b else "gone"
    if len(pair.a) == len(pair.b) == 1:
        return None if _together(old, pair.a) == _together(new, pair.b) else "changed"
    if sorted(map(sorted, (old[name] for name in pair.a))) == sorted(map(sorted, (new[name] for name in pair.b))):
        return None  # several groups that are alike in all that identifies them
    return "split" if len(pair.a) == 1 else "merged" if len(pair.b) == 1 else "regrouped"


def _in_words(names: Iterable[str], ops: Things, moved: Mapping[str, int]) -> str | None:
    """`2 groups, 14 operations, 3 MiB`; None where there is no group."""
    listed = list(names)
    if not listed:
        return None
    groups = f"{len(listed)} groups" if len(listed) > 1 else "1 group"
    return f"{groups}, {len(_together(ops, listed))} operations, {bytes_(_sum(moved, listed))}"


def _kernels(con: DuckDBPyConnection, before: str, after: str, noise_us: float) -> Iterator[Change]:
    for found in kernel_matches(con, before, after):
        old, new = (_total_us(side) for side in (found.a, found.b))
        moved = old is not None and new is not None and abs(new - old) > noise_us > 0
        differs = (*found.differs, *(("time",) if moved and found.a and found.b else ()))
        if not differs:
            continue
        status = "new" if not found.a else "gone" if not found.b else "changed"
        named, place = _named(frozenset(found.ops))
        yield Change(
            "kernels",
            status,
            named if status != "changed" else f"{named}: {', '.join(differs)}",
            place,
            before=_kernel_words(found.a),
            after=_kernel_words(found.b),
            weight=max(old or 0.0, new or 0.0),
            objects_before=tuple(k.row.kernel_id for k in found.a if k.row.kernel_id),
            objects_after=tuple(k.row.kernel_id for k in found.b if k.row.kernel_id),
        )


def _kernel_words(kernels: Sequence[Judged]) -> str | None:
    """`3 kernels, 187 ms, 6.52 MiB`; None where there is none."""
    if not kernels:
        return None
    parts = [f"{len(kernels)} kernels" if len(kernels) > 1 else shortened(kernels[0].row.name)]
    if (total := _total_us(kernels)) is not None:
        parts.append(microseconds(total) or "")
    parts.append(bytes_(sum((k.row.moved or 0) * k.row.calls for k in kernels)) or "")
    if any(k.row.registers is not None for k in kernels):
        parts.append(f"{max(k.row.registers or 0 for k in kernels)} registers")
        parts.append(f"{bytes_(sum(k.row.spill_bytes or 0 for k in kernels))} spilled")
    return ", ".join(parts)


def _total_us(kernels: Sequence[Judged]) -> float | None:
    times = [k.row.total_us for k in kernels if k.row.total_us is not None]
    return sum(times) if times and len(times) == len(kernels) else None


@dataclass(frozen=True, slots=True)
class _Live:
    """A buffer that is alive at the peak of its graph's plan."""

    name: str  # graph_id/buffer
    category: str
    bytes: int | None
    direction: str


def _live_sets(con: DuckDBPyConnection, before: str, after: str) -> Iterator[Change]:
    """Buffers that are alive at the peak of one run only, or with another size."""
    old, new = ({live.name: live for live in fetch(con, _Live, _ALIVE, [run])} for run in (before, after))
    ops_a, ops_b = ops_of_buffers(con, before), ops_of_buffers(con, after)
    for pair in match({name: ops_a[name] for name in old}, {name: ops_b[name] for name in new}):
        sizes = [sum(live[n].bytes or 0 for n in names) for live, names in ((old, pair.a), (new, pair.b))]
        if pair.a and pair.b and sizes[0] == sizes[1]:
            continue
        categories = [
            ", ".join(sorted({live[n].category for n in names})) for live, names in ((old, pair.a), (new, pair.b))
        ]
        yield Change(
            "memory",
            "new" if not pair.a else "gone" if not pair.b else "changed",
            *_named(_together(ops_a, pair.a) | _together(ops_b, pair.b)),
            before=f"{bytes_(sizes[0])} {categories[0]}" if pair.a else None,
            after=f"{bytes_(sizes[1])} {categories[1]}" if pair.b else None,
            weight=float(abs(sizes[1] - sizes[0])),
            objects_before=tuple(sorted(pair.a)),
            objects_after=tuple(sorted(pair.b)),
        )


def _together(ops: Things, names: Iterable[str]) -> frozenset[Op]:
    return frozenset().union(*(ops[name] for name in names))


def _named(ops: frozenset[Op]) -> tuple[str, str | None]:
    """The operators, and the line of the model."""
    words, _, place = label(ops).partition(" at ")
    return words or "unknown work", place or None


def _traffic(con: DuckDBPyConnection, run_id: str) -> dict[str, int]:
    """`graph_id/group_id` -> bytes that its scheduler nodes read and write."""
    return dict(con.execute(_TRAFFIC, [run_id]).fetchall())


def _sum(moved: Mapping[str, int], names: Iterable[str]) -> int:
    return sum(moved.get(name) or 0 for name in names)


_TRAFFIC = """
WITH member AS (SELECT graph_id, group_id, unnest(members) AS ir_node FROM fusion_groups WHERE run_id = $1)
SELECT graph_id || '/' || group_id, sum(coalesce(bytes_read, 0) + coalesce(bytes_written, 0))::BIGINT
FROM member JOIN (SELECT * FROM ir_nodes WHERE run_id = $1) USING (graph_id, ir_node) GROUP BY ALL
"""

# What the call found is not counted in live_bytes, so it is left out here as well.
_ALIVE = """
WITH graph AS (
    SELECT graph_id, coalesce(direction, '') AS direction FROM graphs
    LEFT JOIN (SELECT run_id, compile_id, phase FROM compiles) USING (run_id, compile_id)
    WHERE run_id = $1 AND stage = 'post_grad' AND coalesce(phase, 'drive') = 'drive'
),
peak AS (
    SELECT graph_id, min_by(step, (-live_bytes, step)) AS step FROM memory_points
    WHERE run_id = $1 AND basis = 'plan' GROUP BY graph_id
)
SELECT graph_id || '/' || buffer AS name, category, bytes, direction
FROM (SELECT * FROM buffers WHERE run_id = $1) JOIN graph USING (graph_id) JOIN peak USING (graph_id)
WHERE allocated_at <= step AND coalesce(freed_at > step, true)
"""
