"""Why a pair of groups is one kernel or two: what the scheduler said each time that they met, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.table import table
from fusionscope.storage.queries import fusion, fusion_ops
from fusionscope.storage.queries.fusion import Decision, Group, SourceLine
from fusionscope.storage.queries.fusion_ops import Handover
from fusionscope.storage.reasons import REASONS

SILENT = {"legal": "could have been fused; another fusion was taken first", "refused": "torch gave no reason"}
PARTS = ("template", "type", "memory", "overlap", "proximity")  # in the order in which Inductor compares them


def pair_panel(run_id: str, graph_id: str, a: Group, b: Group) -> None:
    """The answer for two groups: verdict, reason, rounds, scores, bytes, source of both."""
    met = between(data.ask(fusion.decisions, run_id, graph_id), a, b)
    passed = handed_over(data.ask(fusion_ops.handovers, run_id, graph_id), a, b)
    with st.container(key="entry-verdict", gap="small"):
        st.text(verdict(met, a, b))
        st.text("\n".join(filter(None, (explanation(met), cost(met, passed)))))
    for side, group in (("First", a), ("Second", b)):
        _side(side, group, data.ask(fusion.source_lines, run_id, graph_id, group.group_id))
    if met:
        _rounds(met)
        _scores(met, data.ask(fusion.decisions, run_id, graph_id))
    _doors(run_id, graph_id, a, b, passed)


def between(decisions: Iterable[Decision], a: Group, b: Group) -> list[Decision]:
    """Every meeting of a part of one group with a part of the other, the last one first."""
    first, second = {a.group_id}, {b.group_id}
    met = [
        d
        for d in decisions
        if (first & set(d.a_groups) and second & set(d.b_groups))
        or (second & set(d.a_groups) and first & set(d.b_groups))
    ]
    return sorted(met, key=lambda d: (-d.round, d.verdict != "fused", d.verdict != "refused", -(d.shared_bytes or 0)))


def handed_over(handovers: Iterable[Handover], a: Group, b: Group) -> list[Handover]:
    """Buffers that one of the two writes and the other reads through memory, each once."""
    ends = {(a.group_id, b.group_id), (b.group_id, a.group_id)}
    found = [h for h in handovers if h.materialised and (h.src_group, h.dst_group) in ends]
    return list({h.buffer: h for h in found}.values())


def verdict(met: Sequence[Decision], a: Group, b: Group) -> str:
    """The last word, in a sentence."""
    if a.group_id == b.group_id:
        return f"They are one group, made by {style.plural(len(a.members) - 1, 'fusion')}."
    if not met:
        return f"Never tested: {never(a, b)}"
    last = met[0]
    rounds = sorted({d.round for d in met if d.round})
    when = f" in round {', '.join(map(str, rounds))}" if rounds else ""
    if last.verdict == "untested":
        return plain_words(last) or "Never tested."
    said = {"refused": "Refused", "legal": "Legal, but not taken", "fused": "Fused"}[last.verdict]
    return f"{said}: they met{when}."


def never(a: Group, b: Group) -> str:
    """Why the scheduler did not pair two groups that it said nothing about."""
    kinds = {a.kind, b.kind}
    if "extern" in kinds:
        return "one of the two is a library call, which the scheduler leaves out of every pairing."
    if "nop" in kinds:
        return "one of the two does no work of its own."
    return "they touch no buffer in common, and the scheduler only pairs nodes that share one."


def explanation(met: Sequence[Decision]) -> str | None:
    """Torch's own words, who said them, and what they mean."""
    last = met[0] if met else None
    if last is None or last.verdict == "untested":
        return None
    by = f" ({last.refused_by})" if last.refused_by else ""
    said = (
        f"torch says: {last.reason}{by}"
        if last.reason
        else f"{SILENT[last.verdict]}{by}"
        if last.verdict in SILENT
        else ""
    )
    return "\n".join(filter(None, (said[:1].upper() + said[1:], plain_words(last))))


def cost(met: Sequence[Decision], passed: Sequence[Handover]) -> str:
    """What went through memory since the two are apart."""
    if passed:
        sizes = [h.bytes for h in passed if h.bytes is not None]
        total = style.size(sum(sizes)) if sizes else "an unknown number of bytes"
        names = ", ".join(h.buffer for h in passed[:4]) + (" …" if len(passed) > 4 else "")
        return f"Because of it {total} went through memory: {names}, written by one and read by the other."
    shared = max((d.shared_bytes or 0 for d in met), default=0)
    if shared:
        return f"Both touch the same {style.size(shared)}, which is read once for each of them."
    return "No buffer goes from one to the other." if met else ""


def _rounds(met: Sequence[Decision]) -> None:
    rows = [
        {
            "round": d.round or None,
            "verdict": d.verdict,
            "reason": d.reason or d.refused_by or ("" if d.verdict == "untested" else SILENT.get(d.verdict, "")),
            "first": d.a,
            "second": d.b,
            "as": d.direction,
            "tests": d.times_tested,
            "shared": d.shared_bytes,
        }
        for d in sorted(met, key=lambda d: d.round)
    ]
    table(rows, {"shared": style.size, "round": style.number}, key="pair-rounds", config={"reason": {"width": 240}})


