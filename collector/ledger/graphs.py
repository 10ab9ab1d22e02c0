"""Structured-trace events → graphs at each stage, with Inductor's output code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fusionscope.collector.observations import TraceEvent
from fusionscope.storage.records import Graph

# event or artifact → (name in the graph id, stage, direction)
_STAGES: dict[str, tuple[str, str, str | None]] = {
    "dynamo_output_graph": ("dynamo", "dynamo", None),
    "before_pre_grad_graph": ("pre_grad", "pre_grad", None),
    "aot_joint_graph": ("joint", "joint", None),
    "aot_forward_graph": ("aot_forward", "forward", "forward"),
    "aot_backward_graph": ("aot_backward", "backward", "backward"),
    "aot_inference_graph": ("aot_inference", "inference", "inference"),
}
_AOT_ID = re.compile(r"AOT ID: \['\d+_(?P<direction>\w+)'\]")


class Graphs:
    """Pairs Inductor's graph text with the output code that follows it on the same thread."""

    def __init__(self) -> None:
        self._position = 0
        self._post_grad: dict[tuple[str, int], str | None] = {}
        self._fx_key: dict[tuple[str, int], str] = {}
        self._graph_of_file: dict[str, str] = {}

    def graph_of(self, wrapper_file: str) -> str | None:
        """The Inductor graph whose wrapper was written to this file."""
        return self._graph_of_file.get(wrapper_file)

    def take(self, event: TraceEvent) -> Iterator[Any]:
        """Graphs that this event completes."""
        if event.compile_id is None:
            return
        key, what = (event.compile_id, event.thread), event.name or event.kind
        if what in _STAGES:
            suffix, stage, direction = _STAGES[what]
            yield self._graph(f"{event.compile_id}.{suffix}", event, stage, direction, code=event.payload)
        elif what == "inductor_post_grad_graph":
            self._post_grad[key] = event.payload
        elif event.kind == "inductor_output_code":
            yield self._inductor_graph(key, event)
        elif what.startswith("fx_graph_cache_") and (fx_key := fx_cache_key(event)):
            self._fx_key[key] = fx_key

    def _inductor_graph(self, key: tuple[str, int], event: TraceEvent) -> Graph:
        # on a cache hit Inductor does not run, so no graph is current: the code itself names its direction
        match = _AOT_ID.search(event.payload or "")
        graph_id = event.graph_id or f"{event.compile_id}.{match['direction'] if match else 'inference'}"
        direction = graph_id.removeprefix(f"{event.compile_id}.").split("#")[0].split(".")[0]
        self._graph_of_file[str(event.data.get("filename"))] = graph_id
        return self._graph(
            graph_id,
            event,
            "post_grad",
            direction,
            code=self._post_grad.pop(key, None),
            output_code=event.payload,
            fx_key=self._fx_key.pop(key, None),
        )

    def _graph(self, graph_id: str, event: TraceEvent, stage: str, direction: str | None, **texts: str | None) -> Graph:
        self._position += 1
        return Graph(
            graph_id=graph_id,
            compile_id=event.compile_id or "",
            stage=stage,
            direction=direction,
            position=self._position - 1,
            **texts,
        )


def fx_cache_key(event: TraceEvent) -> str | None:
    """The FX cache key in a cache event's JSON payload."""
    import json

    try:
        return json.loads(event.payload or "{}").get("key")  # type: ignore[no-any-return]
    except ValueError:
        return None
