"""Pairs that share a buffer and were never tested, so that "no refusal" is not read as "nothing missed".

Scheduler.get_possible_fusions leaves out library calls and nodes without work (unfusable_node), and of the users of one
buffer it pairs only those within max_fusion_buffer_group_pairwise_attempts of each other. Nodes of a foreach operation
are together from the start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, combinations

from fusionscope.collector.ledger.graph_facts import GraphFacts
from fusionscope.collector.observations import RowsLeftOut
from fusionscope.storage.records import FusionDecision

_LOOPS = ("pointwise", "reduction", "template")
MOST_NEIGHBOURS = 500  # untested pairs of users in a graph: they grow with the square of the users of a buffer


def untested_pairs(facts: GraphFacts, decisions: Iterable[FusionDecision]) -> list[FusionDecision | RowsLeftOut]:
    """One decision "untested" for each such pair, with the reason that the scheduler passed it by."""
    tested = {pair for decision in decisions for pair in _node_pairs(decision)}
    found: dict[tuple[str, str], FusionDecision] = {}
    neighbours, beyond = 0, set()
    for a, b, direction, shared in chain(_producers(facts), _neighbours(facts)):
        together = a in facts.group_of and facts.group_of[a] == facts.group_of.get(b)
        if together or (a, b) in tested or (b, a) in tested or (a, b) in found:
            continue
        neighbours += direction == "horizontal"
        if neighbours > MOST_NEIGHBOURS:
            beyond.add((a, b))
        else:
            found[a, b] = _untested(facts, a, b, direction, shared)
    limit = f"a graph keeps {MOST_NEIGHBOURS} pairs of users of a buffer that were never tested"
    return [*found.values(), *([RowsLeftOut("fusion_decisions", len(beyond), limit)] if beyond else [])]


def _node_pairs(decision: FusionDecision) -> Iterator[tuple[str, str]]:
    """A fused node's name joins those of its members (op7_op8): testing groups tests each pair across them."""
    return ((a, b) for a in decision.a.split("_") for b in decision.b.split("_"))


def _producers(facts: GraphFacts) -> Iterator[tuple[str, str, str, int | None]]:
    for edge in facts.edges:
        if edge.src in facts.nodes and edge.dst in facts.nodes:
            yield edge.src, edge.dst, "vertical", edge.bytes


def _neighbours(facts: GraphFacts) -> Iterator[tuple[str, str, str, int | None]]:
    readers: dict[str, list[str]] = defaultdict(list)
    for edge in facts.edges:
        if edge.dst in facts.nodes and facts.nodes[edge.dst].kind in _LOOPS:
            readers[edge.buffer].append(edge.dst)
    size = {edge.buffer: edge.bytes for edge in facts.edges}
    for buffer, users in readers.items():
        for a, b in combinations(dict.fromkeys(users), 2):
            yield a, b, "horizontal", size[buffer]


def _untested(facts: GraphFacts, a: str, b: str, direction: str, shared: int | None) -> FusionDecision:
    kinds = {facts.nodes[a].kind, facts.nodes[b].kind}
    code = "library_call" if "extern" in kinds else "no_work" if "nop" in kinds else "too_many_users"
    return FusionDecision(
        graph_id=facts.graph_id,
        round=0,
        a=a,
        b=b,
        direction=direction,
        verdict="untested",
        reason_code=code,
        shared_bytes=shared,
        times_tested=0,
    )
