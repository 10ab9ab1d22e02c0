"""Eager against compiled: what is counted, timed and weighed, and what is left as it was."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from fusionscope.collector.measure import Comparison, Record, compare
from fusionscope.collector.measure.kernels import operators_with_kernel
from fusionscope.collector.measure.memory import memory_records
from fusionscope.collector.measure.step import step_of
from fusionscope.collector.measure.wrappers import kernels_marked, kernels_of, wrappers
from fusionscope.sample_models.mlp_parameters import MLP
from fusionscope.storage.records import KernelTiming, Measurement, MemoryPoint

CPU = torch.device("cpu")
Compared = tuple[Comparison, list[Record]]
R = TypeVar("R")


@pytest.fixture(scope="module")
def mlp() -> Iterator[Compared]:
    """The MLP at batch 64, hidden 512, without gradients."""
    model, records = MLP(), list[Record]()
    with torch.no_grad():
        compiled = torch.compile(model)
        result = compare(model, compiled, (torch.randn(64, 512),), emit=records.append, graph_of=lambda file: "0/0.g")
    yield result, records
    torch._dynamo.reset()


def of_type(records: list[Record], kind: type[R]) -> list[R]:
    return [record for record in records if isinstance(record, kind)]


def test_the_peaks_of_the_mlp_are_right_to_the_byte(mlp: Compared) -> None:
    assert (mlp[0].eager_peak_bytes, mlp[0].compiled_peak_bytes) == (393_216, 262_656)


def test_the_mlp_runs_nine_kernels_eager_and_eight_compiled(mlp: Compared) -> None:
    """Four addmm, four relu, one softmax; compiled: four addmm, three relu, one relu with softmax."""
    assert (mlp[0].eager_kernels, mlp[0].compiled_kernels) == (9, 8)


def test_every_measurement_says_how_it_was_made(mlp: Compared) -> None:
    made = of_type(mlp[1], Measurement)
    wanted = {"latency_us", "kernels", "profiled_us", "peak_bytes", "base_bytes"}
    numerics = {("compiled", metric) for metric in ("max_abs_error", "max_rel_error", "beyond_tolerance")}
    assert {(m.variant, m.metric) for m in made} == {(v, m) for v in ("eager", "compiled") for m in wanted} | numerics
    assert all(m.method and m.unit for m in made)
    assert mlp[0].speedup == pytest.approx(mlp[0].eager_us / mlp[0].compiled_us)  # type: ignore[operator]


def test_generated_kernels_are_timed_under_their_graph(mlp: Compared) -> None:
    timings = {t.name: t for t in of_type(mlp[1], KernelTiming) if t.variant == "compiled"}
    assert timings["cpp_fused_relu_0"].kernel_id == "0/0.g/cpp_fused_relu_0"
    assert timings["cpp_fused_relu_0"].calls == 3
    assert timings["extern_kernels.addmm"].kernel_id == "0/0.g/extern_kernels.addmm"
    assert timings["extern_kernels.addmm"].op == "aten::addmm"
    assert timings["extern_kernels.addmm"].calls == 4


def test_an_eager_kernel_is_named_by_its_operator(mlp: Compared) -> None:
    eager = {t.name: t.calls for t in of_type(mlp[1], KernelTiming) if t.variant == "eager"}
    assert eager == {"aten::addmm": 4, "aten::relu": 4, "aten::_softmax": 1}


def test_the_curve_rises_to_the_peak_and_returns_to_the_entry(mlp: Compared) -> None:
    for variant, peak in (("eager", 393_216), ("compiled", 262_656)):
        points = [p for p in of_type(mlp[1], MemoryPoint) if p.variant == variant]
        assert max(p.live_bytes for p in points) == peak
        assert points[-1].live_bytes == 0
        assert [p.step for p in points] == list(range(len(points)))


def test_a_compiled_point_names_its_wrapper_line_and_an_eager_one_its_operator(mlp: Compared) -> None:
    first = {p.variant: p.label for p in of_type(mlp[1], MemoryPoint) if p.step == 0}
    assert first["compiled"] is not None
    assert first["compiled"].startswith("buf0 = empty_strided_cpu((64, 512)")
    assert first["eager"] == "aten::linear"


def test_the_base_holds_the_weights_and_the_input(mlp: Compared) -> None:
    held = 4 * (512 * 512 + 512) * 4 + 64 * 512 * 4
    assert all(m.median >= held for m in of_type(mlp[1], Measurement) if m.metric == "base_bytes")


def test_kernel_operators_are_those_that_do_work() -> None:
    operators = operators_with_kernel()
    assert {"aten::addmm", "aten::_softmax", "aten::relu", "aten::copy_", "aten::clone"} <= operators
    composite, views, allocations = {"aten::linear", "aten::softmax"}, {"aten::view", "aten::t"}, {"aten::empty"}
    assert not (composite | views | allocations) & operators


@pytest.mark.usefixtures("mlp")
def test_measuring_leaves_wrappers_tracing_and_environment_as_they_were() -> None:
    module = next(module for module in wrappers() if "cpp_fused_relu_0" in kernels_of(module))
    kernel = module.cpp_fused_relu_0
    with kernels_marked():
        assert module.cpp_fused_relu_0 is not kernel
    assert module.cpp_fused_relu_0 is kernel
    assert type(kernel).__name__ == "builtin_function_or_method"
    assert sys.gettrace() is None or "measure" not in str(sys.gettrace())
    assert os.environ.get("KINETO_LOG_LEVEL") != "99"


def test_gradients_and_random_state_are_put_back() -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    model(x).sum().backward()
    gradient, seed = model.weight.grad, torch.get_rng_state()
    compare(model, model, (x,), backward=True, emit=lambda _: None, graph_of=lambda _: None)
    assert model.weight.grad is gradient
    assert torch.equal(torch.get_rng_state(), seed)


def test_backward_without_a_gradient_is_refused() -> None:
    with pytest.raises(ValueError, match="no output of the model requires a gradient"):
        compare(torch.sin, torch.sin, (torch.ones(2),), backward=True, emit=lambda _: None, graph_of=lambda _: None)


def test_state_that_each_call_replaces_does_not_add_up() -> None:
    """The profiler reports no free of a block from before its start, so the step settles under it first."""

    class Keeper(nn.Module):
        kept: Tensor | None = None

        def forward(self, x: Tensor) -> None:
            self.kept = x.exp()

    keeper, x = Keeper(), torch.ones(1000)
    points = of_type(list(memory_records("eager", step_of(keeper, (x,), None), CPU)), MemoryPoint)
    assert [(p.delta_bytes, p.live_bytes) for p in points] == [(4000, 4000), (-4000, 0)]


def test_samples_with_a_compilation_inside_are_thrown_away() -> None:
    def compiles_again(x: Tensor) -> Tensor:
        def fresh(y: Tensor) -> Tensor:
            return y + 1

        torch._dynamo.reset_code(fresh.__code__)
        result: Tensor = torch.compile(fresh, backend="eager")(x)
        return result

    records = list[Record]()
    result = compare(torch.sin, compiles_again, (torch.ones(2),), emit=records.append, graph_of=lambda _: None)
    assert result.compiled_us is None
    assert result.speedup is None
    assert "every sample had a compilation inside" in result.reasons[0]
    assert not [m for m in of_type(records, Measurement) if (m.variant, m.metric) == ("compiled", "latency_us")]
