"""Why a pair is not fused, in torch's own words: the fusion artifact logger is handed the WhyNoFuse object itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, listening, unmet
from fusionscope.collector.observations import ReasonLogged

NAME = "fusion_log"
RECORDS = (ReasonLogged,)
TARGETS: dict[str, tuple[str, ...]] = {
    "torch._inductor.scheduler:WhyNoFuse": ("node1", "node2"),
    "torch._inductor.scheduler:fusion_log": (),
}


def problem() -> str | None:
    """The class and its logger are the same from torch 2.11 on."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Listen to the logger at DEBUG; where the user did not ask for these lines they go nowhere else."""
    from torch._inductor import scheduler

    handler = _Handler(emit, scheduler.WhyNoFuse)
    with listening(scheduler.fusion_log, handler, logging.DEBUG):
        yield


class _Handler(logging.Handler):
    def __init__(self, emit: Emit, refusal: type[Any]) -> None:
        super().__init__(logging.DEBUG)
        self._emit, self._refusal = emit, refusal

    def emit(self, record: logging.LogRecord) -> None:
        why: Any = record.msg
        if not isinstance(why, self._refusal):
            return
        with self._emit.guarded():
            graph_id = whereabouts.graph_id()
            if graph_id is not None:
                reason = why.reason % why.args if why.args else why.reason
                self._emit(ReasonLogged(graph_id, why.name1, why.name2, reason))
