"""What the Fusion screen says of a pair, against torch's own fusion log and the code that came of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch

from fusionscope.app.screens._why import between, cost, explanation, handed_over, verdict
from fusionscope.collector import record
from fusionscope.storage.library import Library
from fusionscope.storage.queries import fusion, fusion_ops, graphs
from fusionscope.storage.queries.fusion import Decision, Group

CASES = Path(__file__).parent / "cases"
LOGGED = re.compile(r"cannot fuse (\S+) with (\S+): (.*)")


@dataclass(frozen=True)
class Told:
    """A recorded case, with what torch logged while it was compiled."""

    library: Library
    run_id: str
    log: list[tuple[str, str, str]]  # a, b, reason

    def ask(self, query: Callable[..., Any]) -> Any:
        (graph,) = self.library.ask(graphs.decided_graphs, self.run_id)
        return self.library.ask(query, self.run_id, graph.graph_id)

    def groups(self, a: str, b: str) -> tuple[Group, Group]:
        """The final groups that hold two scheduler nodes."""
        held = {member: group for group in self.ask(fusion.groups) for member in group.members}
        return held[a.split("_")[0]], held[b.split("_")[0]]

    def met(self, a: str, b: str) -> list[Decision]:
        return between(self.ask(fusion.decisions), *self.groups(a, b))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    store = tmp_path_factory.mktemp("told")
    return {
        case: compiled(case, store)
        for case in ("c32_outer_softmax", "c33_tensor_scale_cast", "c40_matmul_epilogue", "c41_opaque_consumer")
    }


def compiled(case: str, store: Path) -> Told:
    """Compile a case with torch's fusion log on, recorded."""
    spec = spec_from_file_location(case, CASES / f"{case}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    torch._dynamo.reset()
    model, inputs, options = module.build()
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda line: lines.append(line.getMessage())
    logger = logging.getLogger("torch._inductor.scheduler.__fusion")
    torch._logging.set_logs(fusion=True)
    logger.addHandler(handler)
    try:
        with record(case, store=store, strict=True) as recording:
            torch.compile(model, **options)(*inputs)
    finally:
        logger.removeHandler(handler)
        torch._logging.set_logs()
    found = [match.groups() for line in lines if (match := LOGGED.search(line))]
    return Told(Library(store), recording.run_id, found)


@pytest.mark.slow
def test_every_refusal_in_torchs_log_is_among_the_meetings_of_its_pair(told: dict[str, Told]) -> None:
    logged = [(case, *refusal) for case in told.values() for refusal in case.log]
    assert len(logged) >= 5
    for case, a, b, reason in logged:
        if set(case.groups(a, b)[:1]) != set(case.groups(a, b)[1:]):
            assert reason in {decision.reason for decision in case.met(a, b)}, (a, b, reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "a", "b", "reason", "means"),
    [
        ("c32_outer_softmax", "op0", "op1", "no shared data", "touch no buffer in common"),
        ("c32_outer_softmax", "op1", "op3", "intermediate nodes between node1 & node2", "stands in between"),
        ("c33_tensor_scale_cast", "op0", "op2", "intermediate nodes between node1 & node2", "stands in between"),
        ("c41_opaque_consumer", "op0_op1", "op2", "memory deps did not match", "in another order"),
        ("c41_opaque_consumer", "op2", "op3", "no shared data", "touch no buffer in common"),
    ],
)
def test_a_refusal_is_told_in_torchs_words_and_in_plain_ones(
    told: dict[str, Told], case: str, a: str, b: str, reason: str, means: str
) -> None:
    assert (a, b, reason) in told[case].log
    met = [decision for decision in told[case].met(a, b) if decision.reason == reason]
    answer = explanation(met) or ""
    assert f"Torch says: {reason}" in answer
    assert means in answer
    assert verdict(met, *told[case].groups(a, b)).startswith("Refused: they met in round ")


@pytest.mark.slow
def test_a_silent_refusal_names_the_predicate_that_said_no(told: dict[str, Told]) -> None:
    case = told["c33_tensor_scale_cast"]
    assert not [line for line in case.log if line[:2] == ("op0", "op1")]
    assert "Torch gave no reason (CppScheduling." in (explanation(case.met("op0", "op1")) or "")


@pytest.mark.slow
def test_a_library_call_was_never_tested_and_its_result_goes_through_memory(told: dict[str, Told]) -> None:
    case = told["c40_matmul_epilogue"]
    a, b = case.groups("op0", "op1")
    met = case.met("op0", "op1")
    assert case.log == []
    assert verdict(met, a, b).startswith("Never tested: one of the two is a library call")
    passed = handed_over(case.ask(fusion_ops.handovers), a, b)
    assert cost(met, passed) == "Because of it 4 KiB went through memory: buf0, written by one and read by the other."
