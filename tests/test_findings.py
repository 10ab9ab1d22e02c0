"""Every rule has a program that makes it fail and a near twin that does not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from example_run import example_run, publish
from memory_models import chunked
from test_ledger import recorded
from torch import Tensor, nn
from torch.nn.functional import conv2d, scaled_dot_product_attention

from fusionscope.collector import record
from fusionscope.collector.measure import latency
from fusionscope.storage import records as r
from fusionscope.storage.database import open_for_writing
from fusionscope.storage.findings import RULES
from fusionscope.storage.library import Library
from fusionscope.storage.queries.findings import findings

GRAPH, KERNEL = "0/0.inference", "0/0.inference/triton_poi_fused_0"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("findings")


def found_in(store: Path, run_id: str) -> dict[str, r.Finding]:
    """Code of a rule → its finding of a run."""
    return {finding.code: finding for finding in Library(store).ask(findings, run_id)}


def driven(store: Path, drive: Callable[[], object]) -> dict[str, r.Finding]:
    """What is concluded of what `drive` compiles."""
    return found_in(store, recorded(store, drive).run_id)


def measured(store: Path, model: Any, *inputs: Any) -> dict[str, r.Finding]:
    """What is concluded of a model that was measured against eager."""
    torch._dynamo.reset()
    with torch.no_grad(), record("measured", store=store, strict=True) as recording:
        compiled = torch.compile(model)
        compiled(*inputs)
        recording.compare(model, inputs, compiled=compiled)
    return found_in(store, recording.run_id)


_ids = (f"20261129-100000-{number:06x}" for number in count())


def told(store: Path, *facts: Any, **changed: Any) -> dict[str, r.Finding]:
    """What is concluded of a run that holds `facts`."""
    compiled = r.Compile(compile_id="0/0", outcome="compiled")
    graph = r.Graph(graph_id=GRAPH, compile_id="0/0", stage="post_grad")
    run_id = publish(store, example_run(next(_ids), **changed), [compiled, graph, *facts])
    return found_in(store, run_id)


def status(found: dict[str, r.Finding], code: str) -> tuple[str, str]:
    """Verdict and weight of one rule."""
    return found[code].status, found[code].severity


FAILS, NOTES, PASSES = ("failed", "problem"), ("failed", "note"), ("passed", "problem")


def double(x: Tensor) -> Tensor:
    """(any shape) → the same, in one loop."""
    return torch.relu(x) * 2


def test_a_clean_program_has_no_problem(store: Path) -> None:
    found = driven(store, lambda: torch.compile(double)(torch.randn(64, 64)))
    assert {finding.status for finding in found.values()} == {"passed", "not_applicable"}


def clean_models() -> dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]]:
    """Ten small models that nothing is wrong with, and what makes their inputs."""
    convolution = nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU()).eval()
    convolution.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    width = 64

    def rows() -> tuple[Tensor, ...]:
        return (torch.randn(32, width),)

    def image() -> tuple[Tensor, ...]:
        return (torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last),)

    def heads() -> tuple[Tensor, ...]:
        return tuple(torch.randn(2, 2, 32, 16) for _ in range(3))

    return {
        "linear and relu": (nn.Sequential(nn.Linear(width, width), nn.ReLU()), rows),
        "gelu block": (nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()), rows),
        "softmax": (lambda x: torch.softmax(x * 0.125, -1), rows),
        "rms norm": (lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), rows),
        "gated unit": (nn.Sequential(nn.Linear(width, 2 * width), nn.GLU()), rows),
        "residual": (lambda x: x + torch.relu(x) * 0.5, rows),
        "convolution": (convolution, image),
        "causal attention": (lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True), heads),
        "embedding": (nn.EmbeddingBag(100, width), lambda: (torch.randint(100, (8, 4)),)),
        "log likelihood": (
            lambda x, y: nn.functional.cross_entropy(x, y),
            lambda: (*rows(), torch.randint(width, (32,))),
        ),
    }


def test_ten_clean_models_have_no_problem(store: Path) -> None:
    def drive() -> None:
        with torch.no_grad():
            for model, inputs in clean_models().values():
                torch._dynamo.reset()  # containers share one forward, which would be compiled again for each
                torch.compile(model)(*inputs())

    found = driven(store, drive)
    assert len(clean_models()) == 10
    assert not [(f.code, f.evidence) for f in found.values() if (f.status, f.severity) == FAILS]


@pytest.mark.parametrize(("operands", "verdict"), [("qkvm", FAILS), ("qkv", PASSES)])
def test_a_mask_where_eager_asked_for_a_causal_kernel_is_a_lost_kernel(
    store: Path, operands: str, verdict: tuple[str, str]
) -> None:
    def node(name: str, target: str, **more: Any) -> r.GraphNode:
        return r.GraphNode(graph_id=GRAPH, node=name, position=0, op="call_function", target=target, **more)

    eager = r.KernelTiming(name="sdpa_flash_fprop", variant="eager", calls=1, median_us=9, total_us=9, method="test")
    call = node("attention", "aten._scaled_dot_product_cudnn_attention.default", file="a/m.py", line=7)
    inputs = [node(name, "aten.view.default", shape=("8", "8")) for name in operands]
    reads = [r.GraphEdge(graph_id=GRAPH, src=name, dst="attention") for name in operands]
    scheduled = r.IrNode(graph_id=GRAPH, ir_node="op0", kind="extern", position=0)
    found = told(store, eager, call, *inputs, *reads, scheduled)
    assert status(found, "lost_kernel") == verdict
    if verdict == FAILS:
        assert found["lost_kernel"].evidence == (f"{GRAPH} attention at m.py:7: mask m, shape (8, 8)",)


def test_every_rule_concludes_once_and_says_why_it_could_not(store: Path) -> None:
    found = told(
        store,
    )
    assert sorted(found) == sorted(rule.code for rule in RULES)
    assert all(finding.explanation for finding in found.values())


def test_shapes_that_change_under_dynamic_false_are_compiled_again_and_again(store: Path) -> None:
    def drive(dynamic: bool | None) -> None:
        compiled = torch.compile(double, dynamic=dynamic)
        for rows in (8, 16, 24):
            compiled(torch.randn(rows, 8))

    again = driven(store, lambda: drive(False))
    assert status(again, "recompiling") == FAILS
    assert "size mismatch at index 0" in again["recompiling"].evidence[0]
    assert "mark_dynamic" in str(again["recompiling"].action)
    assert status(driven(store, lambda: drive(None)), "recompiling") == NOTES  # torch learns that the size changes


def test_sizes_that_stayed_symbols_are_a_note(store: Path) -> None:
    dynamic = driven(store, lambda: torch.compile(double, dynamic=True)(torch.randn(8, 8)))
    assert status(dynamic, "dynamic_shapes") == NOTES
    static = driven(store, lambda: torch.compile(double, dynamic=False)(torch.randn(8, 8)))
    assert status(static, "dynamic_shapes") == PASSES


def test_a_print_breaks_the_graph(store: Path) -> None:
    def spoken(x: Tensor) -> Tensor:
        print(end="")  # noqa: T201 — the break
        return double(x)

    broken = driven(store, lambda: torch.compile(spoken)(torch.randn(8, 8)))
    assert status(broken, "graph_breaks") == FAILS
    assert broken["graph_breaks"].evidence[0].startswith("test_findings.py:")
    assert status(driven(store, lambda: torch.compile(double)(torch.randn(8, 8))), "graph_breaks") == PASSES


def test_a_break_in_a_loop_leaves_the_whole_function_uncompiled(store: Path) -> None:
    def repeated(x: Tensor) -> Tensor:
        for _ in range(3):
            x = double(x)
            print(end="")  # noqa: T201 — the break
        return x

    broken = driven(store, lambda: torch.compile(repeated)(torch.randn(8, 8)))["graph_breaks"]
    assert broken.explanation == "Tracing stopped at 1 place; inside a loop, so that 1 whole function ran uncompiled."
    assert broken.evidence[0].endswith("all of repeated ran uncompiled")
    assert "out of the loop" in str(broken.action)


def test_a_convolution_copies_what_is_not_channels_last(store: Path) -> None:
    def drive(layout: torch.memory_format) -> None:
        image, weight = torch.randn(2, 32, 56, 56), torch.randn(32, 32, 3, 3)
        with torch.no_grad():
            torch.compile(conv2d)(image.to(memory_format=layout), weight.to(memory_format=layout))

    assert status(driven(store, lambda: drive(torch.contiguous_format)), "layout_copies") == FAILS
    assert status(driven(store, lambda: drive(torch.channels_last)), "layout_copies") == PASSES


def test_attention_with_a_mask_that_needs_a_gradient_loses_its_kernel(store: Path) -> None:
    def drive(requires_grad: bool) -> None:
        q = torch.randn(1, 2, 8, 16)
        torch.compile(scaled_dot_product_attention)(q, q, q, torch.zeros(8, 8, requires_grad=requires_grad))

    assert status(driven(store, lambda: drive(True)), "lost_kernel") == FAILS
    assert status(driven(store, lambda: drive(False)), "lost_kernel") == PASSES


@pytest.mark.parametrize(
    ("function", "again", "refused"), [(torch.sin, FAILS, NOTES), (torch.exp, PASSES, PASSES)], ids=["sin", "exp"]
)
def test_a_sine_of_two_consumers_is_computed_twice_from_an_input_read_twice_and_an_exponential_is_kept(
    store: Path, function: Callable[[Tensor], Tensor], again: tuple[str, str], refused: tuple[str, str]
) -> None:
    def consumed(x: Tensor) -> tuple[Tensor, Tensor]:
        value = function(x)
        return value.sum(1), value.t() + 1

    found = driven(store, lambda: torch.compile(consumed)(torch.randn(1024, 1024)))
    assert status(found, "recomputed_producer") == again
    assert status(found, "refused_fusions") == refused
    if refused == NOTES:
        assert found["refused_fusions"].evidence[0].startswith("test_findings.py:")


def test_a_library_product_leaves_nothing_to_gain_and_a_loop_does(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _hurry(monkeypatch)
    product = measured(store, nn.Linear(1024, 1024), torch.randn(256, 1024))
    assert status(product, "library_bound") == NOTES
    assert status(product, "steady_state") == PASSES
    loop = measured(store, double, torch.randn(2048, 2048))
    assert status(loop, "library_bound") == PASSES
    assert status(loop, "small_work") == PASSES


def test_a_loop_over_16_bit_integers_is_not_vectorised(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wave(samples: Tensor) -> Tensor:
        return torch.tanh(samples.to(torch.float32) / 32768.0)

    _hurry(monkeypatch)
    numbers = torch.randint(-3000, 3000, (512, 1600))
    assert status(measured(store, wave, numbers.to(torch.int16)), "scalar_loops") == FAILS
    assert status(measured(store, wave, numbers.to(torch.int32)), "scalar_loops") == PASSES


def test_four_numbers_are_too_little_work(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _hurry(monkeypatch)
    assert status(measured(store, double, torch.randn(4)), "small_work") == NOTES


def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rounds: these verdicts do not hang on a per cent."""
    monkeypatch.setattr(latency, "ROUNDS", 3)
    monkeypatch.setattr(latency, "SECONDS", 0.0)


