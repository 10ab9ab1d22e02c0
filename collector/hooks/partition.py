"""What the backward finds saved and what it computes again: AOTAutograd's min-cut partition of the joint graph.

min_cut_rematerialization_partition (torch/_functorch/partitioners.py) asks choose_saved_values_set, which asks
solve_min_cut, which hands networkx a graph whose edges say why a value must not be computed again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from fusionscope.collector import reading, whereabouts
from fusionscope.collector.hook import Emit, located, patched, unmet
from fusionscope.collector.observations import NodeTraced
from fusionscope.storage.records import GraphEdge, GraphNode, PartitionChoice

NAME = "partition"
RECORDS = (PartitionChoice, GraphNode, NodeTraced, GraphEdge)
_PARTITION = {  # one function, imported by name
    "torch._functorch.partitioners:min_cut_rematerialization_partition": ("joint_module",),
    "torch._inductor.compile_fx:min_cut_rematerialization_partition": ("joint_module",),
}
_INNER = "torch._functorch._aot_autograd.graph_compile:run_joint_graph_passes_on_hops"
TARGETS: dict[str, tuple[str, ...]] = _PARTITION | {
    _INNER: (),
    "torch._functorch.partitioners:choose_saved_values_set": ("joint_graph", "node_info", "memory_budget"),
    "torch._functorch.partitioners:solve_min_cut": ("joint_graph", "node_info"),
    "torch._functorch.partitioners:_size_of": ("node",),
    "networkx:minimum_cut": (),
}


def problem() -> str | None:
    """The functions keep their parameters from torch 2.11 on."""
    return unmet(TARGETS)


class _Partition(threading.local):
    """The partition that this thread is in."""

    depth = 0
    inner = False  # of a higher-order operator's graph, which comes before the graph around it
    choices: dict[str, PartitionChoice]
    banned: frozenset[str]
    reasons: dict[str, str]


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Watch the three functions, one inside the other, and tell when the outermost is done."""
    here, seen = _Partition(), Counter[str]()

    def wrap_partition(original: Callable[..., Any]) -> Callable[..., Any]:
        def partition(*args: Any, **kwargs: Any) -> Any:
            here.choices, here.banned, here.reasons = {}, frozenset(), {}
            here.depth += 1
            try:
                forward, backward = original(*args, **kwargs)
            finally:
                here.depth -= 1
            with emit.guarded():
                for record in _partitioned(forward, backward, here.choices, _nth(seen) if here.inner else ""):
                    emit(record)
            return forward, backward

        return partition

    def wrap_inner(original: Callable[..., Any]) -> Callable[..., Any]:
        def passes(*args: Any, **kwargs: Any) -> Any:
            before, here.inner = here.inner, True
            try:
                return original(*args, **kwargs)
            finally:
                here.inner = before

        return passes

    def wrap_choice(original: Callable[..., Any]) -> Callable[..., Any]:
        def choose(joint_graph: Any, node_info: Any, memory_budget: float = 1) -> Any:
            saved = original(joint_graph, node_info, memory_budget)
            with emit.guarded():
                here.choices = {c.node: c for c in _choices(joint_graph, node_info, saved, memory_budget, here)}
            return saved

        return choose

    def wrap_cut(original: Callable[..., Any]) -> Callable[..., Any]:
        def solve(*args: Any, **kwargs: Any) -> Any:
            saved, banned = original(*args, **kwargs)
            with emit.guarded():
                here.banned = frozenset(node.name for node in banned)
            return saved, banned

        return solve

    def wrap_networkx(original: Callable[..., Any]) -> Callable[..., Any]:
        def minimum_cut(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if here.depth:
                with emit.guarded():
                    here.reasons = _reasons(graph)
            return original(graph, *args, **kwargs)

        return minimum_cut

    with ExitStack() as stack:
        for target in _PARTITION:
            stack.enter_context(patched(*located(target), wrap_partition))
        stack.enter_context(patched(*located(_INNER), wrap_inner))
        partitioners, choose = located("torch._functorch.partitioners:choose_saved_values_set")
        stack.enter_context(patched(partitioners, choose, wrap_choice))
        stack.enter_context(patched(partitioners, "solve_min_cut", wrap_cut))
        stack.enter_context(patched(*located("networkx:minimum_cut"), wrap_networkx))
        yield


def _reasons(graph: Any) -> dict[str, str]:
    """Value → why it must not be computed again; such an edge leads from the source to the value's own entry."""
    edges = graph["source"].items()
    return {entry.removesuffix("_in"): edge["reason"].removeprefix("cannot recompute: ")
            for entry, edge in edges if "reason" in edge}  # fmt: skip


def _choices(graph: Any, info: Any, saved: Any, budget: float, here: _Partition) -> Iterator[PartitionChoice]:
    kept, inputs = {node.name for node in saved}, {node.name for node in info.inputs}
    for node in graph.nodes:
        if (info.is_required_fw(node) or node.name in kept) and reading.holds_tensors(node):
            yield PartitionChoice(
                graph_id="",
                node=node.name,
                saved=node.name in kept,
                recomputed=False,
                banned=node.name in here.banned,
                is_input=node.name in inputs,
                bytes=_bytes(node),
                budget=float(budget),
                reason=here.reasons.get(node.name) if node.name in here.banned else None,
            )


def _nth(seen: Counter[str]) -> str:
    """What tells the graphs of a compile's higher-order operators from its own: "#2" and so on."""
    compile_id = whereabouts.compile_id() or ""
    seen[compile_id] += 1
    return f"#{seen[compile_id] + 1}"


def _partitioned(forward: Any, backward: Any, choices: dict[str, PartitionChoice], nth: str) -> Iterator[Any]:
    compile_id = whereabouts.compile_id() or "no-compile"
    again = _calls(forward) & _calls(backward)
    for choice in choices.values():
        yield replace(choice, graph_id=f"{compile_id}.joint{nth}", recomputed=choice.node in again)
    yield from _graph(f"{compile_id}.aot_forward{nth}", forward, again)
    yield from _graph(f"{compile_id}.aot_backward{nth}", backward, again)


def _calls(module: Any) -> frozenset[str]:
    return frozenset(node.name for node in module.graph.nodes if node.op == "call_function")


def _graph(graph_id: str, module: Any, recomputed: frozenset[str]) -> Iterator[GraphNode | NodeTraced | GraphEdge]:
    for position, node in enumerate(module.graph.nodes):
        again = node.name in recomputed if node.op == "call_function" else None
        yield reading.graph_node(graph_id, position, node, _bytes(node), recomputed=again)
        if (source := reading.traced_from(node)) is not None:
            yield NodeTraced(graph_id, node.name, source)
        for source in node.all_input_nodes:
            yield GraphEdge(graph_id=graph_id, src=source.name, dst=node.name)


def _bytes(node: Any) -> int | None:
    from torch._functorch.partitioners import _size_of
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    if not reading.holds_tensors(node):
        return None
    value = node.meta["val"]
    symbolic = getattr(value, "_has_symbolic_sizes_strides", True)  # a tuple is looked through
    return None if symbolic and free_unbacked_symbols(value) else int(_size_of(node))
