"""A table holds so many rows; what is left out is counted, and the coverage statement tells it."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from pathlib import Path

import pytest
import torch
from models import MLP

from fusionscope.collector import record, recorder
from fusionscope.collector.ledger import untested
from fusionscope.collector.ledger.graph_facts import GraphFacts
from fusionscope.collector.observations import RowsLeftOut
from fusionscope.collector.row_limit import RowLimit
from fusionscope.storage.library import Library
from fusionscope.storage.queries import overview
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.records import Counter, FusionDecision, GraphEdge, IrEdge, IrNode


def test_a_table_keeps_its_first_rows_and_counts_the_others() -> None:
    limit = RowLimit(2)
    counters = [Counter(name=name, value=1) for name in "abc"]
    edge = GraphEdge(graph_id="0/0.forward", src="a", dst="b")
    kept = [
        *limit.within(counters),
        *limit.within([edge, counters[0], RowsLeftOut("counters", 5, "a graph keeps one")]),
    ]
    assert kept == [*counters[:2], edge]
    (told,) = limit.statuses()
    assert (told.hook, told.state, told.recorded, told.lost) == ("rows of counters", "partial", 2, 7)
    assert told.reason == "a run keeps 2 rows of a table: 2 more were left out; a graph keeps one: 5 more were left out"


def test_a_run_beyond_the_limit_is_partial_and_its_coverage_names_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "RowLimit", partial(RowLimit, 8))
    torch._dynamo.reset()
    with record("large", store=tmp_path, strict=True) as recording:
        torch.compile(MLP(32))(torch.randn(8, 32))
    library = Library(tmp_path)
    assert len(library.ask(records_of, FusionDecision, recording.run_id)) == 8
    told = {hook.hook: hook for hook in library.ask(overview.hooks, recording.run_id)}["rows of fusion_decisions"]
    assert told.recorded == 8
    assert told.lost > 0
    run = library.ask(overview.run, recording.run_id)
    assert run.status == "partial"
    assert "rows of fusion_decisions" in (run.status_reason or "")


def test_untested_users_of_a_buffer_beyond_the_limit_of_a_graph_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untested, "MOST_NEIGHBOURS", 4)
    names = ["op1", "op2", "op3", "op4"]
    nodes = [IrNode(graph_id="g", ir_node=name, kind="pointwise", position=0) for name in ["op0", *names]]
    edges = [IrEdge(graph_id="g", src="op0", dst=name, buffer="buf0", bytes=4) for name in names]
    tested = FusionDecision(graph_id="g", round=1, a="op1", b="op2", direction="horizontal", verdict="refused")
    *pairs, beyond = untested.untested_pairs(GraphFacts("g", [*nodes, *edges]), [tested])
    assert isinstance(beyond, RowsLeftOut)
    neighbours = [(pair.a, pair.b) for pair in pairs if isinstance(pair, FusionDecision) and pair.a != "op0"]
    assert neighbours == [*combinations(names, 2)][1:5]
    assert beyond.rows == 1
