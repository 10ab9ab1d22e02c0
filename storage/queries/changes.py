"""What a comparison of two runs consists of: one row per thing that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusionscope.storage.text import shortened


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is not the same in both runs."""

    area: str  # groups, kernels, memory, breaks, recompiles, refusals, findings, options
    status: str  # new, gone, split, merged, regrouped, changed, fixed (a finding), moved (a peak)
    what: str  # the operators, the guard, the rule, …
    where: str | None = None  # model.py:42
    before: str | None = None  # in words; None: not there
    after: str | None = None
    weight: float = 0.0  # bytes or microseconds: the larger comes first
    objects_before: tuple[str, ...] = ()  # ids in their run, for a link
    objects_after: tuple[str, ...] = ()
    graph: str | None = None  # of the work, in the later run where it has it
    differs: tuple[str, ...] = ()  # what of a kernel: kernels, groups, bytes, registers, spills, occupancy, time


def told_apart(changes: Sequence[Change]) -> tuple[Change, ...]:
    """The changes; where several read the same, each with its graph, or with its own id where that is the same too.

    A function that was compiled again has several graphs, an operator with several results several buffers.
    """
    alike = Counter(map(_reading, changes))
    graphs: Counter[tuple[object, ...]] = Counter((_reading(change), change.graph) for change in changes)
    return tuple(
        replace(change, what=f"{change.what}, {_which(change, graphs)}")
        if change.graph and alike[_reading(change)] > 1
        else change
        for change in changes
    )


def _reading(change: Change) -> tuple[str | None, ...]:
    return change.area, change.status, change.what, change.where


def _which(change: Change, graphs: Counter[tuple[object, ...]]) -> str:
    ids = change.objects_after or change.objects_before
    alone = graphs[_reading(change), change.graph] == 1 or len(ids) != 1
    return f"graph {change.graph}" if alone else shortened(ids[0])


AREAS = {
    "groups": "Fusion groups",
    "kernels": "Kernels",
    "memory": "Alive at the peak of the plan",
    "breaks": "Graph breaks",
    "recompiles": "Recompiles",
    "refusals": "Refused pairs, by reason",
    "findings": "Findings",
    "options": "Options",
}
