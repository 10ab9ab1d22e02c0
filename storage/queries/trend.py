"""What was measured in each of many runs, for trends over them."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.overview import COMPILE_SECONDS


@dataclass(frozen=True, slots=True)
class Reading:
    """A quantity of one variant in one run."""

    run_id: str
    metric: str  # as in measurements; compile_s: seconds spent compiling for the program's own calls
    variant: str  # empty where the quantity is of the run as a whole
    unit: str
    value: float  # the median of its samples
    p10: float | None  # None where there is a single sample
    p90: float | None


def readings(con: DuckDBPyConnection, run_ids: tuple[str, ...]) -> list[Reading]:
    """Everything that was measured in the runs, in no order."""
    return fetch(con, Reading, _READINGS, [list(run_ids)])


_READINGS = f"""
SELECT run_id, metric, variant, unit, median AS value, p10, p90
FROM measurements WHERE run_id IN (SELECT unnest($1))
UNION ALL
SELECT run_id, 'compile_s', '', 's', seconds, NULL, NULL FROM ({COMPILE_SECONDS})
"""
