"""One kernel from all sides: source, operators, decisions, configurations, machine code, calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.candidates import Candidate, candidates_figure
from fusionscope.app.screens._absence import absence
from fusionscope.app.screens._contests import margin
from fusionscope.app.screens._why import computed
from fusionscope.app.table import table
from fusionscope.storage.queries import compare, fusion, kernels
from fusionscope.storage.queries.fusion import Decision
from fusionscope.storage.queries.kernels import Call, KernelOp, KernelRow
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.records import KernelCode, KernelConfig

ORIGINS = {"register_pressure": "added: fewer registers"}
LANGUAGES = {"cpp": "cpp", "triton": "python", "template": "python", "user": "python"}
TEXTS = {"ptx": "PTX", "amdgcn": "AMDGCN", "sass": "SASS"}
CODE_PX, CODE_LINES = 520, 25  # a text of so many lines scrolls in that height


def details(run: RunSummary, row: KernelRow) -> None:
    """The kernel's name with a door to its group, and a tab per side that something is known of."""
    found = data.ask(kernels.calls, run.run_id, row.kernel_id) if row.kernel_id else []
    with st.container(horizontal=True, vertical_alignment="center"):
        st.code(row.name, language=None, width="content")
        groups = [group for call in found for group in call.group_ids]
        if groups and row.graph_id:
            style.door("In the fusion graph", "fusion", run.run_id, graph=row.graph_id, node=groups[0])
    if row.kernel_id is None:
        style.note(
            "An operator of torch, timed by its name. The library kernels that call it have rows of their own.",
            "operator",
        )
        return
    sides = _sides(run, row.kernel_id, row, found)
    for tab, draw in zip(st.tabs(list(sides), key="kernel-tabs"), sides.values(), strict=True):
        with tab:
            draw()


def _sides(run: RunSummary, kernel_id: str, row: KernelRow, calls: list[Call]) -> dict[str, Callable[[], None]]:
    """Title of each tab and what draws it."""
    configs = data.ask(kernels.configurations, run.run_id, kernel_id)
    code = data.ask(kernels.code, run.run_id, kernel_id)
    grown = data.ask(kernels.grown_by, run.run_id, kernel_id)
    sides: dict[str, Callable[[], None]] = {
        "Source": lambda: _source(run, row, kernel_id),
        "Operators": lambda: _operators(run, kernel_id),
    }
    if grown:
        sides["Decisions"] = lambda: _decisions(run, row, grown)
    if configs:
        sides["Configurations"] = lambda: _configurations(run, configs)
    for kind, title in TEXTS.items():
        if texts := [text for text in code if text.kind == kind]:
            sides[title] = partial(_machine_code, run, row, texts)
    return sides | {"Calls": lambda: _calls(calls)}


def _source(run: RunSummary, row: KernelRow, kernel_id: str) -> None:
    """The generated source beside the lines of the model that it comes from."""
    kernel = data.ask(fusion.kernel_source, run.run_id, kernel_id)
    if kernel is None or not kernel.source:
        _no_source(run, row, kernel_id)
        return
    left, right = st.columns([2, 1])
    with left:
        _code(kernel.source, LANGUAGES.get(row.backend))
    with right:
        _lines(data.ask(kernels.ops, run.run_id, kernel_id))


def _no_source(run: RunSummary, row: KernelRow, kernel_id: str) -> None:
    if row.backend == "extern":
        style.note("A kernel of a library: there is no generated source.", "source")
        _device_kernels(run, kernel_id)
    else:
        absence(run, ("kernel_sources",), "Inductor defined no source for this kernel.", "source")


def _lines(ops: list[KernelOp]) -> None:
    """The lines of the model, each with the operators that it became in this kernel."""
    by_line: dict[tuple[str | None, int | None], list[KernelOp]] = {}
    for op in ops:
        by_line.setdefault((op.file, op.line), []).append(op)
    rows = [
        {
            "source": style.source_line(file, line),
            "line": (inside[0].source_text or "").strip(),
            "operators": ", ".join(op.node for op in inside),
        }
        for (file, line), inside in by_line.items()
    ]
    if rows:
        table(rows, key="source-lines", config={"line": {"width": 180}, "operators": {"width": 160}})


def _device_kernels(run: RunSummary, kernel_id: str) -> None:
    """The kernels that the profiler saw a library call run, by their own names."""
    ran = [t for t in data.ask(compare.timings, run.run_id, "compiled") if t.kernel_id == kernel_id]
    rows = [{"kernel": t.name, "calls": t.calls, "one call": t.median_us, "total": t.total_us} for t in ran]
    if rows:
        table(rows, dict.fromkeys(("one call", "total"), style.duration), key="device-kernels")


def _code(text: str, language: str | None) -> None:
    """Numbered lines; a long text scrolls."""
    height = CODE_PX if text.count("\n") >= CODE_LINES else "content"
    st.code(text, language=language, line_numbers=True, height=height)  # type: ignore[arg-type]


