"""How a run was compiled: frames, phases, breaks, recompiles, guards, caches, graphs."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch, records_of
from fusionscope.storage.records import CacheEvent, Compile, CompilePhase, Counter, GraphBreak, Guard, Recompile


@dataclass(frozen=True, slots=True)
class GraphText:
    """A graph at one stage without its text, of which `code_lines` and `output_lines` tell the length (None: none)."""

    graph_id: str
    compile_id: str
    stage: str
    direction: str | None
    nodes: int
    code_lines: int | None
    output_lines: int | None


@dataclass(frozen=True, slots=True)
class GraphCode:
    """The text of one graph."""

    code: str | None
    output_code: str | None


def compiles(con: DuckDBPyConnection, run_id: str) -> list[Compile]:
    """Frame compilations, in order of time."""
    return sorted(records_of(con, Compile, run_id), key=lambda c: (c.start_s is None, c.start_s or 0.0, c.compile_id))


def phases(con: DuckDBPyConnection, run_id: str) -> list[CompilePhase]:
    """Timed phases of all compilations, in order of time."""
    return sorted(records_of(con, CompilePhase, run_id), key=lambda p: (p.compile_id, p.start_s, -p.duration_s))


def breaks(con: DuckDBPyConnection, run_id: str) -> list[GraphBreak]:
    """Places where Dynamo stopped tracing."""
    return records_of(con, GraphBreak, run_id)


def recompiles(con: DuckDBPyConnection, run_id: str) -> list[Recompile]:
    """Compilations that a failed guard caused."""
    return records_of(con, Recompile, run_id)


def guards(con: DuckDBPyConnection, run_id: str) -> list[Guard]:
    """Conditions under which compiled frames are used again."""
    return records_of(con, Guard, run_id)


def cache_events(con: DuckDBPyConnection, run_id: str) -> list[CacheEvent]:
    """Lookups in torch's compile caches."""
    return records_of(con, CacheEvent, run_id)


def counters(con: DuckDBPyConnection, run_id: str) -> list[Counter]:
    """Counters that torch kept while compiling, by name."""
    return sorted(records_of(con, Counter, run_id), key=lambda c: (c.name, c.graph_id or ""))


def graphs(con: DuckDBPyConnection, run_id: str) -> list[GraphText]:
    """Graphs of all stages, in order of compilation."""
    return fetch(con, GraphText, _GRAPHS, [run_id])


def graph_code(con: DuckDBPyConnection, run_id: str, graph_id: str) -> GraphCode:
    """The text of the graph `graph_id`."""
    rows = fetch(
        con, GraphCode, "SELECT code, output_code FROM graphs WHERE run_id = ? AND graph_id = ?", [run_id, graph_id]
    )
    return rows[0] if rows else GraphCode(None, None)


_GRAPHS = """
SELECT graph_id, compile_id, stage, direction,
    (SELECT count(*) FROM graph_nodes n WHERE n.run_id = g.run_id AND n.graph_id = g.graph_id) AS nodes,
    len(string_split(code, chr(10))) AS code_lines, len(string_split(output_code, chr(10))) AS output_lines
FROM graphs g WHERE run_id = ? ORDER BY position, graph_id
"""
