"""Tables of what was decided before lowering and beside it, one tab each: passes, partition, symbols, hints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fusionscope.app import data, style
from fusionscope.app.screens._absence import absence
from fusionscope.app.table import table
from fusionscope.storage.queries import compile
from fusionscope.storage.queries.runs import RunSummary


@dataclass(frozen=True, slots=True)
class Facts:
    """A tab: what it asks, which fields it shows, and what an empty answer means."""

    title: str
    query: Callable[..., list[Any]]
    columns: Sequence[str]
    hooks: tuple[str, ...]
    nothing: str


FORMATS = {
    "bytes": style.size,
    "duration_s": style.seconds,
} | dict.fromkeys(("count", "nodes_added", "nodes_removed"), style.number)

TABS = (
    Facts(
        "Passes",
        compile.pass_changes,
        (
            "graph_id",
            "pass_name",
            "pattern",
            "outcome",
            "count",
            "nodes_added",
            "nodes_removed",
            "duration_s",
            "reason",
        ),
        ("graph_passes", "pattern_matches"),
        "No pass changed a graph.",
    ),
    Facts(
        "Saved for backward",
        compile.partition_choices,
        ("graph_id", "node", "bytes", "saved", "recomputed", "banned", "is_input", "budget", "reason"),
        ("partition",),
        "Nothing was partitioned: no gradients were asked for.",
    ),
    Facts(
        "Symbols",
        compile.symbols,
        ("compile_id", "symbol", "source", "hint", "range", "specialised_to", "reason", "file", "line"),
        ("trace_stream",),
        "No size was dynamic.",
    ),
    Facts(
        "Side effects",
        compile.side_effects,
        ("compile_id", "kind", "target", "file", "line"),
        ("trace_stream",),
        "Nothing beyond the frames was changed.",
    ),
    Facts(
        "Hints",
        compile.perf_hints,
        ("graph_id", "node", "text"),
        ("perf_hints",),
        "torch gave no hint about performance.",
    ),
    Facts(
        "CUDA graphs",
        compile.cudagraph_events,
        ("graph_id", "event", "count", "reason", "file", "line", "duration_s"),
        ("cudagraph_skips", "trace_stream"),
        "No CUDA graph was asked for.",
    ),
)


def early_decisions(run: RunSummary) -> None:
    """The tabs, each with its number of rows."""
    answers = [data.ask(facts.query, run.run_id) for facts in TABS]
    sides = {
        f"{facts.title} ({len(rows)})": partial(_show, run, facts, rows)
        for facts, rows in zip(TABS, answers, strict=True)
    }
    style.tabs(sides, f"early-{run.run_id}")


def _show(run: RunSummary, facts: Facts, rows: list[Any]) -> None:
    if not rows:
        absence(run, facts.hooks, facts.nothing, f"no-{facts.title}")
        return
    lines = [{_title(name): getattr(row, name) for name in facts.columns} for row in rows]
    table(lines, {_title(name): form for name, form in FORMATS.items()}, key=f"facts-{facts.title}")


def _title(field: str) -> str:
    """`nodes added` for nodes_added, `graph` for graph_id, `duration` for duration_s."""
    return field.removesuffix("_id").removesuffix("_s").replace("_", " ")
