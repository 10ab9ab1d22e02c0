"""What the passes, the partitioner and the logs say about real compiles: checked against torch's own numbers."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pytest
import torch
from test_ledger import Recorded, recorded
from torch import Tensor, nn

from fusionscope.storage import records


class Attention(nn.Module):
    """Attention by hand, as Inductor's patterns know it; with `keep` the weights are returned as well."""

    def __init__(self, *, keep: bool) -> None:
        super().__init__()
        self.keep = keep

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """(batch, heads, rows, width) three times → (batch, heads, rows, width)."""
        weights = (q @ k.transpose(-2, -1)).div(4.0).softmax(-1)
        return (weights @ v, weights) if self.keep else weights @ v


class Remembering(nn.Module):
    """Keeps what it saw in a list, and fixes the number of rows by comparing it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        """(rows, width) → (rows, width)."""
        self.seen.append(x.shape[1])
        return x.cumsum(0) if x.shape[0] == 6 else x * 2


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("decisions")


@pytest.fixture(scope="module")
def attention(store: Path) -> Recorded:
    """The same attention with its weights kept (0/0) and without (0/1)."""

    def drive() -> None:
        qkv = [torch.randn(2, 4, 24, 16) for _ in range(3)]
        with torch.no_grad():
            torch.compile(Attention(keep=True))(*qkv)
            torch.compile(Attention(keep=False))(*qkv)

    return recorded(store, drive)


@pytest.fixture(scope="module")
def remembering(store: Path) -> Recorded:
    """Compiled for dynamic shapes."""
    return recorded(store, lambda: torch.compile(Remembering(), dynamic=True)(torch.randn(6, 4)))


@pytest.fixture(scope="module")
def partitioned(store: Path) -> tuple[Recorded, str]:
    """A training step, and what AOTAutograd logged about its partition."""
    from torch._functorch import partitioners

    lines: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda line: lines.append(line.getMessage())  # type: ignore[method-assign]
    level = partitioners.log.level
    partitioners.log.addHandler(listener)
    partitioners.log.setLevel(logging.INFO)
    partitioners.AOT_PARTITIONER_DEBUG = True
    try:
        weight = torch.randn(16, 16, requires_grad=True)
        run = recorded(store, lambda: torch.compile(_gated)(torch.randn(8, 16), weight).sum().backward())
    finally:
        partitioners.AOT_PARTITIONER_DEBUG = False
        partitioners.log.setLevel(level)
        partitioners.log.removeHandler(listener)
    return run, "\n".join(lines)


def _gated(x: Tensor, weight: Tensor) -> Tensor:
    return torch.sigmoid(x @ weight) * torch.cos(x @ weight)


def test_saved_values_and_their_bytes_are_those_that_autograd_logs(partitioned: tuple[Recorded, str]) -> None:
    run, log = partitioned
    saved = [choice for choice in run.of(records.PartitionChoice, "0/0.joint") if choice.saved]
    assert saved
    assert f"Theoretical Per Activation Storage Sizes: {sorted((c.bytes, c.node) for c in saved)}" in log


def test_operations_computed_again_are_those_that_autograd_counts(partitioned: tuple[Recorded, str]) -> None:
    run, log = partitioned
    forward, backward = (
        [node for node in run.of(records.GraphNode, f"0/0.aot_{direction}") if node.op == "call_function"]
        for direction in ("forward", "backward")
    )
    again = {node.node for node in backward if node.recomputed}
    assert again == {node.node for node in forward if node.recomputed} != set()
    assert f"# remat/fw/bw: {len(again)}/{len(forward)}/{len(backward)}" in log


def test_a_saved_value_links_the_forward_to_the_input_of_the_backward(partitioned: tuple[Recorded, str]) -> None:
    run, _ = partitioned
    held = {link.node_a for link in _links(run, "0/0.forward", "0/0.backward")}
    given = {n.node: n for n in run.of(records.GraphNode, "0/0.backward")}
    inputs = {node for node in held if given[node].op == "placeholder"}
    assert inputs == {choice.node for choice in run.all(records.PartitionChoice) if choice.saved}
    again = {node.node for node in run.of(records.GraphNode, "0/0.aot_backward") if node.recomputed}
    assert held - inputs == again == {node.node for node in given.values() if node.recomputed}


def test_an_operation_leads_from_dynamos_graph_to_the_one_that_inductor_compiled(
    partitioned: tuple[Recorded, str],
) -> None:
    run, _ = partitioned
    traced = {link.node_b: link.node_a for link in _links(run, "0/0.dynamo", "0/0.joint")}
    targets = {node.node: node.target for node in run.of(records.GraphNode, "0/0.dynamo")}
    assert "sigmoid" in targets[traced["sigmoid"]]
    assert "cos" in targets[traced["cos"]]
    for earlier, later in (("joint", "aot_forward"), ("aot_forward", "forward")):
        assert {"sigmoid", "cos"} <= {link.node_b for link in _links(run, f"0/0.{earlier}", f"0/0.{later}")}


def _links(run: Recorded, graph_a: str, graph_b: str) -> list[records.NodeLink]:
    return [link for link in run.all(records.NodeLink) if (link.graph_a, link.graph_b) == (graph_a, graph_b)]


def test_a_value_that_must_not_be_computed_again_says_why(partitioned: tuple[Recorded, str]) -> None:
    choices = {choice.node: choice for choice in partitioned[0].all(records.PartitionChoice)}
    assert (choices["mm"].banned, choices["mm"].reason) == (True, "not in recomputable allowlist")
    assert (choices["primals_1"].is_input, choices["primals_1"].recomputed) == (True, False)
    assert {choice.budget for choice in choices.values()} == {1.0}
    assert {choice.reason for choice in choices.values() if not choice.banned} == {None}


def test_a_pattern_that_was_applied_is_named_with_its_pass(attention: Recorded) -> None:
    changes = attention.of(records.PassChange, "0/1.joint")
    (fused,) = [c for c in changes if c.outcome == "applied" and c.pattern and (c.nodes_removed or 0) > 10]
    assert fused.count == 1
    whole = next(c for c in changes if c.pattern is None and c.pass_name == fused.pass_name)
    assert (whole.nodes_removed, (whole.duration_s or 0) > 0) == (fused.nodes_removed, True)
    assert not [c for c in changes if c.outcome == "near_miss" and c.pattern == fused.pattern]


def test_a_pattern_that_nearly_matched_says_which_value_is_used_elsewhere(attention: Recorded) -> None:
    fused = max(attention.of(records.PassChange, "0/1.joint"), key=lambda c: c.nodes_removed or 0 if c.pattern else 0)
    same = [c for c in attention.of(records.PassChange, "0/0.joint") if c.pattern == fused.pattern]
    (near,) = [c for c in same if "aten.div.Tensor is also used elsewhere" in (c.reason or "")]
    assert (near.outcome, near.count, near.nodes_removed) == ("near_miss", 1, None)


def test_a_symbol_says_what_it_stands_for_and_what_fixed_it(remembering: Recorded) -> None:
    rows, width = sorted(remembering.all(records.Symbol), key=lambda symbol: symbol.source or "")
    assert (rows.source, rows.hint, rows.specialised_to) == ("L['x'].size()[0]", "6", "6")
    assert (Path(rows.file or "").name, rows.reason is not None) == (Path(__file__).name, True)
    assert (width.source, width.hint, width.specialised_to) == ("L['x'].size()[1]", "4", None)


def test_a_side_effect_names_the_object_and_the_line(remembering: Recorded) -> None:
    effects = {effect.target: effect for effect in remembering.all(records.SideEffect)}
    seen = effects["L['self'].seen"]
    assert seen.kind == "Mutating object of type list"
    assert Path(seen.file or "").name == Path(__file__).name
    assert "self.seen.append" in Path(__file__).read_text().splitlines()[(seen.line or 0) - 1]


def test_a_hint_names_the_node_that_it_is_about(remembering: Recorded) -> None:
    hints = {hint.text: hint for hint in remembering.all(records.PerfHint)}
    fallback = hints["Using FallbackKernel: torch.ops.aten.cumsum.default"]
    assert (fallback.graph_id, fallback.node) == ("0/0.inference", "cumsum")


def test_what_inductor_counted_adds_up_over_the_graphs(attention: Recorded) -> None:
    from torch._inductor import metrics

    torch._dynamo.reset()
    metrics.reset()
    qkv = [torch.randn(2, 4, 24, 16) for _ in range(3)]
    with torch.no_grad():
        torch.compile(Attention(keep=True))(*qkv)
        torch.compile(Attention(keep=False))(*qkv)
    counted = Counter[str]()
    for counter in attention.all(records.Counter):
        counted[counter.name] += counter.value
    assert counted["generated_kernel_count"] == metrics.generated_kernel_count > 0
    assert counted["cpp_vec_kernels"] == metrics.generated_cpp_vec_kernel_count
    assert {counter.graph_id for counter in attention.all(records.Counter)} >= {"0/0.inference", None}


def test_a_reason_to_use_no_cuda_graph_is_kept_with_the_line_to_blame(store: Path) -> None:
    from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

    text = 'skipping cudagraphs due to cpu device (scale). Found from : \n   File "model.py", line 7, in forward\n'
    (event,) = recorded(store, lambda: log_cudagraph_skip_and_bump_counter(text)).all(records.CudagraphEvent)
    assert (event.event, event.file, event.line) == ("skipped", "model.py", 7)
    assert (event.reason or "").startswith("skipping cudagraphs due to cpu device (scale)")


@pytest.fixture(scope="module")
def branching(store: Path) -> Recorded:
    """torch.cond: each branch is a graph inside the graph, and both end in the same kernel."""

    def branches(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: (x.sin() @ x).relu(), lambda x: (x.cos() @ x).relu(), (x,)) + 1

    return recorded(store, lambda: torch.compile(branches)(torch.randn(8, 8)))


def test_a_graph_inside_a_graph_is_a_graph_of_its_own(branching: Recorded) -> None:
    outer, *inner = [graph for graph in branching.all(records.Graph) if graph.stage == "post_grad"]
    assert {graph.graph_id for graph in inner} == {f"{outer.graph_id}.{name}_graph_0" for name in ("true", "false")}
    for graph in inner:
        calls = branching.of(records.KernelCall, graph.graph_id)
        functions = [(outer.output_code or "").splitlines()[(call.line or 0) - 1] for call in calls]
        assert [call.kernel_id.rpartition("/")[2] in line for call, line in zip(calls, functions, strict=True)] == [
            True
        ] * 3


def test_a_kernel_that_two_graphs_of_a_wrapper_share_has_its_source_in_both(branching: Recorded) -> None:
    kernels = [kernel for kernel in branching.all(records.Kernel) if "relu" in kernel.name]
    assert [(kernel.backend, kernel.source is not None) for kernel in kernels] == [("cpp", True)] * 2


def test_what_a_graph_inside_a_graph_returns_counts_in_the_outer_plan(branching: Recorded) -> None:
    assert branching.peak("plan", "0/0.inference") == 8 * 8 * 4
    inner = branching.of(records.MemoryPoint, "0/0.inference.true_graph_0")
    assert min(point.live_bytes for point in inner) > 0  # its arguments stay the caller's


def test_attention_that_no_kernel_takes_is_said_to_have_vanished(store: Path) -> None:
    def drive() -> None:
        q = torch.randn(1, 2, 8, 16)
        mask = torch.zeros(8, 8, requires_grad=True)  # a mask with a gradient: no fused kernel has that
        attend = torch.compile(nn.functional.scaled_dot_product_attention)
        attend(q, q, q)
        attend(q, q, q, mask)

    vanished = [c for c in recorded(store, drive).all(records.PassChange) if c.outcome == "vanished"]
    assert [(c.graph_id, c.pattern, c.count) for c in vanished] == [("0/1.joint", "scaled_dot_product_attention", 1)]


def test_a_size_that_depends_on_data_has_no_bytes(store: Path) -> None:
    def drive() -> None:
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            torch.compile(lambda x: torch.nonzero(x) * 2)(torch.ones(8))

    run = recorded(store, drive)
    buffers = [
        b for b in run.of(records.Buffer, "0/0.inference") if any(size.startswith("u") for size in b.shape or ())
    ]
    assert buffers
    assert {buffer.bytes for buffer in buffers} == {None}
    labels = [point.label or "" for point in run.of(records.MemoryPoint, "0/0.inference") if point.basis == "plan"]
    assert [label for label in labels if "a size that depends on data is counted as 0" in label]


def test_a_break_in_a_loop_is_told_with_both_explanations_and_its_frame_is_skipped(store: Path) -> None:
    def looping(x: Tensor) -> Tensor:
        for _ in range(2):
            x = x.sin()
            torch._dynamo.graph_break()
        return x

    run = recorded(store, lambda: torch.compile(looping)(torch.ones(3)))
    (site,) = run.all(records.GraphBreak)
    assert site.kind == "Call to `torch._dynamo.graph_break()`"
    assert len([line for line in (site.reason or "").splitlines() if "loop" in line or "User-inserted" in line]) == 2
    assert "Skipping the function and falling back to eager" in (site.context or "")
    (frame,) = [compile for compile in run.all(records.Compile) if compile.function == "looping"]
    assert (frame.outcome, frame.reason) == ("skipped", "graph break in loop: Dynamo left the frame to Python")
