"""Candidates, times and failures → one row per candidate, and which of them the compiled code runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from fusionscope.collector.ledger.graph_facts import GraphFacts
from fusionscope.collector.observations import CandidateFailed, CandidatesListed, CandidateTimed, TemplateTaken
from fusionscope.storage.records import GemmChoice


def gemm_choices(facts: GraphFacts, observations: Iterable[object]) -> list[GemmChoice]:
    """The contests of a graph, in the order in which they were set up."""
    contests: dict[int, _Contest] = {}
    for seen in observations:
        if isinstance(seen, CandidatesListed):
            contests[seen.contest] = _Contest(seen)
        elif isinstance(seen, (CandidateTimed, CandidateFailed, TemplateTaken)) and seen.contest in contests:
            contests[seen.contest].take(seen)
    return [row for contest in contests.values() for row in contest.rows(facts)]


class _Contest:
    """One list of candidates and what became of each, by position."""

    def __init__(self, listed: CandidatesListed) -> None:
        self._listed = listed
        self._op = listed.op
        self._times: dict[int, float] = {}
        self._errors: dict[int, str] = {}
        self._taken: int | None = None

    def take(self, seen: CandidateTimed | CandidateFailed | TemplateTaken) -> None:
        """Add what was seen; the latest word counts."""
        if isinstance(seen, CandidateTimed):
            self._op = seen.op
            self._times[seen.position] = seen.ms
        elif isinstance(seen, CandidateFailed):
            self._errors[seen.position] = seen.error.splitlines()[0][:300]
        else:
            self._taken = seen.position

    def rows(self, facts: GraphFacts) -> Iterator[GemmChoice]:
        """A row per candidate; without a winner `chosen` is None for all."""
        winner = self._winner(facts)
        for position, candidate in enumerate(self._listed.candidates):
            time = self._times.get(position, math.inf)
            yield GemmChoice(
                graph_id=self._listed.graph_id,
                op=self._op or candidate.name,
                node=self._listed.node,
                shapes=self._listed.shapes,
                choice=candidate.name,
                kind=candidate.kind,
                config=candidate.config,
                time_us=time * 1000 if math.isfinite(time) else None,
                chosen=None if winner is None else position == winner,
                error=self._error(position),
            )

    def _winner(self, facts: GraphFacts) -> int | None:
        """The template that the scheduler took; else the fastest, as AlgorithmSelectorCache.__call__ picks it.

        A library call in the compiled code says that no template was: its layout did not suit
        (Scheduler.finalize_multi_template_buffers).
        """
        candidates = self._listed.candidates
        if len(candidates) == 1:
            return 0
        if self._taken is not None:
            return self._taken
        runs = {position: time for position, time in self._times.items() if math.isfinite(time)}
        if _is_library_call(facts, self._listed.node):
            runs = {i: time for i, time in runs.items() if candidates[i].kind not in ("triton", "cpp")} or runs
        return min(runs, key=lambda position: runs[position]) if runs else None

    def _error(self, position: int) -> str | None:
        unknown = "it could not run; torch kept no reason" if math.isinf(self._times.get(position, 0)) else None
        return self._errors.get(position, unknown)


def _is_library_call(facts: GraphFacts, node: str | None) -> bool:
    """Whether the compiled code computes an FX node by a library, though it may have been a template meanwhile."""
    calls = {ir_node for kernel in facts.written if kernel.extern for ir_node in kernel.ir_nodes}
    return any(node in facts.nodes[name].origins for name in calls if name in facts.nodes)
