"""Hooks see what they should, leave no trace, and never change the run, whatever goes wrong inside them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from models import everything, everything_inputs

from fusionscope import collector
from fusionscope.collector import record, recorder
from fusionscope.collector.hook import Emit, located, missing, patched
from fusionscope.collector.hooks import HOOKS, compiled_calls
from fusionscope.storage.library import Library
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.records import GraphBreak, HookStatus, Run

NEED_CUDA = (
    "cudagraph_skips",
    "fusion_benchmarks",
    "kernel_configs",
    "loop_orders",
    "mix_order_kernels",
    "config_timings",
    "config_winners",
    "coordinate_descent",
)  # nothing to see elsewhere
NEED_CANDIDATES = tuple(hook.NAME for hook in HOOKS if hook.NAME.startswith("gemm_"))  # test_autotune.py
NAMES = [hook.NAME for hook in HOOKS if hook.NAME not in (*NEED_CUDA, *NEED_CANDIDATES)]


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def expected() -> torch.Tensor:
    """The model's output when nothing is recorded."""
    torch._dynamo.reset()
    return run_model()


def run_model() -> torch.Tensor:
    """Compile the model that gives every hook something to record, and run it."""
    image, weight = everything_inputs()
    output: torch.Tensor = torch.compile(everything)(image, weight.requires_grad_())
    output.sum().backward()  # type: ignore[no-untyped-call]
    return output.detach()


def statuses(store: Path, run_id: str) -> dict[str, HookStatus]:
    """The run's coverage statement by hook."""
    return {status.hook: status for status in Library(store).ask(records_of, HookStatus, run_id)}


def the_run(store: Path, run_id: str) -> Run:
    """The run's row."""
    (run,) = Library(store).ask(records_of, Run, run_id)
    return run


def observed_targets() -> dict[str, Any]:
    """Everything that a hook may replace, as it is now: what the owners of its targets hold, and their loggers."""
    from torch._inductor import scheduler
    from torch._inductor.codegen import cpp, triton

    owners = [located(target)[0] for hook in HOOKS for target in hook.TARGETS]
    found: dict[str, Any] = {"fx cache": torch._inductor.config.fx_graph_cache}
    for owner in [*owners, scheduler, cpp, triton]:  # these import a target by name
        for name, value in vars(owner).items():
            if isinstance(value, logging.Logger):
                found[f"{owner.__name__}.{name}"] = (list(value.handlers), value.level, value.propagate)
            elif callable(value) or isinstance(value, (classmethod, staticmethod)):
                found[f"{owner.__name__}.{name}"] = value
    return found


def test_every_hook_records_something_and_leaves_no_trace(tmp_path: Path, expected: torch.Tensor) -> None:
    with torch._inductor.config.patch(fx_graph_cache=False):
        run_model()  # what torch itself makes at its first compile, such as select_algorithm's cache, is there already
    torch._dynamo.reset()
    before = observed_targets()
    with record("everything", store=tmp_path, strict=True) as recording:
        assert torch.equal(run_model(), expected)
    assert observed_targets() == before
    seen = statuses(tmp_path, recording.run_id)
    assert {name: seen[name].recorded > 0 for name in NAMES} == dict.fromkeys(NAMES, True)
    assert the_run(tmp_path, recording.run_id).status == "complete"


@pytest.mark.parametrize("broken", NAMES)
def test_a_hook_that_raises_changes_nothing_and_is_named(
    broken: str, tmp_path: Path, expected: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailingEmit(Emit):
        def __call__(self, observation: Any) -> None:
            if self.hook == broken:
                raise ValueError(f"{broken} fell over")
            super().__call__(observation)

    monkeypatch.setattr(recorder, "Emit", FailingEmit)
    with record("broken", store=tmp_path) as recording:
        assert torch.equal(run_model(), expected)
    run = the_run(tmp_path, recording.run_id)
    assert run.status == "partial"
    assert broken in (run.status_reason or "")
    status = statuses(tmp_path, recording.run_id)[broken]
    assert (status.state, status.reason, status.recorded) == ("failed", f"ValueError: {broken} fell over", 0)
    assert status.lost > 0


def test_the_hook_of_cuda_graphs_that_raises_changes_nothing_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

    class FailingEmit(Emit):
        def __call__(self, observation: Any) -> None:
            raise ValueError("fell over")

    monkeypatch.setattr(recorder, "Emit", FailingEmit)
    with record("broken", store=tmp_path) as recording:
        log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to a test")
    status = statuses(tmp_path, recording.run_id)["cudagraph_skips"]
    assert (status.state, status.reason, status.lost) == ("failed", "ValueError: fell over", 1)


def test_a_hook_whose_target_is_missing_is_unavailable_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.ir import StorageBox

    monkeypatch.delattr(StorageBox, "should_realize_on_reuse")
    with record("missing", store=tmp_path) as recording:
        pass
    status = statuses(tmp_path, recording.run_id)["realize"]
    assert (status.state, status.reason) == ("unavailable", "torch has no StorageBox.should_realize_on_reuse")
    assert the_run(tmp_path, recording.run_id).status == "partial"


def test_strict_raises_what_goes_wrong_in_a_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fusionscope.collector.hooks import wrapper_plan

    def broken_line(_line: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(wrapper_plan, "_line", broken_line)
    with pytest.raises(Exception, match="ZeroDivisionError"), record("strict", store=tmp_path, strict=True):
        run_model()


def test_a_backend_that_is_not_inductor_is_said(tmp_path: Path) -> None:
    with record("eager backend", store=tmp_path, strict=True) as recording:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    status = statuses(tmp_path, recording.run_id)["fusion_pairs"]
    assert (status.state, status.reason) == ("unavailable", "not recorded: backend eager")
    run = the_run(tmp_path, recording.run_id)
    assert (run.status, run.status_reason) == ("partial", "not recorded: backend eager")


@torch._dynamo.config.patch(compiled_autograd=True)
def test_compiled_autograd_meets_no_frame_of_ours(tmp_path: Path) -> None:
    layer = torch.nn.Linear(4, 4)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = layer(x).relu().sum()
        loss.backward()
        return loss

    with record("compiled autograd", store=tmp_path, hooks=[*HOOKS, compiled_calls.CompiledCalls()]) as recording:
        torch.compile(step)(torch.ones(2, 4))
    sites = Library(tmp_path).ask(records_of, GraphBreak, recording.run_id)
    files = [Path(site.file or "") for site in sites]
    assert files[0].name == "test_hooks.py"
    assert not any(Path(collector.__file__).parent in file.parents for file in files)  # torch 2.14 meets its own


class _Target:
    def method(self, x: int) -> int:
        return x

    @classmethod
    def of_class(cls, x: int) -> int:
        return x

    @staticmethod
    def static(x: int) -> int:
        return x


@pytest.mark.parametrize("name", ["method", "of_class", "static"])
def test_a_patched_method_stays_what_it_is_and_comes_back(name: str) -> None:
    found = vars(_Target)[name]
    with patched(_Target, name, lambda original: lambda *args: original(*args) + 1):
        assert getattr(_Target(), name)(1) == 2
    assert vars(_Target)[name] is found


def test_a_missing_parameter_is_named() -> None:
    assert missing(_Target, "method", "x") is None
    assert missing(_Target, "method", "y") == "_Target.method has no parameter y"
    assert missing(_Target, "gone") == "torch has no _Target.gone"
