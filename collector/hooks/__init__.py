"""Every hook, in the order of installation. A hook is a module; none imports another."""

from __future__ import annotations

from fusionscope.collector.hook import Hook
from fusionscope.collector.hooks import (
    backends,
    counters,
    fusion_log,
    fusion_pairs,
    fusion_predicates,
    fusion_results,
    fusion_rounds,
    fusion_scores,
    inductor_graph,
    kernel_calls,
    kernel_configs,
    kernel_sources,
    layout_copies,
    memory_orders,
    realize,
    trace_stream,
    wrapper_plan,
)

HOOKS: list[Hook] = [
    trace_stream,
    backends,
    inductor_graph,
    realize,
    layout_copies,
    fusion_log,
    fusion_predicates,
    fusion_pairs,
    fusion_scores,
    fusion_rounds,
    fusion_results,
    memory_orders,
    wrapper_plan,
    kernel_calls,
    kernel_sources,
    kernel_configs,
    counters,
]
