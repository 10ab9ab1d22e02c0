"""What people said of a run and of the runs before it, each note at the object that it is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries import anchors
from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.anchors import Objects
from fusionscope.storage.records import SavedView


@dataclass(frozen=True, slots=True)
class PinnedNote:
    """A note as another run shows it: where its object is there, or that it is gone."""

    note_id: str
    run_id: str  # on which it was written
    run_created_at: datetime
    created_at: datetime
    author: str | None
    anchor_kind: str
    label: str | None
    verdict: str | None
    text: str | None
    object_id: str | None  # in the run that is asked about; None: the run itself, or the object is gone
    gone: bool  # the run that is asked about has no such object


@dataclass(frozen=True, slots=True)
class _Stored:
    note_id: str
    run_id: str
    run_created_at: datetime
    created_at: datetime
    author: str | None
    anchor_kind: str
    anchor: str | None
    label: str | None
    verdict: str | None
    text: str | None


def pinned(con: DuckDBPyConnection, run_id: str) -> list[PinnedNote]:
    """Notes on the run and on earlier runs of its name and project, newest first; those taken back are left out."""

    @cache
    def known(kind: str) -> Objects:
        return anchors.objects(con, run_id, kind)

    return [_placed(note, known) for note in fetch(con, _Stored, _PINNED, [run_id])]


def _placed(note: _Stored, known: Callable[[str], Objects]) -> PinnedNote:
    found = anchors.find(known(note.anchor_kind), note.anchor) if note.anchor else None
    shared = {name: getattr(note, name) for name in _Stored.__slots__ if name != "anchor"}
    return PinnedNote(**shared, object_id=found, gone=note.anchor is not None and found is None)


def saved_views(con: DuckDBPyConnection, page: str) -> list[SavedView]:
    """The filters that are kept of a page, by name."""
    return fetch(con, SavedView, _VIEWS, [page])


def deleted_runs(con: DuckDBPyConnection) -> list[tuple[str, str, datetime]]:
    """Runs that were deleted and can be brought back: id, name and when, the latest first."""
    return con.execute(_DELETED).fetchall()


_PINNED = """
WITH asked AS (SELECT name, project, created_at FROM runs WHERE run_id = $1),
related AS (
    SELECT runs.run_id, runs.created_at FROM runs, asked
    WHERE runs.run_id = $1 OR (runs.name = asked.name AND runs.project IS NOT DISTINCT FROM asked.project
        AND runs.created_at < asked.created_at AND runs.deleted_at IS NULL)
)
SELECT note_id, run_id, related.created_at AS run_created_at, notes.created_at, author, anchor_kind, anchor, label,
    verdict, text
FROM notes JOIN related USING (run_id)
WHERE act = 'note' AND note_id NOT IN (SELECT text FROM notes WHERE act = 'withdraw' AND text IS NOT NULL)
ORDER BY notes.created_at DESC, note_id
"""

_VIEWS = """
SELECT name, created_at, author, page, query FROM saved_views WHERE page = ?
QUALIFY row_number() OVER (PARTITION BY name ORDER BY created_at DESC) = 1 AND query IS NOT NULL ORDER BY name
"""

_DELETED = "SELECT run_id, name, deleted_at FROM runs WHERE deleted_at IS NOT NULL ORDER BY deleted_at DESC, run_id"
