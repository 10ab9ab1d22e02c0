"""The library: runs come in once, whole, from any number of processes, and go out as they are."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import duckdb
import pytest
from example_run import EXAMPLE_ID, PARTLY_ID, example_run, publish_example

from fusionscope.storage import intake, notes, schema
from fusionscope.storage.bundle import BadBundle
from fusionscope.storage.database import NewerVersion, NotWritable, StorageError, open_for_writing
from fusionscope.storage.library import Library, RunNotFound, default_address
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.records import TABLES, Counter, Kernel, KernelCall, Note, Run
from fusionscope.storage.spool import Spool

ELSEWHERE = ("device_facts", "kernel_configs", "kernel_code", "gemm_choices", "timeline")  # test_target_screen.py
ELSEWHERE += ("node_links", "notes", "allocations", "memory_residuals", "memory_budgets", "reuse_decisions")


def _publish(store: Path, run_id: str, rows: int = 3) -> Path:
    run = example_run(run_id)
    spool = Spool.create(store, run)
    spool.append(Counter(name="n", value=value) for value in range(rows))
    spool.append(Kernel(kernel_id=str(value), graph_id="g", name="k", backend="cpp") for value in range(rows))
    return spool.publish(run)


def _counts(con: duckdb.DuckDBPyConnection) -> tuple[int, int, int]:
    """Rows of runs that are there: those of one that comes in by steps are seen with its row in `runs`."""
    of = "SELECT count(*) FROM {} SEMI JOIN runs USING (run_id)"
    sql = f"SELECT (SELECT count(*) FROM runs), ({of.format('counters')}), ({of.format('kernels')})"
    runs, counters, kernels = con.execute(sql).fetchall()[0]
    return runs, counters, kernels


def _run(code: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)


def test_an_empty_store_is_made_when_it_is_read(tmp_path: Path) -> None:
    library = Library(tmp_path / "store")
    assert library.ask(_counts) == (0, 0, 0)
    assert library.import_inbox().imported == []


def test_the_example_is_consistent(example_store: Path) -> None:
    assert Library(example_store).check() == []


def test_a_bundle_is_imported_once_however_often_it_comes(tmp_path: Path) -> None:
    bundle = _publish(tmp_path, "one")
    shutil.copytree(bundle, tmp_path / "again")
    library = Library(tmp_path)
    assert library.import_inbox().imported == ["one"]
    assert library.import_path(tmp_path / "again") == "one"
    (tmp_path / "again").rename(bundle)
    library.import_inbox()
    assert library.ask(_counts) == (1, 3, 3)
    assert list(library.inbox.iterdir()) == []


def test_an_importer_killed_between_commit_and_removal_does_not_lead_to_a_second_copy(tmp_path: Path) -> None:
    _publish(tmp_path, "one")
    code = """if True:
        import os, signal, sys
        from fusionscope.storage import library
        library._remove = lambda folder: os.kill(os.getpid(), signal.SIGKILL)
        library.Library(sys.argv[1]).import_inbox()
    """
    assert _run(code, tmp_path).wait() == -signal.SIGKILL
    library = Library(tmp_path)
    assert [path.name for path in library.inbox.iterdir()] == ["one"]
    assert library.ask(_counts) == (1, 3, 3)
    library.import_inbox()
    assert library.ask(_counts) == (1, 3, 3)
    assert list(library.inbox.iterdir()) == []


def test_an_importer_killed_on_its_way_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
    for number in range(8):
        _publish(tmp_path, f"run{number}")
    code = """if True:
        import sys
        from fusionscope.storage.library import Library
        Library(sys.argv[1]).import_inbox(lambda done, total: print(done, total, flush=True))
    """
    process = _run(code, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "1 8\n"
    process.kill()
    process.communicate()
    library = Library(tmp_path)
    library.import_inbox()
    assert library.ask(_counts) == (8, 24, 24)
    assert list(library.inbox.iterdir()) == []


def test_an_importer_killed_between_two_steps_leaves_a_run_that_nobody_sees_until_the_next_takes_it_in(
    tmp_path: Path,
) -> None:
    _publish(tmp_path, "one", rows=9)
    code = """if True:
        import os, signal, sys
        from fusionscope.storage import intake, library
        intake.PIECE, intake.HOLD_S = 2, 0.001
        def step(con, pieces, steps=[], copy=intake._step):
            steps.append(pieces[0])
            copy(con, pieces) if len(steps) < 4 else os.kill(os.getpid(), signal.SIGKILL)
        intake._step = step
        library.Library(sys.argv[1]).import_inbox()
    """
    assert _run(code, tmp_path).wait() == -signal.SIGKILL
    library = Library(tmp_path)
    assert library.ask(_rows) > 0
    assert library.ask(_counts) == (0, 0, 0)
    assert library.check() == []
    assert library.import_inbox().imported == ["one"]
    assert library.ask(_counts) == (1, 9, 9)
    assert list(library.inbox.iterdir()) == []


def _rows(con: duckdb.DuckDBPyConnection) -> int:
    """Rows of all tables, those of runs that are not there yet included."""
    return sum(con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in TABLES)


def test_a_note_is_written_while_a_run_is_concluded_and_between_the_steps_in_which_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(tmp_path)
    _publish(tmp_path, "first")
    library.import_inbox()
    _publish(tmp_path, "second", rows=9)
    conclude, step = intake.findings.write, intake._step
    waiting = threading.Thread(target=library.write, args=(notes.say, "first", "between"))
    seen: list[list[str]] = []

    def concluding(con: duckdb.DuckDBPyConnection, run_id: str) -> None:
        library.write(notes.say, "first", "while it is concluded")
        conclude(con, run_id)

    def stepping(con: duckdb.DuckDBPyConnection, pieces: Any) -> None:
        seen.append([note.text or "" for note in records_of(con, Note, "first")])
        if len(seen) == 1:
            waiting.start()
            time.sleep(0.5)  # until it has the turn
        step(con, pieces)

    monkeypatch.setattr(intake, "PIECE", 2)
    monkeypatch.setattr(intake, "HOLD_S", 0.001)
    monkeypatch.setattr(intake.findings, "write", concluding)
    monkeypatch.setattr(intake, "_step", stepping)
    assert library.import_inbox().imported == ["second"]
    assert seen[0] == ["while it is concluded"]
    assert sorted(seen[1]) == ["between", "while it is concluded"]


def test_two_processes_publish_and_import_while_a_third_reads(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from pathlib import Path
        from fusionscope.storage.library import Library
        from test_library import _publish
        for number in range(20):
            _publish(Path(sys.argv[1]), f"{sys.argv[2]}-{number}", rows=50)
            Library(sys.argv[1]).import_inbox()
    """
    library = Library(tmp_path)
    writers = [_run(code, tmp_path, name) for name in ("a", "b")]
    seen = []
    while any(writer.poll() is None for writer in writers):
        seen.append(library.ask(_counts))
    library.import_inbox()
    assert [writer.wait() for writer in writers] == [0, 0]
    assert all(counters == kernels == 50 * runs for runs, counters, kernels in seen)
    assert library.ask(_counts) == (40, 2000, 2000)
    assert sorted(runs for runs, *_ in seen) == [runs for runs, *_ in seen]
    assert library.check() == []