def _scores(met: Sequence[Decision], decisions: Iterable[Decision]) -> None:
    """The parts of the score beside those of the fusion that one of the two went into instead."""
    own = next((d for d in met if score_parts(d)), None)
    winner = won_instead(met, decisions)
    shown = [("this pair", own), (f"won: {winner.a} + {winner.b}" if winner else "", winner)]
    rows = [{"": title, "rank": d.rank, **score_parts(d)} for title, d in shown if d is not None]
    if not rows:
        style.note("The pair has no score: it was refused before scores are given.", "pair-score")
        return
    table(rows, dict.fromkeys(("rank", *PARTS), style.number), key="pair-score")
    alone = "" if own else " This pair was refused before it was scored."
    style.note(f"Parts of the score, compared from left to right; rank 0 is taken first.{alone}", "pair-score")


def won_instead(met: Sequence[Decision], decisions: Iterable[Decision]) -> Decision | None:
    """The fusion that took a side of the pair in the last round in which the two met as candidates."""
    rounds = {d.round: d for d in met if d.verdict in ("refused", "legal")}
    for round_ in sorted(rounds, reverse=True):
        sides = set(rounds[round_].a.split("_")) | set(rounds[round_].b.split("_"))
        taken = [
            d
            for d in decisions
            if d.verdict == "fused" and d.round == round_ and sides & {*d.a.split("_"), *d.b.split("_")}
        ]
        if taken:
            return min(taken, key=lambda d: d.order_taken or 0)
    return None


def _side(title: str, group: Group, lines: Sequence[SourceLine]) -> None:
    with st.container(key=f"entry-side-{title}", gap=None):
        st.text(f"{title}: {_name(group)}")
        places = [
            f"{style.source_line(line.file, line.line)}  {(line.source_text or '').strip()}"
            for line in lines
            if line.file
        ]
        if places:
            st.text("\n".join(places[-2:]))


def _doors(run_id: str, graph_id: str, a: Group, b: Group, passed: Sequence[Handover]) -> None:
    """Where to go on: both kernels, and the moment at which what they hand over is alive."""
    with st.container(horizontal=True):
        for title, group in (("Kernel of the first", a), ("Kernel of the second", b)):
            if group.kernel_id:
                style.door(title, "kernels", run_id, kernel=group.kernel_id)
        steps = data.ask(fusion_ops.allocations, run_id, graph_id)
        step = next((steps[h.buffer] for h in passed if h.buffer in steps), None)
        if step is not None:
            style.door("In memory", "memory", run_id, graph=graph_id, step=str(step))


def _name(group: Group) -> str:
    return style.short(f"{group.group_id} ({computed(group.ops)})", 60)


def meetings(decisions: Iterable[Decision]) -> Iterable[tuple[Decision, list[int]]]:
    """Each pair once, with the rounds in which it met the same answer; what was fused first, then by shared bytes."""
    same = groupby(sorted(decisions, key=_telling), key=lambda d: (d.a, d.b, d.verdict, d.reason, d.refused_by))
    for _, found in same:
        tests = list(found)
        yield tests[-1], [test.round for test in tests]


def _telling(decision: Decision) -> tuple[int, int, str, str, int]:
    """What was fused in the order taken, then refusals by shared bytes; the tests of a pair stand together."""
    fused = decision.verdict == "fused"
    kind = 0 if fused else 1 + (decision.verdict != "refused")
    weight = decision.order_taken or 0 if fused else -(decision.shared_bytes or 0)
    return kind, weight, decision.a, decision.b, decision.round


def headline(decision: Decision, group_id: str) -> str:
    """Verdict and partner, from the side of a group."""
    (own, _), (other, _) = _sides(decision, group_id)
    inside = group_id in decision.a_groups and group_id in decision.b_groups
    shared = f" · {style.size(decision.shared_bytes)} shared" if decision.shared_bytes is not None else ""
    return f"{decision.verdict}: {own} {'+' if inside else 'with'} {other}{shared}"


def _sides(decision: Decision, group_id: str) -> list[tuple[str, tuple[str, ...]]]:
    """Name and FX nodes of both sides, the group's own first."""
    sides = [(decision.a, decision.a_ops), (decision.b, decision.b_ops)]
    return sides if group_id in decision.a_groups else sides[::-1]


def details(decision: Decision, group_id: str, rounds: list[int]) -> list[str]:
    """Reason, meaning, operators, rounds and score of a decision, a line each."""
    reason = decision.reason or SILENT.get(decision.verdict, "")
    by = f" ({decision.refused_by})" if decision.refused_by else ""
    ops = " | ".join(computed(ops) for _, ops in _sides(decision, group_id))
    where = f"{decision.direction}, round {', '.join(map(str, rounds))}"
    return list(filter(None, (reason + by, plain_words(decision), ops, where, scores(decision))))


def plain_words(decision: Decision) -> str | None:
    """What a refusal means, and what one could do."""
    return plain_words_of(decision.reason_code)


def plain_words_of(code: str | None) -> str | None:
    """The sentence and the advice of a reason code; None without one."""
    if code is None:
        return None
    known = REASONS.get(code, REASONS["other"])
    return " ".join(filter(None, (known.sentence, known.advice)))


def computed(ops: tuple[str, ...], shown: int = 3) -> str:
    """The last FX nodes of a side, which are what it hands on."""
    return ("…, " if len(ops) > shown else "") + ", ".join(ops[-shown:])


def score_parts(decision: Decision) -> dict[str, int]:
    """The parts of the score that are known; empty where the pair was not scored."""
    parts = {part: getattr(decision, f"score_{part}") for part in PARTS}
    return {part: value for part, value in parts.items() if value is not None}


def scores(decision: Decision) -> str:
    """The parts of the score, in the order in which Inductor compares them."""
    known = score_parts(decision)
    rank = f"rank {decision.rank}: " if decision.rank is not None and known else ""
    return rank + ", ".join(f"{name} {style.number(value)}" for name, value in known.items())
