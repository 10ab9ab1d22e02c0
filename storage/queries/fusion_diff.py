"""Two runs of a model side by side: which fusion groups stayed, split, merged, came or went.

Groups are matched by the FX nodes that they compute, and those by operator, module and source text, counted in order:
names of kernels and numbers of nodes shift with every change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.fusion import MEMBER
from fusionscope.storage.queries.fusion_facts import GroupCost, costs

Key = tuple[object, ...]  # operator, module, source text, and the how manieth such node it is
FIGURES = ("time", "bytes", "peak")  # of Match, before and after
STATUSES = ("split", "merged", "regrouped", "changed", "new", "gone", "same")


@dataclass(frozen=True, slots=True)
class Match:
    """Groups of the run compared with, and those of this run, that compute the same nodes.

    Figures are sums over the groups, None where one of them is not recorded. Time and bytes are of the kernel calls
    that run them, each counted once.
    """

    status: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    ops: tuple[str, ...]  # targets of what they compute, the last ones
    file: str | None
    line: int | None
    time_before: float | None
    time_after: float | None
    bytes_before: int | None
    bytes_after: int | None
    peak_before: int | None
    peak_after: int | None


@dataclass(frozen=True, slots=True)
class _Named:
    """An FX node with the first group that computes it."""

    target: str
    module_path: str | None
    source_text: str | None
    group_id: str
    call: int | None  # of the kernel that runs the group
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two graphs: its nodes by what identifies them, those of each group, and what the groups cost."""

    nodes: dict[Key, _Named]
    inside: dict[str, list[Key]]
    costs: dict[str, GroupCost]


def matches(con: DuckDBPyConnection, before: tuple[str, str], after: tuple[str, str]) -> list[Match]:
    """What became of the groups of graph `before` in graph `after`, both (run_id, graph_id), changes first."""
    old, new = _side(con, *before), _side(con, *after)
    found = [_match(old, new, a, b) for a, b in _components(old, new)]
    return sorted(
        found, key=lambda match: (STATUSES.index(match.status), -abs(_weight(match)), match.before, match.after)
    )


def _weight(match: Match) -> float:
    if match.time_before is not None or match.time_after is not None:
        return (match.time_after or 0) - (match.time_before or 0)
    return (match.bytes_after or 0) - (match.bytes_before or 0)


def _side(con: DuckDBPyConnection, run_id: str, graph_id: str) -> _Side:
    counted: dict[Key, int] = {}
    side = _Side({}, {}, {cost.group_id: cost for cost in costs(con, run_id, graph_id)})
    for node in fetch(con, _Named, _NODES, [run_id, graph_id]):
        what = (node.target, node.module_path, node.source_text)
        counted[what] = counted.get(what, 0) + 1
        key = (*what, counted[what])
        side.nodes[key] = node
        side.inside.setdefault(node.group_id, []).append(key)
    return side


def _components(old: _Side, new: _Side) -> Iterable[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Groups of both sides that are joined by common nodes, directly or through others."""
    parent: dict[tuple[int, str], tuple[int, str]] = {}

    def root(name: tuple[int, str]) -> tuple[int, str]:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for key in old.nodes.keys() & new.nodes.keys():
        parent[root((0, old.nodes[key].group_id))] = root((1, new.nodes[key].group_id))
    joined: dict[tuple[int, str], tuple[list[str], list[str]]] = {}
    for number, side in enumerate((old, new)):
        for group in side.inside:
            joined.setdefault(root((number, group)), ([], []))[number].append(group)
    return [(tuple(a), tuple(b)) for a, b in joined.values()]


def _match(old: _Side, new: _Side, before: tuple[str, ...], after: tuple[str, ...]) -> Match:
    side = new if after else old
    mine = [side.nodes[key] for group in after or before for key in side.inside[group]]
    last = next((node for node in reversed(mine) if node.file), None)
    return Match(
        _status(old, new, before, after),
        before,
        after,
        tuple(node.target for node in mine[-4:]),
        last.file if last else None,
        last.line if last else None,
        _of_calls(old, before, "time_us"),
        _of_calls(new, after, "time_us"),
        _of_calls(old, before, "call_bytes"),
        _of_calls(new, after, "call_bytes"),
        _total(old.costs, before, "peak_bytes"),
        _total(new.costs, after, "peak_bytes"),
    )


def _status(old: _Side, new: _Side, before: Sequence[str], after: Sequence[str]) -> str:
    if not before or not after:
        return "new" if after else "gone"
    if len(before) == len(after) == 1:
        return "same" if set(old.inside[before[0]]) == set(new.inside[after[0]]) else "changed"
    return "split" if len(before) == 1 else "merged" if len(after) == 1 else "regrouped"


def _of_calls(side: _Side, groups: Sequence[str], figure: str) -> Any:
    """A kernel call that runs several of the groups is counted once."""
    calls = {side.nodes[side.inside[group][0]].call: group for group in groups}
    return _total(side.costs, list(calls.values()), figure)


def _total(costs: Mapping[str, GroupCost], groups: Sequence[str], figure: str) -> Any:
    values: list[Any] = [getattr(costs[group], figure) if group in costs else None for group in groups]
    return sum(values) if values and None not in values else None


_NODES = f"""
WITH {MEMBER},
call AS (
    SELECT group_id, min(position) AS call
    FROM (SELECT position, unnest(group_ids) AS group_id FROM kernel_calls WHERE run_id = $1 AND graph_id = $2)
    GROUP BY group_id
),
first AS (SELECT fx AS node, arg_min(group_id, member.position) AS group_id
    FROM origin JOIN member USING (group_id, ir_node) GROUP BY fx)
SELECT coalesce(target, node) AS target, module_path, trim(source_text) AS source_text, group_id, call, file, line
FROM first LEFT JOIN fx_node USING (node) LEFT JOIN call USING (group_id) ORDER BY fx_node.position, node
"""
