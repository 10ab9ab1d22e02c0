"""What the scheduler was seen to do with pairs → one decision per distinct pair and round.

can_fuse is asked to find candidates and again before fusing; the second answer may differ, because a neighbour was
fused in between. The verdict is the last word: fused, legal (never refused, yet not taken) or refused. A question asked
inside another one, or while a pair is being fused, is part of that and no pair of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from fusionscope.collector.observations import (
    CandidatesRanked,
    CycleFound,
    FusionBegan,
    FusionBenchmarked,
    PairAnswered,
    PairEntered,
    PairFused,
    PairScored,
    PredicateAnswered,
    ReasonLogged,
    RoundBegan,
)
from fusionscope.storage.reasons import reason_code
from fusionscope.storage.records import FusionDecision

CYCLE = "will create cycle"  # torch's own words
UNMEASURED, MEASURED = "Scheduler.speedup_by_fusion", "Scheduler.benchmark_codegened_module"


@dataclass(slots=True)
class _Pair:
    """What is known so far about a pair in a round."""

    direction: str = "horizontal"
    fusible: bool = False
    times: int = 0
    reason: str | None = None
    refused_by: str | None = None
    shared: int | None = None
    score: PairScored | None = None
    rank: int | None = None
    order: int | None = None
    result: str | None = None
    ms_before: float | None = None
    ms_after: float | None = None


@dataclass(slots=True)
class _Question:
    """An open can_fuse call, or a fusion that is being made."""

    reasons: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    shared: int | None = None


class FusionLedger:
    """Replays the observations of one graph."""

    def __init__(self, graph_id: str) -> None:
        self._graph_id = graph_id
        self._round = 0
        self._fused = 0
        self._pairs: dict[tuple[int, str, str], _Pair] = {}
        self._open: list[_Question] = []

    def replay(self, observations: Iterable[object]) -> list[FusionDecision]:
        """Decisions of the graph, in the order in which the pairs were first met."""
        for observation in observations:
            self._take(observation)
        return [self._decision(key, pair) for key, pair in self._pairs.items()]

    def _take(self, seen: object) -> None:
        match seen:
            case RoundBegan():
                self._round += 1
            case PairEntered() | FusionBegan():
                self._open.append(_Question())
            case ReasonLogged() if self._open:
                self._open[-1].reasons.append(seen.reason)
            case ReasonLogged():  # a legal pair, dropped once it was compiled and benchmarked
                self._drop(seen.a, seen.b, seen.reason, UNMEASURED)
            case FusionBenchmarked():
                self._benchmark(seen)
            case PredicateAnswered() if self._open:
                self._predicate(self._open[-1], seen)
            case PairAnswered() if self._open:
                self._answer(seen)
            case PairScored():
                self._pair(seen.a, seen.b).score = seen
            case CandidatesRanked():
                for rank, (a, b) in enumerate(seen.pairs):
                    self._pair(a, b).rank = rank
            case PairFused():
                if self._open:
                    self._open.pop()
                self._fuse(seen)
            case CycleFound():
                self._drop(seen.a, seen.b, CYCLE, "Scheduler.will_fusion_create_cycle")

    def _pair(self, a: str, b: str) -> _Pair:
        return self._pairs.setdefault((self._round, a, b), _Pair())

    def _predicate(self, question: _Question, seen: PredicateAnswered) -> None:
        if seen.shared_bytes is not None:
            question.shared = seen.shared_bytes
        if not seen.answer:
            question.refusals.append(seen.predicate)

    def _answer(self, seen: PairAnswered) -> None:
        question = self._open.pop()
        if self._open:  # a nested question: what refused it may be why the outer pair is refused
            if not seen.fusible:
                self._open[-1].reasons += question.reasons
                self._open[-1].refusals += question.refusals
            return
        if seen.a == seen.b:
            return  # a stale pair: both ends are in one group by now
        pair = self._pair(seen.a, seen.b)
        pair.times += 1
        pair.direction, pair.fusible = seen.direction, seen.fusible
        pair.shared = question.shared if question.shared is not None else pair.shared
        pair.reason = None if seen.fusible else next(iter(question.reasons), None)
        pair.refused_by = None if seen.fusible else _refused_by(question)

    def _drop(self, a: str, b: str, reason: str | None, refused_by: str) -> None:
        pair = self._pair(a, b)
        pair.fusible, pair.reason, pair.refused_by = False, reason, refused_by

    def _benchmark(self, seen: FusionBenchmarked) -> None:
        pair = self._pair(seen.a, seen.b)
        pair.ms_before, pair.ms_after = _milliseconds(seen)
        if not seen.fuse and pair.reason is None:
            self._drop(seen.a, seen.b, None, UNMEASURED if pair.ms_after is None else MEASURED)

    def _fuse(self, seen: PairFused) -> None:
        pair = self._pair(seen.a, seen.b)
        pair.order, pair.result, pair.fusible = self._fused, seen.result, True
        pair.direction = seen.became or pair.direction
        self._fused += 1

    def _decision(self, key: tuple[int, str, str], pair: _Pair) -> FusionDecision:
        round_, a, b = key
        verdict = "fused" if pair.result else "legal" if pair.fusible else "refused"
        score = pair.score
        return FusionDecision(
            graph_id=self._graph_id,
            round=round_,
            a=a,
            b=b,
            direction=pair.direction,
            verdict=verdict,
            reason_code=reason_code(pair.reason, pair.refused_by) if verdict == "refused" else None,
            reason=pair.reason,
            refused_by=pair.refused_by,
            score_template=score.template if score else None,
            score_type=score.type if score else None,
            score_memory=score.memory if score else None,
            score_overlap=score.overlap if score else None,
            score_proximity=score.proximity if score else None,
            rank=pair.rank,
            order_taken=pair.order,
            result=pair.result,
            shared_bytes=pair.shared,
            ms_before=pair.ms_before,
            ms_after=pair.ms_after,
            times_tested=max(pair.times, 1),
        )


def _refused_by(question: _Question) -> str:
    """The predicate that said no, the scheduler's own wrapper of a backend's refusal aside."""
    return next(iter(question.refusals), "Scheduler.can_fuse")


def _milliseconds(seen: FusionBenchmarked) -> tuple[float | None, float | None]:
    """Both apart and fused. A kernel that spills too many registers is given an infinite time: it has none."""
    apart: list[float | None] = [seen.template_ms, seen.other_ms]
    fused = min(seen.kernels_ms, default=math.inf)
    if seen.template_ms is None:
        apart, fused = [*seen.kernels_ms[:2]], seen.kernels_ms[2] if len(seen.kernels_ms) > 2 else math.inf
    known = [ms for ms in apart if ms is not None and math.isfinite(ms)]
    return sum(known) if len(known) == 2 else None, fused if math.isfinite(fused) else None