def us(variant: str, metric: str, median: float, **more: Any) -> r.Measurement:
    """A measured time in microseconds."""
    return r.Measurement(variant=variant, metric=metric, median=median, unit="us", method="after warm-up", **more)


def test_a_host_slower_than_its_device_is_launch_bound(store: Path) -> None:
    host, device = us("compiled", "host_us", 193.0), us("compiled", "device_us", 91.0)
    bound = told(store, host, device, us("reduce-overhead", "latency_us", 104.0))
    assert status(bound, "launch_bound") == FAILS
    assert bound["launch_bound"].explanation == (
        "The host needs 193 µs to issue a call that keeps the device busy for 91 µs."
    )
    assert bound["launch_bound"].evidence == ("a call with CUDA graphs: 104 µs",)
    busy = told(store, host, us("compiled", "device_us", 400.0))
    assert status(busy, "launch_bound") == PASSES


def test_a_call_that_compiles_every_time_is_never_steady(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiles_again(x: Tensor) -> Tensor:
        torch._dynamo.reset_code(double.__code__)
        result: Tensor = torch.compile(double, backend="eager")(x)
        return result

    _hurry(monkeypatch)
    with record("unsteady", store=store, strict=True) as recording:
        recording.compare(double, (torch.ones(2),), compiled=compiles_again)
    found = found_in(store, recording.run_id)
    assert status(found, "steady_state") == FAILS
    assert found["steady_state"].evidence[0].startswith("compiled: ")


def test_a_compilation_after_the_warm_up_is_not_steady(store: Path) -> None:
    thrown = told(store, us("compiled", "latency_us", 9.0, samples=12, discarded=3))
    assert status(thrown, "steady_state") == FAILS


@pytest.mark.parametrize(
    ("stored", "chosen", "occupancy", "verdict"),
    [(96, True, 0.5, FAILS), (0, True, 0.5, PASSES), (96, False, 0.5, None), (0, True, 0.125, NOTES)],
)
def test_a_kernel_that_spills_in_the_chosen_configuration_is_a_problem(
    store: Path, stored: int, chosen: bool, occupancy: float, verdict: tuple[str, str] | None
) -> None:
    config = r.KernelConfig(
        kernel_id=KERNEL,
        config="XBLOCK=1",
        num_warps=4,
        num_stages=1,
        registers=255,
        spill_bytes=stored,
        occupancy=occupancy,
        occupancy_limit="registers",
        chosen=chosen,
        origin="heuristics",
    )
    found = told(store, r.Kernel(kernel_id=KERNEL, graph_id=GRAPH, name="k", backend="triton"), config)
    assert status(found, "spills") == (verdict or ("not_applicable", "problem"))


def test_cuda_graphs_that_were_asked_for_and_skipped_are_a_problem(store: Path) -> None:
    skipped = r.CudagraphEvent(compile_id="0/0", event="skipped", reason="mutated inputs", file="m.py", line=3)
    asked = {"mode": "reduce-overhead", "device_kind": "cuda"}
    found = told(store, skipped, **asked)
    assert status(found, "cudagraphs_skipped") == FAILS
    assert found["cudagraphs_skipped"].evidence == ("mutated inputs at m.py:3",)
    used = told(store, r.CudagraphEvent(compile_id="0/0", event="recorded"), **asked)
    assert status(used, "cudagraphs_skipped") == PASSES


@pytest.mark.parametrize(("template_us", "verdict"), [(10.2, NOTES), (14.0, PASSES)])
def test_a_library_call_that_wins_by_a_hair_is_a_note(
    store: Path, template_us: float, verdict: tuple[str, str]
) -> None:
    def candidate(choice: str, kind: str, time_us: float) -> r.GemmChoice:
        return r.GemmChoice(graph_id=GRAPH, op="mm", choice=choice, kind=kind, time_us=time_us)

    rivals = candidate("mm", "library", 10.0), candidate("triton_mm_3", "triton", template_us)
    assert status(told(store, *rivals), "autotune_hair") == verdict


@pytest.mark.parametrize(("chunks", "verdict"), [(4, FAILS), (1, PASSES)])
def test_chunks_that_are_alive_at_once_make_the_peak_grow(
    store: Path, monkeypatch: pytest.MonkeyPatch, chunks: int, verdict: tuple[str, str]
) -> None:
    _hurry(monkeypatch)
    rows = 64 * chunks  # so that a chunk is alike, one or several
    found = measured(store, chunked, torch.randn(rows, 16), torch.randn(16, 512), torch.randn(64, 512), chunks)
    assert status(found, "memory_grown") == verdict


def test_a_library_from_before_findings_concludes_them_when_it_is_next_opened(store: Path) -> None:
    run_id = publish(store, example_run(next(_ids)), [])
    library = Library(store)
    with open_for_writing(library.path) as con:
        for table in ("findings", "summaries"):
            con.execute(f"DELETE FROM {table} WHERE run_id = ?", [run_id])
    assert not found_in(store, run_id)
    library.conclude_older()
    assert len(found_in(store, run_id)) == len(RULES)
