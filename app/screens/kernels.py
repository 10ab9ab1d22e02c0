"""Kernels: which kernel is slow or fat, and which decision made it so?"""

from __future__ import annotations

import math

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.screens._absence import absence
from fusionscope.app.table import table
from fusionscope.storage.queries import fusion, kernels
from fusionscope.storage.queries.kernels import Call, KernelRow
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.records import KernelCode, KernelConfig

ORIGINS = {"register_pressure": "added: fewer registers"}
LANGUAGES = {"cpp": "cpp", "triton": "python", "template": "python", "user": "python"}


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
    "reads": style.size,
    "writes": style.size,
    "flops": operations,
    "registers": style.number,
    "spills": style.size,
    "occupancy": style.percent,
}
TEXTS = {"ptx": "PTX", "amdgcn": "AMDGCN", "sass": "SASS"}


def opening(rows: list[KernelRow]) -> str:
    """The sentence of the screen."""
    kernels = [row for row in rows if row.kernel_id]
    library = sum(row.backend == "extern" for row in kernels)
    made, called = style.plural(len(kernels) - library, "generated kernel"), style.plural(library, "library kernel")
    start = f"{style.plural(sum(row.calls for row in kernels), 'call')} of {made} and {called}"
    return (
        f"{start}. {_slowest(rows)}"
        if any(row.total_us for row in rows)
        else f"{start}; not timed. {_heaviest(kernels)}"
    )


def unmeasured(run: RunSummary) -> str:
    """Why there are no times."""
    return data.why_missing(run, "measure") if run.device_kind == "target" else "the run was not measured"


def _slowest(rows: list[KernelRow]) -> str:
    """How few kernels take four fifths of the time."""
    times = [row.total_us for row in rows if row.total_us is not None]
    few = next(n for n in range(1, len(times) + 1) if sum(times[:n]) >= 0.8 * sum(times))
    share = style.percent(sum(times[:few]) / sum(times))
    verb = "takes" if few == 1 else "take"
    return f"{few} of the {len(times)} that were timed {verb} {share} of {style.duration(sum(times))}."


def _heaviest(rows: list[KernelRow]) -> str:
    """Which kernel moves the most; empty where no bytes are recorded."""
    moved, name = max(((row.bytes_read or 0) + (row.bytes_written or 0), row.name) for row in rows)
    return f"{name} moves the most in one call: {style.size(moved)}." if moved else ""


def line(row: KernelRow, total: float, several: bool, gpu: bool) -> dict[str, object]:
    """A kernel as a line of the table; figures stay numbers so that they sort."""
    shown: dict[str, object] = {"kernel": row.name, "backend": row.backend}
    if several:
        shown["graph"] = row.graph_id
    if total:
        share = None if row.total_us is None else 100 * row.total_us / total
        shown |= {"share": share, "total": row.total_us, "one call": row.median_us}
    shown |= {
        "calls": row.calls,
        "groups": row.groups,
        "ops": row.ops,
        "reads": row.bytes_read,
        "writes": row.bytes_written,
    }
    if row.flops is not None:
        shown["flops"] = row.flops
    if gpu:
        shown |= {
            "registers": row.registers,
            "spills": row.spill_bytes,
            "occupancy": row.occupancy,
            "limited by": row.occupancy_limit,
            "configurations": row.configs and f"{row.configs}{'' if row.decided else ', undecided'}",
        }
    return shown


