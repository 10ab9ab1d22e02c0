"""Eager against compiled: what is counted, timed and weighed, and what is left as it was."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from fusionscope.collector import measure, record
from fusionscope.collector.measure import Comparison, Record, compare, latency, maker, timeline, torchscript
from fusionscope.collector.measure.device import idle_ns
from fusionscope.collector.measure.kernels import operators_with_kernel
from fusionscope.collector.measure.memory import memory_records
from fusionscope.collector.measure.moved import moved_record
from fusionscope.collector.measure.numerics import Errors, add_errors
from fusionscope.collector.measure.step import step_of
from fusionscope.collector.measure.wrappers import dispatched, kernels_marked, kernels_of, wrappers
from fusionscope.collector.variants import besides
from fusionscope.sample_models.mlp_parameters import MLP
from fusionscope.storage.library import Library
from fusionscope.storage.queries import costs
from fusionscope.storage.records import (
    Graph,
    GraphEdge,
    GraphNode,
    HookStatus,
    KernelTiming,
    Measurement,
    MemoryPoint,
    TimelineSpan,
)

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
    moved = {("eager", "bytes_moved")}  # of compiled code it is known by its kernels: storage/queries/moved.py
    numerics = {("compiled", metric) for metric in ("max_abs_error", "max_rel_error", "beyond_tolerance")}
    assert {(m.variant, m.metric) for m in made} == {
        (v, m) for v in ("eager", "compiled") for m in wanted
    } | numerics | moved
    assert all(m.method and m.unit for m in made)
    assert mlp[0].speedup == pytest.approx(mlp[0].eager_us / mlp[0].compiled_us)  # type: ignore[operator]


def test_the_bytes_that_eager_moves_are_those_of_its_operators(mlp: Compared) -> None:
    rows, weight, bias = 64 * 512 * 4, 512 * 512 * 4, 512 * 4
    (moved,) = (m.median for m in of_type(mlp[1], Measurement) if m.metric == "bytes_moved")
    assert moved == 4 * (2 * rows + weight + bias) + 4 * 2 * rows + 2 * rows  # addmm, relu, softmax


def test_a_write_reads_nothing_and_a_lookup_only_its_rows() -> None:
    table, words = torch.zeros(1000, 8), torch.tensor([1, 2])

    def step() -> None:
        torch.empty(8).fill_(1)
        torch.nn.functional.embedding(words, table)
        table.expand(3, 1000, 8).view(3, 1000, 8)

    moved = moved_record("eager", step, CPU)
    assert isinstance(moved, Measurement)
    assert moved.median == 32 + (16 + 64 + 64)


def test_the_traced_graph_holds_the_operations_of_the_model_with_their_lines(mlp: Compared) -> None:
    nodes = [n for n in of_type(mlp[1], GraphNode) if n.op == "call_function"]
    assert [n.target for n in nodes] == [*["aten::linear", "aten::relu"] * 4, "aten::softmax"]
    assert (nodes[0].shape, nodes[0].dtype, nodes[0].module_path) == (("64", "512"), "float32", "layers.0")
    assert "relu(layer(x))" in (nodes[1].source_text or "")
    edges = {(edge.src, edge.dst) for edge in of_type(mlp[1], GraphEdge)}
    assert {(a.node, b.node) for a, b in pairwise(nodes)} <= edges
    traced, optimised = of_type(mlp[1], Graph)
    assert (traced.graph_id, traced.reason) == ("torchscript", None)
    assert (optimised.code, optimised.reason) == (None, torchscript.NO_FUSER)


def test_a_branch_that_tracing_fixed_is_told_with_its_line() -> None:
    def branching(x: Tensor) -> Tensor:
        return x.sin() if x.sum() > 0 else x.cos()

    traced = torchscript.trace(branching, (torch.ones(3),))
    assert isinstance(traced, torchscript.Traced)
    (warning,) = traced.baked_in
    assert f"{__file__}:{branching.__code__.co_firstlineno + 1}: Converting a tensor to a Python boolean" in warning


def test_a_model_that_cannot_be_traced_says_why_and_is_measured_all_the_same() -> None:
    def scaled(x: Tensor, by: int) -> Tensor:
        return x * by

    (graph,) = torchscript.graph_records(torchscript.trace(scaled, (torch.ones(3), 2)), (torch.ones(3), 2))
    assert isinstance(graph, Graph)
    assert graph.code is None
    assert (graph.reason or "").startswith("torch.jit.trace cannot trace this model: RuntimeError: Type 'Tuple")


def test_a_model_that_returns_a_dictionary_has_no_torchscript_and_says_why() -> None:
    records = list[Record]()
    model, given = lambda x: {"twice": x * 2}, (torch.ones(3),)
    others = {"torchscript": maker("torchscript", model, given)}
    found = compare(model, model, given, others=others, emit=records.append, graph_of=lambda _: None)
    assert found.latency_us.keys() == {"eager", "compiled"}
    assert found.reasons[0].startswith(
        "torchscript: not measured: torch.jit.trace cannot trace this model: RuntimeError: Encountering a dict"
    )


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


def scan(x: Tensor) -> Tensor:
    """Lengths that differ need no recompile in the variant `dynamic`; cumsum stays a call of torch."""
    return torch.cumsum(torch.sin(x), 0) * 2


@pytest.fixture(scope="module")
def variants() -> Iterator[Compared]:
    """A function in four variants, one of which cannot be made."""

    def impossible() -> torch.nn.Module:
        raise RuntimeError("no such thing\non two lines")

    records = list[Record]()
    makers = {name: maker(name, scan, (torch.ones(1 << 14),)) for name in ("torchscript", "dynamic")}
    result = compare(
        scan,
        torch.compile(scan),
        (torch.randn(1 << 14),),
        others={**makers, "impossible": impossible},
        emit=records.append,
        graph_of=lambda file: "0/0.g",
    )
    yield result, records
    torch._dynamo.reset()


def test_every_variant_is_timed_in_the_same_rounds(variants: Compared) -> None:
    samples = {m.variant: m.samples for m in of_type(variants[1], Measurement) if m.metric == "latency_us"}
    assert list(samples) == ["eager", "compiled", "torchscript", "dynamic"]
    assert len(set(samples.values())) == 1
    assert set(variants[0].latency_us) == set(samples)


def test_a_variant_that_cannot_be_made_says_so_and_stops_no_other(variants: Compared) -> None:
    assert variants[0].reasons == ("impossible: not measured: no such thing",)
    (status,) = of_type(variants[1], HookStatus)
    assert (status.state, status.reason) == ("partial", "impossible: not measured: no such thing")


def test_every_variant_computes_what_eager_does(variants: Compared) -> None:
    beyond = {m.variant: m.median for m in of_type(variants[1], Measurement) if m.metric == "beyond_tolerance"}
    assert beyond == {"compiled": 0, "torchscript": 0, "dynamic": 0}


def test_an_operator_that_a_wrapper_calls_is_the_kernel_of_that_name(variants: Compared) -> None:
    found = {t.name: t for t in of_type(variants[1], KernelTiming) if t.variant == "compiled"}
    assert found["aten::cumsum"].kernel_id == "0/0.g/torch.ops.aten.cumsum.default"
    assert dispatched("torch.ops.mkl._mkl_linear.default") == "mkl::_mkl_linear"


def test_the_time_line_shows_one_call_in_order(variants: Compared) -> None:
    spans = [s for s in of_type(variants[1], TimelineSpan) if s.variant == "eager"]
    assert [(s.lane, s.op) for s in spans] == [("host", "aten::sin"), ("host", "aten::cumsum"), ("host", "aten::mul")]
    assert all(0 <= a.start_us < a.end_us <= b.start_us for a, b in pairwise(spans))


def test_a_time_line_too_long_keeps_the_longest_spans_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "SPANS", 1)
    monkeypatch.setattr(measure, "SPANS", 1)
    records = list[Record]()
    result = compare(scan, scan, (torch.ones(1 << 14),), emit=records.append, graph_of=lambda _: None)
    assert len(of_type(records, TimelineSpan)) == 2
    assert result.reasons[0] == "eager: the time line holds the 1 longest of 3 spans"


def test_random_numbers_are_not_compared() -> None:
    records = list[Record]()
    result = compare(torch.rand_like, torch.rand_like, (torch.ones(4),), emit=records.append, graph_of=lambda _: None)
    assert not [m for m in of_type(records, Measurement) if m.metric == "max_abs_error"]
    assert "draws random numbers" in result.reasons[0]


def test_errors_are_those_of_assert_close() -> None:
    found = Errors()
    add_errors(found, torch.tensor([1.0, 2.1, torch.nan]), torch.tensor([1.0, 2.0, torch.nan]))
    assert (found.elements, found.beyond) == (3, 1)
    assert found.absolute == pytest.approx(0.1)
    assert found.relative == pytest.approx(0.05)
    add_errors(found, torch.tensor([torch.nan]), torch.tensor([1.0]))
    assert (found.beyond, found.absolute) == (2, torch.inf)


def test_the_device_is_idle_where_no_span_lies() -> None:
    assert idle_ns([(30, 40), (0, 10), (5, 8), (12, 20)]) == 2 + 10
    assert idle_ns([(0, 10)]) == 0


def test_what_the_run_compiles_anyway_is_no_variant_besides() -> None:
    assert besides(("default", "dynamic"), None, None) == ("dynamic",)
    assert besides(("default", "reduce-overhead"), "reduce-overhead", None) == ("default",)
    with pytest.raises(ValueError, match="there is no variant 'fast'"):
        besides(("fast",), None, None)


class Block(nn.Module):
    """Two linear layers around a GELU, added to the input."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 32) → (rows, 32)"""
        return x + self.narrow(nn.functional.gelu(self.wide(x)))


