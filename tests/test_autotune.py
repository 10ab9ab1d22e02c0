"""What Inductor weighs by timing is recorded: every candidate, its time or its failure, the winner, and the margin."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor import config, select_algorithm
from torch._inductor.codegen.cpp_template_kernel import CppTemplateCaller

from fusionscope.collector import record
from fusionscope.collector.device import MeasuredRates, device_fact, of_properties
from fusionscope.storage.library import Library
from fusionscope.storage.queries import autotune
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.records import FusionDecision, GemmChoice, HookStatus, Kernel

Contest = Callable[..., tuple[Path, str]]


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def contest(tmp_path: Path) -> Contest:
    """Record relu(linear(x)) while Inductor may choose among backends; returns the store and the run's id."""

    def compiled(backends: str) -> tuple[Path, str]:
        linear = torch.nn.Linear(64, 64).eval()

        def model(x: Tensor) -> Tensor:
            return torch.relu(linear(x))

        settings = {"max_autotune": True, "max_autotune_gemm_backends": backends, "freezing": True}
        settings |= {"autotune_local_cache": False}  # else the times are those of an earlier test run
        with torch.no_grad(), config.patch(settings), record("contest", store=tmp_path, strict=True) as recording:
            torch.compile(model)(torch.randn(16, 64))
        return tmp_path, recording.run_id

    return compiled


def all_of(run: tuple[Path, str], kind: type[Any]) -> list[Any]:
    """The run's records of one kind."""
    store, run_id = run
    return Library(store).ask(records_of, kind, run_id)


def test_the_fastest_candidate_is_chosen_and_is_what_runs(contest: Contest) -> None:
    store, run_id = run = contest("ATEN,CPP")
    (held,) = Library(store).ask(autotune.gemm_contests, run_id)
    assert (held.op, held.shapes, held.candidates, held.timed, held.failed) == ("packed_linear", held.shapes, 2, 2, 0)
    assert (held.shapes or "").startswith("16x64, ")
    fastest, slowest = Library(store).ask(autotune.gemm_candidates, run_id, held.graph_id, held.node)
    assert (fastest.chosen, slowest.chosen, held.choice) == (True, False, fastest.choice)
    assert {fastest.kind, slowest.kind} == {"library", "cpp"}
    assert held.margin_over_second == (slowest.time_us or 0) / (fastest.time_us or 0) >= 1
    assert held.margin_over_library == (held.margin_over_second if fastest.kind == "cpp" else None)
    backends = {kernel.backend for kernel in all_of(run, Kernel)}
    assert ("template" in backends) == (fastest.kind == "cpp")
    assert ("extern" in backends) == (fastest.kind == "library")


def test_a_template_alone_wins_without_a_contest_and_takes_the_relu_in(contest: Contest) -> None:
    run = contest("CPP")
    (only,) = all_of(run, GemmChoice)
    assert (only.kind, only.chosen, only.time_us) == ("cpp", True, None)
    (decision,) = all_of(run, FusionDecision)
    assert (decision.direction, decision.verdict) == ("epilogue", "fused")


def test_a_candidate_that_fails_has_its_reason_and_no_time(contest: Contest, monkeypatch: pytest.MonkeyPatch) -> None:
    def benchmark(caller: Any, *args: Any, out: Any) -> float:
        raise RuntimeError("out of resource: shared memory\nRequired: 300000")

    monkeypatch.setattr(CppTemplateCaller, "benchmark", benchmark)
    library, template = sorted(all_of(contest("ATEN,CPP"), GemmChoice), key=lambda choice: choice.kind == "cpp")
    assert (template.error, template.time_us) == ("RuntimeError: out of resource: shared memory", None)
    assert (library.error, library.chosen, template.chosen) == (None, True, False)


def test_a_candidate_that_cannot_be_compiled_has_the_reason_that_torch_logs(
    contest: Contest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def benchmark(candidate: Any, *args: Any, out: Any) -> float:
        error = ValueError("no such register")  # as make_precompile_fn does, which not every Python may run
        select_algorithm.log.error("Exception %s for benchmark choice %s", error, candidate)
        return float("inf")

    monkeypatch.setattr(select_algorithm.DataProcessorChoiceCallerWrapper, "benchmark", benchmark)
    errors = {choice.kind: choice.error for choice in all_of(contest("ATEN,CPP"), GemmChoice)}
    assert errors == {"library": None, "cpp": "ValueError: no such register"}


def test_what_was_registered_is_taken_back_and_no_hook_lost_anything(contest: Contest) -> None:
    cache = select_algorithm.get_algorithm_selector_cache()
    before = list(cache.preprocessing_fns), list(cache.feedback_saver_fns)
    statuses = {status.hook: status for status in all_of(contest("ATEN,CPP"), HookStatus)}
    assert (cache.preprocessing_fns, cache.feedback_saver_fns) == before
    assert (statuses["gemm_candidates"].recorded, statuses["gemm_timings"].recorded) == (1, 2)
    assert {status.lost for status in statuses.values()} == {0}


def properties(name: str) -> types.SimpleNamespace:
    """What torch.cuda.get_device_properties gives, for a device of that name."""
    return types.SimpleNamespace(
        name=name,
        major=9,
        minor=0,
        multi_processor_count=132,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        shared_memory_per_multiprocessor=233472,
        shared_memory_per_block_optin=232448,
        L2_cache_size=62914560,
        total_memory=150_000_000_000,
        clock_rate=1_980_000,
    )


def test_a_known_gpu_has_its_makers_rates_and_the_drivers_memory() -> None:
    fact = of_properties(properties("NVIDIA H200"))
    assert (fact.name, fact.architecture, fact.warps_per_multiprocessor) == ("H200", "sm_90", 64)
    assert (fact.bandwidth_gbps, fact.memory_bytes, fact.clock_mhz) == (4800, 150_000_000_000, 1980)


def test_an_unknown_gpu_has_no_rates_that_nobody_gave() -> None:
    fact = of_properties(properties("NVIDIA H999"))
    assert (fact.name, fact.bandwidth_gbps, fact.bf16_tflops, fact.multiprocessors) == ("NVIDIA H999", None, None, 132)


def test_a_run_that_used_no_gpu_has_no_device_fact() -> None:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        assert device_fact(MeasuredRates(1.0, 1.0, "copied")) is None
