"""Decisions of a graph that came from torch's FX graph cache: taken over from the run that recorded the same key.

The key names everything that the compile depends on (torch/_inductor/codecache.py, FxGraphHashDetails), so two runs
with the same key took the same decisions.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from fusionscope.storage import database
from fusionscope.storage.schema import columns, transaction

DECISIONS = (
    *("graphs", "graph_nodes", "graph_edges", "node_links", "pass_changes", "partition_choices", "perf_hints"),
    *("realize_decisions", "layout_changes", "gemm_choices", "ir_nodes", "ir_edges", "fusion_decisions"),
    *("fusion_groups", "reorderings", "kernels", "kernel_calls", "buffers", "memory_points", "memory_orders"),
)
_GRAPHS = ("graph_id", "graph_a", "graph_b")
_NAMES = (*_GRAPHS, "kernel_id")  # that begin with the graph's compile

_CACHED = """
SELECT graph_id, compile_id, fx_key FROM graphs g
WHERE run_id = ? AND stage = 'post_grad' AND fx_key IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM ir_nodes n WHERE n.run_id = g.run_id AND n.graph_id = g.graph_id)
"""

# The run that took the decisions itself comes before one that has them from elsewhere.
_DONOR = """
SELECT d.run_id, d.graph_id, d.compile_id
FROM graphs d JOIN runs USING (run_id) LEFT JOIN compiles c USING (run_id, compile_id)
WHERE d.fx_key = ? AND EXISTS (SELECT 1 FROM ir_nodes n WHERE n.run_id = d.run_id AND n.graph_id = d.graph_id)
ORDER BY c.decisions_from_run IS NULL DESC, runs.created_at DESC LIMIT 1
"""


def reattach(library: Path, run: Path, run_id: str) -> int:
    """Give the cached graphs of a run, alone in its database, what an earlier run of the library decided.

    Returns how many graphs got it; raises a StorageError. The graphs before Inductor's (joint, forward, backward) have
    no key of their own. They come along where one compile gave all of a compile's graphs, since a joint graph that
    leads to the same ones was partitioned alike.
    """
    given = 0
    donors: dict[str, set[tuple[str, str]]] = defaultdict(set)
    with database.open_aside(run) as con:
        cached = con.execute(_CACHED, [run_id]).fetchall()
    for graph_id, compile_id, key in cached:
        with database.open_for_reading(library) as con:
            found = con.execute(_DONOR, [key]).fetchone()
        if found:
            giver, giver_graph, giver_compile = found
            donors[compile_id].add((giver, giver_compile))
            _copy_all(library, run, (giver, giver_graph), (run_id, graph_id))
            given += 1
    for compile_id, givers in donors.items():
        giver, *others = sorted(givers)
        if not others:
            _copy_all(library, run, giver, (run_id, compile_id))
        with database.open_aside(run) as con:
            con.execute("UPDATE compiles SET decisions_from_run = ? WHERE compile_id = ?", [giver[0], compile_id])
    return given


def _copy_all(library: Path, run: Path, donor: tuple[str, str], target: tuple[str, str]) -> None:
    """Copy what is said of the donor's graphs whose names begin with its prefix, where the target says nothing."""
    names = {"run": donor[0], "old": donor[1], "to_run": target[0], "new": target[1]}
    with database.open_for_writing(library) as con:
        database.attach(con, run, "staged")
        with transaction(con):
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
        f"INSERT INTO staged.{table} BY NAME SELECT * REPLACE ($to_run AS run_id, {', '.join(renamed)}) FROM {table} d "
        f"WHERE run_id = $run AND {theirs} AND NOT EXISTS (SELECT 1 FROM staged.{table} o WHERE {same})"
    )


def _renamed(name: str) -> str:
    return f"$new || substr({name}, length($old) + 1)"
