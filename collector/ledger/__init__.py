"""Raw observations → records. Hooks say what they saw; the ledger says what was decided, once a compile has ended."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from fusionscope.collector.ledger import caches
from fusionscope.collector.ledger.compiles import Compiles
from fusionscope.collector.ledger.fusion import FusionLedger
from fusionscope.collector.ledger.graph_facts import GraphFacts
from fusionscope.collector.ledger.graphs import Graphs
from fusionscope.collector.ledger.kernels import edges_with_memory, kernels_and_calls
from fusionscope.collector.ledger.lowering import realize_decisions
from fusionscope.collector.ledger.phases import Phases
from fusionscope.collector.ledger.plan import carry_out
from fusionscope.collector.observations import BackendCalled, TraceEvent
from fusionscope.storage.records import TABLE_OF, FusionGroup, IrEdge, IrNode

_NEEDED_WHOLE = (IrNode, IrEdge, FusionGroup)  # records that a graph's folds read as well


class Ledger:
    """Collects observations and turns those of finished graphs into records."""

    def __init__(self, began_at_s: float | None = None, compile_limit: int | None = None) -> None:
        began = time.time() if began_at_s is None else began_at_s
        self._ready: list[Any] = []
        self._graphs: dict[str, list[object]] = defaultdict(list)
        self._events: list[TraceEvent] = []
        self.texts = Graphs()
        self.backends: dict[str, str] = {}  # compile → backend
        self._compiles = Compiles(began, compile_limit, self.backends)
        takers = (self.texts.take, self._compiles.take, Phases(began).take, caches.take)
        self._takers: tuple[Callable[[TraceEvent], Iterator[Any]], ...] = takers

    def add(self, observation: Any) -> None:
        """Keep an observation; nothing is worked out while a compile runs."""
        if isinstance(observation, TraceEvent):
            self._events.append(observation)
        elif isinstance(observation, BackendCalled):
            self.backends[observation.compile_id] = observation.backend
        elif type(observation) in TABLE_OF and not isinstance(observation, _NEEDED_WHOLE):
            self._ready.append(observation)
        else:
            self._graphs[observation.graph_id].append(observation)

    def drain(self, *, final: bool = False) -> list[Any]:
        """Records of everything that is complete; at the end, of what is not as well."""
        events, self._events = self._events, []
        records, self._ready = self._ready, []
        done = {event.graph_id: event.payload for event in events if event.kind == "inductor_output_code"}
        for graph_id in list(self._graphs):
            if final or graph_id in done:
                records += _fold_graph(graph_id, self._graphs.pop(graph_id), done.get(graph_id))
        records += [record for event in events for take in self._takers for record in take(event)]
        return records + list(self._compiles.finish()) if final else records


def _fold_graph(graph_id: str, observations: list[object], output_code: str | None) -> list[Any]:
    facts = GraphFacts(graph_id, observations)
    plan = carry_out(facts)
    kernels, calls = kernels_and_calls(facts, plan, output_code)
    return [
        *facts.nodes.values(),
        *edges_with_memory(facts, plan),
        *facts.groups,
        *FusionLedger(graph_id).replay(observations),
        *realize_decisions(facts),
        *plan.points,
        *plan.buffers.values(),
        *kernels,
        *calls,
    ]
