"""The peak explains itself: what is alive, what keeps it alive, and what the peak would be without one fusion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from memory_models import (
    chunked,
    drive_branches,
    drive_checkpointed,
    drive_chunked,
    drive_donated,
    drive_frozen,
    drive_gated,
    drive_late_match,
    two_branches,
)
from torch._inductor.choices import InductorChoices
from torch._inductor.virtualized import V

from fusionscope.collector import record
from fusionscope.storage.library import Library
from fusionscope.storage.queries import memory
from fusionscope.storage.queries.live_set import Alive, Saved, live_set, saved_values, story
from fusionscope.storage.queries.memory import Curve, Donated
from fusionscope.storage.queries.plan import PlanFacts, plan_facts
from fusionscope.storage.queries.plan_replay import Without, fusions_at, fusions_that_raise_the_peak, reproduces
from fusionscope.storage.queries.recompute import Recompute, recomputable
from fusionscope.storage.records import ReuseDecision

INFERENCE, FORWARD = "0/0.inference", "0/0.forward"
SCORES = 64 * 512 * 4  # one score buffer: 131,072 bytes


class Explained:
    """A recorded run, asked as the screen asks."""

    def __init__(self, store: Path, run_id: str) -> None:
        self._library, self._run_id = Library(store), run_id

    def plan(self, graph_id: str = INFERENCE) -> Curve:
        curves = self._library.ask(memory.curves, self._run_id, graph_id)
        return next(curve for curve in curves if curve.basis == "plan")

    def alive(self, graph_id: str = INFERENCE) -> dict[str, Alive]:
        """The live set at the peak, by buffer."""
        found = self._library.ask(live_set, self._run_id, graph_id, self.plan(graph_id).peak_step)
        return {alive.life.buffer: alive for alive in found}

    def story(self, buffer: str, graph_id: str = INFERENCE) -> Alive | None:
        """What a click on the buffer tells at the peak."""
        return self._library.ask(story, self._run_id, graph_id, buffer, self.plan(graph_id).peak_step)

    def without(self, graph_id: str = INFERENCE) -> list[Without]:
        return self._library.ask(fusions_at, self._run_id, graph_id, self.plan(graph_id).peak_step)

    def facts(self, graph_id: str = INFERENCE) -> PlanFacts:
        return self._library.ask(plan_facts, self._run_id, graph_id)

    def reuses(self, graph_id: str = INFERENCE) -> list[ReuseDecision]:
        return self._library.ask(memory.reuses, self._run_id, graph_id)

    def saved(self, graph_id: str) -> list[Saved]:
        return self._library.ask(saved_values, self._run_id, graph_id)

    def again(self, graph_id: str) -> list[Recompute]:
        return self._library.ask(recomputable, self._run_id, graph_id)

    def donated(self, graph_id: str) -> list[Donated]:
        return self._library.ask(memory.donated, self._run_id, graph_id)


def explained(store: Path, drive: Callable[[], Any]) -> Explained:
    torch._dynamo.reset()
    with record("memory", store=store, strict=True) as recording:
        drive()
    return Explained(store, recording.run_id)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peaks")


@pytest.fixture(scope="module")
def chunks(store: Path) -> Explained:
    return explained(store, drive_chunked)


@pytest.fixture(scope="module")
def checkpointed(store: Path) -> Explained:
    return explained(store, drive_checkpointed)


class Apart(InductorChoices):
    """Fuses nothing with the named scheduler nodes."""

    members: frozenset[str] = frozenset()

    @staticmethod
    def can_fuse(scheduler: Any, node1: Any, node2: Any, shared_data_score: int) -> bool:
        names = {part.get_name() for node in (node1, node2) for part in node.get_nodes()}
        return not names & Apart.members and InductorChoices.can_fuse(scheduler, node1, node2, shared_data_score)


def test_four_score_buffers_are_alive_because_one_kernel_masks_all_chunks(chunks: Explained) -> None:
    assert chunks.plan().peak_bytes == 528_384
    scores = [alive for alive in chunks.alive().values() if alive.life.bytes == SCORES and not alive.life.at_entry]
    assert len(scores) == 4
    blamed = {alive.group_id for alive in scores if alive.cause == "fused_writer"}
    assert blamed == {"op1_op5_op9_op13"}
    assert all(alive.life.source_text == "masked = scores * mask" for alive in scores)


def test_a_click_on_a_buffer_tells_what_the_live_set_tells(chunks: Explained) -> None:
    for buffer, alive in chunks.alive().items():
        assert chunks.story(buffer) == alive


def test_without_that_fusion_the_peak_is_what_torch_reaches_when_it_is_forbidden(
    chunks: Explained, store: Path
) -> None:
    (blamed,) = chunks.without()
    assert (blamed.members, blamed.without_bytes) == (("op1", "op5", "op9", "op13"), 147_456)
    assert peak_apart(store, blamed, chunked, (256, 16), (16, 512), (64, 512)) == blamed.without_bytes


def test_a_chance_to_work_in_place_is_taken_or_says_why_not(chunks: Explained, store: Path) -> None:
    taken = {(one.buffer, one.candidate) for one in chunks.reuses() if one.verdict == "taken"}
    assert {("buf1", "buf0"), ("buf5", "buf4"), ("buf9", "buf8"), ("buf13", "buf12")} <= taken
    refused = {one.candidate: one.reason for one in chunks.reuses() if one.verdict == "refused"}
    assert refused == {"arg2_1": "an input of the graph: the caller holds it"}


def test_a_sibling_output_waits_since_its_kernel_ran_early(store: Path) -> None:
    branches = explained(store, drive_branches)
    waiting = branches.alive()["buf5"]
    assert (waiting.cause, waiting.group_id, waiting.life.bytes, waiting.first_use) == (
        "fused_writer",
        "op0_op5",
        131_072,
        14,
    )
    (blamed,) = branches.without()
    assert peak_apart(store, blamed, two_branches, (256, 128), (128, 32)) == blamed.without_bytes == 196_608


def peak_apart(store: Path, blamed: Without, function: Callable[..., Any], *shapes: tuple[int, ...]) -> int:
    """The plan's peak of a real compile in which the members of a group may not fuse."""
    Apart.members = frozenset(blamed.members)

    def drive() -> None:
        with torch.no_grad(), V.set_choices_handler(Apart()):
            torch.compile(function)(*(torch.randn(shape) for shape in shapes))

    return explained(store, drive).plan().peak_bytes


