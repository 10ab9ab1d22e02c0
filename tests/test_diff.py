"""Two runs side by side: only what differs, and a gate that passes and fails for every budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from example_run import EXAMPLE_ID, example_records, example_run, publish, publish_example

from fusionscope.collector.cli import main
from fusionscope.storage import records as r
from fusionscope.storage.budgets import METRICS, judge, parse
from fusionscope.storage.database import StorageError
from fusionscope.storage.library import Library
from fusionscope.storage.queries.diff import Diff, diff

ROOT = Path(__file__).resolve().parent.parent
GATE = ROOT / "examples" / "gate" / "gate.sh"
GRAPH = "0/0.inference"

MODEL = """
import torch

def forward(x):
    y = torch.sin(x) + 1
    BREAK
    return torch.relu(y) * 2

def build():
    return forward, (torch.ones(64, 64),), {}
"""


def worse(metric: str) -> Iterator[Any]:
    """The records of the example, worse in one respect."""
    for record in example_records():
        if isinstance(record, r.Measurement) and record.variant == "compiled":
            factor = {("latency", "latency_us"): 1.5, ("peak", "peak_bytes"): 1.2}.get((metric, record.metric), 1.0)
            spread = {name: value and value * factor for name, value in (("p10", record.p10), ("p90", record.p90))}
            yield replace(record, median=record.median * factor, **spread)
        else:
            yield record
    yield from _MORE.get(metric, ())


_NEW = {"compile_id": "0/0"}
_TRITON = f"{GRAPH}/triton_poi_fused_0"
_MORE: dict[str, list[Any]] = {
    "kernels": [r.KernelCall(graph_id=GRAPH, position=99, kernel_id=f"{GRAPH}/extern_kernels.addmm")],
    "spills": [
        r.Kernel(kernel_id=_TRITON, graph_id=GRAPH, name="triton_poi_fused_0", backend="triton"),
        r.KernelConfig(
            kernel_id=_TRITON, config="XBLOCK=1", num_warps=4, num_stages=1, origin="heuristics", spill_bytes=64
        ),
    ],
    "breaks": [r.GraphBreak(**_NEW, file="/home/ada/models/mlp.py", line=40, kind="Data-dependent branching")],
    "recompiles": [
        r.Compile(compile_id="0/2", function="forward", outcome="compiled", recompile_of="0/0"),
        r.Recompile(compile_id="0/2", previous_compile_id="0/0", guard="L['x'].dtype == torch.float32"),
    ],
    "refusals": [
        r.FusionDecision(
            graph_id=GRAPH,
            round=1,
            a="op1",
            b=f"op{n}",
            direction="vertical",
            verdict="refused",
            reason_code="fusion_cap",
        )
        for n in (3, 5)
    ],
}
_MORE["findings"] = [*_MORE["spills"]]

BUDGETS = {
    "latency": ("latency>3%", "latency>60%", "latency>1ms"),
    "peak": ("peak>5%", "peak>25%", "peak>1MiB"),
    "kernels": ("kernels>0", "kernels>1", "kernels>10%"),
    "spills": ("spills>0", "spills>64B", "spills>1KiB"),
    "breaks": ("breaks>0", "breaks>1", "breaks>100%"),
    "recompiles": ("recompiles>0", "recompiles>1", "recompiles>100%"),
    "refusals": ("refusals.fusion_cap>1", "refusals.fusion_cap>2", "refusals.cycle>0"),
    "findings": ("findings.spills>0", "findings>5", "findings.small_work>0"),
}  # one that fails for what `worse` does, and two that hold


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The example, the example again, and one that is worse for each budget."""
    store = tmp_path_factory.mktemp("diffs") / "store"
    publish_example(store)
    publish_example(store, "again")
    for metric in BUDGETS:
        publish(store, example_run(f"worse-{metric}"), list(worse(metric)))
    return Library(store)


def compared(library: Library, after: str) -> Diff:
    return library.ask(diff, EXAMPLE_ID, after)


def test_a_run_against_its_twin_differs_in_nothing(library: Library) -> None:
    found = compared(library, "again")
    assert found.changes == ()
    assert found.incomparable == ()
    assert all(delta.before == delta.after for delta in found.deltas)


@pytest.mark.parametrize("metric", BUDGETS)
def test_every_budget_fails_for_what_is_worse_and_holds_for_what_is_not(library: Library, metric: str) -> None:
    fails, *holds = map(parse, BUDGETS[metric])
    found, twin = compared(library, f"worse-{metric}"), compared(library, "again")
    failed = judge(found, fails)
    assert not failed.passed
    assert "beyond the budget" in failed.reason
    assert all(judge(found, budget).passed for budget in holds)
    assert judge(twin, fails).passed


