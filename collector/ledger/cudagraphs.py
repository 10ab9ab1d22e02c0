"""Structured-trace events → CUDA graphs that were recorded, and recorded again."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fusionscope.collector.observations import TraceEvent
from fusionscope.storage.records import CudagraphEvent

_RECORDING = "CUDAGraphNode.record"  # torch/_inductor/cudagraph_trees.py


class Recordings:
    """Tells the first recording of a compile's forward or backward from later ones."""

    def __init__(self) -> None:
        self._began_us: dict[int, float] = {}  # thread → start
        self._recorded: set[tuple[str | None, bool]] = set()

    def take(self, event: TraceEvent) -> Iterator[CudagraphEvent]:
        """The recording that this event ends."""
        if event.kind != "chromium_event" or _RECORDING not in (event.payload or ""):
            return
        span = json.loads(event.payload or "")
        if span["ph"] == "B":
            self._began_us[event.thread] = span["ts"]
        elif span["ph"] == "E" and (began := self._began_us.pop(event.thread, None)) is not None:
            key = (event.compile_id, bool(span.get("args", {}).get("is_backward")))
            yield CudagraphEvent(
                compile_id=event.compile_id,
                event="recorded_again" if key in self._recorded else "recorded",
                duration_s=(span["ts"] - began) / 1e6,
            )
            self._recorded.add(key)
