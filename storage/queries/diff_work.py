"""What became of the work between two runs: fusion groups and kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeVar

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.anchors import label, short_target
from fusionscope.storage.queries.changes import Change
from fusionscope.storage.queries.identity import Op, Pairing, Things, match, ops_of_groups
from fusionscope.storage.queries.kernel_match import Match, kernel_matches
from fusionscope.storage.queries.kernels import KernelRow
from fusionscope.storage.queries.kernels import kernels as kernels_of
from fusionscope.storage.queries.rooflines import Judged
from fusionscope.storage.text import bytes_, microseconds, nearly, shortened

N = TypeVar("N", int, float)


def changes(con: DuckDBPyConnection, before: str, after: str, noise_us: float | None) -> list[Change]:
    """Groups and kernels that differ, the heaviest first; by time those whose total moved by more than `noise_us`."""
    return [
        *sorted(_groups(con, before, after), key=lambda change: -change.weight),
        *sorted(_kernels(con, before, after, noise_us), key=lambda change: -change.weight),
    ]


def _groups(con: DuckDBPyConnection, before: str, after: str) -> Iterator[Change]:
    old, new = ops_of_groups(con, before), ops_of_groups(con, after)
    calls = [_Calls(con, run) for run in (before, after)]
    for pair in _absorbed(match(old, new), old, new):
        if (status := _status(pair, old, new)) is None:
            continue
        ops = together(old, pair.a), together(new, pair.b)
        yield Change(
            "groups",
            status,
            *named(ops[0] | ops[1]),
            before=_only_here(ops[0], ops[1]) + _in_words(pair.a, ops[0], calls[0]) if pair.a else None,
            after=_only_here(ops[1], ops[0]) + _in_words(pair.b, ops[1], calls[1]) if pair.b else None,
            weight=float(max(calls[0].moved(pair.a) or 0, calls[1].moved(pair.b) or 0)),
            objects_before=tuple(sorted(pair.a)),
            objects_after=tuple(sorted(pair.b)),
            graph=min(pair.b or pair.a).rpartition("/")[0],
        )


def _absorbed(pairs: list[Pairing], old: Things, new: Things) -> list[Pairing]:
    """Put a group that is alone beside the group of the other run that computes all of it, among other things."""
    whole = [pair for pair in pairs if pair.a and pair.b]
    for alone in (pair for pair in pairs if not (pair.a and pair.b)):
        ops = together(old, alone.a) | together(new, alone.b)
        for place, pair in enumerate(whole):
            if ops and ops <= (together(old, pair.a) if alone.b else together(new, pair.b)):
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
        return None if together(old, pair.a) == together(new, pair.b) else "changed"
    if sorted(map(sorted, (old[name] for name in pair.a))) == sorted(map(sorted, (new[name] for name in pair.b))):
        return None  # several groups that are alike in all that identifies them
    return _by_number(len(pair.a), len(pair.b))


def _by_number(before: int, after: int) -> str:
    return "split" if before == 1 else "merged" if after == 1 else "regrouped"


def _in_words(groups: frozenset[str], ops: frozenset[Op], calls: _Calls) -> str:
    """`2 groups in 1 kernel call, 14 operations, 3 MiB moved`."""
    places = _several(len(calls.of(groups)), "kernel call")
    shared = " with others" if calls.shared(groups) else ""
    moved = calls.moved(groups)
    size = "" if moved is None or shared else f", {bytes_(moved)} moved"
    return f"{_several(len(groups), 'group')} in {places}{shared}, {_several(len(ops), 'operation')}{size}"


def _only_here(ops: frozenset[Op], others: frozenset[Op]) -> str:
    """`only here: sqrt, reciprocal; `, where the other run's groups compute something too."""
    names = dict.fromkeys(short_target(op.target) for op in sorted(ops - others)) if others else ()
    return f"only here: {', '.join(names)}; " if names else ""


@dataclass(frozen=True, slots=True)
class _Call:
    """A kernel call of the wrapper with one of the groups that it runs."""

    group: str  # graph_id/group_id
    graph_id: str
    position: int
    kernel_id: str
    backend: str
    node_bytes: int | None  # read and written by the group's scheduler nodes, added up


class _Calls:
    """The kernel calls of a run by the groups that they run, and what each call moves."""

    def __init__(self, con: DuckDBPyConnection, run_id: str) -> None:
        self._calls = {call.group: call for call in fetch(con, _Call, _CALLS, [run_id])}
        self._kernels = {kernel.kernel_id: kernel for kernel in kernels_of(con, run_id)}

    def of(self, groups: Iterable[str]) -> dict[tuple[str, int], _Call]:
        """The distinct calls that run the groups, by graph and position."""
        calls = (self._calls[group] for group in groups if group in self._calls)
        return {(call.graph_id, call.position): call for call in calls}

    def shared(self, groups: frozenset[str]) -> bool:
        """Whether these calls run other groups as well: what they move is then not that of the groups."""
        places = self.of(groups)
        return any((c.graph_id, c.position) in places for c in self._calls.values() if c.group not in groups)

    def moved(self, groups: Iterable[str]) -> int | None:
        """Bytes that these calls read and write, each buffer of a call once; None where it is not known of one."""
        return _sum(map(self._moved, self.of(groups).values()))

    def _moved(self, call: _Call) -> int | None:
        """A library kernel is one kernel whatever its shapes, so what is known of its first call says nothing here."""
        kernel = self._kernels.get(call.kernel_id)
        return call.node_bytes if call.backend == "extern" or kernel is None else kernel.moved


