"""Questions about the library itself: which run a reference means, and whether the rows belong together."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from fusionscope.storage.records import TABLES


def has_run(con: duckdb.DuckDBPyConnection, run_id: str) -> bool:
    """Whether the run is in the library."""
    return bool(con.execute("SELECT 1 FROM runs WHERE run_id = ?", [run_id]).fetchall())


def runs_meant_by(con: duckdb.DuckDBPyConnection, reference: str) -> list[str]:
    """Run ids that a reference may mean: the run of that id, else the latest of that name, else all that begin so.

    NAME~2 is the run of that name before the one before the latest.
    """
    name, _, back = reference.rpartition("~")
    for condition, words in (
        ("run_id = $1", [reference]),
        (_OF_NAME, [reference, 0]),
        (_OF_NAME, [name, int(back)] if name and back.isdecimal() and len(back) < 6 else [reference, 0]),
        ("starts_with(run_id, $1) AND deleted_at IS NULL ORDER BY run_id", [reference]),
    ):
        if found := con.execute(f"SELECT run_id FROM runs WHERE {condition}", words).fetchall():
            return [run_id for (run_id,) in found]
    return []


_OF_NAME = "name = $1 AND deleted_at IS NULL ORDER BY created_at DESC, run_id DESC LIMIT 1 OFFSET $2"


def without_conclusions(con: duckdb.DuckDBPyConnection, most: int) -> list[str]:
    """Runs of which nothing was concluded yet, newest first."""
    sql = "SELECT run_id FROM runs ANTI JOIN summaries USING (run_id) ORDER BY created_at DESC LIMIT ?"
    return [run_id for (run_id,) in con.execute(sql, [most]).fetchall()]


def inconsistencies(con: duckdb.DuckDBPyConnection, but: Sequence[str] = ()) -> list[str]:
    """One sentence for each way in which rows point at nothing, those of runs in `but` left out."""
    others = "WHERE run_id NOT IN (SELECT unnest(?::VARCHAR[]))"
    checks = {
        f"Rows of {table} that belong to no run: {{}}.": (
            f"SELECT count(*) FROM {table} ANTI JOIN runs USING (run_id) {others}"
        )
        for table in TABLES
        if table != "runs"
    }
    checks["Rows of kernel_calls that call an unknown kernel: {}."] = (
        f"SELECT count(*) FROM kernel_calls ANTI JOIN kernels USING (run_id, kernel_id) {others}"
    )
    counts = {sentence: con.execute(sql, [list(but)]).fetchall()[0][0] for sentence, sql in checks.items()}
    return [sentence.format(count) for sentence, count in counts.items() if count]
