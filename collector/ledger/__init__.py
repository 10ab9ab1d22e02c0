"""Raw observations → records. Hooks say what they saw; the ledger says what was decided, once a compile has ended."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fusionscope.collector.ledger import caches, side_effects
from fusionscope.collector.ledger.attention import Attention
from fusionscope.collector.ledger.compiles import Compiles
from fusionscope.collector.ledger.configs import Configs
from fusionscope.collector.ledger.cudagraphs import Recordings
from fusionscope.collector.ledger.fusion import FusionLedger
from fusionscope.collector.ledger.gemm import gemm_choices
from fusionscope.collector.ledger.graph_facts import Block, GraphFacts, root_of
from fusionscope.collector.ledger.graphs import Graphs
from fusionscope.collector.ledger.kernels import edges_with_memory, kernels_and_calls
from fusionscope.collector.ledger.links import Links
from fusionscope.collector.ledger.loops import loop_reorderings
from fusionscope.collector.ledger.lowering import realize_decisions
from fusionscope.collector.ledger.phases import Phases
from fusionscope.collector.ledger.plan import Plan, carry_out
from fusionscope.collector.ledger.symbols import Symbols
from fusionscope.collector.ledger.untested import untested_pairs
from fusionscope.collector.observations import (
    BackendCalled,
    GraphCalled,
    KernelDefined,
    LauncherSeen,
    NodeTraced,
    TraceEvent,
)
from fusionscope.storage.records import TABLE_OF, FusionGroup, GraphBreak, GraphNode, IrEdge, IrNode, LayoutChange

_READY = TABLE_OF.keys() - {IrNode, IrEdge, FusionGroup, GraphNode}  # those a graph's folds read as well


class Ledger:
    """Collects observations and turns those of finished graphs into records."""

    def __init__(self, began_at_s: float | None = None, compile_limit: int | None = None) -> None:
        began = time.time() if began_at_s is None else began_at_s
        self._ready: list[Any] = []
        self._graphs: dict[str, list[object]] = defaultdict(list)
        self._events: list[TraceEvent] = []
        self._launchers: list[LauncherSeen] = []
        self._nodes: list[GraphNode | NodeTraced] = []
        self._links = Links()
        self.texts = Graphs()
        self.plans: dict[str, Plan] = {}  # graph → its plan, which measuring compares with what it sees
        self._returned: dict[str, list[tuple[str, Block]]] = {}  # forward graph → the values that it returns
        self.backends: dict[str, str] = {}  # compile → backend
        self._calls: dict[str, int] = {}  # compile → runs of its forward graph by the program
        self._compiles = Compiles(began, compile_limit, self.backends, self._calls)
        self._symbols = Symbols()
        self._configs = Configs()
        self._takers: tuple[Callable[[TraceEvent], Iterator[Any]], ...] = (
            self.texts.take,
            self._compiles.take,
            self._symbols.take,
            Phases(began).take,
            Recordings().take,
            Attention().take,
            caches.take,
            side_effects.take,
        )

    def backends_without_inductor(self) -> list[str]:
        """Names of the backends that took a graph which never reached Inductor."""
        reached = self.texts.compiled
        return sorted({name for key, name in self.backends.items() if name != "inductor" and key not in reached})

    def breaks(self) -> list[GraphBreak]:
        """Every break of the run, with how often it ran: known once the run has ended."""
        return self._compiles.breaks()

    def add(self, observation: Any) -> None:
        """Keep an observation; nothing is worked out while a compile runs."""
        kind = type(observation)
        if kind in _READY:
            self._ready.append(observation)
            if kind is LayoutChange and observation.graph_id:
                self._graphs[observation.graph_id].append(observation)
        elif kind is TraceEvent:
            self._events.append(observation)
        elif kind is BackendCalled:
            self.backends[observation.compile_id] = observation.backend
        elif isinstance(observation, LauncherSeen):
            self._launchers.append(observation)
        elif kind is GraphCalled:  # of a graph that DDP split each part is called once a call
            self._calls[observation.compile_id] = max(observation.calls, self._calls.get(observation.compile_id, 0))
        elif kind is GraphNode or kind is NodeTraced:
            self._nodes.append(observation)
        else:
            self._graphs[observation.graph_id].append(observation)

    def drain(self, *, final: bool = False) -> list[Any]:
        """Records of everything that is complete; at the end, of what is not as well."""
        events, self._events = self._events, []
        records, self._ready = self._ready, []
        nodes, self._nodes = self._nodes, []
        records += [record for node in nodes for record in self._links.take(node)]
        done = {event.graph_id: event.payload for event in events if event.kind == "inductor_output_code"}
        # another thread may begin a graph at any moment
        complete = {g: self._graphs.pop(g) for g in list(self._graphs) if final or root_of(g) in done}
        defined = _kernels_defined(complete)
        for graph_id, observations in complete.items():
            facts = GraphFacts(graph_id, observations, defined[root_of(graph_id)], self._returned_to(graph_id))
            if facts.direction == "forward" and facts.function == "call":
                self._returned[graph_id] = facts.returned
            self.plans[graph_id] = plan = carry_out(facts)
            records += _fold_graph(facts, plan, observations, done.get(root_of(graph_id)))
            self._configs.graph_ended(facts)
        launchers, self._launchers = self._launchers, []
        for launcher in launchers:
            self._configs.take(launcher)
        records += self._configs.drain(final=final)
        records += [record for event in events for take in self._takers for record in take(event)]
        records += [self.texts.subgraph(graph_id) for graph_id in complete if root_of(graph_id) != graph_id]
        if not final:
            return records
        return [*records, *self.texts.finish(), *self._compiles.finish(), *self._symbols.finish()]

    def _returned_to(self, graph_id: str) -> list[tuple[str, Block]]:
        """What the forward of a backward returned; nothing where DDP split the frame: which is whose is not known."""
        compile_id, _, direction = graph_id.partition(".")
        forwards = [graph for graph in self._returned if graph.startswith(f"{compile_id}.")]
        return self._returned[forwards[0]] if direction == "backward" and len(forwards) == 1 else []


def _kernels_defined(graphs: Mapping[str, list[object]]) -> dict[str, dict[str, KernelDefined]]:
    """The kernels of each wrapper: a graph and its subgraphs share theirs."""
    found: dict[str, dict[str, KernelDefined]] = defaultdict(dict)
    for graph_id, observations in graphs.items():
        found[root_of(graph_id)] |= {seen.kernel: seen for seen in observations if isinstance(seen, KernelDefined)}
    return found


def _fold_graph(facts: GraphFacts, plan: Plan, observations: list[object], output_code: str | None) -> list[Any]:
    kernels, calls = kernels_and_calls(facts, plan, output_code)
    decisions = FusionLedger(facts.graph_id).replay(observations)
    return [
        *facts.nodes.values(),
        *edges_with_memory(facts, plan),
        *facts.groups,
        *decisions,
        *untested_pairs(facts, decisions),
        *loop_reorderings(facts.graph_id, observations),
        *realize_decisions(facts),
        *plan.points,
        *plan.buffers.values(),
        *kernels,
        *calls,
        *gemm_choices(facts, observations),
    ]
