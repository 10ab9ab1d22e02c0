"""From SQL to frozen rows: the helpers that every query uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import duckdb

from fusionscope.storage import schema
from fusionscope.storage.records import TABLE_OF

Row = TypeVar("Row")


def fetch(con: duckdb.DuckDBPyConnection, row_type: type[Row], sql: str, params: Sequence[object] = ()) -> list[Row]:
    """The result of `sql` as `row_type` objects: a column goes to the field of its name, a list becomes a tuple."""
    cursor = con.execute(sql, list(params))
    names = [column[0] for column in cursor.description or ()]
    return [row_type(**dict(zip(names, map(_frozen, row), strict=True))) for row in cursor.fetchall()]


def records_of(con: duckdb.DuckDBPyConnection, record_type: type[Row], run_id: str) -> list[Row]:
    """The records of one kind of a run, in the order in which they were recorded."""
    table = TABLE_OF[record_type]
    columns = ", ".join(schema.columns(table))
    return fetch(con, record_type, f"SELECT {columns} FROM {table} WHERE run_id = ? ORDER BY rowid", [run_id])


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