@pytest.mark.parametrize("metric", BUDGETS)
def test_the_command_exits_with_1_and_the_reason_or_with_0(
    library: Library, metric: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fails, holds, _ = BUDGETS[metric]
    words = ["diff", EXAMPLE_ID, f"worse-{metric}", "--store", str(library.store), "--fail-on"]
    assert main([*words, fails]) == 1
    assert f"beyond the budget {fails}" in capsys.readouterr().err
    assert main([*words, holds]) == 0


def test_what_differs_is_named_and_nothing_else(library: Library) -> None:
    areas = {metric: {change.area for change in compared(library, f"worse-{metric}").changes} for metric in BUDGETS}
    assert areas["latency"] <= {"findings"}
    assert areas["peak"] <= {"findings"}
    assert "breaks" in areas["breaks"]
    assert areas["breaks"] <= {"breaks", "findings"}
    assert "recompiles" in areas["recompiles"]
    assert "refusals" in areas["refusals"]
    assert {"kernels", "findings"} <= areas["spills"]


def test_a_change_inside_the_noise_is_none(library: Library) -> None:
    facts = [
        replace(record, median=record.median * 1.02) if isinstance(record, r.Measurement) and record.p10 else record
        for record in example_records()
    ]
    publish(library.store, example_run("noisy"), facts)
    judgement = judge(compared(library, "noisy"), parse("latency>1%"))
    assert judgement.passed
    assert "inside the noise" in judgement.reason


def test_what_was_not_recorded_does_not_pass(library: Library) -> None:
    publish(library.store, example_run("empty"), [])
    judgement = judge(compared(library, "empty"), parse("latency>5%"))
    assert not judgement.passed
    assert judgement.reason == "cannot be told: latency is not recorded of either run"


def test_runs_of_another_gpu_torch_or_mode_say_so_first(library: Library) -> None:
    changed = {"device_name": "H200", "torch_version": "2.14.1", "mode": "max-autotune", "kernel_cache": "warm"}
    publish(library.store, example_run("elsewhere", **changed), list(example_records()))
    found = {i.what: (i.before, i.after) for i in compared(library, "elsewhere").incomparable}
    assert found.keys() == {"GPU or processor", "torch", "mode", "kernel cache"}
    assert found["mode"] == ("default", "max-autotune")


def test_a_group_that_was_split_stands_as_that(library: Library) -> None:
    facts = [
        piece
        for record in example_records()
        for piece in (
            [replace(record, group_id=m, members=(m,)) for m in record.members]
            if isinstance(record, r.FusionGroup) and len(record.members) > 1 and record.graph_id == GRAPH
            else [record]
        )
    ]
    publish(library.store, example_run("split"), facts)
    (change,) = [change for change in compared(library, "split").changes if change.area == "groups"]
    assert change.status == "split"
    assert (change.where or "").startswith("mlp.py:")
    assert len(change.objects_before) < len(change.objects_after)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("peak", "is no budget"),
        ("peak<5%", "is no budget"),
        ("speed>5%", "budgets are for latency"),
        ("peak>5x", "peak takes B, KiB, MiB, GiB, %"),
        ("peak>5us", "peak takes"),
        ("latency>5", "has no unit"),
        ("findings>5%", "findings takes a count"),
        ("peak.of>5%", "only refusals and findings have parts"),
    ],
)
def test_a_bad_budget_is_refused_in_a_sentence(
    library: Library, text: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StorageError, match=sentence):
        parse(text)
    assert main(["diff", EXAMPLE_ID, "again", "--store", str(library.store), "--fail-on", text]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("policy", ["fail-on = 3", "[x]", "fail_on = []", 'fail-on = ["peak"]', "fail-on = [", None])
def test_a_bad_policy_is_refused_in_a_sentence(
    library: Library, tmp_path: Path, policy: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if policy is not None:
        (tmp_path / "policy.toml").write_text(policy)
    words = ["diff", EXAMPLE_ID, "again", "--store", str(library.store), "--policy", str(tmp_path / "policy.toml")]
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_reports_hold_the_data_as_text_whatever_it_looks_like(library: Library, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)> | [a](http://evil.example) @all `x`"
    publish(library.store, example_run("hostile", name, author=None), list(worse("breaks")))
    reports = {form: tmp_path / form for form in ("markdown", "html", "junit")}
    options = [word for form, path in reports.items() for word in (f"--{form}", str(path))]
    words = ["diff", EXAMPLE_ID, "hostile", "--store", str(library.store), "--fail-on", "breaks>0", *options]
    assert main(words) == 1
    markdown, page = (reports[form].read_text() for form in ("markdown", "html"))
    assert not {"<img", "](http", "@all", "`x`"} & {
        part for part in ("<img", "](http", "@all", "`x`") if part in markdown
    }
    assert "<img" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://evil.example", "")
    (case,) = ElementTree.parse(reports["junit"]).getroot()
    assert case.get("name") == "breaks>0"
    assert "breaks 1 → 2" in (case[0].get("message") or "")


def test_the_comparison_comes_as_json(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    main(["diff", EXAMPLE_ID, "worse-breaks", "--store", str(library.store), "--json", "--fail-on", "breaks>0"])
    found = json.loads(capsys.readouterr().out)
    assert found["budgets"] == [{"budget": "breaks>0", "passed": False, "reason": found["budgets"][0]["reason"]}]
    assert [change["status"] for change in found["changes"] if change["area"] == "breaks"] == ["new"]


def test_a_name_with_a_tilde_is_an_earlier_run(library: Library) -> None:
    assert library.find("mlp~0") == library.find("mlp")
    assert library.find("mlp~1") != library.find("mlp")


def checkout(folder: Path, statement: str) -> Path:
    folder.mkdir()
    (folder / "model.py").write_text(MODEL.replace("BREAK", statement))
    return folder


def gate(tmp_path: Path, base: Path, head: Path, targets: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the example as the workflow does, with this Python's `fusionscope`; it records unless $RECORDED is set."""
    command = tmp_path / "bin" / "fusionscope"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f"""#!/bin/sh
[ -n "$RECORDED" ] && [ "$1" = record ] && exit
exec "{sys.executable}" -m fusionscope.collector.cli "$@"
""")
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "TARGETS": targets, "REPORTS": str(tmp_path / "reports")} | settings
    return subprocess.run([GATE, base, head, "model.py"], env=env, capture_output=True, text=True)


def gate_of(tmp_path: Path, head: list[Any], budgets: list[str] | None) -> subprocess.CompletedProcess[str]:
    """The example with runs that are recorded already, the example's records against `head`; None: its own policy."""
    store = tmp_path / "reports" / "store"
    publish(store, example_run("base", "base-cpu"), list(example_records()))
    publish(store, example_run("head", "head-cpu"), head)
    settings = {"RECORDED": "yes"}
    if budgets is not None:
        (tmp_path / "policy.toml").write_text(f"fail-on = {json.dumps(budgets)}")
        settings["POLICY"] = str(tmp_path / "policy.toml")
    return gate(tmp_path, tmp_path, tmp_path, "cpu", **settings)


def judged(tmp_path: Path) -> dict[str | None, bool]:
    """The budgets of the gate's JUnit report, and whether each was kept."""
    (suite,) = ElementTree.parse(tmp_path / "reports" / "cpu.xml").getroot().iter("testsuite")
    return {case.get("name"): case.find("failure") is None for case in suite}


@pytest.mark.parametrize("metric", BUDGETS)
def test_the_example_gate_fails_for_each_budget_and_reports_which(tmp_path: Path, metric: str) -> None:
    fails, *holds = BUDGETS[metric]
    done = gate_of(tmp_path, list(worse(metric)), [fails, *holds])
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"beyond the budget {fails}" in done.stderr
    assert judged(tmp_path) == {fails: False, **dict.fromkeys(holds, True)}
    report = (tmp_path / "reports" / "cpu.md").read_text()
    assert f"| FAILED | {fails} |" in unescape(report.replace("\\", ""))


@pytest.mark.parametrize("budgets", [[fails for fails, *_ in BUDGETS.values()], None])
def test_the_example_gate_passes_for_every_budget_that_is_kept(tmp_path: Path, budgets: list[str] | None) -> None:
    done = gate_of(tmp_path, list(example_records()), budgets)
    assert judged(tmp_path)
    assert {name for name, kept in judged(tmp_path).items() if not kept} <= {"spills>0"}
    assert done.returncode == (0 if all(judged(tmp_path).values()) else 1), done.stdout + done.stderr


def test_every_budget_that_there_is_is_tried() -> None:
    assert set(BUDGETS) == set(METRICS)


def test_the_example_gate_says_with_2_that_its_policy_cannot_be_read(tmp_path: Path) -> None:
    done = gate_of(tmp_path, list(example_records()), ["speed>1"])
    assert done.returncode == 2
    assert "budgets are for" in done.stderr


@pytest.mark.slow
def test_the_example_gate_passes_for_the_same_model_and_fails_for_a_graph_break(tmp_path: Path) -> None:
    base, same = (checkout(tmp_path / name, "pass") for name in ("base", "same"))
    passed = gate(tmp_path, base, same, "cpu H100")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "No decision differs" in (tmp_path / "reports" / "H100.md").read_text()
    failed = gate(tmp_path, base, checkout(tmp_path / "head", "torch._dynamo.graph_break()"), "cpu")
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "breaks 0 → 1 is beyond the budget breaks>0" in failed.stderr
    assert 'failures="' in (tmp_path / "reports" / "cpu.xml").read_text()
