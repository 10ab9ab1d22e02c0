"""Two small tables of the Fusion screen: the kinds of groups in the schedule, and what reordered it or its loops."""

from __future__ import annotations

from fusionscope.app import data, style
from fusionscope.app.screens._absence import absence
from fusionscope.app.table import table
from fusionscope.storage.queries import schedule
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.queries.schedule import Reorder

KINDS = {
    "single": ("single", "one scheduler node"),
    "fused": ("fused", "pairs that the scheduler fused, one after the other"),
    "mix_order": ("mix order", "reductions that walk the same elements in different orders"),
    "nested": ("nested", "a reduction that feeds another one over the same elements"),
    "foreach": ("foreach", "the items of a torch._foreach_* operation, together from the start"),
    "combo": ("combo", "groups with nothing in common, in one kernel to save launches"),
    None: ("not recorded", "recorded by an earlier version of Fusionscope"),
}
PASSES = {
    "reorder_for_peak_memory": "to lower peak memory",
    "reorder_compute_and_comm_for_overlap": "to overlap communication",
    "simple_overlap": "to overlap communication",
    "maybe_reorder_for_minimizing_partition": "for fewer CUDA graph partitions",
    "reorder_for_partition_with_simple_dependency": "for fewer CUDA graph partitions",
    "loop_ordering_after_fusion": "to walk a buffer as its pair does",
    "mix_order_reduction": "to walk elements as its group does",
}
MOST_NAMES = 12  # of an order, in a cell
WIDTHS = {
    name: {"width": width}
    for name, width in (("pass", 220), ("why", 250), ("of", 160), ("moved", 60), ("before", 225), ("after", 225))
}


def schedule_tables(run: RunSummary, graph_id: str) -> None:
    """Draw both for one graph."""
    style.section("Kinds of groups", "kinds")
    rows = [
        {"kind": KINDS[k.kind][0], "groups": k.groups, "scheduler nodes": k.nodes, "largest": k.largest}
        | {"what makes it a group": KINDS[k.kind][1]}
        for k in data.ask(schedule.kinds, run.run_id, graph_id)
    ]
    table(rows, dict.fromkeys(("groups", "scheduler nodes", "largest"), style.number), key="kinds")
    style.section("Orders that passes changed", "orders")
    orders = data.ask(schedule.reorderings, run.run_id, graph_id)
    if not orders:
        absence(run, ("schedule_orders", "loop_orders"), "No pass that reorders ran on this graph.", "orders")
        return
    table([_row(order) for order in orders], {"moved": style.number}, key="orders", config=WIDTHS)
    style.note(
        "schedule: the groups, from the first to the last that moved. loops: d0 is the outermost loop before the pass, "
        "with its length.",
        "orders",
    )


def _row(order: Reorder) -> dict[str, object]:
    first, last = _span(order)
    return {
        "pass": order.pass_name,
        "why": PASSES.get(order.pass_name),
        "of": "schedule" if order.subject is None else f"loops of {order.subject} ({', '.join(order.ops)})",
        "moved": sum(a != b for a, b in zip(order.before, order.after, strict=True)),
        "before": _names(order.before[first:last]) or "nothing moved",
        "after": _names(order.after[first:last]) or "nothing moved",
    }


def _span(order: Reorder) -> tuple[int, int]:
    """Where an order changed: from the first place that differs to behind the last; loops whole."""
    if order.subject is not None:
        return 0, len(order.before)
    places = [place for place, names in enumerate(zip(order.before, order.after, strict=True)) if len(set(names)) > 1]
    return (places[0], places[-1] + 1) if places else (0, 0)


def _names(names: tuple[str, ...]) -> str:
    more = f" … {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(style.short(name, 24) for name in names[:MOST_NAMES]) + more
