"""A run as a directory of Parquet files with a manifest: written aside, checked before it is believed."""

from __future__ import annotations

import json
import math
import operator
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from fusionscope.storage import database, schema
from fusionscope.storage.database import NewerVersion, NotWritable, StorageError
from fusionscope.storage.records import TABLE_OF, TABLES

MANIFEST = "manifest.json"
FORMAT = "fusionscope-run"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_VERSIONS = 1 << 16  # more than there will be
_MANIFEST_LIMIT = 1 << 16  # bytes
_UNPACKED_LIMIT = 4 << 30  # bytes
_ROWS_LIMIT = 5_000_000  # of a table; a recording keeps a tenth of that (collector/row_limit.py)
_OBJECT_SIZE = 16 << 20  # bytes, DuckDB's own default for one JSON object


class BadBundle(StorageError):
    """The bundle is damaged, or not what it says it is."""


@dataclass(frozen=True)
class Manifest:
    """What a bundle says about itself."""

    run_id: str
    schema_version: int
    rows: Mapping[str, int]


def is_run_id(text: str) -> bool:
    """Whether `text` may name a run: it becomes a directory name."""
    return _RUN_ID.fullmatch(text) is not None


# Records to lines


def encode(record: Any) -> bytes:
    """The record as a JSON line; raises TypeError or ValueError naming a field whose value does not fit its column."""
    table = TABLE_OF[type(record)]
    row: dict[str, object] = {}
    required = schema.required(table)
    try:
        for name, convert in _converters(table):
            value = getattr(record, name)
            row[name] = None if value is None and name not in required else convert(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{table}.{name} is {schema.columns(table)[name]}, but got {value!r:.80}") from error
    line = _to_line(row)
    if "\\ud" in line or "\\u0000" in line:  # a surrogate, lone ones included, or NUL
        line = _to_line({name: _storable(value) for name, value in row.items()})
    return line.encode() + b"\n"


@cache
def _converters(table: str) -> list[tuple[str, Callable[[Any], object]]]:
    return [(name, _TO_JSON[sql_type]) for name, sql_type in schema.columns(table).items()]


def _integer(value: Any) -> int:
    number = operator.index(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("beyond 64 bits")
    return number


def _number(value: Any) -> float | None:
    """JSON has no infinity and no NaN: they were not measured."""
    return float(value) if math.isfinite(value) else None


def _storable(value: Any) -> Any:
    """A value whose texts can be stored: lone surrogates (paths that are not UTF-8) and NUL cannot."""
    if isinstance(value, list):
        return [_storable(text) for text in value]
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


_to_line = json.JSONEncoder(separators=(",", ":")).encode
_text = str.__str__  # refuses what is no text, without a Python call for each of a run's many texts
_TO_JSON: dict[str, Callable[[Any], object]] = {
    "VARCHAR": _text,
    "BIGINT": _integer,
    "DOUBLE": _number,
    "BOOLEAN": bool,
    "TIMESTAMP": datetime.isoformat,
    "VARCHAR[]": lambda texts: list(map(_text, texts)),
}


_NEVER = {
    "DOUBLE": "NOT isfinite({})",
    "TIMESTAMP": "{} NOT BETWEEN '1970-01-01' AND '9999-01-01'",
    "VARCHAR[]": "len({0}) <> list_count({0})",  # NULL in the list
}


# Lines to Parquet


def seal(run_id: str, lines: Mapping[str, Path], folder: Path) -> None:
    """Write the bundle directory `folder` from one file of JSON lines per table; raises NotWritable."""
    try:
        folder.mkdir()
        with database.in_memory() as con:
            rows = {table: _to_parquet(con, table, run_id, path, folder) for table, path in lines.items()}
        manifest = {"format": FORMAT, "schema_version": schema.VERSION, "run_id": run_id, "rows": rows}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    except (OSError, duckdb.IOException) as error:
        raise NotWritable(folder, error) from error


def _to_parquet(con: duckdb.DuckDBPyConnection, table: str, run_id: str, lines: Path, folder: Path) -> int:
    columns = ", ".join(f"{name}: '{sql_type}'" for name, sql_type in schema.columns(table).items())
    options = f"format='newline_delimited', hive_partitioning=false, maximum_object_size={_longest(lines)}"
    select = f"SELECT * FROM read_json({_glob(lines)}, columns={{{columns}}}, {options})"
    if table != "runs":
        select = f"SELECT {_quoted(run_id)} AS run_id, * FROM ({select})"
    target = _quoted(str(folder / f"{table}.parquet"))
    written = con.execute(f"COPY ({select}) TO {target} (FORMAT parquet, COMPRESSION zstd)").fetchone()
    return int(written[0]) if written else 0


def _longest(lines: Path) -> int:
    """Length of the longest line, in bytes; never below what DuckDB reserves anyway."""
    with lines.open("rb") as file:
        return max(_OBJECT_SIZE, 2 * max(map(len, file), default=0))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _glob(path: Path) -> str:
    """`path` as an SQL literal whose glob characters stand for themselves."""
    return _quoted(re.sub(r"([*?\[])", r"[\1]", str(path)))


# Reading


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a bundle; raises NewerVersion or BadBundle."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            found = json.loads(file.read(_MANIFEST_LIMIT))
        if found["format"] != FORMAT:
            raise ValueError
        rows = {str(table): operator.index(count) for table, count in found["rows"].items()}
        manifest = Manifest(str(found["run_id"]), operator.index(found["schema_version"]), rows)
        if not 0 < manifest.schema_version < _VERSIONS:
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadBundle(f"{folder.name} is not a run bundle: its {MANIFEST} is missing or damaged.") from error
    if manifest.schema_version > schema.VERSION:
        raise NewerVersion(f"The bundle {folder.name}", manifest.schema_version)
    return manifest


def verify(folder: Path) -> Manifest:
    """The manifest of a bundle whose every table was read and agrees with it; raises a StorageError."""
    members = folder.iterdir() if folder.is_dir() else ()
    if strange := [path.name for path in members if path.is_symlink() or not path.is_file()]:
        raise BadBundle(f"{folder.name} is not a run bundle: it holds {strange[0]!r:.80}, which is no plain file.")
    manifest = read_manifest(folder)
    if not is_run_id(manifest.run_id):
        raise BadBundle(f"The bundle {folder.name} names its run {manifest.run_id!r:.80}, which is no run id.")
    if unknown := sorted(manifest.rows.keys() - TABLES.keys()):
        raise BadBundle(f"The bundle {folder.name} holds a table that is unknown: {unknown[0]!r:.80}.")
    if big := [table for table, rows in manifest.rows.items() if not 0 <= rows <= _ROWS_LIMIT]:
        raise BadBundle(f"The bundle {folder.name} is too large: {manifest.rows[big[0]]:,} rows of {big[0]}.")
    if manifest.rows.get("runs") != 1:
        raise BadBundle(f"The bundle {folder.name} does not hold exactly one run.")
    with database.in_memory() as con:
        for table, rows in manifest.rows.items():
            _verify_table(con, folder, table, manifest.run_id, rows)
    return manifest


def _verify_table(con: duckdb.DuckDBPyConnection, folder: Path, table: str, run_id: str, rows: int) -> None:
    source = _parquet(folder, table)
    try:
        found = {name: kind for name, kind, *_ in con.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
        expected = {"run_id": "VARCHAR", **schema.columns(table)}
        if wrong := [name for name in found if found[name] != expected.get(name)]:
            raise BadBundle(f"The bundle {folder.name} has an unexpected column: {table}.{wrong[0]!s:.80}.")
        impossible = {name: test for name, test in _impossible(table).items() if name in found}
        counts = ["count(*)", "count(*) FILTER (run_id = ?)", *(f"count(*) FILTER ({t})" for t in impossible.values())]
        all_rows, of_run, *wrong_rows = con.execute(f"SELECT {', '.join(counts)} FROM {source}", [run_id]).fetchall()[0]
    except duckdb.Error as error:
        raise BadBundle(f"The bundle {folder.name} is damaged: {table}.parquet cannot be read.") from error
    if (all_rows, of_run) != (rows, rows):
        raise BadBundle(f"The bundle {folder.name} is damaged: {table} does not hold the {rows} rows that it should.")
    if wrong := [name for name, count in zip(impossible, wrong_rows, strict=True) if count]:
        raise BadBundle(f"The bundle {folder.name} holds a value that no recording has, in {table}.{wrong[0]}.")


@cache
def _impossible(table: str) -> dict[str, str]:
    """Conditions, by column, of values that `encode` never writes and that Python or a screen cannot hold."""
    tests = {name: [f"{name} IS NULL"] for name in schema.required(table)}
    for name, kind in schema.columns(table).items():
        if kind in _NEVER:
            tests.setdefault(name, []).append(_NEVER[kind].format(name))
    return {name: " OR ".join(conditions) for name, conditions in tests.items()}


def load(con: duckdb.DuckDBPyConnection, folder: Path, manifest: Manifest) -> None:
    """Insert a verified bundle, all or nothing; columns that an older version did not have stay NULL."""
    try:
        with schema.transaction(con):
            for table in manifest.rows:
                con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {_parquet(folder, table)}")
    except duckdb.Error as error:
        raise StorageError(f"The bundle {folder.name} could not be imported: {str(error).splitlines()[0]}") from error


def load_new(con: duckdb.DuckDBPyConnection, folder: Path, manifest: Manifest, table: str, key: str) -> None:
    """Insert those rows of one table of a verified bundle whose key the library does not have of that run."""
    if table in manifest.rows:
        known = f"SELECT {key} FROM {table} WHERE run_id = {_quoted(manifest.run_id)} AND {key} IS NOT NULL"
        con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {_parquet(folder, table)} WHERE {key} NOT IN ({known})")


def _parquet(folder: Path, table: str) -> str:
    return f"read_parquet({_glob(folder / f'{table}.parquet')}, hive_partitioning=false)"


# Exchange as one file


def write(run_id: str, rows: Mapping[str, Iterable[Any]], folder: Path) -> None:
    """Write a bundle directory from records per table; `folder` must not exist and gets a sibling while it is made."""
    lines_folder = folder.with_suffix(".lines")
    lines_folder.mkdir()
    lines = {}
    for table, records in rows.items():
        lines[table] = lines_folder / f"{table}.jsonl"
        with lines[table].open("wb") as file:
            file.writelines(map(encode, records))
    seal(run_id, lines, folder)


def pack(folder: Path, target: Path) -> None:
    """Put a bundle directory into one zip file; Parquet is compressed already."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, path.name)


def unpack(source: Path, folder: Path) -> None:
    """Take a bundle out of a zip file; only names that a bundle may hold are read. Raises BadBundle."""
    allowed = {MANIFEST, *(f"{table}.parquet" for table in TABLES)}
    try:
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()
            if unknown := [member.filename for member in members if member.filename not in allowed]:
                raise BadBundle(f"{source.name} is not a run bundle: it holds {unknown[0]!r:.80}.")
            if len(members) > len({member.filename for member in members}):
                raise BadBundle(f"{source.name} is not a run bundle: it holds a file twice.")
            if sum(member.file_size for member in members) > _UNPACKED_LIMIT:
                raise BadBundle(f"{source.name} is not a run bundle: it is too large.")
            archive.extractall(folder, members)
    except OSError as error:
        raise BadBundle(f"{source} cannot be read: {error.strerror}.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise BadBundle(f"{source.name} is not a run bundle: it is no zip file, or a damaged one.") from error