def test_threads_of_one_process_read_and_import_at_once(tmp_path: Path) -> None:
    library = Library(tmp_path)
    seen: list[tuple[int, int, int]] = []
    readers = [threading.Thread(target=lambda: seen.extend(library.ask(_counts) for _ in range(20))) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(5):
        _publish(tmp_path, f"run{number}")
        assert library.import_inbox().rejected == []
    for reader in readers:
        reader.join()
    library.import_inbox()
    assert len(seen) == 60
    assert all(counters == kernels == 3 * runs for runs, counters, kernels in seen)
    assert library.ask(_counts) == (5, 15, 15)


def test_while_one_imports_another_does_not_wait(tmp_path: Path) -> None:
    _publish(tmp_path, "one")
    library = Library(tmp_path)
    with library._sole_importer(wait=True):
        assert library.import_inbox().waiting == 1
    assert library.import_inbox().imported == ["one"]


def _change_manifest(folder: Path, **changed: object) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | changed))


def test_a_bundle_of_a_newer_version_is_left_and_does_not_stop_the_others(tmp_path: Path) -> None:
    newer = _publish(tmp_path, "newer")
    _change_manifest(newer, schema_version=schema.VERSION + 3)
    _publish(tmp_path, "one")
    report = Library(tmp_path).import_inbox()
    assert report.imported == ["one"]
    ((name, sentence),) = report.rejected
    assert name == "newer"
    assert f"version {schema.VERSION + 3}" in sentence
    assert f"up to {schema.VERSION}" in sentence
    assert newer.exists()
    with pytest.raises(NewerVersion):
        Library(tmp_path).import_path(newer)


