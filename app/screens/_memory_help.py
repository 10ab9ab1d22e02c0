"""What would lower the peak, computed: fusions, orders, memory budgets, values to compute again, reuse refused."""

from __future__ import annotations

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.screens._kernel_table import operations
from fusionscope.app.table import table
from fusionscope.storage.queries import live_set, memory, plan_replay
from fusionscope.storage.queries.memory import Curve, Donated
from fusionscope.storage.queries.plan import calls_of
from fusionscope.storage.queries.plan_replay import Without
from fusionscope.storage.queries.recompute import Recompute, recomputable
from fusionscope.storage.queries.runs import RunSummary

MOST = 200  # rows of a table
SAVED_WIDTHS = {
    "frees": {"width": 76},
    "values": {"width": 60},
    "source": {"width": 150},
    "line": {"width": 230},
    "would run again": {"width": 250},
    "flops": {"width": 70},
    "moves": {"width": 76},
    "at least": {"width": 76},
    "kept because": {"width": 190},
}
UNTRIED = "budgets are tried where a training step is compared with eager, on joint graphs of 2,000 nodes at most"


def what_would_help(run: RunSummary, plan: Curve) -> None:
    """Each thing with its computed effect; what was not recorded or has no effect says so."""
    style.section("What would help", "help")
    graph = plan.graph_id
    _fusions(run.run_id, plan, data.ask(plan_replay.fusions_at, run.run_id, graph, plan.peak_step))
    _recompute(run.run_id, graph)
    left, right = st.columns(2, gap="medium")
    with left:
        _orders(run, graph)
        _budgets(run.run_id, graph)
    with right:
        _reuses(run.run_id, graph)


def _fusions(run_id: str, plan: Curve, found: list[Without]) -> None:
    if data.ask(calls_of, run_id, plan.graph_id) > plan_replay.MOST_CALLS:
        style.not_recorded(f"graphs of more than {plan_replay.MOST_CALLS} kernel calls are not replayed", "fusions")
        return
    if not found:
        style.note("No single fusion raises this peak: splitting any group that touches it lowers nothing.", "fusions")
        return
    rows = [
        {
            "without the fusion of": ", ".join(one.members),
            "in kernel": one.kernel,
            "peak would be": one.without_bytes,
            "lower by": one.saved_bytes,
            "to the byte": f"{style.number(one.without_bytes)} B instead of {style.number(one.peak_bytes)} B",
        }
        for one in found
    ]
    table(rows, {"peak would be": style.size, "lower by": style.size}, key="without")
    style.note(
        "Computed by carrying the plan out again with that group split: each member a kernel of its own, everything "
        "else fused as it is, in the order in which the scheduler would hand the nodes on. The same replay without a "
        f"split gives the recorded peak, {style.number(plan.peak_bytes)} B.",
        "fusions",
    )
    with st.container(horizontal=True):
        for one in found[:3]:
            style.door(
                "Fusion group " + str(found.index(one) + 1), "fusion", run_id, graph=plan.graph_id, node=one.group_id
            )


def _orders(run: RunSummary, graph_id: str) -> None:
    orders = data.ask(memory.orders, run.run_id, graph_id)
    style.section("Orders of the schedule that Inductor weighed", "orders")
    if not orders:
        style.note("None: the pass did not run on this graph.", "orders")
        return
    rows = [
        {
            "order": order.method,
            "estimated peak": order.peak_bytes,
            "exact": f"{style.number(order.peak_bytes)} B",
            "": "taken" if order.chosen else "",
        }
        for order in orders
    ]
    table(rows, {"estimated peak": style.size}, key="orders")
    if (run.torch_version or "").startswith("2.11"):
        style.note("The pass's own figures: in torch 2.11 they leave out what the graph returns.", "orders")


