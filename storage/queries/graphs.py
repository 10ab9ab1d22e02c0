"""The graphs that Inductor decided about: what the Fusion, Memory and Kernels screens let one choose from."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch

# What a scheduler node computes are its origins. A library call lists the origins of its unrealized inputs as well
# (GraphLowering.run_node gathers them), though it can inline nothing, and so does a node that does no work, such as an
# output of such a call: of those only the last, their own, counts. `kind` and `origins` are columns of ir_nodes.
OWN_ORIGINS = "CASE WHEN kind IN ('extern', 'nop') THEN origins[-1:] ELSE origins END"


@dataclass(frozen=True, slots=True)
class DecidedGraph:
    """A graph that went through Inductor in one of the user's own calls."""

    graph_id: str
    compile_id: str
    direction: str | None  # forward, backward, inference
    function: str | None
    file: str | None
    line: int | None
    scheduler_nodes: int
    decisions_from_run: str | None  # the run that recorded the decisions, when torch's cache had the graph


def decided_graphs(con: DuckDBPyConnection, run_id: str) -> list[DecidedGraph]:
    """Inductor's graphs in order of compilation, without those that only measuring compiled (phase measure)."""
    return fetch(con, DecidedGraph, _DECIDED, [run_id])


_DECIDED = """
SELECT graph_id, compile_id, direction, c.function, c.file, c.line,
    (SELECT count(*) FROM ir_nodes n WHERE n.run_id = g.run_id AND n.graph_id = g.graph_id) AS scheduler_nodes,
    c.decisions_from_run
FROM graphs g LEFT JOIN compiles c USING (run_id, compile_id)
WHERE run_id = $1 AND stage = 'post_grad' AND coalesce(c.phase, 'drive') = 'drive'
ORDER BY position, graph_id
"""
