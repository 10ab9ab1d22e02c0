"""Contests between the candidates for one operation, by the objects that stand for them (ir.ChoiceCaller).

A contest may end long after it was set up, in the scheduler or in another thread; the candidate itself is what both
ends know.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Seat:
    """A candidate's place: its graph, its contest within the recording, its position in Inductor's list."""

    graph_id: str
    contest: int
    position: int


_numbers = itertools.count()
_seats: weakref.WeakKeyDictionary[Any, Seat] = weakref.WeakKeyDictionary()


def begin(graph_id: str, candidates: Sequence[Any]) -> int:
    """Seat the candidates of a new contest; returns its number."""
    contest = next(_numbers)
    for position, candidate in enumerate(candidates):
        _seats[candidate] = Seat(graph_id, contest, position)
    return contest


def seat(candidate: Any) -> Seat | None:
    """Where a candidate sits; None for one that was never listed."""
    return _seats.get(candidate)
