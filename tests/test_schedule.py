"""The scheduler beyond pairs: kinds of groups, orders that passes changed, benchmarks that decide, logs reset."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from test_ledger import INFERENCE, Recorded, drive_mlp, recorded
from torch import Tensor

from fusionscope.collector.cli import main
from fusionscope.collector.ledger.fusion import FusionLedger
from fusionscope.collector.ledger.loops import loop_reorderings
from fusionscope.collector.observations import (
    FusionBegan,
    FusionBenchmarked,
    LoopsReordered,
    LoopsRestored,
    PairAnswered,
    PairEntered,
    PairFused,
    ReasonLogged,
    RoundBegan,
)
from fusionscope.storage import records
from fusionscope.storage.library import Library
from fusionscope.storage.queries import schedule
from fusionscope.storage.queries.replay import groups_after, rounds
from fusionscope.storage.queries.runs import library_runs

ON_A_GPU = """
import torch

def model(a, b, x, w, p, q, u, v):
    scaled = torch._foreach_mul(torch._foreach_add(a, b), w.amax())  # lists, one value for all; then a loop on an item
    y = x * w
    rows, columns = y.sum(-1, keepdim=True), (x * 2.0).sum(0)  # reductions in different orders
    added, tripled = u + 1, v * 3.0
    return [
        *scaled, torch.relu(scaled[0]), x * rows, columns,
        torch.sin(p), torch.cos(q),  # nothing in common
        added, added.sum((0, 1)), tripled, tripled.t().contiguous() * 2,  # loops that must be turned
    ]

def build():
    lists = [[torch.randn(64, 64) for _ in range(3)] for _ in range(2)]
    shapes = ((32768, 768), (768,), (100,), (200,), (64, 128, 256), (512, 1024))
    return model, (*lists, *(torch.randn(shape) for shape in shapes)), {"options": {"combo_kernels": True}}
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schedule")


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A model for an H200 with groups of every kind that it can have."""
    folder = tmp_path_factory.mktemp("gpu")
    (folder / "kinds.py").write_text(ON_A_GPU)
    command = ["record", str(folder / "kinds.py"), "--target", "H200", "--store", str(folder / "store"), "--strict"]
    assert main(command) == 0
    (run,) = Library(folder / "store").ask(library_runs)
    return Recorded(folder / "store", run.run_id)


@contextmanager
def config(**settings: Any) -> Iterator[None]:
    """Inductor's options, and the order of operations as the model gives it."""
    with torch._inductor.config.patch(reorder_for_locality=False, **settings):
        yield