def details(run: RunSummary, row: KernelRow) -> None:
    """Source, operators and calls of one kernel."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.code(row.name, language=None, width="content")
        found = data.ask(kernels.calls, run.run_id, row.kernel_id) if row.kernel_id else []
        groups = [group for call in found for group in call.group_ids]
        if groups and row.graph_id:
            style.door("In the fusion graph", "fusion", run.run_id, graph=row.graph_id, node=groups[0])
    if row.kernel_id is None:
        style.note(
            "An operator of torch, timed by its name. The library kernels that call it have rows of their own.",
            "operator",
        )
        return
    configs = data.ask(kernels.configurations, run.run_id, row.kernel_id)
    code = data.ask(kernels.code, run.run_id, row.kernel_id)
    kinds = [kind for kind in TEXTS if any(text.kind == kind for text in code)]
    titles = ["Source", "Operators", "Calls", *(["Configurations"] if configs else []), *map(TEXTS.__getitem__, kinds)]
    source, ops, calls, *compiled = st.tabs(titles, key="kernel-tabs")
    if configs:
        with compiled[0]:
            configurations(run, configs)
    for kind, tab in zip(kinds, compiled[1:], strict=True):
        with tab:
            machine_code([text for text in code if text.kind == kind])
    with source:
        kernel = data.ask(fusion.kernel_source, run.run_id, row.kernel_id)
        if kernel and kernel.source:
            st.code(kernel.source, language=LANGUAGES.get(row.backend), line_numbers=True, height=520)
        elif row.backend == "extern":
            style.note("A kernel of a library: there is no generated source.", "source")
        else:
            absence(run, ("kernel_sources",), "Inductor defined no source for this kernel.", "source")
    with ops:
        operators(run, row.kernel_id)
    with calls:
        wrapper_calls(found)


def configurations(run: RunSummary, configs: list[KernelConfig]) -> None:
    """Every configuration that the kernel was compiled in, with what it takes of a multiprocessor."""
    timed = any(config.time_us is not None for config in configs)
    rows = [
        {
            "configuration": config.config,
            "chosen": "undecided" if config.chosen is None else "yes" if config.chosen else "no",
            "grid": config.grid,
            "registers": config.registers,
            "spills": config.spill_bytes,
            "local words": config.n_spills,
            "shared": config.shared_bytes,
            "occupancy": config.occupancy,
            "limited by": config.occupancy_limit,
            **({"time": config.time_us} if timed else {}),
            "origin": ORIGINS.get(config.origin, config.origin),
        }
        for config in configs
    ]
    forms = dict.fromkeys(("registers", "local words"), style.number) | dict.fromkeys(("spills", "shared"), style.size)
    table(rows, forms | {"occupancy": style.percent, "time": style.duration}, key="configurations")
    style.note(
        "Registers and local words (4 bytes) of a thread, shared memory of a block. Spills: bytes of stores and loads "
        "as ptxas counts them. Occupancy is theoretical: the warps that fit, of those that a multiprocessor holds.",
        "configurations",
    )
    if any(config.chosen is None for config in configs):
        style.note(f"Undecided: {data.why_missing(run, 'autotune')}", "autotune")


def machine_code(texts: list[KernelCode]) -> None:
    """One kind of code, of the configuration that is asked for."""
    kind = texts[0].kind
    names = [text.config for text in texts]
    asked = st.selectbox("Configuration", names, key=f"{kind}-config") if len(names) > 1 else names[0]
    st.code(texts[names.index(asked)].text, language=None, line_numbers=True, height=520)


def operators(run: RunSummary, kernel_id: str) -> None:
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


def wrapper_calls(found: list[Call]) -> None:
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


run = data.current_run()
style.heading("Kernels", style.about(run))
rows = data.ask(kernels.kernels, run.run_id)
if not rows:
    absence(run, ("kernel_calls", "kernel_sources"), "No graph of this run reached a kernel.", "missing")
    st.stop()
style.sentence(opening(rows))
total = sum(row.total_us or 0 for row in rows)
gpu = any(row.configs for row in rows)
chosen = table(
    [line(row, total, len({row.graph_id for row in rows if row.graph_id}) > 1, gpu) for row in rows],
    FORMATS,
    key=f"kernels-{run.run_id}",
    choose=True,
    config={
        "share": st.column_config.ProgressColumn(min_value=0, max_value=100, format="%.1f %%"),
        "kernel": {"width": 340},
    },
)
methods = sorted({row.method for row in rows if row.method})
time = (
    f"total: per call of the model; one call: the median ({'; '.join(methods)})"
    if methods
    else f"Times are not recorded: {unmeasured(run)}"
)
style.note(
    f"{time}. Bytes: the whole of each buffer that a kernel's first call touches. Click a row for its source.",
    "kernels",
)
if run.device_kind == "cpu":
    style.note("Registers, spills and occupancy are facts of a GPU: this run is on a CPU.", "cpu")
elif not gpu:
    absence(run, ("kernel_configs",), "No Triton kernel was compiled in this run.", "configs")
elif any(row.decided is False for row in rows):
    style.note(
        "Undecided: no configuration was chosen; registers, spills and occupancy are those of the one with the lowest "
        "occupancy.",
        "undecided",
    )
if chosen is not None and st.session_state.get(f"shown-{run.run_id}") != chosen:
    st.session_state[f"shown-{run.run_id}"] = chosen
    st.query_params["kernel"] = rows[chosen].kernel_id or rows[chosen].name
asked = st.query_params.get("kernel")
details(
    run,
    next(
        (row for row in rows if asked and asked in (row.kernel_id, row.name)),
        next((row for row in rows if row.backend not in ("extern", "operator")), rows[0]),
    ),
)
