"""Plan and measured peak are the same to the byte on the CPU, or what lies between them has names; blocks and lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from fusionscope.collector import record
from fusionscope.collector.measure.budgets import BUDGETS, budget_records
from fusionscope.collector.measure.memory import MemoryRecord, memory_records
from fusionscope.collector.measure.step import gradient_leaves, loss_of, step_of
from fusionscope.sample_models import SAMPLES, WANT_GPU
from fusionscope.storage.records import Allocation, Measurement, MemoryPoint, MemoryResidual

CPU = torch.device("cpu")
# What a sample's graphs hold at their peaks besides the plan. oneDNN's convolution packs its weights as it runs; the
# caller of a backward keeps the gradient of the loss, which the plan frees.
BESIDES = {
    "conv_norm_relu": {"0/0.inference": {"workspace": 86_064}},
    "gpt": {"0/0.backward": {"kept by the caller": 4}},
}
R = TypeVar("R")


def measured(model: Any, compiled: Any, inputs: tuple[Any, ...], store: Path, *, backward: bool) -> list[MemoryRecord]:
    """What measuring the memory of a compiled step gives, in a recording that knows the plans."""
    with record("memory", store=store, strict=True, import_on_exit=False) as recording:
        leaves = gradient_leaves(loss_of(model(*inputs))) if backward else None
        step = step_of(compiled, inputs, leaves)
        step()
        return list(memory_records("compiled", step, CPU, inputs, recording._plan_of))


def of(records: list[MemoryRecord], kind: type[R]) -> list[R]:
    return [found for found in records if isinstance(found, kind)]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - WANT_GPU))
def test_the_plan_and_named_parts_are_the_measured_peak_of_a_sample(name: str, tmp_path: Path) -> None:
    torch._dynamo.reset()
    module = import_module(SAMPLES[name])
    model, inputs, options = module.build()
    backward = getattr(module, "BACKWARD", False)
    records = measured(model, torch.compile(model, **options), inputs, tmp_path, backward=backward)
    parts: dict[str, dict[str, int]] = defaultdict(dict)
    for part in of(records, MemoryResidual):
        parts[part.graph_id][part.name] = part.bytes
    besides = {graph: {key: size for key, size in found.items() if key != "plan"} for graph, found in parts.items()}
    assert {graph: found for graph, found in besides.items() if found} == BESIDES.get(name, {})
    assert parts
    if len(parts) == 1:  # one graph is the whole step
        (peak,) = (m.median for m in of(records, Measurement) if m.metric == "peak_bytes")
        whole = sum(next(iter(parts.values())).values())
        assert peak == whole


def attention(q: Tensor, w: Tensor) -> Tensor:
    """The kernel also returns the logarithms of its sums, which nothing here reads."""
    return (nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).relu() @ w).exp()


def parts_of(records: list[MemoryRecord], graph_id: str) -> dict[str, int]:
    return {part.name: part.bytes for part in of(records, MemoryResidual) if part.graph_id == graph_id}


def test_the_unread_results_of_a_kernel_end_with_its_tuple(tmp_path: Path) -> None:
    torch._dynamo.reset()
    with torch.no_grad():
        inputs = torch.randn(2, 4, 64, 32), torch.randn(32, 512)
        records = measured(attention, torch.compile(attention), inputs, tmp_path, backward=False)
    (peak,) = (m.median for m in of(records, Measurement) if m.metric == "peak_bytes")
    assert parts_of(records, "0/0.inference") == {"plan": peak} == {"plan": (512 * 32 + 512 * 512) * 4}


def test_a_gradient_that_the_caller_keeps_lifts_the_measured_peak_at_a_later_step(tmp_path: Path) -> None:
    torch._dynamo.reset()
    weight = torch.randn(64, 512, requires_grad=True)
    compiled = torch.compile(lambda x: (x @ weight).exp())
    given = torch.ones(256, 512)  # the plan frees it and the result after their last use; both are held here
    with record("memory", store=tmp_path, strict=True, import_on_exit=False) as recording:

        def step() -> None:
            compiled(torch.ones(256, 64)).backward(given)
            weight.grad = None

        step()
        records = list(memory_records("compiled", step, CPU, (), recording._plan_of))
    whole, gradient = 256 * 512 * 4, 64 * 512 * 4
    assert parts_of(records, "0/0.backward") == {
        "plan": whole,
        "another moment": gradient - 2 * whole,
        "kept by the caller": 2 * whole,
    }


class Trained(nn.Module):
    """A linear layer, GELU and a second layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 32) → (rows, 32)."""
        hidden = self.first(x)
        active = nn.functional.gelu(hidden)
        result: Tensor = self.second(active)
        return result


def training_step(model: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer) -> Callable[[Tensor], None]:
    """A whole step: forward, loss, backward, optimizer."""

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


@pytest.fixture(scope="module")
def training() -> list[MemoryRecord]:
    """An eager training step of the user's own, AdamW included."""
    model, x = Trained(), torch.randn(8, 32)
    step = step_of(training_step(model, torch.optim.AdamW(model.parameters())), (x,), None)
    step()
    return list(memory_records("eager", step, CPU, (x,)))


