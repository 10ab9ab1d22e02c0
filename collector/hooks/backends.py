"""Each graph that Dynamo captured, and the backend that it was handed to.

Only Inductor takes the decisions that the other hooks record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fusionscope.collector import reading, whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import BackendCalled
from fusionscope.storage.records import GraphEdge, GraphNode

NAME = "backends"
RECORDS = (BackendCalled, GraphNode, GraphEdge)
TARGETS = {"torch._dynamo.output_graph:OutputGraph.call_user_compiler": ("gm",)}


def problem() -> str | None:
    """OutputGraph.call_user_compiler hands the graph over."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note the graph and the name of the compiler function before it runs."""
    from torch._dynamo.output_graph import OutputGraph

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call_user_compiler(captured: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
            with emit.guarded():
                compile_id, name = whereabouts.compile_id() or "", _name(captured.compiler_fn)
                if name == "inductor" or whereabouts.phase() == "drive":  # measuring traces for trials of its own
                    emit(BackendCalled(compile_id, name))
                for record in _graph(f"{compile_id}.dynamo", gm):
                    emit(record)
            return original(captured, gm, *args, **kwargs)

        return call_user_compiler

    with patched(OutputGraph, "call_user_compiler", wrap):
        yield


def _graph(graph_id: str, module: Any) -> Iterator[GraphNode | GraphEdge]:
    for position, node in enumerate(module.graph.nodes):
        record = reading.graph_node(graph_id, position, node, _bytes(reading.tensor_value(node)))
        argument = node.meta.get("grapharg")  # there until call_user_compiler hands the graph over
        yield record if argument is None else replace(record, target=argument.source.name)
        for source in node.all_input_nodes:
            yield GraphEdge(graph_id=graph_id, src=source.name, dst=node.name)


def _bytes(value: Any | None) -> int | None:
    """Bytes of a tensor whose sizes are known before lowering, which gives symbols their hints."""
    if value is None or not isinstance(value.numel(), int):
        return None
    return int(value.numel() * value.element_size())


def _name(compiler: Any) -> str:
    """inductor, or the function's own name; torch.compile wraps what it is given."""
    while (inner := getattr(compiler, "_torchdynamo_orig_backend", None)) is not None:
        compiler = inner
    name = getattr(compiler, "compiler_name", None) or getattr(compiler, "__name__", None)
    return str(name or type(compiler).__name__)
