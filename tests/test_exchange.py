"""Runs go out and come in: what leaves without its source holds none, and what a stranger sends changes nothing."""

from __future__ import annotations

import json
import os
import random
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import duckdb
import pytest
from example_graph import SOURCE
from example_run import EXAMPLE_ID, example_records, example_run, publish, publish_example

from fusionscope.collector.cli import main
from fusionscope.storage import bundle, notes, redact, schema
from fusionscope.storage import records as r
from fusionscope.storage.bundle import BadBundle
from fusionscope.storage.database import StorageError
from fusionscope.storage.library import Library
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.records import TABLES

SECRETS = ("/home/ada", "torch.relu(layer", "bench-1", "secret_expression", "ada", "def call(self")
TRACE = 'raised\n  File "/home/ada/models/mlp.py", line 3, in forward\n    y = secret_expression(x)\nsays bench-1'


def everything() -> Iterator[Any]:
    """The example with code and paths in places where torch's texts carry them."""
    yield from example_records()
    yield r.PerfHint(text=TRACE)
    yield r.CudagraphEvent(event="skipped", reason=TRACE, file=SOURCE, line=3)
    yield r.KernelCode(kernel_id="k", config="c", kind="ptx", text="secret_expression")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    store = tmp_path_factory.mktemp("exchange") / "store"
    publish(store, example_run(EXAMPLE_ID), list(everything()))
    Library(store).write(notes.say, EXAMPLE_ID, "secret_expression", author="ada")
    return Library(store)


def contents(library: Library) -> dict[str, list[Any]]:
    return {table: library.ask(records_of, record, EXAMPLE_ID) for table, record in TABLES.items()}


def test_a_run_without_source_holds_no_code_path_or_host(library: Library, tmp_path: Path) -> None:
    file = library.export_run(EXAMPLE_ID, tmp_path / "run", source=False)
    there = Library(tmp_path / "there")
    there.import_path(file)
    rows = contents(there)
    texts = [str(value) for table in rows.values() for record in table for value in astuple(record)]
    assert {secret for secret in SECRETS for text in texts if secret in text} == set()
    assert {node.file for node in rows["graph_nodes"] if node.file} == {"mlp.py"}
    whole = contents(library)
    kept = set(TABLES) - {*redact.WITHHELD, "findings", "op_costs", "summaries"}
    assert {table: len(rows[table]) for table in kept} == {table: len(whole[table]) for table in kept}
    assert there.check() == []


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/ada/models/mlp.py:3", "mlp.py:3"),
        ("at C:\\Users\\ada\\mlp.py", "at mlp.py"),
        ("~/models/mlp.py", "mlp.py"),
        ("0/0.forward/op3", "0/0.forward/op3"),
        ("s0 // 2 and a/b", "s0 // 2 and a/b"),
        ("['/srv/x/y.py']", "['y.py']"),
    ],
)
def test_folders_leave_a_text_and_nothing_else_does(text: str, left: str) -> None:
    (hint,) = redact.without_source("perf_hints", [r.PerfHint(text=text)], None)
    assert hint.text == left


