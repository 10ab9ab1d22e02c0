"""What Inductor weighed by timing: libraries against templates, and the configurations of a Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.records import GemmChoice
from fusionscope.storage.schema import columns


@dataclass(frozen=True, slots=True)
class GemmContest:
    """An operation that a library or a template can compute, and how the contest between them ended.

    Margins are ratios of times: 1.25 means that the other one takes a quarter longer than the winner. They are None
    where one of both was not benchmarked, and below 1 where torch took a slower one on purpose: a template that is
    slower alone may be faster with what is fused into it.
    """

    graph_id: str
    node: str | None  # FX node
    op: str  # mm, addmm, convolution, …
    shapes: str | None  # of its inputs
    candidates: int
    timed: int  # that were benchmarked
    failed: int  # that could not run
    decided: bool  # else only timing on the hardware can tell
    choice: str | None  # the winner's name
    kind: str | None  # its kind: library, triton, cpp, …
    config: str | None
    time_us: float | None
    second_us: float | None  # the fastest of the others
    library_us: float | None  # the fastest library candidate
    template_us: float | None  # the fastest that is none
    margin_over_second: float | None
    margin_over_library: float | None  # None where the winner is a library's


@dataclass(frozen=True, slots=True)
class ConfigCandidate:
    """A configuration of a Triton kernel, with its time in the contest where there was one.

    `slower_than_winner` is this time over that of the chosen configuration: 1 for the winner itself; None where one of
    both has no time. A contest of one, and a winner remembered from an earlier contest, have no times.
    """

    config: str
    origin: str  # heuristics, register_pressure, autotune_cache, coordinate_descent, combo_autotune
    time_us: float | None
    chosen: bool | None  # None: undecided, only timing on the GPU can tell
    slower_than_winner: float | None
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int | None
    occupancy: float | None
    occupancy_limit: str | None


def gemm_contests(con: DuckDBPyConnection, run_id: str) -> list[GemmContest]:
    """The contests of a run, in the order in which they were held."""
    return fetch(con, GemmContest, _CONTESTS, [run_id])


def gemm_candidates(con: DuckDBPyConnection, run_id: str, graph_id: str, node: str | None) -> list[GemmChoice]:
    """Who took part in the contest for an FX node: fastest first, then those without a time as Inductor listed them."""
    return fetch(con, GemmChoice, _CANDIDATES, [run_id, graph_id, node])


def config_candidates(con: DuckDBPyConnection, run_id: str, kernel_id: str) -> list[ConfigCandidate]:
    """The configurations of a kernel: fastest first, then those without a time as Inductor listed them."""
    return fetch(con, ConfigCandidate, _CONFIGS, [run_id, kernel_id])


_CONTESTS = """
WITH choice AS (SELECT rowid AS position, * FROM gemm_choices WHERE run_id = ?)
SELECT graph_id, node, op, shapes, count(*) AS candidates, count(time_us) AS timed, count(error) AS failed,
    coalesce(bool_or(chosen), false) AS decided,
    any_value(choice) FILTER (chosen) AS choice, any_value(kind) FILTER (chosen) AS kind,
    any_value(config) FILTER (chosen) AS config, any_value(time_us) FILTER (chosen) AS time_us,
    min(time_us) FILTER (NOT chosen) AS second_us, min(time_us) FILTER (kind = 'library') AS library_us,
    min(time_us) FILTER (kind != 'library') AS template_us,
    min(time_us) FILTER (NOT chosen) / any_value(time_us) FILTER (chosen) AS margin_over_second,
    CASE WHEN any_value(kind) FILTER (chosen) != 'library'
        THEN min(time_us) FILTER (kind = 'library') / any_value(time_us) FILTER (chosen) END AS margin_over_library
FROM choice GROUP BY graph_id, node, op, shapes ORDER BY min(position)
"""

_CANDIDATES = f"""
SELECT {", ".join(columns("gemm_choices"))} FROM gemm_choices
WHERE run_id = ? AND graph_id = ? AND node IS NOT DISTINCT FROM ? ORDER BY time_us NULLS LAST, rowid
"""

_CONFIGS = """
SELECT config, origin, time_us, chosen, time_us / max(time_us) FILTER (chosen) OVER () AS slower_than_winner,
    registers, spill_bytes, shared_bytes, occupancy, occupancy_limit
FROM kernel_configs WHERE run_id = ? AND kernel_id = ? ORDER BY time_us NULLS LAST, rowid
"""
