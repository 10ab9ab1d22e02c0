"""Overview: what did compiling do for me, and what was recorded?"""

from __future__ import annotations

import json

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.screens import _launching
from fusionscope.app.screens._costs import show_waterfall
from fusionscope.app.screens._findings import show_findings
from fusionscope.app.screens._notes import show_notes
from fusionscope.app.table import table
from fusionscope.app.words import arrow, find, headline
from fusionscope.storage.queries import compare, compile, overview
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.records import HookStatus, Measurement, Run


def figures(run: RunSummary, measurements: list[Measurement], compile_s: float | None) -> None:
    """The six headline numbers, each a door to the screen that explains it."""
    kernels = arrow(run.eager_kernels, run.compiled_kernels, style.number)
    latency = arrow(run.eager_us, run.compiled_us, style.duration)
    with st.container(horizontal=True, gap="small"):
        noise = ", within noise" if run.within_noise else ""
        style.figure("Speed-up", style.ratio(run.speed_up), latency + noise or "not measured", "comparison", run.run_id)
        emitted = "no call was recorded" if run.kernel_calls is None else "calls in emitted code"
        remark = "eager → compiled" if kernels else emitted
        style.figure("Kernels", kernels or style.number(run.kernel_calls), remark, "kernels", run.run_id)
        style.figure("Graph breaks", style.number(run.breaks), "where tracing stopped", "compile", run.run_id)
        style.figure("Recompiles", style.number(run.recompiles), "after a guard failed", "compile", run.run_id)
        style.figure("Peak memory", *peak(run), "memory", run.run_id)
        style.figure(*first_call(measurements, compile_s), "compile", run.run_id)


def first_call(measurements: list[Measurement], compile_s: float | None) -> tuple[str, str, str]:
    """What compiling costs, and when it has paid: title, value and remark."""
    first, calls = (find(measurements, metric, "compiled") for metric in ("first_call_s", "break_even_calls"))
    if first is None:
        return "Compile time", style.seconds(compile_s), "first call not measured"
    paid = f"paid off after {style.number(round(calls.median))} calls" if calls else "a call is not faster"
    return "First call", style.seconds(first.median), paid


def peak(run: RunSummary) -> tuple[str, str]:
    """The measured peaks and their difference; where none was measured, that of the plan."""
    measured = arrow(run.eager_peak_bytes, run.compiled_peak_bytes, style.size)
    if not measured:
        return style.size(
            run.plan_peak_bytes
        ), "not measured" if run.plan_peak_bytes is None else "largest plan of a graph, above its entry; not measured"
    return measured, "the same" if run.peak_delta == 0 else style.size_change(run.peak_delta)


def coverage(hooks: list[HookStatus]) -> str:
    """The coverage statement in one sentence."""
    if not hooks:
        return "The run carries no coverage statement: what is missing below cannot be told from what did not happen."
    whole = [h for h in hooks if h.state == "recorded"]
    lost = sum(h.lost for h in hooks)
    rest = [f"{h.hook} {h.state}" + (f" ({h.reason})" if h.reason else "") for h in hooks if h.state != "recorded"]
    seen = f"{len(whole)} of {style.plural(len(hooks), 'hook')} recorded all they saw"
    return f"{seen}, {style.plural(lost, 'observation')} lost{': ' if rest else ''}{'; '.join(rest)}."


def hooks_table(hooks: list[HookStatus]) -> None:
    """The coverage statement, a hook per line."""
    rows = [
        {
            "hook": h.hook,
            "state": h.state,
            "recorded": h.recorded,
            "lost": h.lost,
            "time in the hook": h.self_s,
            "reason": h.reason or "",
        }
        for h in hooks
    ]
    table(rows, {"recorded": style.number, "lost": style.number, "time in the hook": style.seconds}, key="hooks")


def environment(run: Run) -> list[dict[str, str]]:
    """Where and how the run was recorded."""
    commit = run.git_commit and f"{run.git_commit[:12]} on {run.git_branch}{', with changes' if run.git_dirty else ''}"
    facts = {
        "device": " · ".join(filter(None, (run.device_kind, run.device_name))),
        "threads": run.threads,
        "torch": run.torch_version,
        "triton": run.triton_version,
        "CUDA": run.cuda_version,
        "Python": run.python_version,
        "host": run.host,
        "git": commit,
        "project": run.project,
        "tags": ", ".join(run.tags),
        "recorded": f"{run.created_at:%Y-%m-%d %H:%M:%S} UTC",
        "run id": run.run_id,
    }
    return [{"environment": name, "value": str(value)} for name, value in facts.items() if value not in (None, "")]


def options(run: Run) -> list[dict[str, str]]:
    """What was asked of the compiler and the recorder, and where the run came from."""
    facts: dict[str, object] = {
        "mode": run.mode or "default",
        "dynamic": "decided by torch" if run.dynamic is None else run.dynamic,
        "FX graph cache": run.fx_cache,
        "kernel cache": run.kernel_cache,
        "file": run.source_path,
        "command": run.command,
        "folder": run.cwd,
        "origin": run.source,
        "time in the recorder": None if run.recorder_overhead_s is None else style.seconds(run.recorder_overhead_s),
    }
    recorded_with = json.loads(run.options) if run.options else {}
    facts |= {str(name): value for name, value in recorded_with.items()} if isinstance(recorded_with, dict) else {}
    return [{"option": name, "value": str(value)} for name, value in facts.items() if value not in (None, "")]


run = data.current_run()
record = data.ask(overview.run, run.run_id)
hooks = data.ask(overview.hooks, run.run_id)
measurements = data.ask(compare.measurements, run.run_id)

style.heading("Overview", style.about(run))
if run.status != "complete":
    reason = run.status_reason or "no reason was recorded"
    verb = "failed" if run.status == "failed" else f"is {run.status}"
    style.notice(f"This run {verb}: {reason.rstrip('.')}. What follows is what was recorded.", "status")
style.sentence(headline(run, measurements, data.ask(compile.compiles, run.run_id)))
figures(run, measurements, data.ask(overview.compile_seconds, run.run_id))
_launching.strip(run, measurements, "overview")

left, right = st.columns([3, 2])
with left:
    show_findings(run.run_id)
with right:
    style.section("Where the time went", "waterfall")
    if not show_waterfall(run.run_id):
        style.not_recorded("kernels were not timed in both variants", "waterfall")
show_notes(run.run_id)
style.section("What was recorded", "coverage")
style.note(coverage(hooks), "coverage")
if hooks:
    with st.expander("Every hook", expanded=any(h.state != "recorded" or h.lost for h in hooks)):
        hooks_table(hooks)
left, right = st.columns(2)
with left:
    style.section("Environment", "environment")
    table(environment(record), key="environment")
with right:
    style.section("Options and source", "options")
    table(options(record), key="options")