def test_a_run_is_one_page_that_needs_no_server(library: Library, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    assert main(["export", EXAMPLE_ID, str(page), "--html", "--store", str(library.store)]) == 0
    text = page.read_text()
    assert "1.22× the speed of eager" in text
    assert "Failed to trace builtin operator" in text
    assert not {word for word in ("<script", "src=", "href=", "http://", "https://", "/home/ada") if word in text}


def test_the_command_leaves_the_source_out(library: Library, tmp_path: Path) -> None:
    words = ["export", EXAMPLE_ID, str(tmp_path / "run"), "--store", str(library.store)]
    assert main([*words, "--no-source"]) == 0
    there = Library(tmp_path / "there")
    there.import_path(tmp_path / "run")
    assert contents(there)["runs"][0].host is None
    with pytest.raises(SystemExit):
        main([*words, "--no-source", "--html"])


def test_a_damaged_file_is_refused_or_the_same_run_whatever_byte_is_wrong(library: Library, tmp_path: Path) -> None:
    whole = library.export_run(EXAMPLE_ID, tmp_path / "whole").read_bytes()
    chance, target = random.Random(7), Library(tmp_path / "store")
    damaged = [whole[: chance.randrange(len(whole))] for _ in range(10)]
    for _ in range(30):
        place, bit = chance.randrange(len(whole)), 1 << chance.randrange(8)
        damaged.append(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
    sentences: list[str] = []
    for data in damaged:
        (tmp_path / "damaged").write_bytes(data)
        try:
            target.import_path(tmp_path / "damaged")
        except StorageError as error:
            sentences.append(str(error))
            continue
        assert contents(target) == contents(library)  # the bit was one that says nothing
        target = Library(tmp_path / f"store-{place}")
    assert len(sentences) > 20
    assert not any("\n" in sentence for sentence in sentences)
    assert target.check() == []


def repacked(library: Library, tmp_path: Path, **changed: Any) -> Path:
    """The exported run with other members, or another manifest."""
    file = library.export_run(EXAMPLE_ID, tmp_path / "run")
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"]) | changed.pop("manifest", {})
    members |= {"manifest.json": json.dumps(manifest).encode()} | changed.pop("members", {})
    with zipfile.ZipFile(tmp_path / "repacked", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return tmp_path / "repacked"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"members": {"../../escape": b"x"}}, "it holds '../../escape'"),
        ({"members": {"/etc/escape": b"x"}}, "it holds '/etc/escape'"),
        ({"members": {"counters.parquet\nx": b"x"}}, "it holds"),
        ({"members": {"manifest.json": b"{" * 99}}, "manifest.json is missing or damaged"),
        ({"members": {"manifest.json": b" " * (1 << 17)}}, "manifest.json is missing or damaged"),
        ({"manifest": {"run_id": "../../up"}}, "is no run id"),
        ({"manifest": {"run_id": "x'; DROP TABLE runs; --"}}, "is no run id"),
        ({"manifest": {"rows": {"runs": 1, "kernels": 10**12}}}, "too large: 1,000,000,000,000 rows of kernels"),
        ({"manifest": {"rows": {"runs": 1, "kernels": -1}}}, "too large"),
        ({"manifest": {"rows": {"runs": 1, "schema_version": 1}}}, "a table that is unknown"),
        ({"manifest": {"schema_version": schema.VERSION + 1}}, "update Fusionscope"),
        ({"manifest": {"schema_version": -1}}, "manifest.json is missing or damaged"),
        ({"manifest": {"schema_version": float("inf")}}, "manifest.json is missing or damaged"),
        ({"manifest": {"rows": {"runs": 1, "kernels": float("inf")}}}, "manifest.json is missing or damaged"),
        ({"members": {"manifest.json": b"[" * 60_000}}, "manifest.json is missing or damaged"),
    ],
)
def test_a_bundle_of_a_stranger_is_refused_in_a_sentence_and_changes_nothing(
    library: Library, tmp_path: Path, changed: dict[str, Any], sentence: str
) -> None:
    target = Library(tmp_path / "store")
    with pytest.raises(StorageError) as refused:
        target.import_path(repacked(library, tmp_path, **changed))
    assert sentence in str(refused.value)
    assert target.ask(lambda con: con.execute("SELECT count(*) FROM runs").fetchall()) == [(0,)]
    assert not (tmp_path.parent / "escape").exists()


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ("measurements", "'nan'::DOUBLE AS median"),
        ("measurements", "'-infinity'::DOUBLE AS p10"),
        ("runs", "'infinity'::TIMESTAMP AS created_at"),
        ("runs", "'290000-01-01'::TIMESTAMP AS created_at"),
        ("runs", "NULL::VARCHAR AS name"),
        ("fusion_groups", "NULL::VARCHAR[] AS members"),
        ("fusion_groups", "['a', NULL] AS members"),
    ],
)
def test_a_value_that_no_recording_has_is_refused_before_anything_is_concluded_from_it(
    library: Library, tmp_path: Path, table: str, value: str
) -> None:
    folder, target = tmp_path / "bundle", Library(tmp_path / "store")
    bundle.unpack(library.export_run(EXAMPLE_ID, tmp_path / "run"), folder)
    file = folder / f"{table}.parquet"
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t AS SELECT * REPLACE ({value}) FROM read_parquet('{file}')")
        con.execute(f"COPY t TO '{file}' (FORMAT parquet)")
    with pytest.raises(BadBundle, match=f"a value that no recording has, in {table}"):
        target.import_path(folder)
    assert target.ask(lambda con: con.execute("SELECT count(*) FROM runs").fetchall()) == [(0,)]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), Path.mkdir])
def test_a_folder_with_what_is_no_plain_file_is_refused_without_being_read(
    library: Library, tmp_path: Path, make: Callable[[Path], object]
) -> None:
    bundle.unpack(library.export_run(EXAMPLE_ID, tmp_path / "run"), tmp_path / "bundle")
    (tmp_path / "bundle" / "counters.parquet").unlink(missing_ok=True)
    make(tmp_path / "bundle" / "counters.parquet")
    with pytest.raises(BadBundle, match=r"'counters.parquet', which is no plain file"):
        Library(tmp_path / "store").import_path(tmp_path / "bundle")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_holds_a_member_twice_or_none_is_refused(library: Library, tmp_path: Path) -> None:
    file = library.export_run(EXAMPLE_ID, tmp_path / "run")
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("manifest.json", archive.read("manifest.json"))
    with zipfile.ZipFile(tmp_path / "none", "w"):
        pass
    for name, sentence in (("run", "holds a file twice"), ("none", "manifest.json is missing")):
        with pytest.raises(BadBundle, match=sentence):
            Library(tmp_path / "store").import_path(tmp_path / name)


def test_a_file_that_unpacks_to_more_than_a_run_can_be_is_refused(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusionscope.storage.bundle._UNPACKED_LIMIT", 1 << 20)
    file = repacked(library, tmp_path, members={"counters.parquet": b"\0" * (8 << 20)})
    assert file.stat().st_size < 1 << 20
    with pytest.raises(BadBundle, match="too large"):
        Library(tmp_path / "store").import_path(file)


def test_texts_that_look_like_sql_are_data(tmp_path: Path) -> None:
    name = "x'); DROP TABLE runs; --"
    publish(
        tmp_path / "a", example_run("one", name), [r.Kernel(kernel_id=name, graph_id=name, name=name, backend="cpp")]
    )
    source, target = Library(tmp_path / "a"), Library(tmp_path / "b")
    source.write(notes.act, "one", "tag", name)
    target.import_path(source.export_run("one", tmp_path / "run"))
    assert target.find(name) == "one"
    assert target.ask(records_of, r.Kernel, "one")[0].name == name
    assert name in target.ask(records_of, r.Run, "one")[0].tags


def test_a_library_whose_table_is_a_view_is_no_library(tmp_path: Path) -> None:
    publish_example(tmp_path)
    (tmp_path / "secret.csv").write_text("run_id\nsecret")
    with duckdb.connect(str(tmp_path / "library.duckdb")) as con:
        con.execute("DROP TABLE summaries")
        con.execute(f"CREATE VIEW summaries AS SELECT * FROM read_csv('{tmp_path / 'secret.csv'}')")
    for act in (Library(tmp_path).check, Library(tmp_path).conclude_older):
        with pytest.raises(StorageError, match="is not a Fusionscope library"):
            act()