def test_a_bundle_of_an_older_version_lacks_columns_and_they_are_null(tmp_path: Path) -> None:
    folder = _publish(tmp_path, "one")
    kernels = str(folder / "kernels.parquet")
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE k AS SELECT * EXCLUDE (flops, source) FROM read_parquet('{kernels}')")
        con.execute(f"COPY k TO '{kernels}' (FORMAT parquet)")
    library = Library(tmp_path)
    assert library.import_inbox().imported == ["one"]
    assert library.ask(records_of, Kernel, "one")[0] == Kernel(kernel_id="0", graph_id="g", name="k", backend="cpp")


def _rewrite(folder: Path, table: str, select: str) -> None:
    path = folder / f"{table}.parquet"
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t AS SELECT {select} FROM read_parquet('{path}')")
        con.execute(f"COPY t TO '{path}' (FORMAT parquet)")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda folder: (folder / "manifest.json").write_text('{"rows": 3}'), "manifest.json is missing or damaged"),
        (lambda folder: _change_manifest(folder, rows={"runs": 1, "x; DROP TABLE runs": 0}), "table that is unknown"),
        (lambda folder: _change_manifest(folder, rows={"counters": 3}), "exactly one run"),
        (lambda folder: _change_manifest(folder, run_id="../up"), "which is no run id"),
        (lambda folder: _change_manifest(folder, rows={"runs": 1, "counters": 4}), "does not hold the 4 rows"),
        (lambda folder: (folder / "counters.parquet").unlink(), "counters.parquet cannot be read"),
        (lambda folder: (folder / "counters.parquet").write_bytes(b"PAR1" * 99), "counters.parquet cannot be read"),
        (lambda folder: _rewrite(folder, "counters", "*, 1 AS extra"), "unexpected column: counters.extra"),
        (lambda folder: _rewrite(folder, "counters", "* REPLACE ('1' AS value)"), "unexpected column: counters.value"),
        (lambda folder: _rewrite(folder, "counters", "* REPLACE ('other' AS run_id)"), "does not hold the 3 rows"),
        (lambda folder: _rewrite(folder, "counters", "* EXCLUDE (run_id)"), "counters.parquet cannot be read"),
    ],
)
def test_a_damaged_bundle_is_left_where_it_is_with_a_sentence(tmp_path: Path, damage: object, sentence: str) -> None:
    folder = _publish(tmp_path, "bad")
    assert callable(damage)
    damage(folder)
    _publish(tmp_path, "good")
    library = Library(tmp_path)
    report = library.import_inbox()
    assert report.imported == ["good"]
    assert [name for name, _ in report.rejected] == ["bad"]
    assert sentence in report.rejected[0][1]
    assert folder.exists()
    assert library.ask(_counts) == (1, 3, 3)


def test_a_bundle_that_the_library_does_not_take_leaves_nothing_behind(tmp_path: Path) -> None:
    library = Library(tmp_path)
    with open_for_writing(library.path) as con:
        con.execute("ALTER TABLE kernels DROP COLUMN backend")
    _publish(tmp_path, "one")
    ((name, sentence),) = library.import_inbox().rejected
    assert name == "one"
    assert sentence.startswith("The bundle one could not be imported: Binder Error: ")
    assert library.ask(_counts) == (0, 0, 0)


