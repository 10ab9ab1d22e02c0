"""The schema: what a record says is what SQL holds, and how a library comes to its version."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import duckdb
import pytest

from fusionscope.storage import schema
from fusionscope.storage.database import (
    NewerVersion,
    NotALibrary,
    NotWritable,
    StorageError,
    open_for_reading,
    open_for_writing,
)
from fusionscope.storage.records import LIBRARY_TABLES, TABLES


def _tables(con: duckdb.DuckDBPyConnection) -> set[str]:
    return {name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}


@pytest.mark.parametrize("table", TABLES | LIBRARY_TABLES)
def test_the_fields_of_a_record_are_the_columns_of_its_table(table: str, example_store: Path) -> None:
    with open_for_reading(example_store / "library.duckdb") as con:
        found = {name: kind for name, kind, *_ in con.execute(f"DESCRIBE {table}").fetchall()}
    front = {"run_id": "VARCHAR"} if table in TABLES else {}
    assert list(found.items()) == list((front | schema.columns(table)).items())


def test_a_library_holds_the_tables_of_the_records_and_its_version(tmp_path: Path) -> None:
    with open_for_writing(tmp_path / "library.duckdb") as con:
        assert _tables(con) == {*TABLES, *LIBRARY_TABLES, "schema_version"}
        assert schema.version_of(con) == schema.VERSION == len(schema.MIGRATIONS)


def test_every_table_opens_with_a_sentence() -> None:
    described = re.findall(r"^-- One row per .+\.\nCREATE TABLE (\w+)", "\n".join(schema.MIGRATIONS), re.MULTILINE)
    assert described == list(TABLES | LIBRARY_TABLES)


@pytest.mark.parametrize("released", range(len(schema.MIGRATIONS)))
def test_a_library_of_any_earlier_version_opens(tmp_path: Path, released: int) -> None:
    path = tmp_path / "library.duckdb"
    with duckdb.connect(str(path)) as con:
        schema.upgrade(con, schema.MIGRATIONS[:released])
    with open_for_reading(path) as con:
        assert schema.version_of(con) == schema.VERSION


def test_an_upgrade_runs_only_the_steps_that_are_missing() -> None:
    steps = ["CREATE TABLE a (x INTEGER)", "ALTER TABLE a ADD COLUMN y INTEGER"]
    con = duckdb.connect()
    schema.upgrade(con, steps[:1])
    con.execute("INSERT INTO a VALUES (1)")
    schema.upgrade(con, steps)
    schema.upgrade(con, steps)
    assert con.execute("FROM a").fetchall() == [(1, None)]
    assert schema.version_of(con) == 2


def test_a_step_that_fails_leaves_the_version_before_it() -> None:
    con = duckdb.connect()
    with pytest.raises(duckdb.Error):
        schema.upgrade(con, ["CREATE TABLE a (x INTEGER)", "CREATE TABLE b (x INTEGER); CREATE TABLE a (x INTEGER)"])
    assert schema.version_of(con) == 1
    assert _tables(con) == {"a", "schema_version"}


@pytest.mark.parametrize("open_library", [open_for_reading, open_for_writing])
def test_a_newer_library_is_refused_naming_both_versions(tmp_path: Path, open_library: type) -> None:
    path = tmp_path / "library.duckdb"
    with open_for_writing(path) as con:
        con.execute("INSERT INTO schema_version VALUES (?, now() AT TIME ZONE 'UTC')", [schema.VERSION + 7])
    with (
        pytest.raises(NewerVersion, match=rf"version {schema.VERSION + 7}, .* up to {schema.VERSION}"),
        open_library(path),
    ):
        pass


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    garbage, other = tmp_path / "garbage.duckdb", tmp_path / "other.duckdb"
    garbage.write_bytes(b"not a database " * 1000)
    with duckdb.connect(str(other)) as con:
        con.execute("CREATE TABLE runs (x INTEGER)")
    for path in (garbage, other):
        with pytest.raises(NotALibrary, match="is not a Fusionscope library"), open_for_reading(path):
            pass


def test_a_library_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotWritable, match="cannot be written"), open_for_writing(tmp_path / "file" / "library.duckdb"):
        pass


def test_a_library_is_written_so_that_duckdb_1_5_reads_it(tmp_path: Path) -> None:
    with open_for_writing(tmp_path / "library.duckdb") as con:
        tags = con.execute("SELECT tags FROM duckdb_databases() WHERE NOT internal").fetchall()
    assert tags[0][0]["storage_version"].startswith("v1.5.0")


def test_a_view_in_a_library_from_elsewhere_reaches_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with open_for_writing(tmp_path / "library.duckdb") as con:
        con.execute(f"CREATE VIEW leak AS SELECT * FROM read_text('{tmp_path / 'secret'}')")
    with open_for_reading(tmp_path / "library.duckdb") as con, pytest.raises(duckdb.PermissionException):
        con.execute("FROM leak")


def test_a_reader_waits_for_a_writer_and_then_says_that_the_library_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "library.duckdb"
    with open_for_writing(path), pytest.raises(StorageError, match="is busy"), open_for_reading(path, timeout_s=0.1):
        pass


def test_duckdb_reads_nothing_of_a_library_before_our_own_lock_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "library.duckdb"
    with open_for_writing(path):
        monkeypatch.setattr(duckdb, "connect", None)  # to call it would be a TypeError
        for opening in (open_for_reading, open_for_writing):
            with pytest.raises(StorageError, match="is busy"), opening(path, timeout_s=0.1):
                pass


def test_who_waits_for_a_library_has_it_before_who_just_let_go_of_it(tmp_path: Path) -> None:
    path = tmp_path / "library.duckdb"
    waits: list[float] = []
    ends = time.monotonic() + 3

    def greedy() -> None:
        while len(waits) < 5 and time.monotonic() < ends:
            with open_for_writing(path):
                time.sleep(0.05)

    threads = [threading.Thread(target=greedy) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        began = time.monotonic()
        with open_for_reading(path):
            waits.append(time.monotonic() - began)
    for thread in threads:
        thread.join()
    assert len(waits) == 5
    assert time.monotonic() < ends + 1
