"""Structured-trace chromium events → timed compile phases with their nesting.

A phase is a B and an E event of the same name and thread; they nest like calls. Kernel compilation runs in threads of
its own and overlaps, so durations of different threads must not be summed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fusionscope.collector.observations import TraceEvent
from fusionscope.storage.records import CompilePhase


@dataclass(slots=True)
class _Open:
    phase_id: int
    name: str
    compile_id: str | None
    parent: int | None
    start_us: float


class Phases:
    """A stack of open phases per thread."""

    def __init__(self, began_at_s: float) -> None:
        self._began_us = began_at_s * 1e6
        self._next = 0
        self._open: dict[tuple[int, int], list[_Open]] = {}

    def take(self, event: TraceEvent) -> Iterator[Any]:
        """The phase that this event closes."""
        if event.kind != "chromium_event" or not event.payload:
            return
        span = json.loads(event.payload)
        # every event says tid 0 (torch/_dynamo/utils.py), so the thread that wrote it tells stacks apart
        stack = self._open.setdefault((event.thread, span.get("tid", 0)), [])
        if span["ph"] == "B":
            parent = stack[-1] if stack else None
            compile_id = event.compile_id or (parent.compile_id if parent else None)
            stack.append(_Open(self._next, span["name"], compile_id, parent.phase_id if parent else None, span["ts"]))
            self._next += 1
        elif span["ph"] == "E":
            yield from self._close(stack, span, event.thread)

    def _close(self, stack: list[_Open], span: dict[str, Any], thread: int) -> Iterator[CompilePhase]:
        while stack and stack[-1].name != span["name"]:
            stack.pop()  # torch resets its own stack after an exception, without closing what was open
        if not stack:
            return
        phase = stack.pop()
        if phase.compile_id is not None:
            yield CompilePhase(
                compile_id=phase.compile_id,
                phase_id=phase.phase_id,
                name=phase.name,
                parent=phase.parent,
                thread=thread,
                start_s=(phase.start_us - self._began_us) / 1e6,
                duration_s=(span["ts"] - phase.start_us) / 1e6,
            )
