"""What people say of runs and do to them: notes that are only ever added, each in one short transaction.

A run's name, tags, archived_at and deleted_at are what its acts made of them, so an act is undone by another act. Every
function takes a connection that may write: `Library.write(notes.say, run_id, …)`.
"""

from __future__ import annotations

import getpass
import os
import secrets
from collections.abc import Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from typing import Any

from duckdb import DuckDBPyConnection

from fusionscope.storage import schema
from fusionscope.storage.database import StorageError
from fusionscope.storage.queries import anchors
from fusionscope.storage.queries.library import has_run
from fusionscope.storage.records import Note, SavedView

VERDICTS = ("looks_good", "needs_work", "regression")
LONGEST = 10_000  # characters of a note

# What an act makes of the run's row.
_EFFECTS = {
    "rename": "name = word",
    "tag": "tags = list_append([t FOR t IN coalesce(tags, []) IF t <> word], word)",
    "untag": "tags = [t FOR t IN tags IF t <> word]",
    "archive": "archived_at = moment",
    "unarchive": "archived_at = NULL",
    "delete": "deleted_at = moment",
    "restore": "deleted_at = NULL",
}
WORDED = ("rename", "tag", "untag")  # acts that need a text


def say(
    con: DuckDBPyConnection,
    run_id: str,
    text: str | None = None,
    verdict: str | None = None,
    *,
    kind: str = "run",
    object_id: str | None = None,
    author: str | None = None,
) -> Note:
    """Pin a note, a verdict or both to a run or to an object in it. Raises StorageError."""
    text = (text or "").strip() or None
    if text is None and verdict is None:
        raise StorageError("A note needs a text or a verdict.")
    if verdict not in (None, *VERDICTS):
        raise StorageError(f"{verdict!r:.80} is no verdict: choose from {', '.join(VERDICTS)}.")
    _require_run(con, run_id)
    pinned: dict[str, Any] = {}
    if kind != "run":
        anchor = anchors.anchor_of(con, run_id, kind, object_id or "")
        pinned = {"anchor": anchor.parts, "object_id": anchor.object_id, "label": anchor.label}
    return _add(con, run_id, Note(**_signed(author), anchor_kind=kind, verdict=verdict, text=_fit(text), **pinned))


def act(con: DuckDBPyConnection, run_id: str, what: str, text: str | None = None, author: str | None = None) -> Note:
    """Rename, tag, archive or delete a run, or undo that. Raises StorageError."""
    text = (text or "").strip() or None
    if what not in _EFFECTS:
        raise StorageError(f"{what!r:.80} is nothing that can be done to a run.")
    if text is None and what in WORDED:
        raise StorageError(f"To {what} a run needs a word to do it with.")
    _require_run(con, run_id)
    return _add(con, run_id, Note(**_signed(author), act=what, text=_fit(text)))


def act_on_all(
    con: DuckDBPyConnection, run_ids: Sequence[str], what: str, text: str | None = None, author: str | None = None
) -> list[Note]:
    """The same act upon several runs. Raises StorageError."""
    return [act(con, run_id, what, text, author) for run_id in run_ids]


def withdraw(con: DuckDBPyConnection, note_id: str, author: str | None = None) -> Note:
    """Take a note back; it stays in the table, and is shown no more. Raises StorageError."""
    found = con.execute("SELECT run_id FROM notes WHERE note_id = ? AND act = 'note'", [note_id]).fetchone()
    if found is None:
        raise StorageError(f"There is no note {note_id!r:.80}.")
    return _add(con, found[0], Note(**_signed(author), act="withdraw", text=note_id))


def keep_view(con: DuckDBPyConnection, name: str, page: str, query: str | None, author: str | None = None) -> SavedView:
    """Keep the filters of a page under a name, in place of what the name stood for; None gives it up."""
    if not name.strip():
        raise StorageError("A view needs a name.")
    view = SavedView(name=name.strip()[:LONGEST], created_at=_now(), author=author, page=page, query=query)
    con.execute(f"INSERT INTO saved_views VALUES ({', '.join('?' * len(astuple(view)))})", astuple(view))
    return view


def replay(con: DuckDBPyConnection, run_id: str) -> None:
    """Let all acts upon a run take effect once more, the oldest first: what is left when acts come from elsewhere."""
    sql = "SELECT act, text, created_at FROM notes WHERE run_id = ? ORDER BY created_at, note_id"
    for what, text, moment in con.execute(sql, [run_id]).fetchall():
        _take_effect(con, run_id, what, text, moment)


def default_author() -> str | None:
    """Who records, and who writes where nobody is logged in: $FUSIONSCOPE_AUTHOR, else the user of this process."""
    try:
        return os.environ.get("FUSIONSCOPE_AUTHOR") or getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return None


def _add(con: DuckDBPyConnection, run_id: str, note: Note) -> Note:
    row = [run_id, *astuple(note)]
    with schema.transaction(con):
        con.execute(f"INSERT INTO notes VALUES ({', '.join('?' * len(row))})", row)
        _take_effect(con, run_id, note.act, note.text, note.created_at)
    return note


def _take_effect(con: DuckDBPyConnection, run_id: str, what: str, text: str | None, moment: datetime) -> None:
    if what in _EFFECTS:
        given = "(SELECT $2::VARCHAR AS word, $3::TIMESTAMP AS moment)"
        con.execute(f"UPDATE runs SET {_EFFECTS[what]} FROM {given} WHERE run_id = $1", [run_id, text, moment])


def _signed(author: str | None) -> dict[str, Any]:
    return {"note_id": secrets.token_hex(8), "created_at": _now(), "author": author}


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def _fit(text: str | None) -> str | None:
    if text is not None and len(text) > LONGEST:
        raise StorageError(f"The text has {len(text)} characters; {LONGEST} are the most that a note holds.")
    return None if text is None else text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _require_run(con: DuckDBPyConnection, run_id: str) -> None:
    if not has_run(con, run_id):
        raise StorageError(f"There is no run {run_id!r:.80}.")
