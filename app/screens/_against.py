"""This run's kernels against another run's: another GPU, another torch or Triton, other code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.table import table
from fusionscope.storage.queries.kernel_match import Match, kernel_matches
from fusionscope.storage.queries.rooflines import Judged
from fusionscope.storage.queries.runs import RunSummary

NAME_CHARS = 44
LISTED = 4  # operators
NAMED = 2  # splits that the sentence names
RESOURCES = {"registers", "spills", "occupancy"}
WIDTHS = {"computes": {"width": 230}, "differs": {"width": 130}}


def choose_other(run: RunSummary) -> RunSummary | None:
    """The run in `?against=`, with a picker: runs of the same name come first."""
    others = [other for other in data.run_choice() if other.run_id != run.run_id and other.kernel_calls]
    if not others:
        return None
    ranked = sorted(others, key=lambda other: other.name != run.name)
    asked = st.query_params.get("against")
    shown = next((other for other in ranked if other.run_id == asked), None)
    chosen = st.selectbox(
        "Against",
        ranked,
        ranked.index(shown) if shown else None,
        format_func=lambda other: title(other, run),
        placeholder="Against another run …",
        key=f"against-{run.run_id}-{asked}",
        label_visibility="collapsed",
        width=300,
    )
    if chosen != shown:
        if chosen is None:
            del st.query_params["against"]
        else:
            st.query_params["against"] = chosen.run_id
        st.rerun()
    return shown


def title(other: RunSummary, run: RunSummary) -> str:
    """What tells a run from `run`: its name where that is another, device, torch, moment."""
    name = other.name if other.name != run.name else None
    return " · ".join(filter(None, (name, other.device_name, other.torch_version, f"{other.created_at:%d %b %H:%M}")))


def difference(run: RunSummary, other: RunSummary) -> None:
    """The sentence and the table, a line per piece of work: what differs first."""
    matches = data.ask(kernel_matches, run.run_id, other.run_id)
    here, there = labels(run, other)
    style.section(f"{here} against {there}", "against")
    style.note(summed_up(matches, here, there), "against-sum")
    every = st.toggle("Also what is the same", key="same", bind="query-params")
    shown = [match for match in matches if every or match.differs]
    if not shown:
        return
    table([_line(match, here, there) for match in shown], key=f"against-{run.run_id}-{other.run_id}", config=WIDTHS)
    style.note(
        "A line is work that both runs do, found by operators and source lines, not by kernel names. Figures of "
        f"several kernels stand in their order: {here} → {there}. at least: lower bound of all calls.",
        "against-how",
    )


def labels(run: RunSummary, other: RunSummary) -> tuple[str, str]:
    """A short name for each: the device where it differs, else torch's version, else the name, else the moment."""
    torches = [f"torch {version}" for version in (run.torch_version, other.torch_version) if version]
    for here, there in (
        (run.device_name, other.device_name),
        (torches[0], torches[-1]) if torches else (None, None),
        (run.name, other.name),
    ):
        if here and there and here != there:
            return here, there
    return f"{run.created_at:%d %b %H:%M:%S}", f"{other.created_at:%d %b %H:%M:%S}"


def summed_up(matches: Sequence[Match], here: str, there: str) -> str:
    """`1 kernel on A100, 3 on H100; 1 piece of work differs: 1 → 3 kernels for softmax at model.py:4.`"""
    count = [sum(len(side) for side in sides) for sides in zip(*((m.a, m.b) for m in matches), strict=True)]
    start = f"{style.plural(count[0], 'kernel')} on {here}, {style.number(count[1])} on {there}"
    differing = [match for match in matches if match.differs]
    if not differing:
        return f"{start}: each does the same work with the same resources."
    verb = "differs" if len(differing) == 1 else "differ"
    clauses = ", ".join(_clauses(differing, here, there))
    return f"{start}; {style.plural(len(differing), 'piece')} of work {verb}: {clauses}."


def _clauses(differing: Sequence[Match], here: str, there: str) -> Iterator[str]:
    split = [m for m in differing if m.a and m.b and len(m.a) != len(m.b)]
    yield from (f"{len(m.a)} → {len(m.b)} kernels for {computes(m)}" for m in split[:NAMED])
    if len(split) > NAMED:
        yield f"{len(split) - NAMED} more split otherwise"
    for side, count in ((here, sum(not m.b for m in differing)), (there, sum(not m.a for m in differing))):
        if count:
            yield f"{count} only on {side}"
    if resources := sum(bool(RESOURCES.intersection(m.differs)) for m in differing):
        yield f"{resources} with other registers, spills or occupancy"
    if work := sum(bool({"groups", "bytes"}.intersection(m.differs)) for m in differing if len(m.a) == len(m.b)):
        yield f"{work} of other groups or bytes"


def computes(match: Match) -> str:
    """`amax, exp, … at model.py:4`: the operators of both sides and the line of the first."""
    ops = sorted(match.ops, key=lambda op: (op.direction, op.file, op.line, op.target))
    names = list(dict.fromkeys(_operator(op.target) for op in ops))
    places = [f"{op.file}:{op.line}" for op in ops if op.file]
    listed = ", ".join(names[:LISTED]) + ("…" if len(names) > LISTED else "")
    return f"{listed or 'unknown work'}{f' at {places[0]}' if places else ''}"


def _operator(target: str) -> str:
    """`add` for aten.add.Tensor."""
    _, _, after = target.partition(".")
    return (after or target).partition(".")[0]


def _line(match: Match, here: str, there: str) -> dict[str, object]:
    first = next((op for op in match.ops if op.file), None)
    return {
        "computes": computes(match).partition(" at ")[0],
        "source": style.source_line(first.file, first.line) if first else None,
        "differs": ", ".join(match.differs),
        "kernels": f"{len(match.a)} → {len(match.b)}" if len(match.a) != len(match.b) else str(len(match.a)),
        "registers": _both(match, lambda k: style.number(k.row.registers)),
        "spills": _both(match, lambda k: style.size(k.row.spill_bytes)),
        "occupancy": _both(match, lambda k: style.percent(k.row.occupancy)),
        "moves": _both(match, lambda k: style.size(k.row.moved)),
        "at least": _both(match, lambda k: style.duration(k.least_us)),
        "total": _both(match, lambda k: style.duration(k.row.total_us)),
        "groups": _both(match, lambda k: style.number(k.row.groups)),
        "limited by": _both(match, lambda k: k.row.occupancy_limit or style.MISSING),
        "matched by": match.matched_by,
        f"on {here}": _each(match.a, lambda k: style.short(k.row.name, NAME_CHARS)),
        f"on {there}": _each(match.b, lambda k: style.short(k.row.name, NAME_CHARS)),
    }


def _each(side: Sequence[Judged], of: Callable[[Judged], str]) -> str:
    return ", ".join(map(of, side)) or "none"


def _both(match: Match, of: Callable[[Judged], str]) -> str:
    """`71 → 54`; a value that both sides share stands once."""
    before, after = _each(match.a, of), _each(match.b, of)
    return before if before == after else f"{before} → {after}"
