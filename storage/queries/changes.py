"""What a comparison of two runs consists of: one row per thing that differs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is not the same in both runs."""

    area: str  # groups, kernels, memory, breaks, recompiles, refusals, findings, options
    status: str  # new, gone, split, merged, regrouped, changed, fixed
    what: str  # the operators, the guard, the rule, …
    where: str | None = None  # model.py:42
    before: str | None = None  # in words; None: not there
    after: str | None = None
    weight: float = 0.0  # bytes or microseconds: the larger comes first
    objects_before: tuple[str, ...] = ()  # ids in their run, for a link
    objects_after: tuple[str, ...] = ()


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
