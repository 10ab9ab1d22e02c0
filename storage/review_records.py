"""Records of what people say of a run and do to it, and of the filters that they keep.

Part of the contract in `records.py`, which offers them with all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What somebody says of a run or of an object in it, or does to the run; never changed, only followed by others."""

    note_id: str
    created_at: datetime  # UTC, without zone
    author: str | None = None
    act: str = "note"  # note, withdraw; to the run: rename, tag, untag, archive, unarchive, delete, restore
    anchor_kind: str = "run"  # run, kernel, fusion_group, refusal, buffer, peak, finding
    anchor: str | None = None  # JSON: what the object is made of, by which other runs know it; None: the run itself
    object_id: str | None = None  # how this run names the object, e.g. "0/0.forward/op3"
    label: str | None = None  # what the object is, in a few words
    verdict: str | None = None  # looks_good, needs_work, regression
    text: str | None = None  # of a note; of other acts their object: the new name, the tag, the note taken back


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedView:
    """A choice of filters of a page under a name; of several under one name the last counts."""

    name: str
    created_at: datetime  # UTC, without zone
    author: str | None = None
    page: str  # path of the page, "" for the runs
    query: str | None = None  # of the address, e.g. "project=search&status=failed"; None: the view was given up
