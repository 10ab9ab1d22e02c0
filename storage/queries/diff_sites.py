"""What became of the places and classes that runs count: breaks, recompiles, refusals by reason, findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from duckdb import DuckDBPyConnection

from fusionscope.storage.findings import RULES
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.changes import Change
from fusionscope.storage.records import Finding


def changes(con: DuckDBPyConnection, before: str, after: str, *, times_changed: bool) -> list[Change]:
    """Breaks, recompiles, refusals and findings that differ; what rests on times only where these changed."""
    counted = [
        change
        for area, sql in (("breaks", _BREAKS), ("recompiles", _RECOMPILES))
        for change in _counted(area, *(con.execute(sql, [run]).fetchall() for run in (before, after)))
    ]
    concluded = _concluded(con, before, after, () if times_changed else _TIMED)
    return [*counted, *_refused(refusals(con, before), refusals(con, after)), *concluded]


def refusals(con: DuckDBPyConnection, run_id: str) -> dict[str, int]:
    """Pairs that were tested and refused in the program's own calls, by torch's reason (see storage/reasons.py)."""
    return dict(con.execute(_REFUSALS, [run_id]).fetchall())


Site = tuple[str, str | None, str]  # what, where, file without the line


def _counted(area: str, old: list[Site], new: list[Site]) -> Iterator[Change]:
    """Sites by what they are and their file: code above them moves their lines."""
    before, after = (Counter((what, file) for what, _, file in sites) for sites in (old, new))
    places = {(what, file): where for what, where, file in (*old, *new)}
    for site in sorted(before.keys() | after.keys()):
        x, y = before[site], after[site]
        if x != y:
            status = "new" if not x else "gone" if not y else "changed"
            yield Change(area, status, site[0], places[site], str(x) if x else None, str(y) if y else None, abs(y - x))


def _refused(old: dict[str, int], new: dict[str, int]) -> list[Change]:
    found = [
        Change(
            "refusals",
            "new" if code not in old else "gone" if code not in new else "changed",
            code,
            before=str(old[code]) if code in old else None,
            after=str(new[code]) if code in new else None,
            weight=abs(new.get(code, 0) - old.get(code, 0)),
        )
        for code in old.keys() | new.keys()
        if old.get(code) != new.get(code)
    ]
    return sorted(found, key=lambda change: (-change.weight, change.what))


def _concluded(con: DuckDBPyConnection, before: str, after: str, uncertain: Collection[str]) -> Iterator[Change]:
    """Findings that failed in one run only; one that failed in both with other numbers is no change."""
    old, new = ({f.code: f for f in records_of(con, Finding, run)} for run in (before, after))
    for code in dict.fromkeys((*new, *old)):
        x, y = old.get(code), new.get(code)
        was, now = (f is not None and f.status == "failed" for f in (x, y))
        if was != now and code not in uncertain:
            title = next(f.title for f in (y, x) if f)
            status = "new" if now else "fixed" if y and y.status == "passed" else "gone"  # gone: cannot be asked
            ids = ((code,) if was else (), (code,) if now else ())
            yield Change("findings", status, title, None, _said(x), _said(y), 0.0, *ids)


def _said(finding: Finding | None) -> str | None:
    return None if finding is None else f"{finding.status.replace('_', ' ')}: {finding.explanation}"


_TIMED = frozenset(rule.code for rule in RULES if rule.timed)

_DRIVE = "(SELECT run_id, compile_id, function FROM compiles WHERE phase = 'drive')"

_BREAKS = f"""
SELECT kind, parse_filename(file) || ':' || line, coalesce(parse_filename(file), '')
FROM graph_breaks JOIN {_DRIVE} USING (run_id, compile_id) WHERE run_id = ? ORDER BY file, line
"""

_RECOMPILES = f"""
SELECT DISTINCT ON (compile_id) coalesce(guard, reason, 'unknown guard'), function, coalesce(function, '')
FROM recompiles JOIN {_DRIVE} USING (run_id, compile_id) WHERE run_id = ? AND outcome = 'done'
ORDER BY compile_id, guard
"""

_REFUSALS = f"""
SELECT coalesce(reason_code, refused_by, 'unknown'), count(DISTINCT (graph_id, a, b))
FROM fusion_decisions JOIN (SELECT run_id, graph_id, compile_id FROM graphs) USING (run_id, graph_id)
JOIN {_DRIVE} USING (run_id, compile_id) WHERE run_id = ? AND verdict = 'refused' GROUP BY ALL
"""