def _budgets(run_id: str, graph_id: str) -> None:
    tried = data.ask(memory.budgets, run_id, graph_id)
    if not tried and not data.ask(live_set.saved_values, run_id, graph_id):
        return
    style.section("Memory budgets of the partitioner", "budgets")
    if not tried:
        style.not_recorded(UNTRIED, "budgets")
        return
    rows = [
        {
            "budget": one.budget,
            "saved for the backward": one.saved_bytes,
            "values": one.saved_values,
            "ops computed again": one.recomputed_ops,
            "their flops": one.recomputed_flops,
        }
        for one in tried
    ]
    formats = {"budget": style.number, "saved for the backward": style.size, "their flops": operations}
    table(rows, formats, key="budgets")
    style.note(
        "The partitioner run on the joint graph as Inductor hands it over, with "
        "torch._functorch.config.activation_memory_budget set; nothing was compiled. Bytes are of forward values, "
        "inputs left out.",
        "budgets",
    )


def _recompute(run_id: str, graph_id: str) -> None:
    """Nothing where the graph has no backward."""
    lines = data.ask(recomputable, run_id, graph_id)
    if not lines:
        return
    style.section("Saved for the backward, and what computing it again would cost", "saved")
    rows = [
        {
            "frees": one.bytes,
            "values": len(one.values),
            "source": style.source_line(one.file, one.line),
            "line": one.source_text or "",
            "would run again": _operators(one),
            "flops": one.flops,
            "moves": one.moved,
            "at least": None if one.least is None else one.least.us,
            "kept because": ", ".join(one.reasons) or "cheaper to keep: the minimum cut",
            "as": ", ".join(one.values[:3]) + (" …" if len(one.values) > 3 else ""),
        }
        for one in lines[:MOST]
    ]
    formats = {"frees": style.size, "flops": operations, "moves": style.size, "at least": style.duration}
    table(rows, formats, key="saved", config=SAVED_WIDTHS, height=320 if len(rows) > 10 else None)
    again = sum(value.recomputed for value in data.ask(live_set.saved_values, run_id, graph_id))
    style.note(
        f"{style.size(sum(one.bytes for one in lines))} in all, by the source line that makes them; what frees most "
        "for its cost comes first, lines under 1 % of all last. A line's operators are followed back to inputs and to "
        "other saved values, which stay. Flops by torch's formulas (FlopCounterMode, the partitioner's own estimate), "
        "pointwise operators count as none. Moves: what is read of values that stay, and the values written once. "
        "At least: the roofline of both by the maker's rates of the GPU, no prediction; none on a CPU. "
        "torch.utils.checkpoint around a line, or a memory budget, has it computed again. The partitioner has "
        f"{style.plural(again, 'operation')} of the forward computed again already.",
        "saved",
    )


def _operators(one: Recompute) -> str:
    """`96 calls: mul, tanh (12 do already)`."""
    names = dict.fromkeys(target.split(".")[1] if "." in target else target for target in one.operators)
    already = f" ({style.number(one.already)} do already)" if one.already else ""
    random = "; draws random numbers, whose state must be kept" if one.random else ""
    return f"{style.plural(one.calls, 'call')}: {', '.join(names)}{already}{random}"


def _reuses(run_id: str, graph_id: str) -> None:
    refused = [one for one in data.ask(memory.reuses, run_id, graph_id) if one.verdict == "refused"]
    if refused:
        style.section("Memory that could have been used again", "reuses")
        rows = [
            {
                "buffer": one.buffer,
                "bytes": one.bytes,
                "could take": one.candidate,
                "how": "in place" if one.kind == "in_place" else "from the pool",
                "refused because": one.reason,
            }
            for one in refused[:MOST]
        ]
        table(rows, {"bytes": style.size}, key="reuses", height=260 if len(rows) > 8 else None)
    _donated(data.ask(memory.donated, run_id, graph_id))


def _donated(given: list[Donated]) -> None:
    """Of a backward: saved values end inside it, and their memory may be written over."""
    if not given:
        return
    taken = [one for one in given if one.taken_by]
    over = f": {', '.join(f'{one.taken_by} over {one.buffer}' for one in taken[:6])}" if taken else ""
    style.note(
        f"Donated buffers: the backward frees {style.plural(len(given), 'saved value')} of the forward, "
        f"{style.size(sum(one.bytes or 0 for one in given))}, and writes over "
        f"{len(taken)} of them, {style.size(sum(one.bytes or 0 for one in taken))}{over}.",
        "donated",
    )
