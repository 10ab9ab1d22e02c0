"""What was concluded of a run."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.records import Finding

_ORDER = {"failed": 0, "passed": 2, "not_applicable": 3}


def findings(con: DuckDBPyConnection, run_id: str) -> list[Finding]:
    """Every rule's finding: problems first, then notes, then what passed, then what could not be asked."""
    rows = records_of(con, Finding, run_id)
    return sorted(rows, key=lambda f: _ORDER.get(f.status, 4) + (f.status == "failed" and f.severity != "problem"))
