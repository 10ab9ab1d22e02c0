"""How a run was compiled: frames, phases, breaks, recompiles, guards, caches, graphs."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch, records_of
from fusionscope.storage.records import (
    CacheEvent,
    Compile,
    CompilePhase,
    Counter,
    CudagraphEvent,
    GraphBreak,
    Guard,
    PartitionChoice,
    PassChange,
    PerfHint,
    Recompile,
    SideEffect,
    Symbol,
)


@dataclass(frozen=True, slots=True)
class GraphSize:
    """A graph at one stage and how many nodes of it were recorded."""

    graph_id: str
    nodes: int


@dataclass(frozen=True, slots=True)
class GraphCode:
    """The text of one graph."""

    code: str | None
    output_code: str | None


@dataclass(frozen=True, slots=True)
class ScriptGraph:
    """A graph of TorchScript: as it was traced, or as its executor optimised it."""

    graph_id: str
    code: str | None
    reason: str | None
    operations: int  # that compute something: neither inputs, weights, constants nor the return
    groups: int  # operations that TorchScript's fuser made one kernel of several


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


def pass_changes(con: DuckDBPyConnection, run_id: str) -> list[PassChange]:
    """What passes and patterns changed, nearly changed or lost; patterns before passes as a whole."""
    return sorted(records_of(con, PassChange, run_id), key=lambda p: (p.graph_id, p.pattern is None))


def partition_choices(con: DuckDBPyConnection, run_id: str) -> list[PartitionChoice]:
    """Forward values, the largest first: saved for the backward, or computed again in it."""
    return sorted(records_of(con, PartitionChoice, run_id), key=lambda c: -(c.bytes or 0))


def symbols(con: DuckDBPyConnection, run_id: str) -> list[Symbol]:
    """Dynamic-shape symbols, and what fixed them."""
    return records_of(con, Symbol, run_id)


def side_effects(con: DuckDBPyConnection, run_id: str) -> list[SideEffect]:
    """Mutations that are replayed after a graph has run."""
    return records_of(con, SideEffect, run_id)


def perf_hints(con: DuckDBPyConnection, run_id: str) -> list[PerfHint]:
    """Hints that torch logged."""
    return records_of(con, PerfHint, run_id)


def cudagraph_events(con: DuckDBPyConnection, run_id: str) -> list[CudagraphEvent]:
    """CUDA graphs recorded, and why others were not."""
    return records_of(con, CudagraphEvent, run_id)


def cache_events(con: DuckDBPyConnection, run_id: str) -> list[CacheEvent]:
    """Lookups in torch's compile caches."""
    return records_of(con, CacheEvent, run_id)


def counters(con: DuckDBPyConnection, run_id: str) -> list[Counter]:
    """Counters that torch kept while compiling, by name."""
    return sorted(records_of(con, Counter, run_id), key=lambda c: (c.name, c.graph_id or ""))


def graphs(con: DuckDBPyConnection, run_id: str) -> list[GraphSize]:
    """Graphs of all stages of torch.compile, in order of compilation."""
    return fetch(con, GraphSize, _GRAPHS, [run_id])


def graph_code(con: DuckDBPyConnection, run_id: str, graph_id: str) -> GraphCode:
    """The text of the graph `graph_id`."""
    rows = fetch(
        con, GraphCode, "SELECT code, output_code FROM graphs WHERE run_id = ? AND graph_id = ?", [run_id, graph_id]
    )
    return rows[0] if rows else GraphCode(None, None)


def script_graphs(con: DuckDBPyConnection, run_id: str) -> list[ScriptGraph]:
    """The model through torch.jit.trace, the traced graph first; empty where it was not measured."""
    return fetch(con, ScriptGraph, _SCRIPT, [run_id])


_SCRIPT = """
SELECT graph_id, code, reason, count(node) FILTER (op = 'call_function') AS operations,
    count(node) FILTER (regexp_matches(target, '^prim::(TensorExprGroup|CudaFusionGroup|FusionGroup)$')) AS groups
FROM graphs LEFT JOIN graph_nodes USING (run_id, graph_id)
WHERE run_id = ? AND stage = 'torchscript' GROUP BY ALL ORDER BY graph_id
"""
_GRAPHS = """
SELECT graph_id, count(node) AS nodes FROM graphs LEFT JOIN graph_nodes USING (run_id, graph_id)
WHERE run_id = ? AND stage <> 'torchscript' GROUP BY graph_id, graphs.position ORDER BY graphs.position, graph_id
"""