def schedule_passes(run: Recorded) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Pass → the schedule before and after it."""
    return {x.pass_name: (x.before, x.after) for x in run.all(records.Reordering) if x.subject is None}


def final_order(run: Recorded) -> tuple[str, ...]:
    """The groups as they are generated."""
    return tuple(group.group_id for group in run.of(records.FusionGroup, INFERENCE))


def test_the_order_that_saves_memory_is_recorded_with_the_one_before(store: Path) -> None:
    def wide(x: Tensor) -> list[Tensor]:
        held = [torch.relu(torch.mm(x, x[:, :4])) @ x[:4] for _ in range(3)]
        return [h @ x[:, :1] for h in held]

    with config():
        run = recorded(store, lambda: torch.compile(wide)(torch.randn(128, 128)))
    before, after = schedule_passes(run)["reorder_for_peak_memory"]
    assert after == final_order(run) != before
    assert sorted(after) == sorted(before)
    chosen = next(order for order in run.all(records.MemoryOrder) if order.chosen)
    assert chosen.method != "as_given"


def test_a_pass_that_changed_nothing_has_no_orders_and_one_that_did_not_run_no_record(store: Path) -> None:
    assert schedule_passes(recorded(store, drive_mlp))["reorder_for_peak_memory"] == ((), ())
    with config(reorder_for_peak_memory=False):
        assert "reorder_for_peak_memory" not in schedule_passes(recorded(store, drive_mlp))


def test_what_moves_for_graph_partitions_is_recorded(store: Path) -> None:
    def chains(x: Tensor, y: Tensor) -> Tensor:
        x = torch.mm(torch.mm(x, x), x)
        return torch.mm(torch.mm(y, y), x)

    with config(graph_partition=True, **{"triton.cudagraphs": True}):
        run = recorded(store, lambda: torch.compile(chains)(torch.randn(16, 16), torch.randn(16, 16)))
    passes = schedule_passes(run)
    assert passes["maybe_reorder_for_minimizing_partition"] == ((), ())
    before, after = passes["reorder_for_partition_with_simple_dependency"]
    assert after == final_order(run) != before


def test_what_moves_to_overlap_communication_is_recorded(store: Path) -> None:
    from torch import distributed
    from torch.distributed import _functional_collectives as collectives
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def reduced(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = collectives.all_reduce(x + 1, "sum", "0") * 2
        return total, torch.mm(y, y)

    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        with config(reorder_for_compute_comm_overlap=True, reorder_for_compute_comm_overlap_passes=["sink_waits"]):
            run = recorded(store, lambda: torch.compile(reduced)(torch.randn(16, 16), torch.randn(16, 16)))
    finally:
        distributed.destroy_process_group()
    before, after = schedule_passes(run)["reorder_compute_and_comm_for_overlap"]
    assert after == final_order(run) != before


@pytest.mark.slow
def test_every_kind_of_group_is_told(gpu: Recorded) -> None:
    groups = {g.group_id: (g.kind, len(g.members)) for g in gpu.of(records.FusionGroup, INFERENCE)}
    assert {kind for kind, _ in groups.values()} == {"single", "foreach", "combo", "mix_order"}
    assert all((kind == "single") == (members == 1) for kind, members in groups.values())
    told = gpu._library.ask(schedule.kinds, gpu.run_id, INFERENCE)
    assert sum(kind.groups for kind in told) == len(groups)
    assert sum(kind.nodes for kind in told) == sum(members for _, members in groups.values())


@pytest.mark.slow
def test_replaying_gives_foreach_combo_and_mix_order_groups_too(gpu: Recorded) -> None:
    final = {g.group_id: set(g.members) for g in gpu.of(records.FusionGroup, INFERENCE)}
    steps = gpu._library.ask(rounds, gpu.run_id, INFERENCE)
    nodes = [node for members in final.values() for node in members]
    assert {name: set(members) for name, members in groups_after(nodes, steps, len(steps)).items()} == final
    assert (steps[0].round, steps[0].order_taken, len(steps[0].others)) == (0, None, 1)
    assert (steps[-1].order_taken, steps[-1].result in final) == (None, True)


@pytest.mark.slow
def test_what_is_together_from_the_start_was_not_missed(gpu: Recorded) -> None:
    (foreach,) = (g.members for g in gpu.of(records.FusionGroup, INFERENCE) if g.kind == "foreach")
    shared = [e for e in gpu.of(records.IrEdge, INFERENCE) if e.dst in foreach and e.src not in foreach]
    assert len(shared) == 3
    untested = [d for d in gpu.of(records.FusionDecision, INFERENCE) if d.verdict == "untested"]
    assert not [d for d in untested if {d.a, d.b} <= set(foreach)]


@pytest.mark.slow
def test_every_group_of_a_gpu_has_its_kernels(gpu: Recorded) -> None:
    called = {group for call in gpu.of(records.KernelCall, INFERENCE) for group in call.group_ids}
    groups = {g.group_id: g.kind for g in gpu.of(records.FusionGroup, INFERENCE)}
    without = set(groups) - called
    assert {groups[group] for group in without} == {"single"}  # sums up what the blocks of the mix-order kernel left
    assert len(without) == 1


@pytest.mark.slow
def test_parts_that_are_asked_again_while_a_group_grows_are_no_pairs(gpu: Recorded) -> None:
    decisions = [d for d in gpu.of(records.FusionDecision, INFERENCE) if d.verdict != "untested"]
    (mixed,) = [d for d in decisions if d.direction == "mix_order"]
    grown = next(d for d in decisions if d.a == mixed.result and d.verdict == "fused")
    later = decisions[decisions.index(grown) + 1 :]
    assert not [d for d in later if d.round == grown.round and mixed.a in (d.a, d.b)]


@pytest.mark.slow
def test_loops_that_were_turned_have_their_order_before_and_after(gpu: Recorded) -> None:
    turned = [x for x in gpu.all(records.Reordering) if x.pass_name == "loop_ordering_after_fusion"]
    assert turned
    assert all(sorted(x.before) == sorted(x.after) and x.before != x.after for x in turned)
    assert ("d0=64", "d1=128", "d2=256") in {x.before for x in turned}
    fused = {name for d in gpu.all(records.FusionDecision) if d.verdict == "fused" for name in (d.a, d.b)}
    assert {x.subject for x in turned} <= fused  # turned for a pair that was refused, they are put back
    (mixed,) = {x.subject for x in gpu.all(records.Reordering) if x.pass_name == "mix_order_reduction"}
    assert any(mixed in g.members for g in gpu.all(records.FusionGroup) if g.kind == "mix_order")


def test_loops_that_were_put_back_are_no_reordering() -> None:
    def turned(node: str) -> LoopsReordered:
        return LoopsReordered("g", node, "loop_ordering_after_fusion", ("d0=2", "d1=3"), ("d1=3", "d0=2"))

    kept = [PairEntered("g", "op0", "op1"), turned("op0"), PairAnswered("g", "op0", "op1", True, "vertical")]
    asked = [PairEntered("g", "op0", "op2"), PairEntered("g", "op0", "op3"), turned("op0"), turned("op2")]
    refused = [PairAnswered("g", "op0", b, False, "vertical") for b in ("op3", "op2")]
    seen = [*kept, *asked, LoopsRestored("g", "op0"), *refused, LoopsRestored("g", "op0")]
    assert [x.subject for x in loop_reorderings("g", seen)] == ["op0", "op2"]


def test_questions_inside_a_fusion_or_a_question_are_stored_once() -> None:
    answered = PairAnswered("g", "op0", "op2", False, "vertical")
    inner: list[object] = [PairEntered("g", "op0", "op2"), ReasonLogged("g", "op0", "op2", "device mismatch"), answered]
    outer = [PairEntered("g", "op0_op1", "op2"), *inner, PairAnswered("g", "op0_op1", "op2", False, "vertical")]
    fusing = [FusionBegan("g"), *inner, PairFused("g", "op0_op1", "op3", "op0_op1_op3", None)]
    decisions = FusionLedger("g").replay([RoundBegan("g", 3, False), *outer, *fusing])
    assert [(d.a, d.b, d.verdict, d.reason) for d in decisions] == [
        ("op0_op1", "op2", "refused", "device mismatch"),
        ("op0_op1", "op3", "fused", None),
    ]


def benchmarked(ms: tuple[float, ...], *, fuse: bool, **template: float) -> records.FusionDecision:
    """The decision about a pair after such a benchmark."""
    times = (template.get("template_ms"), template.get("other_ms"), ms)
    asked = [PairEntered("g", "op0", "op1"), PairAnswered("g", "op0", "op1", True, "vertical")]
    told = FusionBenchmarked("g", "op0", "op1", *times, fuse=fuse)
    (decision,) = FusionLedger("g").replay([RoundBegan("g", 2, False), *asked, told])
    return decision


def test_the_times_of_a_benchmark_are_both_apart_and_fused() -> None:
    slower = benchmarked((1.0, 2.0, 4.0), fuse=False)
    assert (slower.verdict, slower.reason_code, slower.ms_before, slower.ms_after) == ("refused", "slower_fused", 3, 4)
    template = benchmarked((3.0, 2.5), fuse=True, template_ms=2.0, other_ms=1.0)
    assert (template.verdict, template.reason_code, template.ms_before, template.ms_after) == ("legal", None, 3.0, 2.5)
    spilled = benchmarked((1.0, float("inf")), fuse=False)
    assert (spilled.reason_code, spilled.ms_before, spilled.ms_after) == ("not_worth_a_benchmark", None, None)


def test_a_pair_that_is_slower_fused_is_refused_with_its_times(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor benchmarks on a GPU alone: the scheduler is real here, its stop-watch is not."""
    from torch._inductor.scheduler import FusionResult, Scheduler

    def asked(scheduler: Any, node1: Any, node2: Any) -> FusionResult:
        def benchmark() -> bool:
            first, second, fused = (scheduler.benchmark_codegened_module(None, None)[0] for _ in range(3))
            return bool(fused < first + second)

        return FusionResult.from_callable(benchmark)

    def stopped(scheduler: Any, module: Any, device: Any) -> tuple[float, str]:
        return next(times), ""

    times = iter([1.0, 2.0, 0.5] + [1.0, 2.0, 4.0] * 9)
    monkeypatch.setattr(Scheduler, "speedup_by_fusion", asked)
    monkeypatch.setattr(Scheduler, "benchmark_codegened_module", stopped)
    run = recorded(store, drive_mlp)
    timed = [d for d in run.of(records.FusionDecision, INFERENCE) if d.ms_after is not None]
    assert [(d.ms_before, d.ms_after) for d in timed if d.verdict == "fused"] == [(3.0, 0.5)]
    refused = {(d.ms_before, d.ms_after, d.reason_code, d.refused_by) for d in timed if d.verdict == "refused"}
    assert refused == {(3.0, 4.0, "slower_fused", "Scheduler.benchmark_codegened_module")}


