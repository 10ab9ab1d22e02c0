"""Hints about performance that torch logs while compiling, such as an operator that stays a library call."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, listening, located, unmet
from fusionscope.storage.records import PerfHint

NAME = "perf_hints"
RECORDS = (PerfHint,)
_LOGGERS: dict[str, tuple[str, ...]] = {
    "torch._inductor.graph:perf_hint_log": (),
    "torch._inductor.compile_fx:perf_hint_log": (),
    "torch._inductor.codegen.simd:perf_hint_log": (),
    "torch._inductor.codegen.triton:perf_hint_log": (),
}
TARGETS = _LOGGERS | {"torch._logging._internal:_init_logs": ()}


def problem() -> str | None:
    """Each module that hints has a logger of its own."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Listen at INFO: at DEBUG some modules would do more than they did."""
    handler = _Handler(emit)
    with ExitStack() as stack:
        for target in _LOGGERS:
            stack.enter_context(listening(getattr(*located(target)), handler, logging.INFO))
        yield


class _Handler(logging.Handler):
    def __init__(self, emit: Emit) -> None:
        super().__init__(logging.INFO)
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        with self._emit.guarded():
            node, text = whereabouts.fx_node(), record.getMessage().strip()
            self._emit(PerfHint(compile_id=whereabouts.compile_id(), graph_id=_graph(), node=node, text=text))


def _graph() -> str | None:
    return whereabouts.graph_id() or whereabouts.graph_to_come()
