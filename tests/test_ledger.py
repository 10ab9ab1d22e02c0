"""What the library says about real compiles, checked against generated code, torch's own log and known values."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from models import MLP, Shapes, everything, everything_inputs, scaled
from torch._inductor.choices import FusionScore

from fusionscope.collector import record
from fusionscope.sample_models import transformer_step
from fusionscope.storage import records
from fusionscope.storage.library import Library
from fusionscope.storage.queries import memory
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.kernels import kernels

T = TypeVar("T")
MLP_PEAK, MLP_ESTIMATE = 262_656, 393_728
INFERENCE = "0/0.inference"


class Recorded:
    """A run in a library, asked by record type."""

    def __init__(self, store: Path, run_id: str) -> None:
        self._library, self.run_id = Library(store), run_id

    def all(self, kind: type[T]) -> list[T]:
        """Every row of a table."""
        return self._library.ask(records_of, kind, self.run_id)

    def of(self, kind: type[T], graph_id: str) -> list[T]:
        """The rows of one graph."""
        return [row for row in self.all(kind) if row.graph_id == graph_id]  # type: ignore[attr-defined]

    def lifetimes(self, graph_id: str) -> list[memory.Lifetime]:
        """The buffers of one graph, as the screen has them."""
        return self._library.ask(memory.lifetimes, self.run_id, graph_id)

    def peak(self, basis: str, graph_id: str = INFERENCE) -> int:
        """The highest point of a memory timeline."""
        return max(p.live_bytes for p in self.of(records.MemoryPoint, graph_id) if p.basis == basis)


def recorded(store: Path, drive: Any) -> Recorded:
    """Record `drive()` from a clean Dynamo."""
    torch._dynamo.reset()
    with record("ledger", store=store, strict=True) as recording:
        drive()
    return Recorded(store, recording.run_id)


def drive_mlp() -> None:
    """64 rows of 512, no gradients."""
    with torch.no_grad():
        torch.compile(MLP())(torch.randn(64, 512))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture(scope="module")
def mlp(store: Path) -> Recorded:
    """The MLP with its weights as parameters."""
    return recorded(store, drive_mlp)


@pytest.fixture(scope="module")
def training(store: Path) -> Recorded:
    """A training step: forward, then backward."""

    def drive() -> None:
        model = torch.compile(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)))
        model(torch.randn(32, 64)).square().mean().backward()

    return recorded(store, drive)


@pytest.fixture(scope="module")
def block(store: Path) -> Recorded:
    """The training step of a transformer block, as in the sample model."""

    def drive() -> None:
        model, inputs, _ = transformer_step.build()
        torch.compile(model)(*inputs).sum().backward()

    return recorded(store, drive)


@pytest.fixture(scope="module")
def lowering(store: Path) -> Recorded:
    """A convolution whose layout is changed, and a producer with several users."""

    def drive() -> None:
        with torch.no_grad():
            torch.compile(everything)(*everything_inputs())
            torch.compile(scaled)(torch.randn(64, 32))

    return recorded(store, drive)


@pytest.fixture(scope="module")
def shapes(store: Path) -> Recorded:
    """A break, and a shape that changes."""

    def drive() -> None:
        model = torch.compile(Shapes())
        for rows in (4, 6, 8):
            model(torch.randn(rows, 16))

    return recorded(store, drive)


def test_the_plan_is_the_measured_peak_and_the_estimate_is_another_number(mlp: Recorded) -> None:
    assert mlp.peak("plan") == MLP_PEAK
    assert mlp.peak("estimate") == MLP_ESTIMATE


def test_the_orders_have_the_peaks_that_torch_logged(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "torch._inductor.memory"):
        run = recorded(store, drive_mlp)
    logged = [record.args for record in caplog.records if "peak memory: %d" in str(record.msg)]
    orders = [(order.method, order.peak_bytes) for order in run.of(records.MemoryOrder, INFERENCE)]
    assert orders == [
        ("as_given", logged[0][0]),
        *((name.removeprefix("topological_sort_"), n) for name, n in logged[1:]),
    ]


def test_a_refused_pair_has_torchs_own_reason(mlp: Recorded) -> None:
    pair = next(d for d in mlp.of(records.FusionDecision, INFERENCE) if (d.a, d.b) == ("op8", "op10"))
    assert (pair.verdict, pair.reason) == ("refused", "intermediate nodes between node1 & node2")
    assert pair.reason_code == "intermediate_nodes"


def test_a_pair_that_was_never_tested_says_why(mlp: Recorded) -> None:
    untested = {(d.a, d.b): d for d in mlp.of(records.FusionDecision, INFERENCE) if d.verdict == "untested"}
    pair = untested["op0", "op1"]
    assert (pair.reason_code, pair.direction, pair.shared_bytes, pair.times_tested) == (
        "library_call",
        "vertical",
        131_072,
        0,
    )
    assert not {("op7", "op8"), ("op8", "op10")} & untested.keys()


def test_every_legal_pair_has_the_score_parts_that_torch_scores(
    mlp: Recorded, training: Recorded, lowering: Recorded
) -> None:
    legal = [
        d
        for run in (mlp, training, lowering)
        for d in run.all(records.FusionDecision)
        if d.verdict in ("legal", "fused")
    ]
    assert len(legal) > 10
    scored = {field.name for field in fields(FusionScore)}
    parts = {
        "template_score": {d.score_template is not None for d in legal},
        "node_type_score": {d.score_type is not None for d in legal},
        "memory_score": {d.score_memory is not None for d in legal},
        "buffer_overlap_score": {d.score_overlap is not None for d in legal},
        "proximity_score": {d.score_proximity is not None for d in legal},
    }
    assert parts == {name: {name in scored} for name in parts}
    assert scored <= parts.keys()


def test_a_silent_refusal_names_the_predicate_that_refused(lowering: Recorded) -> None:
    pair = lowering.of(records.FusionDecision, "1/0.inference")[0]
    assert (pair.a, pair.b, pair.verdict, pair.reason) == ("op0", "op1", "refused", None)
    assert pair.refused_by == "CppScheduling.can_fuse_vertical"
    assert pair.reason_code == "cpp_vertical"
    assert pair.shared_bytes == 64 * 32 * 4 + 4  # x, and the maximum


@pytest.mark.parametrize("run", ["mlp", "training", "lowering", "shapes", "block"])
def test_every_scheduler_node_is_in_one_group_and_every_group_in_one_call(
    run: str, request: pytest.FixtureRequest
) -> None:
    seen: Recorded = request.getfixturevalue(run)
    for graph in {group.graph_id for group in seen.all(records.FusionGroup)}:
        groups = seen.of(records.FusionGroup, graph)
        members = [member for group in groups for member in group.members]
        assert sorted(members) == sorted(node.ir_node for node in seen.of(records.IrNode, graph))
        working = {g.group_id for g in groups if not _all_nop(seen, graph, g.members)}
        called = [group for call in seen.of(records.KernelCall, graph) for group in call.group_ids]
        assert sorted(called) == sorted(working)


def _all_nop(seen: Recorded, graph: str, members: tuple[str, ...]) -> bool:
    kinds = {node.ir_node: node.kind for node in seen.of(records.IrNode, graph)}
    return all(kinds[member] == "nop" for member in members)


@pytest.mark.parametrize("run", ["mlp", "training", "lowering", "block"])
def test_fused_pairs_in_the_order_taken_give_the_final_groups(run: str, request: pytest.FixtureRequest) -> None:
    seen: Recorded = request.getfixturevalue(run)
    for graph in {group.graph_id for group in seen.all(records.FusionGroup)}:
        members = {node.ir_node: {node.ir_node} for node in seen.of(records.IrNode, graph)}
        fused = [d for d in seen.of(records.FusionDecision, graph) if d.verdict == "fused"]
        for decision in sorted(fused, key=lambda d: d.order_taken or 0):
            members[decision.result or ""] = members.pop(decision.a) | members.pop(decision.b)
        assert members == {g.group_id: set(g.members) for g in seen.of(records.FusionGroup, graph)}


@pytest.mark.parametrize("run", ["mlp", "training", "lowering", "block"])
def test_a_call_points_at_its_line_of_the_output_code(run: str, request: pytest.FixtureRequest) -> None:
    seen: Recorded = request.getfixturevalue(run)
    code = {graph.graph_id: (graph.output_code or "").splitlines() for graph in seen.all(records.Graph)}
    names = {kernel.kernel_id: kernel.name for kernel in seen.all(records.Kernel)}
    for call in seen.all(records.KernelCall):
        assert call.line is not None
        assert names[call.kernel_id] in code[call.graph_id][call.line - 1]


def test_a_library_call_that_updates_in_place_is_a_call(store: Path) -> None:
    def largest(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return torch.scatter_reduce(torch.relu(x), 1, place, x, "amax")  # no loop of Inductor's own takes a maximum

    def drive() -> None:
        torch.compile(largest)(torch.randn(4, 9), torch.zeros(4, 9, dtype=torch.int64))

    seen = recorded(store, drive)
    names = {kernel.kernel_id: kernel.name for kernel in seen.of(records.Kernel, INFERENCE)}
    calls = [names[call.kernel_id] for call in seen.of(records.KernelCall, INFERENCE)]
    (graph,) = (g for g in seen.all(records.Graph) if g.graph_id == INFERENCE)
    assert calls.count("aten.scatter_reduce_.two") == (graph.output_code or "").count("aten.scatter_reduce_.two(")
    assert "aten.scatter_reduce_.two" in calls


def test_generated_kernels_carry_their_source_and_what_they_move(mlp: Recorded) -> None:
    kernels = {kernel.name: kernel for kernel in mlp.of(records.Kernel, INFERENCE)}
    relu = kernels["cpp_fused_relu_0"]
    assert relu.backend == "cpp"
    assert (relu.source or "").lstrip().startswith("#include")
    assert (relu.source or "").rstrip().endswith("}")
    assert (relu.bytes_read, relu.bytes_written) == (64 * 512 * 4, 64 * 512 * 4)
    addmm = kernels["extern_kernels.addmm"]
    assert addmm.backend == "extern"
    assert addmm.bytes_read == (512 * 512 + 512 + 64 * 512) * 4
    assert addmm.flops == 2 * 64 * 512 * 512


def test_every_generated_kernel_maps_to_source_lines(block: Recorded) -> None:
    nodes = {(n.graph_id, n.ir_node): n.origins for n in block.all(records.IrNode)}
    members = {(g.graph_id, g.group_id): g.members for g in block.all(records.FusionGroup)}
    lines = {(n.graph_id, n.node): n.line for n in block.all(records.GraphNode) if n.file}
    generated = {kernel.kernel_id for kernel in block.all(records.Kernel) if kernel.backend == "cpp"}
    calls = [call for call in block.all(records.KernelCall) if call.kernel_id in generated]
    assert len(calls) > 8
    for call in calls:
        ops = {
            (call.graph_id, op)
            for group in call.group_ids
            for member in members[call.graph_id, group]
            for op in nodes[call.graph_id, member]
        }
        assert ops & lines.keys(), call


def test_attention_that_keeps_its_kernel_has_not_vanished(block: Recorded) -> None:
    assert any("_scaled_dot_product_flash_attention" in kernel.name for kernel in block.all(records.Kernel))
    assert not [change for change in block.all(records.PassChange) if change.outcome == "vanished"]


def test_attention_without_a_kernel_for_its_shapes_has_vanished(store: Path) -> None:
    def drive() -> None:
        query, value = torch.randn(1, 2, 8, 16), torch.randn(1, 2, 8, 24)  # the flash kernel wants one width
        torch.compile(torch.nn.functional.scaled_dot_product_attention)(query, query, value)

    seen = recorded(store, drive)
    assert not any("attention" in kernel.name for kernel in seen.all(records.Kernel) if kernel.backend == "extern")
    (change,) = (change for change in seen.all(records.PassChange) if change.outcome == "vanished")
    assert (change.pattern, change.count) == ("scaled_dot_product_attention", 1)


def test_every_buffer_of_the_wrapper_is_recorded(mlp: Recorded, training: Recorded, block: Recorded) -> None:
    import re

    for seen in (mlp, training, block):
        for graph in (g for g in seen.all(records.Graph) if g.output_code):
            code = (graph.output_code or "").split("def call(")[1]
            allocated = set(re.findall(r"^\s+(buf\d+) = empty_strided", code, re.M))
            reused = set(re.findall(r"^\s+(buf\d+) = .*# reuse", code, re.M))
            known = {buffer.buffer for buffer in seen.of(records.Buffer, graph.graph_id)}
            assert allocated | reused <= known


def test_an_edge_inside_a_kernel_is_not_materialised(mlp: Recorded) -> None:
    edges = {(edge.src, edge.dst): edge.materialised for edge in mlp.of(records.IrEdge, INFERENCE)}
    assert edges["op8", "op9"] is False  # exp stays in registers
    assert edges["op0", "op1"] is True


def test_an_op_knows_its_module_and_source_line(mlp: Recorded) -> None:
    node = next(n for n in mlp.of(records.GraphNode, INFERENCE) if n.node == "addmm_1")
    assert node.module_path == "layers.1"
    assert (Path(node.file or "").name, node.source_text) == ("models.py", "x = torch.relu(layer(x))")
    assert (node.shape, node.stride, node.dtype, node.bytes) == (("64", "512"), ("512", "1"), "float32", 131_072)


def test_forward_and_backward_each_have_groups_kernels_and_a_plan(training: Recorded) -> None:
    for graph in ("0/0.forward", "0/0.backward"):
        assert training.of(records.FusionGroup, graph)
        assert training.of(records.KernelCall, graph)
        assert training.peak("plan", graph) > 0


def test_what_is_saved_for_backward_is_told_from_what_the_user_gets(training: Recorded) -> None:
    forward = {b.buffer: b.category for b in training.of(records.Buffer, "0/0.forward")}
    backward = {b.buffer: b.category for b in training.of(records.Buffer, "0/0.backward")}
    assert {"weight", "saved", "output"} <= set(forward.values())
    assert {"saved", "gradient"} <= set(backward.values())
    assert backward["tangents_1"] == "gradient"


@pytest.mark.parametrize("graph", ["0/0.forward", "0/0.backward"])
def test_an_input_has_the_name_that_the_program_gives_it(block: Recorded, graph: str) -> None:
    model, inputs, _ = transformer_step.build()
    assert isinstance(model, torch.nn.Module)
    held = {**dict(model.named_parameters()), "x": inputs[0]}
    shapes = {name: tuple(str(size) for size in tensor.shape) for name, tensor in held.items()}
    given = [life for life in block.lifetimes(graph) if life.category in ("weight", "input")]
    assert {life.given_as: life.shape for life in given}.items() <= shapes.items()
    assert graph == "0/0.backward" or len(given) == len(shapes)
    assert {life.given_as for life in block.lifetimes(graph) if life not in given} == {None}


def test_names_of_inputs_are_those_of_the_program_whatever_they_hold(store: Path) -> None:
    def summed(held: dict[str, torch.Tensor], rows: list[torch.Tensor], x_modules_y_: torch.Tensor) -> torch.Tensor:
        return held["a.b"].sin() + held["a_b"] + rows[1] * x_modules_y_

    one, *others = (torch.randn(4, 4) for _ in range(4))
    held, rows = {"a.b": one, "a_b": others[0]}, [others[1], others[1]]
    seen = recorded(store, lambda: torch.compile(summed)(held, rows, others[2]))
    names = {life.given_as for life in seen.lifetimes(INFERENCE) if life.at_entry}
    assert names == {"held['a.b']", "held['a_b']", "rows[1]", "x_modules_y_"}


def test_inputs_that_were_joined_go_without_names_rather_than_with_wrong_ones(store: Path) -> None:
    def mutated(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        a.mul_(2)
        return a + b + c.exp()

    base = torch.randn(8, 4)  # AOTAutograd hands on what both are views of, before all others
    seen = recorded(store, lambda: torch.compile(mutated)(base[:4], base[2:6], torch.randn(4, 4)))
    given = [life for life in seen.lifetimes(INFERENCE) if life.at_entry]
    assert given
    assert {life.given_as for life in given} == {None}


def test_an_inlined_producer_says_where_it_is_computed_again(lowering: Recorded) -> None:
    sine = next(d for d in lowering.all(records.RealizeDecision) if d.node == "sin")
    assert (sine.users, sine.realized, sine.copies) == (2, False, 3)
    assert (sine.reason or "").startswith("inlined: 1 read and 2 operations stay below the limits")


def test_a_producer_too_costly_to_repeat_is_realized(mlp: Recorded) -> None:
    exp = next(d for d in mlp.all(records.RealizeDecision) if d.node == "exp")
    assert (exp.realized, exp.copies) == (True, 1)
    assert exp.reason == "realized: exp is too costly on a CPU to be computed in each of 2 users"


def test_a_layout_copy_has_its_strides_and_bytes(lowering: Recorded) -> None:
    copies = [change for change in lowering.all(records.LayoutChange) if change.is_copy]
    image = next(c for c in copies if c.from_stride == ("6272", "196", "14", "1"))
    assert (image.node, image.to_stride) == ("convolution", ("6272", "1", "448", "32"))
    assert image.bytes == 2 * 32 * 14 * 14 * 4


def test_a_break_is_one_site_with_its_line_and_hint(shapes: Recorded) -> None:
    (site,) = shapes.all(records.GraphBreak)
    assert Path(site.file or "").name == "models.py"
    assert site.kind == "Failed to trace builtin operator"
    assert "print" in (site.hint or "")


def test_a_recompile_names_the_guard_that_failed(shapes: Recorded) -> None:
    recompile = next(r for r in shapes.all(records.Recompile) if r.compile_id == "0/1")
    assert (recompile.previous_compile_id, recompile.guard_value, recompile.outcome) == ("0/0", "6", "done")
    assert "size mismatch at index 0" in (recompile.guard or "")


def test_a_resumed_frame_names_what_it_resumes(shapes: Recorded) -> None:
    compiles = {compile.compile_id: compile for compile in shapes.all(records.Compile)}
    assert compiles["0/0"].resume_of is None
    assert compiles["1/0"].resume_of == "forward"
    assert {compile.outcome for compile in compiles.values()} == {"compiled"}
    assert compiles["0/0"].attempts == 2  # Dynamo traces again after it met the break


def test_a_reset_of_dynamo_starts_a_new_epoch(store: Path) -> None:
    def drive() -> None:
        torch.compile(torch.sin)(torch.ones(3))
        torch._dynamo.reset()
        torch.compile(torch.cos)(torch.ones(3))

    compiles = recorded(store, drive).all(records.Compile)
    assert [(compile.compile_id, compile.epoch) for compile in compiles] == [("0/0", 0), ("0/0@1", 1)]


def test_phases_nest_and_lie_within_their_parents(mlp: Recorded) -> None:
    phases = {phase.phase_id: phase for phase in mlp.all(records.CompilePhase)}
    assert {"entire_frame_compile", "backend_compile", "Scheduler.__init__"} <= {p.name for p in phases.values()}
    for phase in phases.values():
        if phase.parent in phases:
            parent = phases[phase.parent]
            assert parent.start_s <= phase.start_s + 1e-6
            assert phase.start_s + phase.duration_s <= parent.start_s + parent.duration_s + 1e-6


def test_a_gather_moves_rows_and_not_its_table(tmp_path: Path) -> None:
    table, rows, weight = torch.randn(50_000, 64), torch.randint(0, 50_000, (128,)), torch.randn(64)

    def normalised_rows(rows: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(table[rows], (64,), weight)

    run = recorded(tmp_path, lambda: torch.compile(normalised_rows)(rows))
    (call,) = run.all(records.KernelCall)
    assert call.bytes_read == table.nbytes + rows.nbytes + weight.nbytes
    assert call.bytes_written is not None
    assert call.moved == call.bytes_read - table.nbytes + 128 * 64 * 4 + call.bytes_written


def test_calls_of_a_library_kernel_each_have_their_own_bytes_and_operations(tmp_path: Path) -> None:
    wide, narrow = torch.randn(64, 256), torch.randn(256, 32)

    def products(x: torch.Tensor) -> torch.Tensor:
        return x @ wide @ narrow

    run = recorded(tmp_path, lambda: torch.compile(products)(torch.randn(16, 64)))
    calls = run.all(records.KernelCall)
    assert [call.flops for call in calls] == [2 * 16 * 64 * 256, 2 * 16 * 256 * 32]
    assert [call.moved for call in calls] == [4 * (16 * 64 + 64 * 256 + 16 * 256), 4 * (16 * 256 + 256 * 32 + 16 * 32)]
    (kernel,) = Library(tmp_path).ask(kernels, run.run_id)
    assert (kernel.flops, kernel.calls) == (sum(call.flops or 0 for call in calls) / 2, 2)


def test_a_library_kernel_with_several_results_has_its_operations(tmp_path: Path) -> None:
    x, weight = torch.randn(2, 4, 16, 16, requires_grad=True), torch.randn(8, 4, 3, 3, requires_grad=True)

    def convolved(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv2d(x, weight, padding=1)

    seen = recorded(tmp_path, lambda: torch.compile(convolved)(x, weight).sum().backward())
    operations = {call.kernel_id.split(".")[-2]: call.flops for call in seen.all(records.KernelCall) if call.flops}
    forward = 2 * (2 * 16 * 16) * 8 * (4 * 3 * 3)
    assert operations.pop("convolution_backward") == 2 * forward  # one product for each of the two gradients
    assert [*operations.values()] == [forward]


def test_a_scatter_moves_what_it_writes_and_not_all_of_its_target(tmp_path: Path) -> None:
    def added(target: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return target.index_put_((rows,), values, accumulate=True)

    target, rows, values = torch.zeros(50_000, 64), torch.randint(0, 50_000, (128,)), torch.randn(128, 64)
    run = recorded(tmp_path, lambda: torch.compile(added)(target, rows, values))
    assert [call.moved for call in run.all(records.KernelCall)] == [rows.nbytes + 2 * values.nbytes]


def test_an_edge_that_only_orders_two_nodes_carries_no_bytes(tmp_path: Path) -> None:
    def updated(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        read = torch.nn.functional.softmax(cache, -1) @ x
        cache.copy_(x)
        return read

    run = recorded(tmp_path, lambda: torch.compile(updated)(torch.randn(64, 64), torch.randn(64, 64)))
    assert not {edge.bytes for edge in run.all(records.IrEdge)} & {1, None}
    assert all((node.bytes_read or 0) % 4 == 0 for node in run.all(records.IrNode))
