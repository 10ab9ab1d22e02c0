"""Questions that come close together share a connection, and who writes has the library soon."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from duckdb import DuckDBPyConnection

from fusionscope.storage import reader
from fusionscope.storage.database import Locked, NotALibrary, open_for_writing
from fusionscope.storage.library import Library
from fusionscope.storage.queries.runs import library_runs
from fusionscope.storage.reader import Reader


def can_write(path: Path, timeout_s: float = 0.1) -> bool:
    try:
        with open_for_writing(path, timeout_s):
            return True
    except Locked:
        return False


@pytest.fixture
def library(example_store: Path, tmp_path: Path) -> Path:
    """A copy: the example is shared by all tests."""
    return Path(shutil.copy(example_store / "library.duckdb", tmp_path))


def test_a_connection_stays_open_for_the_next_question(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "OPEN_S", 60)
    shared = Reader(library)
    assert shared.ask(library_runs) == shared.ask(library_runs)
    assert not can_write(library)
    shared.let_go()
    assert can_write(library)
    assert shared.ask(library_runs)
    shared.let_go()


def test_it_is_closed_by_itself(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "OPEN_S", 0.05)
    assert Reader(library).ask(library_runs)
    assert can_write(library, timeout_s=10)


def test_the_question_that_is_being_answered_closes_it(library: Path) -> None:
    shared = Reader(library)

    def let_go_meanwhile(con: DuckDBPyConnection) -> int:
        shared.let_go()
        assert not can_write(library)
        return len(library_runs(con))

    assert shared.ask(let_go_meanwhile)
    assert can_write(library)


def test_a_question_opens_what_the_one_before_it_could_not(tmp_path: Path, library: Path) -> None:
    path = tmp_path / "other.duckdb"
    path.write_text("nothing")
    shared = Reader(path)
    with pytest.raises(NotALibrary):
        shared.ask(library_runs)
    path.write_bytes(library.read_bytes())
    assert shared.ask(library_runs)
    shared.let_go()


def test_a_writer_need_not_wait_for_a_question_that_waits_for_it(library: Path) -> None:
    """The one that is being answered can end while the next waits for its turn."""
    shared, begun, end = Reader(library), Event(), Event()

    def long(con: DuckDBPyConnection) -> int:
        shared.let_go()
        begun.set()
        assert end.wait(10)
        return len(library_runs(con))

    with ThreadPoolExecutor() as pool:
        first = pool.submit(shared.ask, long)
        assert begun.wait(10)
        writes = pool.submit(can_write, library, 5)
        time.sleep(0.1)  # it has the turn now, and waits for `first`
        second = pool.submit(shared.ask, library_runs)
        time.sleep(0.1)  # which waits for the turn
        end.set()
        assert writes.result()
        assert first.result() == len(second.result())
    shared.let_go()


def test_a_file_that_was_put_in_its_place_is_read_at_once(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "OPEN_S", 60)
    shared, other = Reader(library), Library(tmp_path / "other")
    assert shared.ask(library_runs)
    assert other.ask(library_runs) == []
    other.path.replace(library)
    assert shared.ask(library_runs) == []
    library.unlink()
    assert shared.ask(library_runs) == []
    shared.let_go()
