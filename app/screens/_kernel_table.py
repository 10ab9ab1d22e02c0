"""The table of kernels with inline bars, and the sentence that sums it up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import streamlit as st

from fusionscope.app import style
from fusionscope.app.figures.kernel_scatter import MOST_REGISTERS
from fusionscope.app.table import table
from fusionscope.storage.queries.rooflines import Judged
from fusionscope.storage.queries.runs import RunSummary

NAME_CHARS = 36
FEW = 0.8  # of the time: how few kernels take that much


def operations(count: float | None) -> str:
    """A count of operations as k, M, G, T."""
    if count is None:
        return style.MISSING
    exponent = max(0, min(4, int(math.log10(max(count, 1)) // 3)))
    return f"{style.number(count / 1000**exponent)} {'kMGT'[exponent - 1] if exponent else ''}".strip()


FORMATS = {
    "groups": style.number,
    "ops": style.number,
    "one call": style.duration,
    "total": style.duration,
    "at least": style.duration,
    "calls": style.number,
    "moves": style.size,
    "reads": style.size,
    "writes": style.size,
    "flops": operations,
    "spills": style.size,
}


def _bar(title: str, most: float, form: str) -> Any:
    return st.column_config.ProgressColumn(title, min_value=0, max_value=most, format=form, width=92)


def opening(run: RunSummary, kernels: Sequence[Judged]) -> str:
    """The sentence of the screen: how few kernels take most of the time, and how many spill."""
    ranked = [k for k in kernels if k.weight_us is not None]
    timed = [k for k in ranked if k.row.total_us is not None]
    if timed:
        what = "device time" if run.device_kind == "cuda" else "the time"
        answer = f"{_few(timed)} {what}, {style.duration(_weight(timed))} a call of the model"
    elif ranked:
        least = f"A call needs at least {style.duration(_weight(ranked))} on {_article(run.device_name)}"
        rest = sum(k.row.kernel_id is not None for k in kernels) - len(ranked)
        unknown = f", of {rest} more the bytes are not known" if rest else ""
        answer = f"{least} (a lower bound, no prediction); {_few(ranked)} it{unknown}"
    else:
        answer = _untimed(kernels)
    return f"{answer[0].upper()}{answer[1:]}{_spilling(kernels)}."


def _weight(kernels: Sequence[Judged]) -> float:
    return sum(k.weight_us or 0.0 for k in kernels)


def _few(kernels: Sequence[Judged]) -> str:
    """`3 of 17 kernels take 81 % of`; `kernels` are ranked."""
    weights = [k.weight_us or 0.0 for k in kernels]
    few = next(n for n in range(1, len(weights) + 1) if sum(weights[:n]) >= FEW * sum(weights))
    share = style.percent(sum(weights[:few]) / sum(weights)) if sum(weights) else style.MISSING
    if len(kernels) == 1:
        return "one kernel takes all of"
    return f"{few} of {len(kernels)} kernels {'takes' if few == 1 else 'take'} {share} of"


def _untimed(kernels: Sequence[Judged]) -> str:
    calls = style.plural(sum(k.row.calls for k in kernels), "call")
    heaviest = max(kernels, key=lambda k: k.row.moved or 0)
    moved = f"; {heaviest.row.name} moves the most in one call, {style.size(heaviest.row.moved)}"
    return f"{calls} of {style.plural(len(kernels), 'kernel')}, not timed" + (moved if heaviest.row.moved else "")


def _spilling(kernels: Sequence[Judged]) -> str:
    """How many kernels spill registers; nothing where that is not known of any."""
    known = [k.row.spill_bytes for k in kernels if k.row.spill_bytes is not None]
    spilling = [count for count in known if count]
    if not spilling:
        return "; none spills" if known else ""
    return (
        f"; {len(spilling)} {'spills' if len(spilling) == 1 else 'spill'}, up to {style.size(max(spilling))} a thread"
    )


def _article(name: str | None) -> str:
    return f"{'an' if (name or ' ')[0] in 'AHM' else 'a'} {name}"


def made_of(kernels: Sequence[Judged]) -> str:
    """What there is to see: calls, generated kernels, library kernels."""
    known = [k.row for k in kernels if k.row.kernel_id]
    library = sum(row.backend == "extern" for row in known)
    made, called = style.plural(len(known) - library, "generated kernel"), style.plural(library, "library kernel")
    return f"{style.plural(sum(row.calls for row in known), 'call')} of {made} and {called}"


def kernel_table(kernels: Sequence[Judged], key: str) -> int | None:
    """Every kernel, heaviest first, without the columns that nothing is known for; returns the row that was clicked."""
    total = _weight([k for k in kernels if k.row.total_us is not None]) or _weight(kernels)
    compared = any(k.of_bandwidth is not None for k in kernels)
    fastest = max((k.gbps or 0.0 for k in kernels), default=0.0)
    lines = [_line(kernel, total, compared) for kernel in kernels]
    known = [column for column in lines[0] if any(line[column] is not None for line in lines)]
    if len({line["graph"] for line in lines} - {None}) == 1:
        known.remove("graph")
    return table(
        [{column: line[column] for column in known} for line in lines],
        FORMATS,
        key=key,
        choose=True,
        config={
            "kernel": {"width": 250},
            "share": _bar("share", 100, "%.1f %%"),
            "registers": _bar("registers", MOST_REGISTERS, "%d"),
            "occupancy": _bar("occupancy", 100, "%.0f %%"),
            "bandwidth": _bar("bandwidth", 100, "%.0f %%") if compared else _bar("bandwidth", fastest, "%.1f GB/s"),
        },
        colours={"spills": [style.gain_colour(False) if k.row.spill_bytes else None for k in kernels]}
        if "spills" in known
        else {},
    )


def _line(kernel: Judged, total: float, compared: bool) -> dict[str, object]:
    """A kernel as a line of the table; figures stay numbers so that they sort."""
    row = kernel.row
    weight = row.total_us if row.total_us is not None else kernel.least_us
    return {
        "kernel": style.short(row.name, NAME_CHARS),
        "share": _hundredfold(weight / total) if weight is not None and total else None,
        "total": row.total_us,
        "one call": row.call_us,
        "at least": kernel.bound.us if kernel.bound else None,
        "registers": row.registers,
        "spills": row.spill_bytes,
        "occupancy": _hundredfold(row.occupancy),
        "limited by": row.occupancy_limit,
        "bandwidth": _hundredfold(kernel.of_bandwidth) if compared else kernel.gbps,
        "calls": row.calls,
        "moves": row.moved,
        "reads": row.bytes_read,
        "writes": row.bytes_written,
        "flops": row.flops,
        "backend": row.backend,
        "groups": row.groups,
        "ops": row.ops,
        "configurations": row.configs and f"{row.configs}{'' if row.decided else ', undecided'}",
        "graph": row.graph_id,
    }


def _hundredfold(share: float | None) -> float | None:
    return None if share is None else 100 * share
