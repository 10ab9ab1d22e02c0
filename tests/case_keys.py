"""What a case expects → the SQL that reads it from the library, and nothing but the library."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

import duckdb

Query = Callable[[duckdb.DuckDBPyConnection, str], Any]

LISTED = ("note", "compiled_over_eager", "fuse_attention_control")  # not compared
_SUFFIXES = ("_contains", "_min", "_max")
_DRIVEN = (
    "graph_id IN (SELECT graph_id FROM graphs JOIN compiles USING (run_id, compile_id) "
    "WHERE run_id = $run AND phase = 'drive')"
)


def base_of(key: str) -> tuple[str, str]:
    """A key without its suffix, and the suffix."""
    suffix = next((end for end in _SUFFIXES if key.endswith(end)), "")
    return key.removesuffix(suffix), suffix


def is_listed(key: str, extra: Collection[str]) -> bool:
    """Whether a key is prose, a time, or one that only the case's own `extra()` computes: listed, not compared."""
    name = base_of(key)[0]
    return name.startswith(LISTED) or (name in extra and name not in KEYS)


def complaint(key: str, expected: Any, got: Any) -> str | None:
    """How a value differs from what a case expects under `key`; None where it does not."""
    suffix = base_of(key)[1]
    if suffix == "_contains":
        text = json.dumps(got, default=str)
        wanted = expected if isinstance(expected, (list, tuple)) else [expected]
        absent = [part for part in wanted if part not in text]
        return f"{key}: {absent} not in {text[:2000]}" if absent else None
    if suffix:
        holds = got is not None and (got >= expected if suffix == "_min" else got <= expected)
    else:
        holds = _plain(got) == _plain(expected)
    return None if holds else f"{key}: expected {expected!r}, got {got!r}"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def value_of(con: duckdb.DuckDBPyConnection, runs: list[str], key: str) -> Any:
    """What the library says under `key` about a run, or about the ranks of a group. Raises KeyError for no query."""
    name, *items = base_of(key)[0].split("/")
    run = runs[0]
    if name.startswith("rank") and name.removeprefix("rank").isdecimal():
        run = runs[int(name.removeprefix("rank"))]
        name, *items = items
    name, _, token = name.partition(":")
    value = KEYS[name](con, run) if not token else KEYS[f"{name}:"](con, run)(token)
    for item in items:
        value = _item(value, item)
    return value


def _item(value: Any, item: str) -> Any:
    if isinstance(value, dict):
        return value.get(item)
    index = int(item) if item.lstrip("-").isdecimal() else None
    return value[index] if index is not None and -len(value) <= index < len(value) else None


def one(sql: str) -> Query:
    """A single value."""

    def query(con: duckdb.DuckDBPyConnection, run: str) -> Any:
        row = con.execute(sql, {"run": run}).fetchone()
        return row[0] if row else None

    return query


def many(sql: str) -> Query:
    """The first column, as a list."""
    return lambda con, run: [row[0] for row in con.execute(sql, {"run": run}).fetchall()]


def pairs(sql: str) -> Query:
    """Two columns, as a dict."""
    return lambda con, run: dict(con.execute(sql, {"run": run}).fetchall())


def rows(sql: str) -> Query:
    """Each row as a dict."""

    def query(con: duckdb.DuckDBPyConnection, run: str) -> list[dict[str, Any]]:
        cursor = con.execute(sql, {"run": run})
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    return query


def counter(name: str) -> Query:
    """A counter of torch; one that did not grow is zero, where the hook that reads it was at work."""
    hook = "counters" if name == "fuse_attention" else "inductor_metrics"
    grown = (
        f"SELECT coalesce(sum(value), 0)::BIGINT FROM counters "
        f"WHERE run_id = $run AND name = '{name}' AND (graph_id IS NULL OR {_DRIVEN})"
    )
    return one(
        f"SELECT CASE WHEN state = 'recorded' THEN ({grown}) END FROM hook_status "
        f"WHERE run_id = $run AND hook = '{hook}'"
    )


def occurrences(pattern: str) -> Query:
    """How often a regular expression is found in the sources of the generated kernels."""
    return one(f"SELECT coalesce(sum(len(regexp_extract_all(source, '{pattern}', 0))), 0)::BIGINT FROM {_SOURCES}")


def _token(con: duckdb.DuckDBPyConnection, run: str) -> Callable[[str], Any]:
    """How often a text is found in the sources of the generated kernels."""
    sql = f"SELECT coalesce(sum(len(string_split(source, $token)) - 1), 0)::BIGINT FROM {_SOURCES}"

    def count(token: str) -> Any:
        row = con.execute(sql, {"run": run, "token": token}).fetchone()
        return row[0] if row else None

    return count


