"""The SQL of every table, the migrations that lead to it, and the columns that a record has in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import duckdb

from fusionscope.storage.records import LIBRARY_TABLES, TABLES

_SQL_TYPES: dict[object, str] = {
    str: "VARCHAR",
    int: "BIGINT",
    float: "DOUBLE",
    bool: "BOOLEAN",
    datetime: "TIMESTAMP",
    tuple[str, ...]: "VARCHAR[]",
}

# MIGRATIONS[n] leads from version n to n + 1 and never changes once released. Columns may be NULL: NULL means
# "not recorded", a run that lacks a fact is worth more than no run, and older bundles lack the newer columns.
_STEPS = sorted((Path(__file__).parent / "migrations").glob("*.sql"), key=lambda path: int(path.name.split("_")[0]))
MIGRATIONS: list[str] = [path.read_text(encoding="utf-8") for path in _STEPS]

VERSION: int = len(MIGRATIONS)


@cache
def columns(table: str) -> dict[str, str]:
    """Name and SQL type of the columns that the record class of `table` holds: all but the `run_id` added in front."""
    record = (TABLES | LIBRARY_TABLES)[table]
    hints = get_type_hints(record)
    return {field.name: _SQL_TYPES[_without_none(hints[field.name])] for field in fields(record)}


@cache
def required(table: str) -> frozenset[str]:
    """Columns that no record leaves empty. A DOUBLE is never one: what is no number was not measured, hence NULL."""
    record = (TABLES | LIBRARY_TABLES)[table]
    hints = get_type_hints(record)
    return frozenset(
        field.name
        for field in fields(record)
        if field.default is MISSING and hints[field.name] is not float and type(None) not in get_args(hints[field.name])
    )


def _without_none(hint: Any) -> object:
    alternatives = [part for part in getattr(hint, "__args__", ()) if part is not type(None)]
    return alternatives[0] if type(None) in getattr(hint, "__args__", ()) else hint


def version_of(con: duckdb.DuckDBPyConnection) -> int | None:
    """Schema version of an open database: 0 where it is empty, None where it holds something else than a library."""
    names = {name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if "schema_version" not in names:
        return None if names else 0
    views = {name for (name,) in con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()}
    if views & (TABLES.keys() | LIBRARY_TABLES.keys()):  # it would be asked, and might read other files
        return None
    return int(_scalar(con, "SELECT coalesce(max(version), 0) FROM schema_version"))


def upgrade(con: duckdb.DuckDBPyConnection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring an open database to the version that `migrations` lead to, each step and its mark in one transaction."""
    con.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL, applied_at TIMESTAMP NOT NULL)")
    applied = int(_scalar(con, "SELECT coalesce(max(version), 0) FROM schema_version"))
    for version, statements in enumerate(migrations[applied:], start=applied + 1):
        with transaction(con):
            con.execute(statements)
            con.execute("INSERT INTO schema_version VALUES (?, now() AT TIME ZONE 'UTC')", [version])


@contextmanager
def transaction(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Commit what is executed inside, or roll all of it back when it raises."""
    con.execute("BEGIN")
    try:
        yield
    except BaseException:
        con.execute("ROLLBACK")
        raise
    con.execute("COMMIT")


def _scalar(con: duckdb.DuckDBPyConnection, sql: str) -> Any:
    row = con.execute(sql).fetchone()
    return row[0] if row else None
