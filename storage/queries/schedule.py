"""How the schedule came to its order, and what kinds of groups it holds."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch


@dataclass(frozen=True, slots=True)
class Kind:
    """The groups of one kind: see FusionGroup.kind."""

    kind: str | None
    groups: int
    nodes: int  # scheduler nodes in them
    largest: int  # scheduler nodes in the largest


@dataclass(frozen=True, slots=True)
class Reorder:
    """A pass over the schedule, or over the loops of a scheduler node. Two empty orders: it changed nothing."""

    pass_name: str
    subject: str | None  # scheduler node whose loops changed; None: the schedule as a whole
    before: tuple[str, ...]
    after: tuple[str, ...]
    ops: tuple[str, ...]  # FX nodes that the subject computes


def kinds(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Kind]:
    """Kinds of groups, the most frequent first."""
    return fetch(con, Kind, _KINDS, [run_id, graph_id])


def reorderings(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Reorder]:
    """Passes over the schedule as they ran, then loops."""
    return fetch(con, Reorder, _REORDERINGS, [run_id, graph_id])


_KINDS = """
SELECT kind, count(*) AS groups, sum(len(members))::BIGINT AS nodes, max(len(members)) AS largest
FROM fusion_groups WHERE run_id = $1 AND graph_id = $2 GROUP BY kind ORDER BY groups DESC, kind
"""

_REORDERINGS = """
SELECT pass_name, subject, before, after, coalesce(origins, []) AS ops
FROM reorderings r LEFT JOIN ir_nodes n ON n.run_id = $1 AND n.graph_id = $2 AND n.ir_node = subject
WHERE r.run_id = $1 AND r.graph_id = $2 ORDER BY subject IS NOT NULL, r.rowid
"""
