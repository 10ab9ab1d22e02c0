"""Every row of a diff is true of the generated code, which is read here by a parser of its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from generated_code import Wrapper, read, texts_of
from torch import Tensor, nn

from fusionscope.collector import record
from fusionscope.storage.library import Library
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.changes import Change
from fusionscope.storage.queries.diff import Diff, diff
from fusionscope.storage.queries.graphs import decided_graphs
from fusionscope.storage.records import Graph

pytestmark = pytest.mark.slow


class Chain(nn.Module):
    """A layer norm, a product, and a softmax that a smaller limit takes apart, in two layers of the same lines."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, width) → (rows, width)."""
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = torch.softmax(torch.relu(layer(norm(x))), -1)
        return x


@dataclass(frozen=True)
class Side:
    """One run: its id, its wrappers by graph."""

    run_id: str
    wrappers: dict[str, Wrapper]

    def called(self) -> set[str]:
        """`graph/kernel` of everything that is called."""
        return {f"{graph}/{name}" for graph, wrapper in self.wrappers.items() for name in wrapper.calls}

    def alive(self) -> dict[str, int]:
        """`graph/buffer` -> bytes of what is alive at the peaks."""
        return {f"{graph}/{name}": size for graph, w in self.wrappers.items() for name, size in w.peak.items()}


@dataclass(frozen=True)
class Pair:
    """Two runs and their diff."""

    library: Library
    sides: tuple[Side, Side]
    diff: Diff

    def rows(self, area: str) -> list[Change]:
        """The changes of one area."""
        return [change for change in self.diff.changes if change.area == area]


def objects(rows: list[Change]) -> tuple[set[str], set[str]]:
    """The ids that rows name, in either run."""
    before, after = ({o for row in rows for o in getattr(row, f"objects_{side}")} for side in ("before", "after"))
    return before, after


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Library, list[Side]]:
    """A training step, again, and with groups of no more than two nodes."""
    library = Library(tmp_path_factory.mktemp("truth"))

    def trained(most: int) -> Side:
        torch._dynamo.reset()
        torch.manual_seed(0)
        with torch._inductor.config.patch(max_fusion_size=most), record("chain", store=library.store, strict=True) as r:
            torch.compile(Chain())(torch.randn(64, 128, requires_grad=True)).sum().backward()
        graphs = {g.graph_id for g in library.ask(decided_graphs, r.run_id)}
        texts = [graph for graph in library.ask(records_of, Graph, r.run_id) if graph.graph_id in graphs]
        return Side(r.run_id, {graph.graph_id: read(graph.output_code or "") for graph in texts})

    return library, [trained(64), trained(64), trained(2)]


@pytest.fixture(scope="module")
def smaller(runs: tuple[Library, list[Side]]) -> Pair:
    """What the smaller limit changed."""
    library, (first, _, last) = runs
    return Pair(library, (first, last), library.ask(diff, first.run_id, last.run_id))


def test_the_same_step_again_differs_in_nothing(runs: tuple[Library, list[Side]]) -> None:
    library, (first, again, _) = runs
    assert library.ask(diff, first.run_id, again.run_id).changes == ()


def test_headlines_are_those_of_the_code(smaller: Pair) -> None:
    for side, summary in zip(smaller.sides, (smaller.diff.before, smaller.diff.after), strict=True):
        assert summary.kernel_calls == sum(len(wrapper.calls) for wrapper in side.wrappers.values())
        assert summary.plan_peak_bytes == max(max(wrapper.totals) for wrapper in side.wrappers.values())


def test_rows_name_kernels_that_are_called_and_the_others_run_the_same_text(smaller: Pair) -> None:
    named = objects(smaller.rows("kernels"))
    assert all(named)
    rest = []
    for side, ids in zip(smaller.sides, named, strict=True):
        assert ids <= side.called()
        unnamed = {
            graph: {name for name in w.calls if f"{graph}/{name}" not in ids} for graph, w in side.wrappers.items()
        }
        rest.append(sum((texts_of(side.wrappers[graph], names) for graph, names in unnamed.items()), Counter()))
    assert rest[0] == rest[1]


def test_rows_name_buffers_alive_at_the_peaks_and_the_others_are_as_large(smaller: Pair) -> None:
    rest = []
    for side, ids in zip(smaller.sides, objects(smaller.rows("memory")), strict=True):
        assert ids <= side.alive().keys()
        rest.append(Counter((n.rpartition("/")[0], size) for n, size in side.alive().items() if n not in ids))
    assert rest[0] == rest[1]


def test_peaks_stand_in_rows_where_they_differ(smaller: Pair) -> None:
    peaks = [{graph: max(w.totals) for graph, w in side.wrappers.items()} for side in smaller.sides]
    told = {row.graph for row in smaller.rows("memory") if row.what.startswith("peak of")}
    assert {graph for graph in peaks[0] if peaks[0][graph] != peaks[1][graph]} <= told


def test_a_split_softmax_is_one_loop_nest_against_three(smaller: Pair) -> None:
    """The C++ backend opens a parallel loop for each group; what they share is read and written in between."""
    split = [row for row in smaller.rows("groups") if row.status == "split" and "exp" in row.what + (row.before or "")]
    assert split
    for row in split:
        graph = row.objects_before[0].rpartition("/")[0]
        assert row.objects_after
        loops = [_loops(side.wrappers[graph]) for side in smaller.sides]
        assert loops[0] < loops[1]


def _loops(wrapper: Wrapper) -> int:
    return sum(text.count("#pragma omp for") for text in wrapper.sources.values())


def test_layers_of_the_same_lines_are_told_apart(smaller: Pair) -> None:
    for area in ("groups", "kernels", "memory"):
        read_alike = Counter((row.status, row.what, row.where, row.before, row.after) for row in smaller.rows(area))
        assert not [words for words, times in read_alike.items() if times > 1]
