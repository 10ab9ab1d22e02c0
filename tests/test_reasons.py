"""Every refusal that the installed torch can give has a code, a sentence of its own and, where known, a remedy."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import torch

from fusionscope.collector.hooks import fusion_predicates
from fusionscope.collector.ledger.fusion import FusionLedger
from fusionscope.collector.observations import PairAnswered, PairEntered, ReasonLogged, RoundBegan
from fusionscope.storage.reasons import REASONS, reason_code

INDUCTOR = Path(torch.__file__).parent / "_inductor"
CONFIG = re.compile(r"torch\._inductor\.config\.([\w.]*\w)")


def refusals(source: Path) -> Iterator[ast.expr]:
    """What a file of torch says in `why(…)` or `WhyNoFuse(…)(…)`."""
    for call in ast.walk(ast.parse(source.read_text())):
        if isinstance(call, ast.Call) and call.args:
            speaker = call.func.func if isinstance(call.func, ast.Call) else call.func
            if isinstance(speaker, ast.Name) and speaker.id == ("WhyNoFuse" if speaker is not call.func else "why"):
                yield call.args[0]


def text(said: ast.expr) -> str:
    """A refusal as it is logged, with "x" for each value that varies."""
    if isinstance(said, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in said.values)
    return str(ast.literal_eval(said)).replace("%s", "x")


def torch_texts() -> list[str]:
    files = [source for source in INDUCTOR.rglob("*.py") if "WhyNoFuse" in source.read_text()]
    return sorted({text(said) for source in files for said in refusals(source)})


def test_every_refusal_of_this_torch_has_a_code() -> None:
    texts = torch_texts()
    assert len(texts) > 50
    assert [said for said in texts if reason_code(said, "Scheduler.can_fuse") == "other"] == []


def test_every_predicate_that_is_watched_has_a_code() -> None:
    predicates = [target.partition(":")[2] for target in fusion_predicates.TARGETS]
    assert [name for name in predicates if reason_code(None, name) == "other"] == []


def test_a_refusal_is_known_by_one_code_only() -> None:
    known = [words for reason in REASONS.values() for words in reason.known_by]
    assert len(known) == len(set(known))
    assert {words: reason_code(words.replace("*", "x"), None) for words in known} == {
        words: code for code, reason in REASONS.items() for words in reason.known_by
    }


def test_an_unknown_refusal_is_other() -> None:
    assert reason_code("the moon is full", "Scheduler.can_fuse") == "other"
    assert reason_code(None, "NewScheduling.can_fuse_vertical") == "other"


def test_codes_are_names_and_sentences_are_sentences() -> None:
    assert [code for code in REASONS if not re.fullmatch(r"[a-z]+(_[a-z]+)*", code)] == []
    said = [words for reason in REASONS.values() for words in (reason.sentence, reason.advice) if words is not None]
    assert [words for words in said if not words.endswith(".")] == []


def test_every_option_that_a_remedy_of_this_torch_names_exists() -> None:
    from torch._inductor import config

    reasons = [REASONS[code] for code in {reason_code(said, None) for said in torch_texts()}]
    options = {option for reason in reasons for option in CONFIG.findall(f"{reason.sentence} {reason.advice}")}
    assert len(options) > 5
    assert options - config.get_config_copy().keys() == set()


def test_a_pair_that_is_dropped_after_its_benchmark_is_refused_with_torchs_reason() -> None:
    spilled = ReasonLogged("g", "op0", "op1", "register spilling of the fused kernel")
    asked = [PairEntered("g", "op0", "op1"), PairAnswered("g", "op0", "op1", True, "vertical")]
    (decision,) = FusionLedger("g").replay([RoundBegan("g", 2, False), *asked, spilled])
    assert (decision.verdict, decision.reason_code, decision.reason) == ("refused", "register_spill", spilled.reason)
    assert decision.refused_by == "Scheduler.speedup_by_fusion"
