"""Which FX passes changed a graph: every pass of Inductor runs inside a GraphTransformObserver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, located, patched, unmet
from fusionscope.storage.records import PassChange

NAME = "graph_passes"
RECORDS = (PassChange,)
_STAGES = {
    "torch._inductor.compile_fx:_recursive_pre_grad_passes": "pre_grad",
    "torch._inductor.compile_fx:_recursive_joint_graph_passes": "joint",
}  # the other passes run on the graph that is lowered next
_OBSERVER = "torch.fx.passes.graph_transform_observer:GraphTransformObserver"
TARGETS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_STAGES, ()),
    f"{_OBSERVER}.__enter__": (),
    f"{_OBSERVER}.__exit__": (),
}


def problem() -> str | None:
    """The observer's two methods have the same bodies from torch 2.11 on."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Compare the names of the nodes before and after each pass that no other pass runs."""
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver

    def wrap_stage(stage: str) -> Callable[[Any], Callable[..., Any]]:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def passes(*args: Any, **kwargs: Any) -> Any:
                with whereabouts.at_stage(stage):
                    return original(*args, **kwargs)

            return passes

        return around

    def wrap_enter(original: Callable[..., Any]) -> Callable[..., Any]:
        def enter(observer: Any) -> Any:
            result = original(observer)
            with emit.guarded():
                outermost = whereabouts.outermost_pass() is None
                whereabouts.pass_began(observer.passname)
                observer._fusionscope_before = (_names(observer.gm), time.perf_counter()) if outermost else None
            return result

        return enter

    def wrap_exit(original: Callable[..., Any]) -> Callable[..., Any]:
        def leave(observer: Any, *raised: Any) -> Any:
            with emit.guarded():
                whereabouts.pass_ended()
                _tell(emit, observer)
            return original(observer, *raised)

        return leave

    with ExitStack() as stack:
        for target, stage in _STAGES.items():
            stack.enter_context(patched(*located(target), wrap_stage(stage)))
        stack.enter_context(patched(GraphTransformObserver, "__enter__", wrap_enter))
        stack.enter_context(patched(GraphTransformObserver, "__exit__", wrap_exit))
        yield


def _names(module: Any) -> set[str]:
    return {node.name for node in module.graph.nodes}


def _tell(emit: Emit, observer: Any) -> None:
    if observer._fusionscope_before is None:
        return  # the pass around it tells
    before, began = observer._fusionscope_before
    ended, after = time.perf_counter(), _names(observer.gm)
    if before != after:
        emit(
            PassChange(
                graph_id=whereabouts.graph_to_come() or "",
                pass_name=observer.passname,
                outcome="applied",
                nodes_added=len(after - before),
                nodes_removed=len(before - after),
                duration_s=ended - began,
            )
        )