_WRAPPER = "array_to_string(string_split(graph_id, '.')[:2], '.')"  # that a graph and its subgraphs share
_SOURCES = (
    f"(SELECT DISTINCT name, source, {_WRAPPER} FROM kernels WHERE run_id = $run AND source IS NOT NULL AND {_DRIVEN})"
)
_LOADS = r"Vectorized<\w+>::loadu|VectorizedN<[^>]+>::loadu"
_MATHS = "exp|tanh|sin|cos|erf|log|sigmoid|rsqrt|exp_u20"
_FUNCTIONS = ("exp", "tanh", "sin", "erf", "log", "sigmoid", "rsqrt")
_LAST_JOINT = "graph_id = (SELECT graph_id FROM partition_choices WHERE run_id = $run ORDER BY rowid DESC LIMIT 1)"
_OPS = """
    (SELECT g.stage, n.node, n.target, n.position, n.recomputed
     FROM graph_nodes n JOIN graphs g USING (run_id, graph_id)
     WHERE run_id = $run AND n.op = 'call_function' AND g.stage IN ('forward', 'backward') AND g.compile_id =
         (SELECT compile_id FROM graphs WHERE run_id = $run AND stage = 'forward' ORDER BY position DESC LIMIT 1))
"""  # of the last graph that was partitioned
_REMAT_OPS = pairs(
    rf"SELECT regexp_replace(target, '\.[^.]+$', '') AS op, count(*) FROM {_OPS} "
    rf"WHERE recomputed AND stage = 'forward' AND regexp_matches(target, '^\w+\.\w+\.\w+$') "
    "GROUP BY op ORDER BY count(*) DESC, min(position)"
)  # the most frequent first, as AOTAutograd logs them
_CALLS = """
    SELECT k.name FROM kernel_calls c JOIN kernels k USING (run_id, kernel_id) JOIN graphs g ON g.run_id = c.run_id
    AND g.graph_id = c.graph_id WHERE c.run_id = $run AND k.backend = 'extern' AND c.{driven}
    AND k.name <> 'aten.randint.low_out'
    ORDER BY g.position, c.position
""".replace("{driven}", _DRIVEN)  # the call that draws the seeds of random numbers aside
_GENERATED = f"""
    (SELECT name, {_WRAPPER} AS wrapper, min(g.position) AS graph, min(k.rowid) AS defined
     FROM kernels k JOIN graphs g USING (run_id, graph_id)
     WHERE run_id = $run AND regexp_matches(name, '^(cpp_fused|triton_)') AND k.{_DRIVEN} GROUP BY name, wrapper)
"""
_PER_GRAPH = """
    SELECT count(*) FROM {table} t JOIN graphs g USING (run_id, graph_id)
    WHERE run_id = $run AND t.{driven} GROUP BY g.position ORDER BY g.position
"""
_REUSES = r"""
    SELECT b.buffer || '<-' || b.reuses FROM buffers b JOIN graphs g USING (run_id, graph_id)
    WHERE run_id = $run AND regexp_matches(b.reuses, '^buf\d') ORDER BY g.position, b.allocated_at
"""
_ALLOCATED = f"""
    (SELECT g.position, p.label, sum(p.delta_bytes) OVER (PARTITION BY p.graph_id ORDER BY p.step) AS live_bytes
     FROM memory_points p JOIN graphs g USING (run_id, graph_id)
     LEFT JOIN buffers b ON (b.run_id, b.graph_id, b.buffer) = (p.run_id, p.graph_id, p.buffer)
     WHERE p.run_id = $run AND p.basis = 'plan' AND p.{_DRIVEN} AND (b.allocated_at IS NOT NULL OR p.delta_bytes >= 0))
"""  # what the wrapper itself allocates: a backward frees saved values besides, which were there before it
_WRAPPERS = f"""
    SELECT count(*) FILTER (label LIKE 'allocate %') AS allocs, max(live_bytes)::BIGINT AS wrapper_peak_bytes
    FROM {_ALLOCATED} GROUP BY position ORDER BY position
"""