def test_only_pairs_beyond_the_window_had_too_many_users(store: Path) -> None:
    def spread(x: Tensor) -> list[Tensor]:
        y = torch.mm(x, x)
        return [y[:rows].amax() for rows in range(4, 9)]

    with config(max_fusion_buffer_group_pairwise_attempts=2):
        run = recorded(store, lambda: torch.compile(spread)(torch.randn(8, 8)))
    decisions = run.of(records.FusionDecision, INFERENCE)
    untested = {(d.a, d.b) for d in decisions if d.reason_code == "too_many_users"}
    users = [f"op{n}" for n in range(1, 6)]
    assert untested == {(a, b) for i, a in enumerate(users) for b in users[i + 3 :]}


def both_channels(run: Recorded) -> tuple[int, int]:
    """How many reasons torch gave, and how many hints."""
    reasons = [d for d in run.all(records.FusionDecision) if d.reason]
    return len(reasons), len(run.all(records.PerfHint))


def test_logs_that_the_user_sets_while_recording_cost_no_reason_and_no_hint(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def model(x: Tensor) -> Tensor:
        return torch.softmax(torch.cumsum(x, -1), -1) + torch.kthvalue(x, 2).values[:, None]

    def drive(set_logs: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            set_logs()
            torch.compile(model)(torch.randn(64, 32))

        return run

    shown = io.StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    expected = both_channels(recorded(store, drive(lambda: None)))
    assert min(expected) > 0
    try:
        reset = recorded(store, drive(lambda: torch._logging.set_logs(all=logging.WARNING)))
        assert both_channels(reset) == expected
        assert "FallbackKernel" not in shown.getvalue()
    finally:
        torch._logging.set_logs()