def test_a_block_that_serves_three_buffers_does_not_raise_the_peak(store: Path) -> None:
    reused = explained(store, drive_late_match)
    alive = reused.alive()
    block = next(found for found in alive.values() if found.life.bytes == 16_384 and not found.life.at_entry)
    assert (block.life.buffer, block.gives_to) == ("buf2", ("buf4", "buf5"))
    assert block.cause == "read"  # not merely kept for its takers
    assert reused.plan().peak_bytes == 262_144 + 16_384
    assert reused.without() == []


def test_checkpointing_saves_the_block_inputs_and_runs_the_rest_again(checkpointed: Explained) -> None:
    saved = [value for value in checkpointed.saved("0/0.forward") if value.saved]
    assert {value.node: value.bytes for value in saved if not value.is_input} == {"mul_4": 8192, "mul_9": 8192}
    assert sum(value.bytes or 0 for value in saved) == 76_032
    forward, backward = checkpointed.alive("0/0.forward"), checkpointed.alive("0/0.backward")
    assert [a.why for a in forward.values() if a.cause == "saved"] == ["saved for the backward: marked MUST_SAVE"] * 2
    assert "saved by the forward (marked MUST_SAVE)" in backward["mul_4"].why
    assert sum(value.recomputed for value in checkpointed.saved("0/0.forward")) > 30


def test_packed_weights_stand_beside_the_modules_own(store: Path) -> None:
    frozen = explained(store, drive_frozen)
    constants = [alive for alive in frozen.alive().values() if alive.cause == "constant"]
    packed = [alive for alive in constants if alive.life.bytes is None]
    assert len(packed) == 2
    assert all(alive.why.endswith("its size is not recorded: opaque layout") for alive in packed)
    assert sorted(alive.life.bytes for alive in constants if alive.life.bytes) == [256, 256, 16_384, 16_384]


@pytest.mark.parametrize("graph_id", ["0/0.forward", "0/0.backward"])
def test_the_replay_gives_the_recorded_plan_when_nothing_is_split(checkpointed: Explained, graph_id: str) -> None:
    assert reproduces(checkpointed.facts(graph_id))


def test_a_replay_that_does_not_give_the_plan_claims_nothing(chunks: Explained) -> None:

    other = replace(chunks.facts(), peak_bytes=1)
    assert fusions_that_raise_the_peak(other, list(other.buffers)) == []


def test_what_computing_again_would_free_is_what_a_checkpoint_frees(store: Path) -> None:
    kept = explained(store, drive_gated)
    freed = explained(store, partial(drive_gated, again=True))
    gelu, linear = kept.again(FORWARD)
    assert (gelu.source_text, gelu.flops, gelu.moved) == ("active = nn.functional.gelu(hidden)", 0, 2 * 8 * 128 * 4)
    assert (linear.operators, linear.flops) == (("aten.addmm.default",), 2 * 8 * 32 * 128)
    assert saved_bytes(kept) - saved_bytes(freed) == gelu.bytes == 8 * 128 * 4
    before, after = ({one.node for one in of.saved(FORWARD) if one.recomputed} for of in (kept, freed))
    assert len(after - before) == gelu.calls - gelu.already


def saved_bytes(of: Explained) -> int:
    return sum(one.bytes or 0 for one in of.saved(FORWARD) if one.saved and not one.is_input)


def test_the_saved_blocks_are_all_candidates_to_be_computed_again(store: Path) -> None:
    kept = explained(store, drive_gated)
    assert sum(one.bytes for one in kept.again(FORWARD)) == saved_bytes(kept)


def test_a_saved_value_that_the_backward_writes_over_is_donated(store: Path) -> None:
    given = explained(store, drive_donated).donated("0/0.backward")
    assert any(one.taken_by for one in given)
