"""Decisions of a graph that came from torch's FX graph cache: taken over from the run that recorded the same key.

The key names everything that the compile depends on (torch/_inductor/codecache.py, FxGraphHashDetails), so two runs
with the same key took the same decisions.
"""

from __future__ import annotations

import duckdb

from fusionscope.storage.schema import columns, transaction

DECISIONS = (
    "graph_nodes",
    "graph_edges",
    "realize_decisions",
    "layout_changes",
    "ir_nodes",
    "ir_edges",
    "fusion_decisions",
    "fusion_groups",
    "kernels",
    "kernel_calls",
    "buffers",
    "memory_points",
    "memory_orders",
)

_CACHED = """
SELECT g.graph_id, g.compile_id, (
    SELECT {run_id: d.run_id, graph_id: d.graph_id}
    FROM graphs d JOIN runs USING (run_id)
    WHERE d.fx_key = g.fx_key AND d.run_id <> g.run_id
        AND EXISTS (SELECT 1 FROM ir_nodes n WHERE n.run_id = d.run_id AND n.graph_id = d.graph_id)
    ORDER BY runs.created_at DESC LIMIT 1
) AS donor
FROM graphs g
WHERE g.run_id = ? AND g.stage = 'post_grad' AND g.fx_key IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM ir_nodes n WHERE n.run_id = g.run_id AND n.graph_id = g.graph_id)
"""


def reattach(con: duckdb.DuckDBPyConnection, run_id: str) -> int:
    """Give the run's cached graphs the decisions of an earlier run with the same key; returns how many got them."""
    found = [row for row in con.execute(_CACHED, [run_id]).fetchall() if row[2] is not None]
    with transaction(con):
        for graph_id, compile_id, donor in found:
            for table in DECISIONS:
                _copy(con, table, (donor["run_id"], donor["graph_id"]), (run_id, graph_id))
            con.execute(
                "UPDATE compiles SET decisions_from_run = ? WHERE run_id = ? AND compile_id = ?",
                [donor["run_id"], run_id, compile_id],
            )
    return len(found)


def _copy(con: duckdb.DuckDBPyConnection, table: str, donor: tuple[str, str], target: tuple[str, str]) -> None:
    renamed = ["$to_run AS run_id", "$to_graph AS graph_id"]
    if "kernel_id" in columns(table):  # begins with the graph's own name
        renamed.append("replace(kernel_id, $graph || '/', $to_graph || '/') AS kernel_id")
    con.execute(
        f"INSERT INTO {table} BY NAME SELECT * REPLACE ({', '.join(renamed)}) FROM {table} "
        "WHERE run_id = $run AND graph_id = $graph",
        {"run": donor[0], "graph": donor[1], "to_run": target[0], "to_graph": target[1]},
    )
