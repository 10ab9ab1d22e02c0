"""Fusion as it went: the final groups, made again from single scheduler nodes one step at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch


@dataclass(frozen=True, slots=True)
class Fusion:
    """A step in which groups became one.

    Besides the pairs that the scheduler fused there are groups that a pass makes in one go: foreach operations before
    the first round (round 0) and combo kernels after the last. Those have no `order_taken`.
    """

    round: int  # from 1 for fused pairs
    order_taken: int | None  # fused as the n-th pair of the graph, from 0
    a: str  # a group, or a scheduler node
    b: str
    result: str
    others: tuple[str, ...] = ()  # further members of a foreach or combo group


@dataclass(frozen=True, slots=True)
class _Group:
    """A final group."""

    group_id: str
    kind: str | None
    members: tuple[str, ...]


def rounds(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Fusion]:
    """The steps from single scheduler nodes to the final groups, in the order in which they were taken."""
    fused = fetch(con, Fusion, _FUSED, [run_id, graph_id])
    final = fetch(con, _Group, _FINAL, [run_id, graph_id])
    steps = [*_foreach(fused, final), *fused]
    before_combo = groups_after([member for group in final for member in group.members], steps, len(steps))
    return [*steps, *_combos(before_combo, final, fused)]


def groups_after(members: Iterable[str], fusions: Sequence[Fusion], n: int) -> dict[str, tuple[str, ...]]:
    """The groups after the first `n` of the graph's steps: name → its scheduler nodes. `members` are all nodes."""
    groups: dict[str, tuple[str, ...]] = {member: (member,) for member in members}
    for step in fusions[:n]:
        parts = (step.a, step.b, *step.others)
        groups[step.result] = tuple(member for part in parts for member in groups.pop(part))
    return groups


def _foreach(fused: Iterable[Fusion], final: Iterable[_Group]) -> Iterator[Fusion]:
    """Groups of several nodes that exist before any pair is fused (Scheduler.create_foreach_nodes).

    Their names join those of their members by "_": op0_op1.
    """
    made = {step.result for step in fused}
    used = [name for step in fused for name in (step.a, step.b)]
    used += [group.group_id for group in final if group.kind == "foreach"]
    for name in dict.fromkeys(used):
        parts = name.split("_")
        if name not in made and len(parts) > 1:
            yield Fusion(0, None, parts[0], parts[1], name, tuple(parts[2:]))


def _combos(groups: dict[str, tuple[str, ...]], final: Iterable[_Group], fused: Iterable[Fusion]) -> Iterator[Fusion]:
    """Groups that no fusion made (Scheduler.create_combo_kernel_nodes)."""
    after = max((step.round for step in fused), default=0) + 1
    for group in final:
        if group.group_id not in groups:
            parts = [name for name, members in groups.items() if set(members) <= set(group.members)]
            yield Fusion(after, None, parts[0], parts[1], group.group_id, tuple(parts[2:]))


_FUSED = """
SELECT round, order_taken, a, b, result FROM fusion_decisions
WHERE run_id = $1 AND graph_id = $2 AND verdict = 'fused' ORDER BY order_taken
"""

_FINAL = """
SELECT group_id, kind, members FROM fusion_groups WHERE run_id = $1 AND graph_id = $2 ORDER BY position
"""
