"""Why a pair is not fused, in torch's own words: the fusion artifact logger is handed the WhyNoFuse object itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, first_problem, missing
from fusionscope.collector.observations import ReasonLogged

NAME = "fusion_log"
RECORDS = (ReasonLogged,)


def problem() -> str | None:
    """WhyNoFuse and the logger live in torch/_inductor/scheduler.py."""
    from torch._inductor import scheduler

    return first_problem(missing(scheduler, "WhyNoFuse", "node1", "node2"), missing(scheduler, "fusion_log"))


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Listen to the logger at DEBUG; where the user did not ask for these lines they go nowhere else."""
    from torch._inductor import scheduler

    logger = scheduler.fusion_log
    level, propagate = logger.level, logger.propagate
    asked_for = logger.isEnabledFor(logging.DEBUG)
    handler = _Handler(emit, scheduler.WhyNoFuse)
    logger.addHandler(handler)
    if not asked_for:
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


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
