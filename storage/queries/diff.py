"""Two runs side by side: what makes them incomparable, what was measured, and only what differs in the decisions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from duckdb import DuckDBPyConnection

from fusionscope.storage.database import StorageError
from fusionscope.storage.queries import diff_memory, diff_sites, diff_work
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.changes import Change, told_apart
from fusionscope.storage.queries.deltas import Delta, deltas, kernel_noise
from fusionscope.storage.queries.runs import RunSummary, run_summary
from fusionscope.storage.records import Run


@dataclass(frozen=True, slots=True)
class Incomparable:
    """A circumstance in which the runs differ, and what it takes from the comparison."""

    what: str
    before: str
    after: str
    spoils: str


@dataclass(frozen=True, slots=True)
class Diff:
    """Run `after` against the baseline `before`."""

    before: RunSummary
    after: RunSummary
    incomparable: tuple[Incomparable, ...]
    deltas: tuple[Delta, ...]  # of every quantity that both runs measured
    changes: tuple[Change, ...]  # only what differs, by area, the weightiest first
    refusals: tuple[dict[str, int], dict[str, int]]  # pairs refused in each run, by class

    def delta(self, metric: str, variant: str = "compiled") -> Delta | None:
        """The change of one quantity; None where a run did not measure it."""
        return next((d for d in self.deltas if (d.metric, d.variant) == (metric, variant)), None)


def diff(con: DuckDBPyConnection, before: str, after: str) -> Diff:
    """Compare two runs; raises StorageError where one is missing."""
    a, b = _summary(con, before), _summary(con, after)
    found = deltas(con, before, after)
    noise_us = kernel_noise(found)
    sites = diff_sites.changes(con, before, after, times_changed=noise_us is not None)
    return Diff(
        before=a,
        after=b,
        incomparable=_incomparable(con, before, after),
        deltas=found,
        changes=told_apart(
            [
                *diff_work.changes(con, before, after, noise_us),
                *diff_memory.changes(con, before, after),
                *sites,
                *_options(con, before, after),
            ]
        ),
        refusals=(diff_sites.refusals(con, before), diff_sites.refusals(con, after)),
    )


def _summary(con: DuckDBPyConnection, run_id: str) -> RunSummary:
    found = run_summary(con, run_id)
    if found is None:
        raise StorageError(f"There is no run {run_id!r:.80}.")
    return found


TIMES, MEASURED, ALL = "times", "measured times and memory", "everything"

_CIRCUMSTANCES: dict[str, tuple[Callable[[Run], object], str]] = {
    "GPU or processor": (lambda run: run.device_name or run.device_kind, f"{MEASURED}, if there are any"),
    "kind of device": (lambda run: run.device_kind, ALL),
    "model": (lambda run: _file(run) or run.name, ALL),
    "torch": (lambda run: run.torch_version, "nothing, if the upgrade is the question"),
    "Triton": (lambda run: run.triton_version, "nothing, if the upgrade is the question"),
    "mode": (lambda run: run.mode or "default", "nothing, if the mode is the question"),
    "dynamic": (lambda run: "left to torch" if run.dynamic is None else run.dynamic, ALL),
    "threads": (lambda run: run.threads, TIMES),
    "float32 products": (lambda run: run.fp32_matmul, MEASURED),
    "processes": (lambda run: run.world_size or 1, ALL),
    "FX graph cache": (lambda run: run.fx_cache, "compile times; decisions of cached graphs are those of another run"),
    "kernel cache": (lambda run: run.kernel_cache, "compile times"),
    "state of the run": (lambda run: run.status, ALL),
    "host": (lambda run: run.host, TIMES),
}


def _incomparable(con: DuckDBPyConnection, before: str, after: str) -> tuple[Incomparable, ...]:
    (a,), (b,) = records_of(con, Run, before), records_of(con, Run, after)
    pairs = ((what, of(a), of(b), spoils) for what, (of, spoils) in _CIRCUMSTANCES.items())
    shapes = ("shapes of the inputs", _shapes(con, before), _shapes(con, after), ALL)
    return tuple(
        Incomparable(what, str(x), str(y), spoils)
        for what, x, y, spoils in (*pairs, shapes)
        if x is not None and y is not None and x != y
    )


def _shapes(con: DuckDBPyConnection, run_id: str) -> str | None:
    return ", ".join(text for (text,) in con.execute(_SHAPES, [run_id]).fetchall()) or None


def _options(con: DuckDBPyConnection, before: str, after: str) -> list[Change]:
    """What the runs were recorded with, and the commit."""
    old, new = (_asked(records_of(con, Run, run)[0]) for run in (before, after))
    return [
        Change("options", "changed", name, before=old.get(name), after=new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def _file(run: Run) -> str | None:
    """The recorded file, without its folders: two checkouts of a model are the same model."""
    return run.source_path and PurePath(run.source_path).name


def _asked(run: Run) -> dict[str, str]:
    """What the run was recorded with, by name; the options of torch.compile each by its own."""
    try:
        given = json.loads(run.options or "{}")
    except ValueError:
        given = {}
    given = given if isinstance(given, dict) else {}
    given = {name: value for name, value in given.items() if name not in _CIRCUMSTANCE}
    options = {f"option {key}": value for key, value in _pairs(given.pop("options", None))}
    commit = run.git_commit and run.git_commit[:12] + (" with changes" if run.git_dirty else "")
    facts = {**given, **options, "commit": commit, "file": _file(run)}
    return {name: str(value) for name, value in facts.items() if value is not None}


_CIRCUMSTANCE = ("gpu", "device", "mode", "dynamic")  # told above: what makes the runs incomparable


def _pairs(options: object) -> list[tuple[str, object]]:
    """The key and value of each; nothing for what another version wrote in another form."""
    pairs = options if isinstance(options, list) else []
    return [(str(pair[0]), pair[1]) for pair in pairs if isinstance(pair, list) and len(pair) == 2]


# Inputs as Dynamo captured them, weights aside; each graph's in order.
_SHAPES = """
SELECT format('{} {}', b.dtype, '[' || array_to_string(b.shape, ', ') || ']') AS text
FROM buffers b JOIN graphs g USING (run_id, graph_id)
LEFT JOIN (SELECT run_id, compile_id, phase FROM compiles) c USING (run_id, compile_id)
WHERE run_id = ? AND category = 'input' AND direction <> 'backward' AND coalesce(phase, 'drive') = 'drive'
ORDER BY g.position, text
"""
