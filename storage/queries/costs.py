"""Where the time of a call went: eager's operators beside the compiled kernels that took their place."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.conclusion_records import UNATTRIBUTED
from fusionscope.storage.queries._rows import fetch

EVERY = "*"
# Name → what tells two rows apart: module and operator. Layers of a kind differ by a number in their path.
GROUPINGS = {
    "kind of module": (r"regexp_replace(module_path, '\b\d+\b', '*', 'g')", "NULL::VARCHAR"),
    "module": ("module_path", "NULL::VARCHAR"),
    "operator": (f"'{EVERY}'", "op"),
    "module and operator": ("module_path", "op"),
}


@dataclass(frozen=True, slots=True)
class CostRow:
    """A part of the model and a direction: microseconds a call in eager and in compiled code."""

    module_path: str | None  # "" for the model's own forward; None outside of it or unknown; EVERY: of all modules
    op: str | None  # None: all operators of the module
    direction: str
    modules: int  # that the row sums up
    file: str | None
    line: int | None
    eager_us: float  # 0: eager has no such operator
    compiled_us: float  # 0: no compiled kernel computes it
    estimated: bool  # the compiled time is a share of a kernel's
    eager_kernels: float
    kernel_ids: tuple[str, ...]

    @property
    def gain_us(self) -> float:
        """What compiling saves of a call; negative where it costs."""
        return self.eager_us - self.compiled_us


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the timed kernels lies in rows with a module or an operator, and how much in none."""

    variant: str
    total_us: float
    unattributed_us: float  # in rows that bear a kernel's name, since its operator is unknown
    profiled_us: float | None  # wall time of a step under the profiler
    latency_us: float | None  # wall time of a step without it

    @property
    def covered(self) -> float:
        """Share of the kernels' time that has a row of its own, from 0 to 1."""
        return 1 - self.unattributed_us / self.total_us if self.total_us else 1.0


def rows(con: DuckDBPyConnection, run_id: str, by: str) -> list[CostRow]:
    """One row per part and direction, largest change first; `by` is one of GROUPINGS."""
    module, operator = GROUPINGS[by]
    found = fetch(con, CostRow, _COSTS.format(module=module, op=operator), [run_id])
    return sorted(found, key=lambda row: -abs(row.gain_us))


def coverage(con: DuckDBPyConnection, run_id: str) -> list[Coverage]:
    """Eager and compiled: what the rows cover of the timed kernels, and what profiling itself cost."""
    return fetch(con, Coverage, _COVERAGE, [run_id])


_COSTS = """
WITH cost AS (SELECT *, module_path AS place, {module} AS part, {op} AS shown FROM op_costs WHERE run_id = $1),
listed AS (SELECT part, shown, direction, unnest(kernel_ids) AS kernel_id FROM cost),
kernels AS (SELECT part, shown, direction, list(DISTINCT kernel_id) AS kernel_ids FROM listed GROUP BY ALL),
summed AS (
    SELECT part, shown, direction, count(DISTINCT place) AS modules,
        any_value(file ORDER BY line) AS file, any_value(line ORDER BY line) AS line,
        coalesce(sum(eager_us), 0) AS eager_us, coalesce(sum(compiled_us), 0) AS compiled_us,
        coalesce(bool_or(estimated), false) AS estimated, coalesce(sum(eager_kernels), 0) AS eager_kernels
    FROM cost GROUP BY ALL
)
SELECT s.part AS module_path, s.shown AS op, s.direction, modules, file, line, eager_us, compiled_us, estimated,
    eager_kernels, coalesce(list_sort(k.kernel_ids), []) AS kernel_ids
FROM summed s LEFT JOIN kernels k ON s.part IS NOT DISTINCT FROM k.part
    AND s.shown IS NOT DISTINCT FROM k.shown AND s.direction = k.direction
"""

_COVERAGE = f"""
SELECT variant, sum(coalesce(eager_us, compiled_us)) AS total_us,
    coalesce(sum(coalesce(eager_us, compiled_us)) FILTER (starts_with(op, '{UNATTRIBUTED}')), 0) AS unattributed_us,
    (SELECT max(median) FROM measurements m
        WHERE m.run_id = $1 AND m.variant = c.variant AND metric = 'profiled_us') AS profiled_us,
    (SELECT max(median) FROM measurements m
        WHERE m.run_id = $1 AND m.variant = c.variant AND metric = 'latency_us') AS latency_us
FROM op_costs c WHERE run_id = $1 GROUP BY variant ORDER BY variant DESC
"""
