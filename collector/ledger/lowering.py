"""What lowering was asked about producers with several users → one decision per producer, with its reason in words."""

from __future__ import annotations

from collections import Counter

from fusionscope.collector.ledger.graph_facts import GraphFacts
from fusionscope.collector.observations import RealizeAsked
from fusionscope.storage.records import RealizeDecision

# torch/_inductor/ir.py, StorageBox.should_realize_on_reuse: costly to repeat on a CPU (torch 2.11: the first two)
_HEAVY_ON_CPU = ("exp", "sigmoid", "log", "log10", "log1p", "log2", "tanh")


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
        threshold=_limits(asked),
        realized=asked.realized,
        reason=_why_realized(asked) if asked.realized else _why_inlined(asked, copies),
        bytes=asked.bytes,
        copies=copies,
    )


def _why_realized(asked: RealizeAsked) -> str:
    if asked.reads > asked.most_reads or asked.opcount > asked.most_ops:
        return f"realized: {_size(asked)} pass a limit ({_limits(asked)})"
    heavy = [op for op in asked.ops if asked.cpu and op in _HEAVY_ON_CPU]
    # torch 2.14 also realizes inline assembly, and what comes close to the limit of operations where users are many
    costly = f"{', '.join(heavy)} is" if heavy else f"{_size(asked)} are"
    return f"realized: {costly} too costly{' on a CPU' * asked.cpu} to be computed in each of {asked.users} users"


def _limits(asked: RealizeAsked) -> str:
    return f"more than {asked.most_reads} reads or {asked.most_ops} operations"


def _why_inlined(asked: RealizeAsked, copies: int | None) -> str:
    cheap = f"{_size(asked)} stay below the limits ({_limits(asked)})"
    if copies is None or copies < 2:
        return f"inlined: {cheap}"
    return f"inlined: {cheap}, so it is computed again in each of {copies} scheduler nodes"


def _size(asked: RealizeAsked) -> str:
    return f"{_count(asked.reads, 'read')} and {_count(asked.opcount, 'operation')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
