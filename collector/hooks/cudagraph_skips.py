"""Why no CUDA graph is used: torch warns through the logger of torch/_inductor/cudagraph_utils.py."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, unmet
from fusionscope.storage.records import CudagraphEvent

NAME = "cudagraph_skips"
RECORDS = (CudagraphEvent,)
TARGETS: dict[str, tuple[str, ...]] = {
    "torch._inductor.cudagraph_utils:cudagraphs_log": (),
    "torch._inductor.cudagraph_utils:log_cudagraph_skip_and_bump_counter": ("msg",),
}

_BLAMED = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def problem() -> str | None:
    """Every skip goes through log_cudagraph_skip_and_bump_counter."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Listen beside whoever listens; warnings are on unless the user turned them off."""
    from torch._inductor.cudagraph_utils import cudagraphs_log

    handler = _Handler(emit)
    cudagraphs_log.addHandler(handler)
    try:
        yield
    finally:
        cudagraphs_log.removeHandler(handler)


class _Handler(logging.Handler):
    def __init__(self, emit: Emit) -> None:
        super().__init__(logging.WARNING)
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        with self._emit.guarded():
            reason = record.getMessage().strip()
            blamed = list(_BLAMED.finditer(reason))
            self._emit(
                CudagraphEvent(
                    compile_id=whereabouts.compile_id(),
                    graph_id=whereabouts.graph_id() or whereabouts.graph_to_come(),
                    event="skipped",
                    reason=reason,
                    file=blamed[-1]["file"] if blamed else None,
                    line=int(blamed[-1]["line"]) if blamed else None,
                )
            )