def test_an_exported_run_is_the_same_elsewhere_row_by_row(example_store: Path, tmp_path: Path) -> None:
    here, there = Library(example_store), Library(tmp_path / "store")
    file = here.export_run(EXAMPLE_ID, tmp_path / "mlp.fusionscope")
    assert there.import_path(file) == EXAMPLE_ID
    for table, record in TABLES.items():
        rows = here.ask(records_of, record, EXAMPLE_ID)
        assert rows or table in ELSEWHERE
        assert there.ask(records_of, record, EXAMPLE_ID) == rows


def test_a_file_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    library, file = Library(tmp_path / "store"), tmp_path / "run.zip"
    file.write_bytes(b"no zip")
    with pytest.raises(BadBundle, match="no zip file"):
        library.import_path(file)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("../escape.txt", "x")
    with pytest.raises(BadBundle, match="it holds"):
        library.import_path(file)
    with pytest.raises(BadBundle, match="cannot be read: No such file"):
        library.import_path(tmp_path / "missing.zip")
    assert not (tmp_path.parent / "escape.txt").exists()


def test_a_run_is_found_by_id_name_or_beginning(tmp_path: Path) -> None:
    for run_id, name in {"aa1": "mlp", "aa2": "mlp", "b": "aa"}.items():
        publish_example(tmp_path, run_id, name)
    library = Library(tmp_path)
    assert library.find("aa1") == "aa1"
    assert library.find("mlp") == "aa2"  # the latest
    assert library.find("aa") == "b"  # a whole name goes before a beginning
    with pytest.raises(RunNotFound, match="Several runs begin with 'a': aa1, aa2"):
        library.find("a")
    for unknown in ("nothing", "", "%", "a_"):
        with pytest.raises(RunNotFound, match="There is no run"):
            library.find(unknown)
    with pytest.raises(RunNotFound, match="There is no run 'nothing'"):
        library.export_run("nothing", tmp_path / "x.zip")


def test_check_names_what_points_at_nothing(tmp_path: Path) -> None:
    library = Library(tmp_path)
    _publish(tmp_path, "one")
    library.import_inbox()
    with open_for_writing(library.path) as con:
        con.execute("INSERT INTO counters (run_id, name) VALUES ('gone', 'x'), ('gone', 'y')")
        con.execute("INSERT INTO kernel_calls (run_id, kernel_id) VALUES ('one', 'missing'), ('one', '0')")
    assert library.check() == [
        "Rows of counters that belong to no run: 2.",
        "Rows of kernel_calls that call an unknown kernel: 1.",
    ]


def test_records_come_back_as_they_were_recorded(example_store: Path) -> None:
    library = Library(example_store)
    assert [call.position for call in library.ask(records_of, KernelCall, EXAMPLE_ID)] == [*range(8), *range(8)]
    (partly,) = library.ask(records_of, Run, PARTLY_ID)
    assert (partly.status, partly.tags) == ("partial", ("mlp", "cpu"))


def test_a_store_below_a_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    library = Library(tmp_path / "file" / "store")
    for act in (library.import_inbox, library.check):
        with pytest.raises(NotWritable, match="cannot be written: Not a directory"):
            act()


def test_the_default_store_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSIONSCOPE_STORE", raising=False)
    assert default_address() == Path("fusionscope-store")
    monkeypatch.setenv("FUSIONSCOPE_STORE", "/data/runs")
    assert default_address() == Path("/data/runs")


def test_a_path_that_duckdb_cannot_open_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="question mark"):
        publish_example(tmp_path / "a?b")
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_leaves_no_half_made_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_con: object) -> None:
        raise duckdb.IOException("No space left on device")

    with monkeypatch.context() as context:
        context.setattr("fusionscope.storage.schema.upgrade", full)
        with pytest.raises(StorageError, match="No space left"):
            Library(tmp_path).ask(lambda con: None)
    assert not (tmp_path / "library.duckdb").exists()
    assert publish_example(tmp_path) == EXAMPLE_ID
    assert Library(tmp_path).find(EXAMPLE_ID) == EXAMPLE_ID
