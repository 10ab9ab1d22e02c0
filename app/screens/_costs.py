"""Where the time of a call went: the waterfall from eager to compiled, and the rows that add up to both."""

from __future__ import annotations

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.waterfall import TOP, begin_of, name_of, waterfall
from fusionscope.app.table import table
from fusionscope.storage.queries import costs
from fusionscope.storage.queries.costs import GROUPINGS, CostRow, Coverage

FEW = 3  # rows


def show_waterfall(run_id: str, by: str | None = None) -> bool:
    """The picture alone; False where nothing was attributed."""
    by = by or grouping(run_id)
    rows = data.ask(costs.rows, run_id, by)
    if not rows or not any(row.compiled_us for row in rows):
        return False
    st.plotly_chart(waterfall(rows), config=style.PLOT, key=f"waterfall-{by}")
    begin = begin_of(rows)
    cropped = f" The axis begins at {style.duration(begin)}, not at zero." if begin else ""
    largest = f"the {TOP} largest changes" if len(rows) > TOP else "every change"
    style.note(
        f"Kernel time of one call, {largest} by {by}. Eager's kernels are measured; a fused kernel's time is shared "
        f"among its operators by the bytes and operations of each, an estimate.{cropped}",
        f"waterfall-{by}",
    )
    return True


def grouping(run_id: str) -> str:
    """Kinds of modules, or operators where the model has too few modules to tell anything."""
    modules = data.ask(costs.rows, run_id, "kind of module")
    return "kind of module" if len(modules) >= FEW else "operator"


def show_costs(run_id: str) -> None:
    """The section of the comparison screen: picture, choice of level, table and coverage."""
    style.section("Where the time went", "costs")
    usual = grouping(run_id)
    by = st.segmented_control("By", list(GROUPINGS), default=usual, key="costs-by", label_visibility="collapsed")
    by = by or usual
    if not show_waterfall(run_id, by):
        style.not_recorded("no kernel of this run was both timed and attributed to a module", "costs")
        return
    rows = data.ask(costs.rows, run_id, by)
    table([_row(row) for row in rows], _FORMATS, key="costs")
    style.note(" ".join(map(_covered, data.ask(costs.coverage, run_id))), "coverage-costs")


_FORMATS = {
    "eager": style.duration,
    "compiled": style.duration,
    "gain": lambda us: style.signed(style.duration(None if us is None else abs(us)), us),
    "eager's kernel calls": style.number,
    "kernels of compiled code": style.number,
}


def _row(row: CostRow) -> dict[str, object]:
    return {
        "what": name_of(row),
        "eager": row.eager_us,
        "compiled": row.compiled_us,
        "gain": row.gain_us,
        "estimate": "shared" if row.estimated else "",
        "eager's kernel calls": row.eager_kernels,
        "kernels of compiled code": len(row.kernel_ids) or (None if row.compiled_us else 0),
        "source": style.source_line(row.file, row.line),
    }


def _covered(part: Coverage) -> str:
    """How much of a variant's kernels the rows hold, and what the profiler added."""
    rows = f"{part.variant}: the rows hold {style.percent(part.covered)} of {style.duration(part.total_us)} of kernels"
    if not part.profiled_us or not part.latency_us:
        return f"{rows}."
    ratio = style.ratio(part.profiled_us / part.latency_us)
    calls = f"{style.duration(part.profiled_us)} with the profiler and {style.duration(part.latency_us)} without"
    return f"{rows}; a call takes {calls}, {ratio}."