def _configurations(run: RunSummary, configs: list[KernelConfig]) -> None:
    """Every configuration that the kernel was compiled in, with what it takes of a multiprocessor and its time."""
    timed = [Candidate(c.config, c.time_us, c.chosen, remark=_taken(c)) for c in configs if c.time_us is not None]
    if timed:
        style.note(margin(timed), "margin")
        st.plotly_chart(candidates_figure(timed), config=style.PLOT, key="candidates")
    rows = [
        {
            "configuration": config.config,
            "chosen": "undecided" if config.chosen is None else "yes" if config.chosen else "no",
            "time": config.time_us,
            "grid": config.grid,
            "registers": config.registers,
            "spills": config.spill_bytes,
            "local words": config.n_spills,
            "shared": config.shared_bytes,
            "occupancy": config.occupancy,
            "limited by": config.occupancy_limit,
            "origin": ORIGINS.get(config.origin, config.origin),
        }
        for config in configs
    ]
    forms = dict.fromkeys(("registers", "local words"), style.number) | dict.fromkeys(("spills", "shared"), style.size)
    known = [column for column in rows[0] if any(row[column] is not None for row in rows)]
    shown = [{column: row[column] for column in known} for row in rows]
    table(shown, forms | {"occupancy": style.percent, "time": style.duration}, key="configurations")
    style.note(
        "Registers and local words (4 bytes) of a thread, shared memory of a block. Spills: bytes of stores and loads "
        "as ptxas counts them. Occupancy is theoretical: the warps that fit, of those that a multiprocessor holds.",
        "configurations",
    )
    if any(config.chosen is None for config in configs):
        style.note(f"Undecided: {data.why_missing(run, 'autotune')}", "autotune")


def _taken(config: KernelConfig) -> str:
    """What a configuration takes of a multiprocessor, for the hover of its bar."""
    return f"· {style.number(config.registers)} registers, occupancy {style.percent(config.occupancy)}"


def _machine_code(run: RunSummary, row: KernelRow, texts: list[KernelCode]) -> None:
    """One kind of code, of the configuration that is asked for, beside the source."""
    kind = texts[0].kind
    names = [text.config for text in texts]
    asked = st.selectbox("Configuration", names, key=f"{kind}-config") if len(names) > 1 else names[0]
    kernel = data.ask(fusion.kernel_source, run.run_id, texts[0].kernel_id)
    left, right = st.columns(2)
    with left:
        _code(texts[names.index(asked)].text, None)
    with right:
        _code(kernel.source if kernel and kernel.source else "", LANGUAGES.get(row.backend))


def _operators(run: RunSummary, kernel_id: str) -> None:
    """FX nodes with their lines of the model."""
    found = data.ask(kernels.ops, run.run_id, kernel_id)
    if not found:
        absence(run, ("kernel_calls", "inductor_graph"), "No FX node is recorded as an origin of this kernel.", "ops")
        return
    rows = [
        {
            "node": op.node,
            "operator": op.target,
            "shape": "×".join(op.shape) if op.shape is not None else None,
            "dtype": op.dtype,
            "source": style.source_line(op.file, op.line),
            "line": (op.source_text or "").strip(),
            "module": op.module_path,
            "again": "computed again" if op.recomputed else None,
        }
        for op in found
    ]
    table(rows, key="ops")


def _decisions(run: RunSummary, row: KernelRow, grown: list[Decision]) -> None:
    """The fusions that made the kernel what it is, in the order in which the scheduler took them."""
    saved = sum(step.score_memory or 0 for step in grown)
    spilled = f" It spills {style.size(row.spill_bytes)} a thread." if row.spill_bytes else ""
    style.note(f"Grown by {style.plural(len(grown), 'fusion')} that saved {style.size(saved)}.{spilled}", "grown")
    rows = [
        {
            "taken": step.order_taken,
            "a": computed(step.a_ops),
            "b": computed(step.b_ops),
            "saved": step.score_memory,
            "direction": step.direction,
            "round": step.round,
            "group": step.result,
        }
        for step in grown
    ]
    table(rows, {"saved": style.size, "taken": style.number, "round": style.number}, key="grown", config=GROWN_WIDTHS)
    style.note(
        "a and b: the last operators of each side. saved: bytes that the scheduler counted as no longer read or "
        "written when it took the pair.",
        "grown-how",
    )
    if run.device_kind == "target" and row.registers is not None:
        style.note("What each operation costs in registers is found by compiling the group without it:", "registers")
        st.code(f"fusionscope registers {run.run_id} {row.name}", language="bash", width="content")


GROWN_WIDTHS = {"a": {"width": 300}, "b": {"width": 300}}


def _calls(found: list[Call]) -> None:
    """Calls in the emitted wrapper, each with the groups that it runs."""
    rows = [
        {
            "call": call.position,
            "step": call.step,
            "line": call.line,
            "wrapper": call.text,
            "groups": ", ".join(call.group_ids),
            "computes": ", ".join(call.ops),
            "grid": call.grid,
        }
        for call in found
    ]
    table(rows, dict.fromkeys(("call", "step", "line"), style.number), key="calls")
