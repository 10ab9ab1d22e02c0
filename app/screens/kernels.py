"""Kernels: which kernel is slow or fat, and which decision made it so?"""

from __future__ import annotations

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures import kernel_scatter
from fusionscope.app.screens import _launching
from fusionscope.app.screens._absence import absence
from fusionscope.app.screens._against import choose_other, difference
from fusionscope.app.screens._contests import contests
from fusionscope.app.screens._kernel_details import details
from fusionscope.app.screens._kernel_table import kernel_table, made_of, opening
from fusionscope.storage import roofline
from fusionscope.storage.queries import compare, rooflines
from fusionscope.storage.queries.rooflines import Judged
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.records import DeviceFact


def unmeasured(run: RunSummary) -> str:
    """Why there are no times."""
    return data.why_missing(run, "measure") if run.device_kind == "target" else "the run was not measured"


def picture(run: RunSummary, kernels: list[Judged], device: DeviceFact | None) -> None:
    """The kernels as points, in the plane that what is recorded allows."""
    yardstick = roofline.bandwidth_yardstick(device) if device else None
    if device and yardstick and device.bandwidth_gbps and any(k.bound and k.row.call_us for k in kernels):
        figure = kernel_scatter.against_roofline(kernels, yardstick, device.bandwidth_gbps)
        caption = "On the line a kernel is as fast as its bytes or operations allow; as high above it, as much slower."
    elif any(k.row.moved and k.row.call_us for k in kernels):
        figure = kernel_scatter.against_bytes(kernels)
        caption = "Dotted lines are equal bandwidths: a kernel below a line moves its bytes faster than that."
    elif any(k.least_us and k.row.registers is not None for k in kernels):
        figure = kernel_scatter.against_registers(kernels)
        caption = "Top right is fat and heavy. Library kernels are left out: their registers are known on the GPU only."
    else:
        style.not_recorded(unmeasured(run), "picture")
        return
    st.plotly_chart(figure, config=style.PLOT, key="kernel-scatter")
    style.note(f"{caption} Area: share. Diamond: bound by operations. Vermilion rim: it spills.", "picture")


def captions(run: RunSummary, kernels: list[Judged], device: DeviceFact | None) -> None:
    """How every column of the table came to be, and why one is missing."""
    methods = sorted({k.row.method for k in kernels if k.row.method})
    times = (
        f"total: per call of the model; one call: the median, of a library kernel the mean ({'; '.join(methods)})"
        if methods
        else f"Times are not recorded: {unmeasured(run)}"
    )
    style.note(
        f"{made_of(kernels)}. {times}. moves: bytes that one call has to read and write, each once; reads and writes: "
        "the whole of each buffer that it touches. Click a row for its source.",
        "kernels",
    )
    style.note(_bounds(run, kernels, device), "bounds")
    if run.device_kind == "cpu":
        style.note("Registers, spills and occupancy are facts of a GPU: this run is on a CPU.", "cpu")
    elif not any(k.row.configs for k in kernels):
        absence(run, ("kernel_configs",), "No Triton kernel was compiled in this run.", "configs")
    elif any(k.row.decided is False for k in kernels):
        style.note(
            "Undecided: no configuration was chosen; registers, spills and occupancy are those of the one with the "
            "lowest occupancy.",
            "undecided",
        )


def _bounds(run: RunSummary, kernels: list[Judged], device: DeviceFact | None) -> str:
    """What the lower bound and the achieved bandwidth are reckoned with."""
    if device is None or (yardstick := roofline.bandwidth_yardstick(device)) is None:
        what = "this CPU" if run.device_kind == "cpu" else "this GPU"
        return f"at least (a lower bound of the time): not recorded: no bandwidth of {what} is known to reckon with."
    least = (
        "at least: the longer of bytes over bandwidth and operations over their rate, by the maker's numbers "
        f"({device.source}); a bound, no prediction. {_cached(kernels, device)}"
    )
    if not any(k.gbps is not None for k in kernels):
        return least.rstrip()
    return f"{least}bandwidth: of {style.number(yardstick.rate)} GB/s, {yardstick.name}; above 100 % the cache helped."


def _cached(kernels: list[Judged], device: DeviceFact) -> str:
    """For which kernels the bound may be too high."""
    known = [k for k in kernels if k.bound and k.bound.by == "memory"]
    small = sum((k.row.moved or 0) <= device.l2_bytes for k in known)
    if not small:
        return ""
    return (
        f"{small} of {len(known)} kernels bound by memory move no more than the L2 cache holds "
        f"({style.size(device.l2_bytes)}): what an earlier kernel left there is read faster. "
    )


run = data.current_run()
style.heading("Kernels", style.about(run))
kernels = data.ask(rooflines.judged, run.run_id)
if not kernels:
    absence(run, ("kernel_calls", "kernel_sources"), "No graph of this run reached a kernel.", "missing")
    st.stop()
device = data.ask(rooflines.device, run.run_id)
measurements = data.ask(compare.measurements, run.run_id)
with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
    style.sentence(" ".join(filter(None, (opening(run, kernels), _launching.sentence(measurements)))))
    other = choose_other(run)
if other:
    difference(run, other)
    style.section(f"Every kernel of {run.name}", "kernels")
chosen = kernel_table(kernels, key=f"kernels-{run.run_id}")
left, right = st.columns([5, 4])
with left:
    picture(run, kernels, device)
with right:
    captions(run, kernels, device)
if chosen is not None and st.session_state.get(f"shown-{run.run_id}") != chosen:
    st.session_state[f"shown-{run.run_id}"] = chosen
    st.query_params["kernel"] = kernels[chosen].row.kernel_id or kernels[chosen].row.name
asked = st.query_params.get("kernel")
rows = [kernel.row for kernel in kernels]
details(
    run,
    next(
        (row for row in rows if asked and asked in (row.kernel_id, row.name)),
        next((row for row in rows if row.backend not in ("extern", "operator")), rows[0]),
    ),
)
contests(run)
_launching.strip(run, measurements, "kernels")
_launching.time_lines(run)
