"""A run while it is recorded: what is on disk survives its process, and appears whole or not at all."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from example_run import example_run

from fusionscope.storage.bundle import encode
from fusionscope.storage.database import NotWritable, StorageError
from fusionscope.storage.library import Library
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.records import Counter, FusionGroup, Measurement, Run
from fusionscope.storage.spool import ENDED_EARLY, Spool, recover

COUNTERS = [Counter(name="a", value=1), Counter(name="b", value=2)]

# A process that records two counters, says so, and then does what the test asks for.
RECORDING = """
import os, signal, sys, time
from datetime import datetime
from pathlib import Path
from fusionscope.storage.records import Counter, Run
from fusionscope.storage.spool import Spool
run = Run(run_id="killed", name="killed", created_at=datetime(2026, 1, 1), status="complete")
spool = Spool.create(Path(sys.argv[1]), run)
spool.append([Counter(name="a", value=1), Counter(name="b", value=2)])
"""


def _record(store: Path, run: Run, facts: list[Any]) -> Library:
    spool = Spool.create(store, run)
    spool.append(facts)
    spool.publish(run)
    return Library(store)


def _process(store: Path, then: str) -> subprocess.Popen[str]:
    code = RECORDING + textwrap.dedent(then)
    return subprocess.Popen([sys.executable, "-c", code, str(store)], stdout=subprocess.PIPE, text=True)


def test_what_was_appended_is_published_and_imported(tmp_path: Path) -> None:
    run = example_run("one")
    library = _record(
        tmp_path, run, [*COUNTERS, FusionGroup(graph_id="g", group_id="a", members=("x", "y"), position=0)]
    )
    assert library.import_inbox().imported == ["one"]
    assert library.ask(records_of, Run, "one") == [run]
    assert library.ask(records_of, Counter, "one") == COUNTERS
    assert library.ask(records_of, FusionGroup, "one")[0].members == ("x", "y")
    assert list(library.inbox.iterdir()) == []


def test_nothing_of_a_run_is_visible_before_it_is_published(tmp_path: Path) -> None:
    spool = Spool.create(tmp_path, example_run("one"))
    spool.append(COUNTERS)
    assert Library(tmp_path).import_inbox().imported == []
    spool.discard()
    assert list((tmp_path / "inbox").iterdir()) == []


def test_values_that_json_or_duckdb_cannot_hold_do_not_break_a_run(tmp_path: Path) -> None:
    odd = "caf\udce9 \0 <script> \N{SNOWMAN} 'quoted'\n"
    time = Measurement(variant="eager", metric="m", median=math.nan, p10=math.inf, p90=2, unit="us", method=odd)
    library = _record(tmp_path, replace(example_run("one"), name=odd), [time])
    library.import_inbox()
    readable = "caf? \N{REPLACEMENT CHARACTER} <script> \N{SNOWMAN} 'quoted'\n"
    assert library.ask(records_of, Run, "one")[0].name == readable
    (found,) = library.ask(records_of, Measurement, "one")
    assert [found.median, found.p10, found.p90, found.method] == [None, None, 2.0, readable]


def test_a_record_that_does_not_fit_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    spool = Spool.create(tmp_path, example_run("one"))
    wrong: Any = "three"
    with pytest.raises(TypeError, match=r"counters\.value is BIGINT, but got 'three'"):
        spool.append([COUNTERS[0], Counter(name="wrong", value=wrong), COUNTERS[1]])
    spool.publish(example_run("one"))
    library = Library(tmp_path)
    library.import_inbox()
    assert library.ask(records_of, Counter, "one") == COUNTERS
    with pytest.raises(ValueError, match="BIGINT"):
        encode(Counter(name="large", value=1 << 63))


def test_a_store_may_have_any_path(tmp_path: Path) -> None:
    store = tmp_path / "x=1 [ab]* it's \N{SNOWMAN}"
    library = _record(store, example_run("one"), COUNTERS)
    assert library.import_inbox().imported == ["one"]
    copy = Library(tmp_path / "copy")
    copy.import_path(library.export_run("one", store / "one [1].zip"))
    assert copy.ask(records_of, Counter, "one") == COUNTERS


def test_a_row_of_any_length_is_kept(tmp_path: Path) -> None:
    long = Counter(name="x" * (20 << 20), value=1)
    library = _record(tmp_path, example_run("one"), [*COUNTERS, long])
    library.import_inbox()
    assert library.ask(records_of, Counter, "one") == [*COUNTERS, long]


def test_a_run_whose_process_was_killed_is_imported_as_partial_with_what_it_had_written(tmp_path: Path) -> None:
    _record(tmp_path, example_run("earlier"), COUNTERS)
    process = _process(tmp_path, "print('ready', flush=True); time.sleep(60)")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    library = Library(tmp_path)
    assert library.import_inbox().imported == ["earlier"]  # the other one is still being recorded
    process.kill()
    process.communicate()
    assert library.import_inbox().imported == ["killed"]
    (run,) = library.ask(records_of, Run, "killed")
    assert (run.status, run.status_reason) == ("partial", ENDED_EARLY)
    assert library.ask(records_of, Counter, "killed") == library.ask(records_of, Counter, "earlier") == COUNTERS


def test_a_torn_last_line_is_dropped_and_the_rest_kept(tmp_path: Path) -> None:
    _process(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)").communicate()
    with (tmp_path / "inbox/.recording-killed/counters.jsonl").open("ab") as file:
        file.write(encode(COUNTERS[0])[:-9])
    library = Library(tmp_path)
    assert library.import_inbox().imported == ["killed"]
    assert library.ask(records_of, Counter, "killed") == COUNTERS


def test_a_run_killed_while_it_was_published_keeps_its_final_row(tmp_path: Path) -> None:
    then = """
    from fusionscope.storage import bundle
    bundle.seal = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    spool.publish(run)
    """
    assert _process(tmp_path, then).wait() == -signal.SIGKILL
    library = Library(tmp_path)
    library.import_inbox()
    assert library.ask(records_of, Run, "killed")[0].status == "complete"


def test_a_forked_child_neither_keeps_a_recording_alive_nor_writes_to_it(tmp_path: Path) -> None:
    then = """
    if (child := os.fork()) == 0:
        spool.append([Counter(name="of the child", value=3)])
        spool.discard()
        print(os.getpid(), flush=True)
        time.sleep(60)
    time.sleep(60)
    """
    process = _process(tmp_path, then)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        recording = tmp_path / "inbox/.recording-killed"
        assert recover(recording) is None  # the parent lives
        process.kill()
        process.wait()
        assert recover(recording) == tmp_path / "inbox/killed"
    finally:
        os.kill(child, signal.SIGKILL)
    library = Library(tmp_path)
    library.import_inbox()
    assert library.ask(records_of, Counter, "killed") == COUNTERS


def test_a_forked_child_cannot_publish(tmp_path: Path) -> None:
    spool = Spool.create(tmp_path, example_run("one"))
    spool.close()  # what a fork does to the child's copy
    with pytest.raises(StorageError, match="does not hold the recording"):
        spool.publish(example_run("one"))


def test_a_store_that_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotWritable, match="file/store cannot be written: Not a directory"):
        Spool.create(tmp_path / "file" / "store", example_run("one"))


@pytest.mark.parametrize("run_id", ["", "../up", ".hidden", "a/b", "a b", "x" * 200])
def test_a_run_id_that_is_no_plain_name_is_refused(tmp_path: Path, run_id: str) -> None:
    run = Run(run_id=run_id, name="x", created_at=datetime(2026, 1, 1), status="complete")
    with pytest.raises(StorageError, match="is no run id"):
        Spool.create(tmp_path, run)