def _kernels(con: DuckDBPyConnection, before: str, after: str, noise_us: float | None) -> Iterator[Change]:
    for found in kernel_matches(con, before, after):
        old, new = (_total_us(side) for side in (found.a, found.b))
        differs = (*found.differs, *(("time",) if _moved_by_more(noise_us, old, new) else ()))
        if not differs:
            continue
        form = _Form(time=noise_us is not None or not (found.a and found.b), exact=_read_alike(found))
        yield Change(
            "kernels",
            _became(found),
            *named(frozenset(found.ops)),
            before=_kernel_words(found.a, form),
            after=_kernel_words(found.b, form),
            weight=max(old or 0.0, new or 0.0),
            objects_before=tuple(k.row.kernel_id for k in found.a if k.row.kernel_id),
            objects_after=tuple(k.row.kernel_id for k in found.b if k.row.kernel_id),
            differs=differs if found.a and found.b else (),
            graph=(found.b or found.a)[0].row.graph_id,
        )


def _moved_by_more(noise_us: float | None, old: float | None, new: float | None) -> bool:
    return noise_us is not None and old is not None and new is not None and abs(new - old) > noise_us


def _became(found: Match) -> str:
    if not found.a or not found.b:
        return "new" if found.b else "gone"
    return "changed" if len(found.a) == len(found.b) else _by_number(len(found.a), len(found.b))


@dataclass(frozen=True, slots=True)
class _Form:
    """What is said of kernels."""

    time: bool  # not where all times are inside the noise
    exact: bool  # bytes in full: rounded they would read alike on both sides


def _read_alike(found: Match) -> bool:
    return nearly(*(_sum(_of_all_calls(kernel.row) for kernel in side) for side in (found.a, found.b)))


def _kernel_words(kernels: Sequence[Judged], form: _Form) -> str | None:
    """`3 kernels, 4 calls, 5 groups, 187 ms, 6.52 MiB`; None where there is none."""
    if not kernels:
        return None
    rows = [kernel.row for kernel in kernels]
    calls, groups = sum(row.calls for row in rows), sum(row.groups or 0 for row in rows)
    parts = [_several(len(rows), "kernel")] if len(rows) > 1 else []
    parts += [_several(count, noun) for noun, count in (("call", calls), ("group", groups)) if count != len(rows)]
    time, moved = _total_us(kernels) if form.time else None, _sum(map(_of_all_calls, rows))
    size = f"{moved:,} B" if form.exact and moved is not None else bytes_(moved)
    name = shortened(rows[0].name, 28) if len(rows) == 1 else None
    return ", ".join(filter(None, (*parts, microseconds(time), size, *_resources(rows), name)))


def _of_all_calls(row: KernelRow) -> int | None:
    return None if row.moved is None else row.moved * row.calls


def _resources(rows: Sequence[KernelRow]) -> Iterator[str]:
    """Of the kernel that needs most; nothing where it is not recorded."""
    limit = "" if all(row.decided for row in rows) else "up to "  # several configurations, none chosen: of the fullest
    if registers := [row.registers for row in rows if row.registers is not None]:
        yield f"{limit}{max(registers)} registers"
    if spilt := [row.spill_bytes for row in rows if row.spill_bytes]:
        yield f"{limit}{bytes_(max(spilt))} spilled"
    if occupied := [row.occupancy for row in rows if row.occupancy is not None]:
        yield f"occupancy {min(occupied):.0%}"


def _total_us(kernels: Sequence[Judged]) -> float | None:
    return _sum(kernel.row.total_us for kernel in kernels)


def _sum(values: Iterable[N | None]) -> N | None:
    """The sum; None where there is nothing to add up, or one of it is not known."""
    known = list(values)
    found = [value for value in known if value is not None]
    return sum(found[1:], found[0]) if found and len(found) == len(known) else None


def together(ops: Things, names: Iterable[str]) -> frozenset[Op]:
    """All operations of the things of these names."""
    return frozenset().union(*(ops[name] for name in names))


def named(ops: frozenset[Op]) -> tuple[str, str | None]:
    """`add, gelu (layers.3, backward)`, and the line of the model."""
    words, _, place = label(ops).partition(" at ")
    inside = (_module(op.module_path for op in ops), *({"backward"} & {op.direction for op in ops}))
    remark = ", ".join(filter(None, inside))
    return (f"{words} ({remark})" if remark else words) or "unknown work", place or None


def _module(paths: Iterable[str]) -> str:
    """The innermost module that holds all of these: blocks.0 for blocks.0.mlp and blocks.0.norm."""
    levels = zip(*(path.split(".") for path in set(paths)), strict=False)
    return ".".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels))


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


_CALLS = """
WITH call AS (
    SELECT graph_id, position, kernel_id, unnest(group_ids) AS group_id FROM kernel_calls WHERE run_id = $1
),
member AS (SELECT graph_id, group_id, unnest(members) AS ir_node FROM fusion_groups WHERE run_id = $1),
accessed AS (
    SELECT graph_id, group_id, sum(bytes_read + bytes_written)::BIGINT AS node_bytes
    FROM member JOIN (SELECT * FROM ir_nodes WHERE run_id = $1) USING (graph_id, ir_node) GROUP BY ALL
)
SELECT graph_id || '/' || group_id AS "group", graph_id, position, kernel_id, backend, node_bytes
FROM call LEFT JOIN accessed USING (graph_id, group_id)
JOIN (SELECT kernel_id, backend FROM kernels WHERE run_id = $1) USING (kernel_id)
ORDER BY graph_id, position DESC
"""
