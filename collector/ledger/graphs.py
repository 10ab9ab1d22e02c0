"""Structured-trace events → graphs at each stage, with Inductor's output code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusionscope.collector.ledger.caches import cache_details
from fusionscope.collector.observations import COMPILE_ENDS, TraceEvent
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
    """Pairs Inductor's graph text, the output code and the FX cache key, which follow one another on a thread."""

    def __init__(self) -> None:
        self._position = 0
        self._post_grad: dict[tuple[str, int], str | None] = {}
        self._without_key: dict[tuple[str, int], Graph] = {}  # the key comes last, and only where a cache is on
        self._graph_of_file: dict[str, str] = {}
        self.compiled: set[str] = set()  # compiles of which Inductor compiled a graph

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
            yield from self._left_open(key)
            self._without_key[key] = self._inductor_graph(key, event)
        elif what.startswith("fx_graph_cache_") and key in self._without_key:
            yield replace(self._without_key.pop(key), fx_key=cache_details(event).get("key"))
        elif event.kind in COMPILE_ENDS:
            yield from self._left_open(key)

    def subgraph(self, graph_id: str) -> Graph:
        """A graph inside another (cond, while_loop), whose code is a function in the output code of the outer one."""
        compile_id, direction, *_ = graph_id.split(".")
        self._position += 1
        return Graph(
            graph_id=graph_id,
            compile_id=compile_id,
            stage="post_grad",
            direction=direction.split("#")[0],
            position=self._position - 1,
        )

    def finish(self) -> Iterator[Graph]:
        """Graphs whose compile did not end."""
        yield from self._without_key.values()
        self._without_key.clear()

    def _left_open(self, key: tuple[str, int]) -> Iterator[Graph]:
        if key in self._without_key:
            yield self._without_key.pop(key)

    def _inductor_graph(self, key: tuple[str, int], event: TraceEvent) -> Graph:
        # on a cache hit Inductor does not run, so no graph is current: the code itself names its direction
        match = _AOT_ID.search(event.payload or "")
        graph_id = event.graph_id or f"{event.compile_id}.{match['direction'] if match else 'inference'}"
        direction = graph_id.removeprefix(f"{event.compile_id}.").split("#")[0].split(".")[0]
        self._graph_of_file.setdefault(str(event.data.get("filename")), graph_id)  # equal code shares its file
        self.compiled.add(event.compile_id or "")
        return self._graph(
            graph_id,
            event,
            "post_grad",
            direction,
            code=self._post_grad.pop(key, None),
            output_code=event.payload,
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
