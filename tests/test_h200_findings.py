"""What recorded runs of an H200 tell: they agree with a profile made without this program, in another process.

The reference: GPT-2 small of the transformers package with random weights, bfloat16, 8 × 1,024 tokens, no gradients,
torch 2.11 on an H200; `torch.profiler`, µs of device time a call, summed by the name of the kernel. The head is the one
product that eager computes with CUTLASS (6,685 µs) and compiled code with nvjet (872 µs); attention is the twelve calls
of cuDNN's flash kernel (556 µs and 1,385 µs).
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from fusionscope import sample_models
from fusionscope.collector.measure.wrappers import finishing_operators
from fusionscope.storage import records as r
from fusionscope.storage.library import Library
from fusionscope.storage.queries import compare, costs, fusion_facts, rooflines
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.costs import CostRow
from fusionscope.storage.queries.findings import findings
from fusionscope.storage.queries.kernels import calls, kernels
from fusionscope.storage.queries.runs import library_runs
from fusionscope.storage.text import microseconds

BUNDLES = Path(sample_models.__file__).parent / "h200"
HEAD = {"eager": 6685.14, "compiled": 871.93}
ATTENTION = {"eager": 555.52, "compiled": 1384.81}
# The MLP of four layers, weights given, 1,024 rows of 512, float32: µs of a call, medians of 15 interleaved rounds. How
# fast a host issues launches differs between processes of the same machine by a factor of two, without a recorder too;
# the run that is kept is one whose host was as fast as that of the reference.
MLP_TIMES = {
    ("eager", "device_us"): 91.0,
    ("eager", "latency_us"): 159.0,
    ("compiled", "device_us"): 88.0,
    ("compiled", "host_us"): 193.0,
    ("compiled", "latency_us"): 198.0,
    ("reduce-overhead", "latency_us"): 104.0,
}
FORWARD, TRAINING, MLP, SPILLS = "h200_gpt2_forward", "h200_gpt2_training", "h200_mlp_weights", "h200_spills"
ATTRIBUTED = (FORWARD, TRAINING, MLP, "h200_resnet50")


@pytest.fixture(scope="module")
def h200(tmp_path_factory: pytest.TempPathFactory) -> tuple[Library, dict[str, str]]:
    """A library of the bundles, and the id of each run by its name."""
    held = Library(tmp_path_factory.mktemp("h200") / "store")
    for bundle in sorted(BUNDLES.glob("*.zip")):
        held.import_path(bundle)
    return held, {run.name: run.run_id for run in held.ask(library_runs)}


def rows_of(h200: tuple[Library, dict[str, str]], name: str, by: str) -> list[CostRow]:
    """The cost rows of a run."""
    return h200[0].ask(costs.rows, h200[1][name], by)


def found_in(h200: tuple[Library, dict[str, str]], name: str) -> dict[str, r.Finding]:
    """Code of a rule → its finding of a run."""
    return {finding.code: finding for finding in h200[0].ask(findings, h200[1][name])}


def test_the_head_of_gpt2_gains_most(h200: tuple[Library, dict[str, str]]) -> None:
    most = max(rows_of(h200, FORWARD, "kind of module"), key=lambda row: row.gain_us)
    assert most.module_path == "lm_head"
    assert most.eager_us == pytest.approx(HEAD["eager"], rel=0.1)
    assert most.compiled_us == pytest.approx(HEAD["compiled"], rel=0.1)
    assert most.gain_us == pytest.approx(HEAD["eager"] - HEAD["compiled"], rel=0.1)


def test_the_attention_of_gpt2_loses_most(h200: tuple[Library, dict[str, str]]) -> None:
    most = min(rows_of(h200, FORWARD, "kind of module"), key=lambda row: row.gain_us)
    assert (most.module_path, most.modules) == ("transformer.h.*.attn", 12)
    assert most.eager_us == pytest.approx(ATTENTION["eager"], rel=0.1)
    assert most.compiled_us == pytest.approx(ATTENTION["compiled"], rel=0.1)
    assert most.gain_us == pytest.approx(ATTENTION["eager"] - ATTENTION["compiled"], rel=0.1)


@pytest.mark.parametrize("name", [FORWARD, TRAINING])
def test_attention_lost_its_causal_kernel_to_a_mask(h200: tuple[Library, dict[str, str]], name: str) -> None:
    lost = found_in(h200, name)["lost_kernel"]
    assert (lost.status, lost.severity) == ("failed", "problem")
    assert len(lost.evidence) == 12
    assert all("sdpa_attention.py" in fact and "shape (8, 1, 1024, 1024)" in fact for fact in lost.evidence)


def test_the_mlp_is_launch_bound(h200: tuple[Library, dict[str, str]]) -> None:
    bound = found_in(h200, MLP)["launch_bound"]
    taken = {(m.variant, m.metric): m.median for m in h200[0].ask(compare.measurements, h200[1][MLP])}
    host, device = taken["compiled", "host_us"], taken["compiled", "device_us"]
    assert host > 1.5 * device
    found = {key: taken[key] for key in MLP_TIMES}
    assert found == {key: pytest.approx(us, rel=0.1) for key, us in MLP_TIMES.items()}
    assert (bound.status, bound.severity) == ("failed", "problem")
    assert bound.explanation == (
        f"The host needs {microseconds(host)} to issue a call that keeps the device busy for {microseconds(device)}."
    )
    assert any(fact.startswith("a call with CUDA graphs: ") for fact in bound.evidence)


def test_gpt2_keeps_its_device_busy(h200: tuple[Library, dict[str, str]]) -> None:
    assert found_in(h200, FORWARD)["launch_bound"].status == "passed"


@pytest.mark.parametrize(("name", "status", "severity"), [(SPILLS, "failed", "problem"), (MLP, "passed", "problem")])
def test_a_kernel_spills_where_its_binary_says_so(
    h200: tuple[Library, dict[str, str]], name: str, status: str, severity: str
) -> None:
    found = found_in(h200, name)["spills"]
    assert (found.status, found.severity) == (status, severity)


def test_layer_norms_with_dropout_leave_room_for_few_warps(h200: tuple[Library, dict[str, str]]) -> None:
    found = found_in(h200, TRAINING)["spills"]
    assert (found.status, found.severity) == ("failed", "note")
    assert len(found.evidence) == 4
    assert all("native_layer_norm" in fact and "19% of the warps" in fact for fact in found.evidence)


def test_the_wrapper_of_a_training_step_tells_what_finishes_its_mix_order_kernels(
    h200: tuple[Library, dict[str, str]], tmp_path: Path
) -> None:
    found = {}
    for graph in h200[0].ask(records_of, r.Graph, h200[1][TRAINING]):
        if graph.output_code:
            wrapper = ModuleType("wrapper")
            wrapper.__file__ = str(tmp_path / "wrapper.py")
            Path(wrapper.__file__).write_text(graph.output_code)
            found[graph.graph_id] = finishing_operators(wrapper)
    assert {name: operators for name, operators in found.items() if operators} == {"2/0.backward": {"aten::sum"}}


@pytest.mark.parametrize("name", ATTRIBUTED)
def test_almost_all_kernel_time_has_a_row_and_the_rows_add_up(h200: tuple[Library, dict[str, str]], name: str) -> None:
    held, runs = h200
    for part in held.ask(costs.coverage, runs[name]):
        timed = sum(timing.total_us for timing in held.ask(compare.timings, runs[name], part.variant))
        assert part.covered >= 0.98
        assert part.total_us == pytest.approx(timed, rel=0.02)
        assert part.profiled_us
        assert part.latency_us


def test_a_training_step_has_rows_of_the_backward_in_eager_and_compiled(h200: tuple[Library, dict[str, str]]) -> None:
    rows = rows_of(h200, TRAINING, "kind of module")
    both = {(row.module_path, row.direction) for row in rows if row.eager_us and row.compiled_us}
    for module in ("lm_head", "transformer.h.*.attn", "transformer.h.*.mlp.c_fc", "transformer.h.*.mlp.c_proj"):
        assert {(module, "forward"), (module, "backward")} <= both


def test_each_call_of_a_library_kernel_has_its_own_time_and_together_they_are_its_total(
    h200: tuple[Library, dict[str, str]],
) -> None:
    held, runs = h200
    groups = held.ask(fusion_facts.costs, runs[TRAINING], "2/0.backward")
    (products,) = (k for k in held.ask(kernels, runs[TRAINING]) if k.kernel_id == "2/0.backward/extern_kernels.mm")
    ran = {group for call in held.ask(calls, runs[TRAINING], products.kernel_id or "") for group in call.group_ids}
    times = [group.time_us for group in groups if group.group_id in ran]
    assert len(times) == products.calls == 98
    assert sum(time or 0.0 for time in times) == pytest.approx(products.total_us, rel=0.02)
    assert sum(time > 700 for time in times if time) == 2  # of the head: its weight's gradient and its input's


def test_a_library_call_costs_its_own_module_what_it_took(h200: tuple[Library, dict[str, str]]) -> None:
    """c_fc and c_proj do the same operations in products of other shapes, which a share by operations makes equal."""
    rows = {row.module_path: row for row in rows_of(h200, FORWARD, "kind of module")}
    wide, narrow = rows["transformer.h.*.mlp.c_fc"], rows["transformer.h.*.mlp.c_proj"]
    assert (wide.estimated, narrow.estimated) == (False, False)
    assert wide.compiled_us == pytest.approx(wide.eager_us, rel=0.05)
    assert narrow.compiled_us == pytest.approx(narrow.eager_us, rel=0.05)
    assert (wide.compiled_us or 0.0) > 1.05 * (narrow.compiled_us or 0.0)


@pytest.mark.parametrize("name", [FORWARD, TRAINING, MLP, "h200_resnet50"])
def test_no_kernel_is_faster_than_its_lower_bound(h200: tuple[Library, dict[str, str]], name: str) -> None:
    """A twentieth is left to what the L2 cache still held."""
    judged = h200[0].ask(rooflines.judged, h200[1][name])
    timed = [(k.row.call_us, k.bound.us) for k in judged if k.bound and k.row.call_us]
    assert timed
    assert all(taken > 0.95 * least for taken, least in timed)