def test_what_was_there_before_has_its_category_and_name(training: list[MemoryRecord]) -> None:
    before = [(a.category, a.label) for a in of(training, Allocation) if a.phase == "before"]
    assert ("weight", "Linear.weight") in before
    assert ("optimizer", "AdamW.exp_avg") in before
    assert ("gradient", "gradient") in before
    assert ("input", "input of the call") in before
    base = next(m.median for m in of(training, Measurement) if m.metric == "base_bytes")
    assert base == sum(a.bytes for a in of(training, Allocation) if a.phase == "before")


def test_an_eager_block_knows_its_line_and_what_it_is_for(training: list[MemoryRecord]) -> None:
    made = [a for a in of(training, Allocation) if a.phase == "forward" and a.bytes == 8 * 32 * 4]
    lines = {Path(a.file or "").name: a.category for a in made}
    assert lines.keys() == {Path(__file__).name}
    saved = {a.label for a in made if a.category == "saved"}
    assert {"aten::linear", "aten::gelu"} <= saved


def test_what_the_optimizer_allocates_is_its_own(training: list[MemoryRecord]) -> None:
    by_phase = {(a.phase, a.category) for a in of(training, Allocation) if a.phase == "optimizer"}
    assert by_phase
    assert by_phase <= {("optimizer", "intermediate"), ("optimizer", "workspace")}


def test_a_gradient_knows_the_line_of_the_forward(training: list[MemoryRecord]) -> None:
    source = Path(__file__).read_text().splitlines()
    gradients = [a for a in of(training, Allocation) if a.category == "gradient" and a.phase == "backward"]
    texts = {source[(a.line or 1) - 1].strip() for a in gradients}
    assert sorted(a.bytes for a in gradients) == [128, 128, 4096, 4096]
    assert texts == {"hidden = self.first(x)", "result: Tensor = self.second(active)"}


def test_the_blocks_alive_at_the_peak_are_the_peak(training: list[MemoryRecord]) -> None:
    peak = max(of(training, MemoryPoint), key=lambda point: point.live_bytes)
    alive = [
        a
        for a in of(training, Allocation)
        if (a.first_event or 0) <= peak.step and (a.last_event is None or a.last_event > peak.step)
    ]
    assert sum(a.bytes for a in alive) == peak.live_bytes + (peak.base_bytes or 0)


def test_a_smaller_budget_saves_less_and_computes_more_again() -> None:
    found = list(budget_records(Trained(), (torch.randn(8, 32),), ["0/0.joint"]))
    assert [one.budget for one in found] == list(BUDGETS)
    saved, again = [one.saved_bytes for one in found], [one.recomputed_ops for one in found]
    assert saved == sorted(saved, reverse=True)
    assert (saved[0], saved[-1]) == (2 * 8 * 32 * 4, 0)  # the hidden layer before and after GELU; at last nothing
    assert again[0] < again[-1]


class Dropped(nn.Module):
    """Dropout between two linear layers: random numbers, which Inductor's passes replace before the partition."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 64) → (rows, 64)."""
        result: Tensor = self.second(nn.functional.dropout(nn.functional.gelu(self.first(x)), 0.1))
        return result


@pytest.mark.parametrize("budget", [1.0, 0.5])
def test_what_a_budget_would_save_is_what_a_compile_under_it_saves(budget: float, tmp_path: Path) -> None:
    model, x = Dropped(), torch.randn(32, 64)
    tried = {one.budget: one.saved_bytes for one in budget_records(model, (x,), ["0/0.joint"])}
    torch._dynamo.reset()
    with (
        torch._functorch.config.patch(activation_memory_budget=budget),
        record("memory", store=tmp_path, strict=True, import_on_exit=False) as recording,
    ):
        torch.compile(model)(x).sum().backward()
        (plan,) = (plan for graph_id, plan in recording._ledger.plans.items() if graph_id.endswith("forward"))
    assert sum(made.bytes or 0 for made in plan.buffers.values() if made.category == "saved") == tried[budget]
