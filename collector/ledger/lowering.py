"""What lowering was asked about producers with several users → one decision per producer, with its reason in words."""

from __future__ import annotations

from collections import Counter

from fusionscope.collector.ledger.graph_facts import GraphFacts
from fusionscope.collector.observations import RealizeAsked
from fusionscope.storage.records import RealizeDecision

# torch/_inductor/ir.py, StorageBox.should_realize_on_reuse: repeated only at a price on a CPU
_HEAVY_ON_CPU = ("exp", "log", "log10", "log1p", "log2", "sigmoid", "tanh")


def realize_decisions(facts: GraphFacts) -> list[RealizeDecision]:
    """Each producer is asked about twice (as a hint and at its use): one yes is enough to realize it."""
    loops = [node for node in facts.nodes.values() if node.kind in ("pointwise", "reduction")]
    copies = Counter(origin for node in loops for origin in set(node.origins))  # a library call only reads its origins
    asked: dict[str, RealizeAsked] = {}
    for question in facts.realized:
        known = asked.get(question.node)
        if known is None or question.realized or not known.realized:
            asked[question.node] = question
    return [_decision(question, copies.get(question.node)) for question in asked.values()]


def _decision(asked: RealizeAsked, copies: int | None) -> RealizeDecision:
    return RealizeDecision(
        graph_id=asked.graph_id,
        node=asked.node,
        users=asked.users,
        reads=asked.reads,
        opcount=asked.opcount,
        threshold=asked.thresholds,
        realized=asked.realized,
        reason=_why_realized(asked) if asked.realized else _why_inlined(asked, copies),
        bytes=asked.bytes,
        copies=copies,
    )


def _why_realized(asked: RealizeAsked) -> str:
    heavy = [op for op in asked.ops if op in _HEAVY_ON_CPU]
    if asked.cpu and heavy:
        return f"realized: {', '.join(heavy)} is too costly on a CPU to be computed in each of {asked.users} users"
    return f"realized: {_size(asked)} pass a limit ({asked.thresholds})"


def _why_inlined(asked: RealizeAsked, copies: int | None) -> str:
    cheap = f"{_size(asked)} stay below the limits ({asked.thresholds})"
    if copies is None or copies < 2:
        return f"inlined: {cheap}"
    return f"inlined: {cheap}, so it is computed again in each of {copies} scheduler nodes"


def _size(asked: RealizeAsked) -> str:
    return f"{_count(asked.reads, 'read')} and {_count(asked.opcount, 'operation')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
