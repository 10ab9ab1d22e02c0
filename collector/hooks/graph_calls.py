"""How often the program itself ran each compiled forward graph: what runs after one, a graph break, ran as often.

CompiledFxGraph is Inductor's callable, from a compile as from a cache (torch/_inductor/output_code.py). Its method is
replaced on the class, so that nothing of ours stays in what was compiled, nor in what torch writes to its caches.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import GraphCalled

NAME = "graph_calls"
RECORDS = (GraphCalled,)
TARGETS: dict[str, tuple[str, ...]] = {
    "torch._inductor.output_code:CompiledFxGraph.post_compile": (),
    "torch._inductor.output_code:CompiledFxGraph.__call__": ("inputs",),
}


@dataclass(slots=True)
class _Calls:
    compile_id: str
    graph: weakref.ref[Any]
    made: itertools.count[int] = field(default_factory=itertools.count)  # several threads may call one graph


def problem() -> str | None:
    """Every graph passes post_compile, cached or not, before its first call."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Count the calls that return, and tell at the end."""
    from torch._inductor.output_code import CompiledFxGraph

    graphs: list[_Calls] = []
    by_id: dict[int, _Calls] = {}  # a dataclass with eq has no hash

    def wrap_post_compile(original: Callable[..., Any]) -> Callable[..., Any]:
        def post_compile(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(graph, *args, **kwargs)
            with emit.guarded():
                compile_id = whereabouts.compile_id()
                if compile_id is not None and not graph.fx_kwargs.get("is_backward"):
                    by_id[id(graph)] = _Calls(compile_id, weakref.ref(graph))
                    graphs.append(by_id[id(graph)])
            return result

        return post_compile

    def wrap_call(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(graph: Any, inputs: Any) -> Any:
            result = original(graph, inputs)
            known = by_id.get(id(graph))
            if known is not None and known.graph() is graph and whereabouts.phase() == "drive":
                next(known.made)
            return result

        return call

    try:
        with (
            patched(CompiledFxGraph, "post_compile", wrap_post_compile),
            patched(CompiledFxGraph, "__call__", wrap_call),
        ):
            yield
    finally:
        with emit.guarded():
            for seen in graphs:
                emit(GraphCalled(seen.compile_id, next(seen.made)))
