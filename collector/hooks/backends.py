"""Which backend each captured graph was handed to: only Inductor takes the decisions that the other hooks record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import BackendCalled

NAME = "backends"
RECORDS = (BackendCalled,)
TARGETS = {"torch._dynamo.output_graph:OutputGraph.call_user_compiler": ("gm",)}


def problem() -> str | None:
    """OutputGraph.call_user_compiler hands the graph over."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note the name of the compiler function before it runs."""
    from torch._dynamo.output_graph import OutputGraph

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call_user_compiler(graph: Any, *args: Any, **kwargs: Any) -> Any:
            with emit.guarded():
                emit(BackendCalled(whereabouts.compile_id() or "", _name(graph.compiler_fn)))
            return original(graph, *args, **kwargs)

        return call_user_compiler

    with patched(OutputGraph, "call_user_compiler", wrap):
        yield


def _name(compiler: Any) -> str:
    """inductor, or the function's own name; torch.compile wraps what it is given."""
    while (inner := getattr(compiler, "_torchdynamo_orig_backend", None)) is not None:
        compiler = inner
    name = getattr(compiler, "compiler_name", None) or getattr(compiler, "__name__", None)
    return str(name or type(compiler).__name__)