class Stack(nn.Module):
    """Blocks in a list, then a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 32) → (rows, 8)"""
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits


GLOBAL = Stack()


def within_a_closure() -> tuple[Callable[[Tensor], Tensor], str]:
    """A function around a module, and what its paths begin with."""
    model = Stack()
    return lambda x: torch.tanh(model(x)), ""


def within_globals() -> tuple[Callable[[Tensor], Tensor], str]:
    """A function that finds its module among its globals."""
    return lambda x: torch.tanh(GLOBAL(x)), "GLOBAL"


def within_an_object() -> tuple[Callable[[Tensor], Tensor], str]:
    """A method of an object that holds the module."""

    class Trainer:
        net = None

        def __init__(self) -> None:
            self.net = Stack()

        def logits(self, x: Tensor) -> Tensor:
            return torch.tanh(self.net(x))

    return Trainer().logits, "net"


@pytest.mark.parametrize("make", [within_a_closure, within_globals, within_an_object])
def test_a_module_has_the_same_rows_in_eager_and_compiled_where_a_function_calls_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[], tuple[Callable[[Tensor], Tensor], str]],
) -> None:
    monkeypatch.setattr(latency, "ROUNDS", 2)
    monkeypatch.setattr(latency, "SECONDS", 0.0)
    function, root = make()
    torch._dynamo.reset()
    with record("rows", store=tmp_path, strict=True) as recording:
        compiled = torch.compile(function)
        compiled(torch.randn(64, 32)).sum().backward()
        recording.compare(function, (torch.randn(64, 32),), compiled=compiled, backward=True)
    rows = Library(tmp_path).ask(costs.rows, recording.run_id, "module and operator")
    eager = {(row.module_path, row.op, row.direction) for row in rows if row.eager_us}
    both = {place for row in rows if row.compiled_us and (place := (row.module_path, row.op, row.direction)) in eager}
    paths = [".".join(filter(None, (root, *rest))) for rest in (["blocks", "0", "wide"], ["blocks", "1", "narrow"])]
    placed = {(path, direction) for path, _, direction in both}
    assert placed >= {(path, direction) for path in paths for direction in ("forward", "backward")}
    assert ("", "aten::tanh", "forward") in both
