"""Budgets: by how much a run may be worse than its baseline, read from words and judged on a comparison."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fusionscope.storage.database import StorageError
from fusionscope.storage.queries.deltas import INSIDE, SHARED
from fusionscope.storage.queries.diff import Diff
from fusionscope.storage.text import bytes_, count, microseconds

_TIMES = {"us": 1.0, "ms": 1e3, "s": 1e6}
_SIZES = {"B": 1.0, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3}
_UNITS: dict[str, dict[str, float]] = {"latency": _TIMES, "peak": _SIZES, "spills": _SIZES}
METRICS = ("latency", "peak", "kernels", "spills", "breaks", "recompiles", "refusals", "findings")
_WORDS = re.compile(r"\s*([a-z]+)(?:\.(\w+))?\s*>\s*(\d+(?:\.\d+)?)\s*(%|[A-Za-z]+)?\s*")
CLASSED = ("refusals", "findings")


@dataclass(frozen=True, slots=True)
class Budget:
    """By how much a quantity may rise over the baseline's, in its own unit or as a share of it."""

    text: str
    metric: str
    of: str | None  # a class of refusals, the code of a finding; None: all of them
    limit: float  # microseconds, bytes or a count; of a share 0.05 is 5 %
    is_share: bool

    def allows(self, before: float, after: float) -> bool:
        """Whether `after` is within the budget."""
        return after - before <= (self.limit * before if self.is_share else self.limit)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of a budget. What cannot be told does not pass: a gate must not open for want of evidence."""

    budget: str
    passed: bool
    reason: str


def parse(text: str) -> Budget:
    """Read `peak>5%`, `latency>200us`, `refusals.fusion_cap>0`; raises StorageError saying what is wrong."""
    found = _WORDS.fullmatch(text)
    if found is None:
        raise StorageError(f"{text!r:.80} is no budget: write for example peak>5%, kernels>0 or latency>200us.")
    metric, of, number, unit = found.groups()
    if metric not in METRICS:
        raise StorageError(f"{text!r:.80} asks about {metric!r}: budgets are for {', '.join(METRICS)}.")
    if of and metric not in CLASSED:
        raise StorageError(f"{text!r:.80} names a part of {metric}, but only {' and '.join(CLASSED)} have parts.")
    units = _UNITS.get(metric, {}) | ({} if metric == "findings" else {"%": 0.01})
    if unit and unit not in units:
        raise StorageError(f"{text!r:.80} has the unit {unit!r}: {metric} takes {', '.join(units) or 'a count'}.")
    if not unit and metric == "latency":
        raise StorageError(f"{text!r:.80} has no unit: {metric} takes {', '.join(units)}.")
    return Budget(text.strip(), metric, of, float(number) * units.get(unit or "", 1.0), unit == "%")


def read_policy(path: Path) -> list[Budget]:
    """The budgets of a TOML file: `fail-on = ["peak>5%", …]`; raises StorageError."""
    try:
        policy = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(f"The policy {path} cannot be read: {error}.") from error
    budgets = policy.pop("fail-on", None)
    if policy or not isinstance(budgets, list) or not all(isinstance(text, str) for text in budgets):
        raise StorageError(f'The policy {path} should hold one line such as fail-on = ["peak>5%", "breaks>0"].')
    return [parse(text) for text in budgets]


def judge(diff: Diff, budget: Budget) -> Judgement:
    """Whether the later run keeps within the budget, with the numbers."""
    before, after, remark = _QUANTITIES[budget.metric](diff, budget.of)
    if before is None or after is None:
        which = "either run" if before is None and after is None else "the baseline" if before is None else "the run"
        return Judgement(budget.text, False, f"cannot be told: {_named(budget)} is not recorded of {which}")
    form = _FORMS.get(budget.metric, count)
    numbers = f"{_named(budget)} {form(before)} → {form(after)}{_share(before, after)}{remark}"
    if budget.metric == "latency" and (latency := diff.delta("latency_us")) and latency.noise in _NOISE:
        return Judgement(budget.text, True, f"{numbers}, {_NOISE[latency.noise]}")
    if budget.allows(before, after):
        return Judgement(budget.text, True, numbers)
    return Judgement(budget.text, False, f"{numbers} is beyond the budget {budget.text}")


def _named(budget: Budget) -> str:
    return f"{budget.metric} ({budget.of})" if budget.of else budget.metric


def _share(before: float, after: float) -> str:
    return f" ({(after - before) / before:+.1%})" if before and after != before else ""


Quantity = tuple[float | None, float | None, str]  # before, after, what is to be said of them


def _latency(diff: Diff, _: str | None) -> Quantity:
    delta = diff.delta("latency_us")
    return (delta.before, delta.after, " measured") if delta else (None, None, "")


def _peak(diff: Diff, _: str | None) -> Quantity:
    """The measured peak where both runs have one, else that of the plan."""
    delta = diff.delta("peak_bytes")
    if delta:
        return delta.before, delta.after, " measured"
    return diff.before.plan_peak_bytes, diff.after.plan_peak_bytes, " by the plan"


def _refusals(diff: Diff, of: str | None) -> Quantity:
    counts = [sum(side.values()) if of is None else side.get(of, 0) for side in diff.refusals]
    return counts[0], counts[1], ""


def _findings(diff: Diff, of: str | None) -> Quantity:
    """Findings that are new: one that is gone does not pay for another."""
    found = [code for c in diff.changes if (c.area, c.status) == ("findings", "new") for code in c.objects_after]
    new = sorted(code for code in found if of in (None, code))
    return 0, len(new), f" new: {', '.join(new)}" if new else ""


def _headline(name: str) -> Callable[[Diff, str | None], Quantity]:
    return lambda diff, _: (getattr(diff.before, name), getattr(diff.after, name), "")


_NOISE = {
    INSIDE: "inside the noise: the 10–90 % intervals overlap",
    SHARED: "which is no change of the compiled code: eager code, sampled in turn with it, moved alike",
}
_QUANTITIES: dict[str, Callable[[Diff, str | None], Quantity]] = {
    "latency": _latency,
    "peak": _peak,
    "kernels": _headline("kernel_calls"),
    "spills": _headline("spill_bytes"),
    "breaks": _headline("breaks"),
    "recompiles": _headline("recompiles"),
    "refusals": _refusals,
    "findings": _findings,
}
_FORMS: dict[str, Callable[[float | None], str | None]] = {"latency": microseconds, "peak": bytes_, "spills": bytes_}