KEYS: dict[str, Query] = {
    "graphs": one("SELECT count(*) FROM compiles WHERE run_id = $run AND phase = 'drive' AND outcome = 'compiled'"),
    "n_output_codes": one(f"SELECT count(*) FROM graphs WHERE run_id = $run AND output_code IS NOT NULL AND {_DRIVEN}"),
    # breaks
    "breaks_logged": one("SELECT count(*) FROM graph_breaks WHERE run_id = $run"),
    "break_sites": many(
        "SELECT DISTINCT parse_filename(file) || ':' || line FROM graph_breaks WHERE run_id = $run ORDER BY 1"
    ),
    "graph_break_reasons": many(
        "SELECT concat_ws('\n', kind, 'Explanation: ' || reason, 'Hint: ' || hint, context) "
        "FROM graph_breaks WHERE run_id = $run ORDER BY rowid"
    ),
    "break_log": many(
        "SELECT concat_ws('\n', 'Graph break in user code at ' || file || ':' || line, 'Graph Break Reason: ' || kind, "
        "'Graph Break Reason: ' || context, 'Explanation: ' || reason) "
        "FROM graph_breaks WHERE run_id = $run ORDER BY rowid"
    ),
    "graph_break_counter": one(
        "SELECT coalesce(sum(value), 0)::BIGINT FROM counters WHERE run_id = $run AND name LIKE 'graph_break.%'"
    ),
    # recompiles: torch's log counts the refused attempt too
    "recompiles": one(
        "SELECT count(DISTINCT compile_id) FROM recompiles JOIN compiles USING (run_id, compile_id) "
        "WHERE run_id = $run AND phase = 'drive'"
    ),
    "recompile_reasons": many("SELECT reason FROM recompiles WHERE run_id = $run ORDER BY rowid"),
    "recompile_limit_hit": one("SELECT count(*) > 0 FROM recompiles WHERE run_id = $run AND outcome = 'refused'"),
    # fusion
    "nodes_before_fusion": many(_PER_GRAPH.format(table="ir_nodes", driven=_DRIVEN)),
    "groups_after_fusion": many(_PER_GRAPH.format(table="fusion_groups", driven=_DRIVEN)),
    "fusion_refusals": many(
        f"SELECT a || ' with ' || b || ': ' || reason FROM fusion_decisions WHERE run_id = $run "
        f"AND reason IS NOT NULL AND {_DRIVEN} ORDER BY rowid"
    ),
    # kernels
    "n_kernels": one(f"SELECT count(*) FROM {_GENERATED}"),
    "kernel_names": many(f"SELECT name FROM {_GENERATED} ORDER BY graph, defined"),
    "extern_calls": many(_CALLS),
    "n_extern": one(f"SELECT count(*) FROM ({_CALLS})"),
    "vec_loads": occurrences(_LOADS),
    "scalar_only": one(f"SELECT count(*) > 0 AND NOT bool_or(regexp_matches(source, '{_LOADS}')) FROM {_SOURCES}"),
    "omp_regions": occurrences(r"(?m)^\s*#pragma omp parallel"),
    "omp_regions_inside_loops": occurrences("(?m)^ {8,}#pragma omp parallel"),
    "vec_calls": pairs(
        rf"SELECT f, count(*) FROM (SELECT unnest(regexp_extract_all(source, '\.({_MATHS})\(\)', 1) || "
        rf"regexp_extract_all(source, '(?:tl_math|libdevice)\.({_MATHS})\(', 1)) AS f FROM {_SOURCES}) GROUP BY f"
    ),
    "kernels_with": pairs(
        rf"SELECT f, count(*) FROM {_SOURCES}, unnest([{', '.join(map(repr, _FUNCTIONS))}, 'atomic_add']) AS t(f) "
        r"WHERE (f = 'atomic_add' AND contains(source, f)) "
        r"OR regexp_matches(source, '[.:>]' || f || '\d*(?:_u20)?\(') GROUP BY f"
    ),
    "tok:": _token,
    # memory
    "peak_wrapper_bytes": one(f"SELECT coalesce(max(live_bytes), 0)::BIGINT FROM {_ALLOCATED}"),
    "est_peak_baseline": many(
        f"SELECT peak_bytes FROM memory_orders WHERE run_id = $run AND method = 'as_given' AND {_DRIVEN} ORDER BY rowid"
    ),
    "eager_peak_bytes": one(
        "SELECT median::BIGINT FROM measurements WHERE run_id = $run AND variant = 'eager' AND metric = 'peak_bytes'"
    ),
    "reuse": many(_REUSES),
    "wrappers": rows(_WRAPPERS),
    # saved for backward
    "saved_for_backward": pairs(
        f"SELECT node, bytes FROM partition_choices WHERE run_id = $run AND saved AND {_LAST_JOINT}"
    ),
    "saved_bytes": one(
        f"SELECT sum(bytes)::BIGINT FROM partition_choices WHERE run_id = $run AND saved AND {_LAST_JOINT}"
    ),
    "remat_fw_bw": one(
        f"SELECT concat_ws('/', count(*) FILTER (recomputed AND stage = 'forward'), "
        f"count(*) FILTER (stage = 'forward'), count(*) FILTER (stage = 'backward')) FROM {_OPS} HAVING count(*) > 0"
    ),
    "remat_ops": lambda con, run: str(list(_REMAT_OPS(con, run).items())),
    "perf_hints": many("SELECT text FROM perf_hints WHERE run_id = $run ORDER BY rowid"),
    "cudagraph_log": many("SELECT reason FROM cudagraph_events WHERE run_id = $run ORDER BY rowid"),
    "pattern_matches": pairs(
        "SELECT name, sum(value)::BIGINT FROM counters WHERE run_id = $run AND NOT contains(name, '.') GROUP BY name"
    ),
    "fuse_attention": counter("fuse_attention"),
    "generated_kernel_count": counter("generated_kernel_count"),
    "cpp_vec_kernels": counter("cpp_vec_kernels"),
    "parallel_reductions": counter("parallel_reductions"),
    "outer_loop_fused": counter("outer_loop_fused"),
    "mix_order_reductions": counter("mix_order_reductions"),
    "rejected_mix_order": counter("rejected_mix_order_reductions"),
    "loop_reorderings": counter("loop_reorderings"),
    "ir_nodes": counter("ir_nodes_pre_fusion"),
}
