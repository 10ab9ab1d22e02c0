"""Decisions of a graph that came from torch's FX graph cache: taken over from the run that recorded the same key.

The key names everything that the compile depends on (torch/_inductor/codecache.py, FxGraphHashDetails), so two runs
with the same key took the same decisions.
"""

from __future__ import annotations

from collections import defaultdict

import duckdb

from fusionscope.storage.schema import columns, transaction

DECISIONS = (
    *("graphs", "graph_nodes", "graph_edges", "node_links", "pass_changes", "partition_choices", "perf_hints"),
    *("realize_decisions", "layout_changes", "gemm_choices", "ir_nodes", "ir_edges", "fusion_decisions"),
    *("fusion_groups", "reorderings", "kernels", "kernel_calls", "buffers", "memory_points", "memory_orders"),
)
_GRAPHS = ("graph_id", "graph_a", "graph_b")
_NAMES = (*_GRAPHS, "kernel_id")  # that begin with the graph's compile

# The run that took the decisions itself comes before one that has them from elsewhere.
_CACHED = """
SELECT g.graph_id, g.compile_id, (
    SELECT {run_id: d.run_id, graph_id: d.graph_id, compile_id: d.compile_id}
    FROM graphs d JOIN runs USING (run_id) LEFT JOIN compiles c USING (run_id, compile_id)
    WHERE d.fx_key = g.fx_key AND d.run_id <> g.run_id
        AND EXISTS (SELECT 1 FROM ir_nodes n WHERE n.run_id = d.run_id AND n.graph_id = d.graph_id)
    ORDER BY c.decisions_from_run IS NULL DESC, runs.created_at DESC LIMIT 1
) AS donor
FROM graphs g
WHERE g.run_id = ? AND g.stage = 'post_grad' AND g.fx_key IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM ir_nodes n WHERE n.run_id = g.run_id AND n.graph_id = g.graph_id)
"""


def reattach(con: duckdb.DuckDBPyConnection, run_id: str) -> int:
    """Give the run's cached graphs the decisions of an earlier run with the same key; returns how many got them.

    The graphs before Inductor's (joint, forward, backward) have no key of their own. They come along where one
    compile gave all of a compile's graphs, since a joint graph that leads to the same ones was partitioned alike.
    """
    found = [row for row in con.execute(_CACHED, [run_id]).fetchall() if row[2] is not None]
    donors: dict[str, set[tuple[str, str]]] = defaultdict(set)
    with transaction(con):
        for graph_id, compile_id, donor in found:
            donors[compile_id].add((donor["run_id"], donor["compile_id"]))
            _copy_all(con, (donor["run_id"], donor["graph_id"]), (run_id, graph_id))
        for compile_id, givers in donors.items():
            giver, *others = sorted(givers)
            if not others:
                _copy_all(con, giver, (run_id, compile_id))
            con.execute(
                "UPDATE compiles SET decisions_from_run = ? WHERE run_id = ? AND compile_id = ?",
                [giver[0], run_id, compile_id],
            )
    return len(found)


def _copy_all(con: duckdb.DuckDBPyConnection, donor: tuple[str, str], target: tuple[str, str]) -> None:
    """Copy what is said of the donor's graphs whose names begin with its prefix, where the target says nothing."""
    names = {"run": donor[0], "old": donor[1], "to_run": target[0], "new": target[1]}
    for table in DECISIONS:
        con.execute(_copying(table), names)


def _copying(table: str) -> str:
    present = columns(table)
    renamed = [f"{_renamed(name)} AS {name}" for name in _NAMES if name in present]
    if "compile_id" in present:
        renamed.append("split_part($new, '.', 1) AS compile_id")
    graphs = [name for name in _GRAPHS if name in present]
    theirs = " AND ".join(f"(d.{name} = $old OR starts_with(d.{name}, $old || '.'))" for name in graphs)
    same = " AND ".join(f"o.{name} = {_renamed(f'd.{name}')}" for name in graphs)
    return (
        f"INSERT INTO {table} BY NAME SELECT * REPLACE ($to_run AS run_id, {', '.join(renamed)}) FROM {table} d "
        f"WHERE run_id = $run AND {theirs} AND NOT EXISTS (SELECT 1 FROM {table} o WHERE o.run_id = $to_run AND {same})"
    )


def _renamed(name: str) -> str:
    return f"$new || substr({name}, length($old) + 1)"
