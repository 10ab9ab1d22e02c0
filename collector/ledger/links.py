"""One value under the names that the graphs of a compilation give it, and what the backward computes again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from fusionscope.collector.observations import NodeTraced
from fusionscope.storage.records import GraphNode, NodeLink

_PARTS = ("aot_forward", "aot_backward")  # of the joint graph
_TRACED_INTO = {"aot_forward": "joint", "aot_backward": "joint", "inference": "inference"}  # by way of which graph


class Links:
    """Follows names from graph to graph.

    The partitioner copies the joint graph's nodes under their names, and Inductor's passes change those graphs in
    place (torch/_functorch/partitioners.py, torch/_inductor/compile_fx.py), where a graph gives out no name twice. So
    a name of a later graph that the graph before it has is the same value; one that it lacks was made by a pass.
    """

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = defaultdict(set)  # graph → its nodes
        self._again: dict[str, dict[str, bool]] = defaultdict(dict)  # graph → operation → is it in both directions
        self._traced: set[tuple[str, str]] = set()  # graph and node that are linked to Dynamo's graph

    def take(self, seen: GraphNode | NodeTraced) -> Iterator[GraphNode | NodeLink]:
        """The node as it is recorded, and its links to the graphs before it."""
        compile_id, _, stage = seen.graph_id.partition(".")
        if isinstance(seen, NodeTraced):
            yield from self._from_dynamo(compile_id, stage, seen)
            return
        recomputed = self._recomputed(compile_id, stage, seen)
        yield seen if recomputed == seen.recomputed else replace(seen, recomputed=recomputed)
        self._names[seen.graph_id].add(seen.node)
        if seen.op != "output":
            for earlier in self._holders(compile_id, stage, seen.node):
                yield NodeLink(graph_a=earlier, node_a=seen.node, graph_b=seen.graph_id, node_b=seen.node)

    def _from_dynamo(self, compile_id: str, stage: str, seen: NodeTraced) -> Iterator[NodeLink]:
        captured, traced = f"{compile_id}.dynamo", f"{compile_id}.{_TRACED_INTO.get(stage)}"
        if stage not in _TRACED_INTO or seen.dynamo_node not in self._names[captured]:
            return  # in a graph inside the graph, or behind a pass that gave Dynamo's nodes other names
        if (traced, seen.node) not in self._traced:  # what is computed again is in both parts of the joint graph
            self._traced.add((traced, seen.node))
            yield NodeLink(graph_a=captured, node_a=seen.dynamo_node, graph_b=traced, node_b=seen.node)

    def _holders(self, compile_id: str, stage: str, node: str) -> Iterator[str]:
        """The earlier graphs that hold the value."""
        kind, _, nth = stage.partition("#")
        if kind in _PARTS:
            yield f"{compile_id}.joint#{nth}" if nth else f"{compile_id}.joint"
        elif stage in ("forward", "backward") and node in self._names[f"{compile_id}.aot_{stage}"]:
            yield f"{compile_id}.aot_{stage}"
            forward = f"{compile_id}.forward"
            if stage == "backward" and node in self._names[f"{compile_id}.aot_forward"] & self._names[forward]:
                yield forward

    def _recomputed(self, compile_id: str, stage: str, seen: GraphNode) -> bool | None:
        if seen.recomputed is not None:
            self._again[seen.graph_id][seen.node] = seen.recomputed
            return seen.recomputed
        return self._again.get(f"{compile_id}.aot_{stage}", {}).get(seen.node)
