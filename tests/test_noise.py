"""What counts as a change of time between two runs: a regression is flagged, a repeat of the same run is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from example_run import EXAMPLE_ID, example_records, example_run, publish, publish_example

from fusionscope.storage import records as r
from fusionscope.storage.budgets import judge, parse
from fusionscope.storage.library import Library
from fusionscope.storage.queries.deltas import BEYOND, INSIDE, SHARED, Delta
from fusionscope.storage.queries.diff import Diff, diff
from fusionscope.storage.report import change_of, noise


def timed(compiled: float = 1.0, eager: float = 1.0, kernels: float = 1.0) -> Iterator[Any]:
    """The records of the example with its times multiplied."""
    for record in example_records():
        if isinstance(record, r.Measurement) and record.unit == "us":
            factor = eager if record.variant == "eager" else compiled
            ends = {name: value and value * factor for name, value in (("p10", record.p10), ("p90", record.p90))}
            yield replace(record, median=record.median * factor, **ends)
        elif isinstance(record, r.KernelTiming) and record.variant == "compiled":
            yield replace(record, total_us=record.total_us * kernels, median_us=record.median_us * kernels)
        else:
            yield record


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """The example alone."""
    publish_example(tmp_path / "store")
    return Library(tmp_path / "store")


def against(library: Library, run_id: str, **factors: float) -> Diff:
    """The example against itself with other times."""
    publish(library.store, example_run(run_id, git_commit="another"), list(timed(**factors)))
    return library.ask(diff, EXAMPLE_ID, run_id)


def test_a_call_that_takes_twice_as_long_is_flagged(library: Library) -> None:
    found = against(library, "slow", compiled=2, kernels=2)
    latency = found.delta("latency_us")
    assert latency is not None
    assert (latency.noise, change_of(latency)) == (BEYOND, "2×")
    assert not judge(found, parse("latency>50%")).passed
    assert [change.differs for change in found.changes if change.area == "kernels"]


def test_what_eager_and_compiled_have_in_common_is_the_machine(library: Library) -> None:
    found = against(library, "busy", compiled=2, eager=2, kernels=2)
    assert [d.noise for d in found.deltas if d.metric == "latency_us"] == [SHARED, SHARED]
    assert not [change for change in found.changes if change.area in ("kernels", "findings")]
    judgement = judge(found, parse("latency>3%"))
    assert judgement.passed
    assert "eager code, sampled in turn with it, moved alike" in judgement.reason


def test_what_compiled_code_loses_on_a_busy_machine_is_flagged_all_the_same(library: Library) -> None:
    latency = against(library, "both", compiled=6, eager=2).delta("latency_us")
    assert latency is not None
    assert latency.noise == BEYOND


def test_repeats_of_the_baseline_say_how_far_its_times_lie_apart(library: Library) -> None:
    for number, factor in enumerate((0.7, 1.6)):
        publish(library.store, example_run(f"repeat-{number}"), list(timed(compiled=factor)))
    inside, beyond = (against(library, f"later-{f}", compiled=f).delta("latency_us") for f in (1, 4))
    assert inside is not None
    assert beyond is not None
    assert (inside.noise, inside.repeats, beyond.noise) == (INSIDE, 2, BEYOND)
    assert noise(inside) == "inside the noise, 2 repeats of the baseline"


@pytest.mark.parametrize("changed", [{"git_commit": "another"}, {"torch_version": "2.14.1"}, {"status": "partial"}])
def test_a_run_in_other_circumstances_is_no_repeat(library: Library, changed: dict[str, str]) -> None:
    publish(library.store, example_run("other", **changed), list(timed(compiled=3)))
    latency = against(library, "later", compiled=2).delta("latency_us")
    assert latency is not None
    assert (latency.noise, latency.repeats) == (BEYOND, 0)


def test_a_run_with_other_kernels_is_no_repeat(library: Library) -> None:
    facts = [replace(f, source="another") if isinstance(f, r.Kernel) and f.source else f for f in timed(compiled=3)]
    publish(library.store, example_run("other"), facts)
    latency = against(library, "later", compiled=2).delta("latency_us")
    assert latency is not None
    assert latency.repeats == 0


def test_a_finding_that_rests_on_times_changes_only_with_them(library: Library) -> None:
    """Kernel times of one profile and of the next make the share of library calls another, and nothing else."""

    def skewed(**factors: float) -> list[Any]:
        return [
            replace(f, total_us=1e6) if isinstance(f, r.KernelTiming) and "addmm" not in f.name else f
            for f in timed(**factors)
        ]

    publish(library.store, example_run("skewed"), skewed())
    publish(library.store, example_run("slower"), skewed(compiled=2))
    same, slower = (library.ask(diff, EXAMPLE_ID, run) for run in ("skewed", "slower"))
    assert not [change for change in same.changes if change.area == "findings"]
    assert ("library_bound",) in [change.objects_before for change in slower.changes if change.area == "findings"]


def test_what_can_no_longer_be_asked_is_gone_and_not_fixed(library: Library) -> None:
    spill = r.KernelConfig(
        kernel_id="0/0.inference/triton_0", config="X", num_warps=4, num_stages=1, origin="heuristics", spill_bytes=64
    )
    publish(library.store, example_run("spills"), [*example_records(), spill])
    (row,) = [c for c in library.ask(diff, "spills", EXAMPLE_ID).changes if c.objects_before == ("spills",)]
    assert row.status == "gone"
    assert (row.after or "").startswith("not applicable")


def test_a_single_sample_has_no_interval(library: Library) -> None:
    facts = [replace(f, samples=1) if isinstance(f, r.Measurement) else f for f in timed(compiled=2)]
    publish(library.store, example_run("once"), facts)
    latency = library.ask(diff, EXAMPLE_ID, "once").delta("latency_us")
    assert latency is not None
    assert latency.noise is None


def test_a_change_is_told_in_percent_or_in_times() -> None:
    told = [change_of(Delta("latency_us", "compiled", "us", 100, after, None, None)) for after in (80, 103, 250, 100)]
    assert told == ["-20.0%", "+3.0%", "2.50×", "the same"]


def test_each_option_of_torch_compile_stands_by_its_own_name(library: Library) -> None:
    options = '{"keep_caches": false, "gpu": "H100", "options": [["max_fusion_size", 2]]}'
    publish(library.store, example_run("options", options=options), list(example_records()))
    rows = [
        (c.what, c.before, c.after) for c in library.ask(diff, EXAMPLE_ID, "options").changes if c.area == "options"
    ]
    assert rows == [("option max_fusion_size", None, "2")]
