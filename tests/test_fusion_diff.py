"""Two runs against each other: groups that split, merged, came or went, matched by what they compute."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fusionscope.collector import record
from fusionscope.storage.library import Library
from fusionscope.storage.queries import graphs
from fusionscope.storage.queries.fusion_diff import Match, matches


def sums(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Three scheduler nodes that one kernel can hold."""
    a = (x.sin() + 1).sum(0)
    b = (x.cos() + 2).sum(0)
    c = (x.exp() + 3).sum(0)
    return a, b, c


def shorter(x: Tensor) -> tuple[Tensor, Tensor]:
    a = (x.sin() + 1).sum(0)
    b = (x.cos() + 2).sum(0)
    return a, b


@pytest.fixture(scope="module")
def against(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Match]]:
    """What became of the groups of `sums` in each other run."""
    store = tmp_path_factory.mktemp("diff")
    library = Library(store)

    def compiled(model: object, most: int) -> tuple[str, str]:
        torch._dynamo.reset()
        with torch._inductor.config.patch(max_fusion_size=most), record("sums", store=store, strict=True) as recording:
            torch.compile(model)(torch.ones(64, 64))  # type: ignore[call-overload]
        (graph,) = library.ask(graphs.decided_graphs, recording.run_id)
        return recording.run_id, graph.graph_id

    whole, apart, less = compiled(sums, 64), compiled(sums, 1), compiled(shorter, 64)
    pairs = {"same": (whole, whole), "split": (whole, apart), "merged": (apart, whole), "less": (apart, less)}
    return {name: library.ask(matches, *pair) for name, pair in pairs.items()}


@pytest.mark.slow
def test_a_run_against_itself_is_the_same_group_by_group(against: dict[str, list[Match]]) -> None:
    assert {match.status for match in against["same"]} == {"same"}
    assert all(match.before == match.after for match in against["same"])
    assert all(match.bytes_before == match.bytes_after is not None for match in against["same"])


@pytest.mark.slow
def test_a_group_that_a_smaller_limit_takes_apart_is_split_and_the_other_way_round_merged(
    against: dict[str, list[Match]],
) -> None:
    (split,), (merged,) = against["split"], against["merged"]
    assert (split.status, len(split.before), len(split.after)) == ("split", 1, 3)
    assert (merged.status, merged.before, merged.after) == ("merged", split.after, split.before)
    assert split.bytes_before == 64 * 64 * 4 + 3 * 64 * 4  # the input is read once
    assert Path(split.file or "").name == "test_fusion_diff.py"


@pytest.mark.slow
def test_what_a_model_no_longer_computes_is_gone(against: dict[str, list[Match]]) -> None:
    gone = [match for match in against["less"] if match.status == "gone"]
    assert [target for match in gone for target in match.ops if "exp" in target]
    assert all(match.after == () and match.bytes_after is None for match in gone)
