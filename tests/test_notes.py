"""Notes: pinned to what an object is, found again in the next run, never lost, sent along with a run."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from example_run import EXAMPLE_ID, example_records, example_run, publish, publish_example

from fusionscope.storage import notes
from fusionscope.storage import records as r
from fusionscope.storage.database import StorageError
from fusionscope.storage.library import Library
from fusionscope.storage.queries import anchors
from fusionscope.storage.queries import notes as queries
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.runs import library_runs
from fusionscope.storage.records import TABLES

NEXT_ID = "20260103-030405-b2c3d4"
RELU = "0/0.inference/cpp_fused_relu_0"


def shifted(record: Any) -> Any:
    """The record as the next run has it: the code above grew by ten lines, and every kernel has another name."""
    if isinstance(record, r.GraphNode) and record.line is not None:
        return replace(record, line=record.line + 10)
    if isinstance(record, (r.Kernel, r.KernelCall)):
        renamed = {"kernel_id": record.kernel_id.replace("relu_0", "relu_7")}
        return replace(record, **renamed)
    return record


def publish_next(store: Path, facts: list[Any] | None = None) -> str:
    run = example_run(NEXT_ID, created_at=datetime(2026, 1, 3, 3, 4, 5))
    return publish(store, run, [shifted(fact) for fact in example_records()] if facts is None else facts)


def first_object(library: Library, kind: str) -> str:
    return sorted(library.ask(anchors.objects, EXAMPLE_ID, kind))[0]


@pytest.fixture
def library(tmp_path: Path) -> Library:
    publish_example(tmp_path / "store")
    return Library(tmp_path / "store")


def test_a_note_on_a_kernel_is_found_in_the_next_run_under_the_kernels_new_name(library: Library) -> None:
    note = library.write(notes.say, EXAMPLE_ID, "why so slow?", kind="kernel", object_id=RELU, author="ada")
    assert note.label is not None
    assert note.label.startswith("relu at ")
    publish_next(library.store)
    (found,) = library.ask(queries.pinned, NEXT_ID)
    assert (found.text, found.author, found.gone) == ("why so slow?", "ada", False)
    assert found.object_id == RELU.replace("relu_0", "relu_7")


@pytest.mark.parametrize("kind", [kind for kind in anchors.KINDS if kind != "run"])
def test_a_note_on_any_object_comes_back_in_the_next_run_and_says_when_the_object_is_gone(
    library: Library, kind: str
) -> None:
    library.write(notes.say, EXAMPLE_ID, "look", "needs_work", kind=kind, object_id=first_object(library, kind))
    (here,) = library.ask(queries.pinned, EXAMPLE_ID)
    publish_next(library.store)
    (there,) = library.ask(queries.pinned, NEXT_ID)
    assert (here.gone, there.gone) == (False, False)
    assert there.object_id == (here.object_id or "").replace("relu_0", "relu_7")
    publish(library.store, example_run("later", created_at=datetime(2026, 1, 4)), [])
    (gone,) = library.ask(queries.pinned, "later")
    assert gone.gone is (kind != "finding")  # every run has the findings of every rule
    assert gone.object_id is None or kind == "finding"


def test_notes_of_a_run_of_another_name_or_project_stay_there(library: Library) -> None:
    library.write(notes.say, EXAMPLE_ID, verdict="looks_good")
    publish(library.store, example_run("other", "gpt", created_at=datetime(2026, 1, 4)), [])
    publish(library.store, example_run("elsewhere", project="b", created_at=datetime(2026, 1, 4)), [])
    assert [library.ask(queries.pinned, run) for run in ("other", "elsewhere")] == [[], []]


def test_a_note_that_is_taken_back_is_shown_no_more_and_still_there(library: Library) -> None:
    note = library.write(notes.say, EXAMPLE_ID, "wrong")
    library.write(notes.withdraw, note.note_id)
    assert library.ask(queries.pinned, EXAMPLE_ID) == []
    assert len(library.ask(records_of, r.Note, EXAMPLE_ID)) == 2


def test_what_is_done_to_a_run_can_be_undone(library: Library) -> None:
    before = library.ask(records_of, r.Run, EXAMPLE_ID)
    for what, undo, text, other in (
        ("rename", "rename", "better", "mlp"),
        ("tag", "untag", "nightly", "nightly"),
        ("archive", "unarchive", None, None),
        ("delete", "restore", None, None),
    ):
        library.write(notes.act, EXAMPLE_ID, what, text)
        assert library.ask(records_of, r.Run, EXAMPLE_ID) != before, what
        library.write(notes.act, EXAMPLE_ID, undo, other)
        assert library.ask(records_of, r.Run, EXAMPLE_ID) == before, what
    assert [run.name for run in library.ask(library_runs)] == ["mlp"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("say", EXAMPLE_ID, "  "), "needs a text or a verdict"),
        (("say", EXAMPLE_ID, "x", "fine"), "is no verdict"),
        (("say", "nothing", "x"), "There is no run"),
        (("say", EXAMPLE_ID, "x" * 10_001), "10000 are the most"),
        (("act", EXAMPLE_ID, "rename"), "needs a word"),
        (("act", EXAMPLE_ID, "explode"), "nothing that can be done"),
        (("withdraw", "nothing"), "There is no note"),
        (("keep_view", " ", "", "q=x"), "needs a name"),
    ],
)
def test_what_is_no_note_is_refused_in_a_sentence(library: Library, words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(StorageError, match=sentence):
        library.write(getattr(notes, words[0]), *words[1:])
    assert library.ask(records_of, r.Note, EXAMPLE_ID) == []


def test_an_object_that_the_run_does_not_have_takes_no_note(library: Library) -> None:
    with pytest.raises(StorageError, match="has no kernel 'nothing'"):
        library.write(notes.say, EXAMPLE_ID, "x", kind="kernel", object_id="nothing")


def test_a_view_is_kept_replaced_and_given_up(library: Library) -> None:
    for query in ("project=a", "project=b"):
        library.write(notes.keep_view, "mine", "", query)
    assert [view.query for view in library.ask(queries.saved_views, "")] == ["project=b"]
    library.write(notes.keep_view, "mine", "", None)
    assert library.ask(queries.saved_views, "") == []


def test_notes_travel_with_a_run_and_come_back_row_by_row(library: Library, tmp_path: Path) -> None:
    library.write(notes.say, EXAMPLE_ID, "here", "regression", kind="kernel", object_id=RELU)
    library.write(notes.act, EXAMPLE_ID, "tag", "shared")
    there = Library(tmp_path / "there")
    there.import_path(library.export_run(EXAMPLE_ID, tmp_path / "first.fusionscope"))
    again = Library(tmp_path / "again")
    again.import_path(there.export_run(EXAMPLE_ID, tmp_path / "second.fusionscope"))
    for record in TABLES.values():
        rows = library.ask(records_of, record, EXAMPLE_ID)
        assert there.ask(records_of, record, EXAMPLE_ID) == rows
        assert again.ask(records_of, record, EXAMPLE_ID) == rows


def test_notes_on_a_run_that_is_here_already_come_in_and_take_effect(library: Library, tmp_path: Path) -> None:
    there = Library(tmp_path / "there")
    there.import_path(library.export_run(EXAMPLE_ID, tmp_path / "run"))
    library.write(notes.say, EXAMPLE_ID, "mine")
    there.write(notes.say, EXAMPLE_ID, "theirs")
    there.write(notes.act, EXAMPLE_ID, "rename", "renamed there")
    file = there.export_run(EXAMPLE_ID, tmp_path / "reviewed")
    for _ in range(2):
        library.import_path(file)
    assert {note.text for note in library.ask(queries.pinned, EXAMPLE_ID)} == {"mine", "theirs"}
    assert len(library.ask(records_of, r.Note, EXAMPLE_ID)) == 3
    assert library.ask(records_of, r.Run, EXAMPLE_ID)[0].name == "renamed there"


@pytest.mark.parametrize("anchor", ["no json", "[1, 2]", "[[[], {}]]", "{}", '[["a"]]', "null"])
def test_a_note_from_elsewhere_with_a_damaged_anchor_is_at_no_object(library: Library, anchor: str) -> None:
    note = r.Note(note_id="x", created_at=datetime(2026, 1, 4), anchor_kind="kernel", anchor=anchor, text="hello")
    publish(library.store, example_run("stranger", created_at=datetime(2026, 1, 4)), [note])
    (found,) = library.ask(queries.pinned, "stranger")
    assert (found.gone, found.object_id) == (True, None)


def test_two_people_write_while_runs_are_published_and_nothing_is_lost_nor_anyone_held_up(tmp_path: Path) -> None:
    publish_example(tmp_path)
    library = Library(tmp_path)
    began = time.perf_counter()
    library.write(notes.say, EXAMPLE_ID, "alone")
    alone_s = time.perf_counter() - began  # a busy machine is not what this asks about
    people = [_writer(tmp_path, who) for who in ("ada", "bob")]
    number = 0
    while any(person.poll() is None for person in people):
        publish_example(tmp_path, f"run-{number}")
        number += 1
    waits = [float(line) for person in people for line in person.communicate()[0].split()]
    library.import_inbox()
    assert len(library.ask(records_of, r.Note, EXAMPLE_ID)) - 1 == len(waits) == 20
    assert len(library.ask(library_runs)) == number + 1
    assert library.check() == []
    assert max(waits) < max(1.0, 30 * alone_s)


def _writer(store: Path, who: str) -> subprocess.Popen[str]:
    code = """if True:
        import sys, time
        from fusionscope.storage import notes
        from fusionscope.storage.library import Library
        from example_run import EXAMPLE_ID
        for number in range(10):
            began = time.perf_counter()
            Library(sys.argv[1]).write(notes.say, EXAMPLE_ID, f"{sys.argv[2]} {number}")
            print(time.perf_counter() - began)
    """
    command = [sys.executable, "-c", code, str(store), who]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)
