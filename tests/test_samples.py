"""The sample models: each builds, and those that make a promise about the generated code keep it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import combinations
from pathlib import Path

import pytest
import torch

from fusionscope.app.figures.boxes import breadth
from fusionscope.app.figures.dag import KernelGraph, kernel_graph
from fusionscope.app.figures.dag_colours import Paint
from fusionscope.app.figures.dag_items import LEVELS, Facts, tree
from fusionscope.collector import record
from fusionscope.sample_models import SAMPLES, WANT_GPU, look_for
from fusionscope.storage import records
from fusionscope.storage.library import Library
from fusionscope.storage.queries import fusion, fusion_ops, graphs
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.replay import groups_after, rounds

Box = tuple[str, float, float, float, float]  # id, centre, size
ON_CPU = sorted(SAMPLES.keys() - WANT_GPU)


class Recorded:
    """Sample models, each recorded once for the tests of this file."""

    def __init__(self, store: Path) -> None:
        self.library, self._store = Library(store), store
        self._run_ids: dict[str, str] = {}

    def run_id(self, name: str) -> str:
        """The run of a sample: one call, and its backward where there is one."""
        if name not in self._run_ids:
            torch._dynamo.reset()
            module = import_module(SAMPLES[name])
            model, inputs, options = module.build()
            with record(name, store=self._store, strict=True) as recording:
                result = torch.compile(model, **options)(*inputs)
                if getattr(module, "BACKWARD", False):
                    result.sum().backward()
            self._run_ids[name] = recording.run_id
        return self._run_ids[name]

    def code(self, name: str) -> str:
        """The code that Inductor generated."""
        graphs = self.library.ask(records_of, records.Graph, self.run_id(name))
        return "\n".join(graph.output_code or "" for graph in graphs)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("samples"))


@pytest.mark.parametrize("name", ON_CPU)
def test_a_sample_runs_and_says_what_to_look_for(name: str) -> None:
    module = import_module(SAMPLES[name])
    model, inputs, _ = module.build()
    model(*inputs)
    assert look_for(name) == module.LOOK_FOR
    assert module.__doc__ is not None


def test_listing_the_samples_does_not_import_torch() -> None:
    listing = "import sys, fusionscope.sample_models as s; [s.look_for(n) for n in s.SAMPLES]"
    listing += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", listing], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_CPU)
def test_replaying_a_sample_gives_its_final_groups(name: str, samples: Recorded) -> None:
    run_id = samples.run_id(name)
    final = samples.library.ask(records_of, records.FusionGroup, run_id)
    assert final
    for graph in {group.graph_id for group in final}:
        groups = {group.group_id: group.members for group in final if group.graph_id == graph}
        nodes = [member for members in groups.values() for member in members]
        steps = samples.library.ask(rounds, run_id, graph)
        assert groups_after(nodes, steps, len(steps)) == groups
        assert groups_after(nodes, steps, 0) == {node: (node,) for node in nodes}


def pictures(name: str, level: str, samples: Recorded) -> Iterator[KernelGraph]:
    """The fusion graphs of a sample at a level."""
    run_id, ask = samples.run_id(name), samples.library.ask
    for graph in ask(graphs.decided_graphs, run_id):
        queries = (fusion.groups, fusion_ops.handovers, fusion.lowerings, fusion_ops.ops, fusion_ops.uses)
        facts = Facts(*(ask(query, run_id, graph.graph_id) for query in queries))
        yield kernel_graph([("", tree(facts, level, frozenset()))], Paint())


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ON_CPU)
def test_no_two_boxes_of_a_sample_overlap_and_no_label_is_cut(name: str, level: str, samples: Recorded) -> None:
    for drawn in pictures(name, level, samples):
        boxes = [(n["id"], n["x"], n["y"], n["boxWidth"], n["boxHeight"]) for n in drawn.network.nodes]
        frames = [(f.id, f.x + f.width / 2, f.y + f.height / 2, f.width, f.height) for f in drawn.frames]
        assert boxes
        assert [(a[0], b[0]) for a, b in combinations(boxes, 2) if overlap(a, b)] == []
        assert [(a[0], b[0]) for a in frames for b in [*boxes, *frames] if overlap(a, b) and not nested(a, b)] == []
        for node in drawn.network.nodes:  # as canvas_drawing.js writes them: 12 pixels, 0.602 of that a character
            sign = 22 if node["opens"] else 0
            needed = [13 + breadth(line) * 7.22 + (sign if i == 0 else 0) for i, line in enumerate(node["lines"])]
            assert max(needed) < node["boxWidth"], node["lines"]
        assert all(breadth(frame.label) * 6.93 + 34 <= frame.width for frame in drawn.frames)


@pytest.mark.slow
def test_what_the_forward_saves_leads_to_the_groups_that_use_it_in_the_backward(samples: Recorded) -> None:
    run_id, ask = samples.run_id("transformer_step"), samples.library.ask
    forward, backward = sorted(ask(graphs.decided_graphs, run_id), key=lambda graph: graph.direction == "backward")
    links = ask(fusion_ops.saved_links, run_id, forward.graph_id, backward.graph_id)
    groups = [{g.group_id for g in ask(fusion.groups, run_id, graph.graph_id)} for graph in (forward, backward)]
    joined = [link for link in links if link.src_groups and link.dst_groups]
    assert len(joined) >= 5
    assert all(set(link.src_groups) <= groups[0] and set(link.dst_groups) <= groups[1] for link in joined)
    assert all(link.bytes for link in joined)


def overlap(a: Box, b: Box) -> bool:
    return abs(a[1] - b[1]) < (a[3] + b[3]) / 2 - 1 and abs(a[2] - b[2]) < (a[4] + b[4]) / 2 - 1


def nested(a: Box, b: Box) -> bool:
    """Whether one of the two lies inside the other."""
    across, along = abs(a[1] - b[1]), abs(a[2] - b[2])
    return across <= abs(a[3] - b[3]) / 2 and along <= abs(a[4] - b[4]) / 2


@pytest.mark.slow
def test_the_parameter_mlp_has_one_kernel_for_relu_and_softmax(samples: Recorded) -> None:
    code = samples.code("mlp_parameters")
    assert code.count("cpp_fused_relu_0(buf") == 3
    assert code.count("cpp_fused__softmax_relu_1(buf") == 1


@pytest.mark.slow
def test_the_inline_mlp_draws_its_weights_in_generated_kernels(samples: Recorded) -> None:
    assert samples.code("mlp_inline").count("randn_cpu(") >= 4


@pytest.mark.slow
def test_the_cheap_producer_is_computed_twice(samples: Recorded) -> None:
    assert samples.code("two_consumers_cheap").count(".sin()") == 2


@pytest.mark.slow
def test_the_expensive_producer_is_computed_once_into_a_buffer(samples: Recorded) -> None:
    code = samples.code("two_consumers_expensive")
    assert code.count(".exp()") == 1
    assert "empty_strided_cpu((1024, 1024)" in code


@pytest.mark.slow
def test_the_chain_is_cut_by_the_fusion_cap(samples: Recorded) -> None:
    decisions = samples.library.ask(records_of, records.FusionDecision, samples.run_id("elementwise_chain"))
    assert "exceeds max fusion" in {decision.reason for decision in decisions}


@pytest.mark.slow
def test_the_convolutions_run_channels_last(samples: Recorded) -> None:
    code = samples.code("conv_norm_relu")
    assert "buf0 = empty_strided_cpu((8, 32, 56, 56), (100352, 1, 1792, 32)" in code
    assert code.count("= extern_kernels.convolution(") == 2


@pytest.mark.slow
def test_a_copy_for_a_convolution_computes_nothing_of_its_other_arguments(samples: Recorded) -> None:
    """Inductor lists the norm and the relu before it among the origins of the second weight's copy."""
    nodes = samples.library.ask(records_of, records.IrNode, samples.run_id("conv_norm_relu"))
    weight = 32 * 64 * 3 * 3 * 4
    (copy,) = [n for n in nodes if n.bytes_written == weight and n.origins[-1] == "convolution_1"]
    assert copy.origins == ("convolution_1",)
