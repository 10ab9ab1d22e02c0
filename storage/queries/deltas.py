"""What two runs both measured, each as a change, and whether the change stands out of the noise.

Percentiles of one process say nothing about the next: where the loader puts code, what else the machine runs and what
its clock does stay the same for all samples of a process and change between processes (Mytkowicz et al., "Producing
wrong data without doing anything obviously wrong", ASPLOS 2009; Kalibera and Jones, "Rigorous benchmarking in
reasonable time", ISMM 2013: repeat at the level at which it varies). So a change has to pass three tests, each on
recorded samples: the intervals stand apart, the baseline's widened by its repeats (see `repeats`), and they still do
when the later run is set right by how much the other variant of the model, sampled in turn with it, moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.repeats import repeats
from fusionscope.storage.records import Measurement

Range = tuple[float, float]
Key = tuple[str, str, str]  # metric, variant, unit

INSIDE, SHARED, BEYOND = "inside", "shared", "beyond"
FEW = 5  # samples below which there is no tenth percentile to speak of
IN_TURN = {"latency_us", "host_us"}  # sampled in rounds, so that all variants meet the same machine
_NOT_OF_THE_MODEL = {"profiled_us"}  # what profiling costs; of steps in a row, so no round evens it out


@dataclass(frozen=True, slots=True)
class Delta:
    """A quantity measured of one variant in both runs."""

    metric: str
    variant: str
    unit: str
    before: float
    after: float
    before_range: Range | None  # 10–90 % of the samples, over the baseline's repeats as well
    after_range: Range | None
    repeats: int = 0  # other recordings of the baseline that `before_range` covers
    drift: float | None = None  # by what factor the control moved: eager, or compiled where this is eager
    control: str | None = None

    @property
    def noise(self) -> str | None:
        """`inside` the noise, `shared` with the control, `beyond` both; None without intervals, as a count is."""
        if self.before_range is None or self.after_range is None:
            return None
        moved = _direction(self.before_range, self.after_range)
        if not moved:
            return INSIDE
        low, high = (bound / (self.drift or 1.0) for bound in self.after_range)
        return BEYOND if _direction(self.before_range, (low, high)) == moved else SHARED

    @property
    def within_noise(self) -> bool | None:
        """Whether nothing speaks for a change of this variant alone; None where it cannot be told."""
        return None if self.noise is None else self.noise != BEYOND

    @property
    def share(self) -> float | None:
        """The change as a share of what was before."""
        return (self.after - self.before) / self.before if self.before else None


def _direction(before: Range, after: Range) -> int:
    """1 where all of `after` lies above `before`, -1 below, 0 where they overlap."""
    return (after[0] > before[1]) - (after[1] < before[0])


def deltas(con: DuckDBPyConnection, before: str, after: str) -> tuple[Delta, ...]:
    """Quantities that both runs measured in the same unit, eager last: it is the control."""
    old, new = _measured(con, before), _measured(con, after)
    more = [_measured(con, run) for run in repeats(con, before, besides=after)]
    keys = sorted(old.keys() & new.keys(), key=lambda key: (key[1] == "eager", key))
    found = [_delta(key, old[key], new[key], [m[key] for m in more if key in m]) for key in keys]
    return tuple(_controlled(delta, found) for delta in found)


def _measured(con: DuckDBPyConnection, run_id: str) -> dict[Key, Measurement]:
    rows = records_of(con, Measurement, run_id)
    return {(m.metric, m.variant, m.unit): m for m in rows if m.metric not in _NOT_OF_THE_MODEL}


def _delta(key: Key, old: Measurement, new: Measurement, more: list[Measurement]) -> Delta:
    ranges = [found for m in (old, *more) if (found := _range(m))]
    whole = (min(low for low, _ in ranges), max(high for _, high in ranges)) if _range(old) else None
    return Delta(*key, old.median, new.median, whole, _range(new), len(ranges) - 1 if whole else 0)


def _range(m: Measurement) -> Range | None:
    return None if m.p10 is None or m.p90 is None or m.samples < FEW else (m.p10, m.p90)


def _controlled(delta: Delta, others: list[Delta]) -> Delta:
    name = "eager" if delta.variant != "eager" else "compiled"
    same = (d for d in others if (d.metric, d.variant) == (delta.metric, name))
    control = next(same, None) if delta.metric in IN_TURN else None
    if control is None or not control.before or not control.after:
        return delta
    return replace(delta, drift=control.after / control.before, control=name)


def kernel_noise(found: Sequence[Delta]) -> float | None:
    """By how many microseconds the total of a kernel must move to count as changed; None: no time changed.

    A kernel's time has no spread of its own, so it is held to that of the whole: device time where it was measured,
    else latency.
    """
    compiled = {delta.metric: delta for delta in found if delta.variant == "compiled"}
    whole = compiled.get("device_us") or compiled.get("latency_us")
    if whole is None or whole.noise != BEYOND:
        return None
    return max(high - low for low, high in (whole.before_range or (0, 0), whole.after_range or (0, 0)))
