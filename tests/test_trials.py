"""What a finding advises can be tried from the app: the run's command with one option more, and its effect."""

from __future__ import annotations

import platform
import time
from dataclasses import replace
from pathlib import Path

import pytest
from example_run import example_run
from test_app import drawn, texts

from fusionscope.app import trials
from fusionscope.collector.cli import main
from fusionscope.storage.library import Library
from fusionscope.storage.queries import overview
from fusionscope.storage.queries.runs import library_runs

TRIAL_S = 300
MODEL = """
import torch

def wave(x):
    y = torch.sin(x)
    return y.sum(1), y.t() + 1

def build():
    return wave, (torch.randn(1024, 1024),), {}
"""


def test_a_trial_runs_the_recorded_command_with_one_option_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wave.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FUSIONSCOPE_STORE", "store")
    assert main(["record", "wave.py"]) == 0
    library = Library(tmp_path / "store")
    (first,) = library.ask(library_runs)
    with monkeypatch.context() as shown_only:
        shown_only.setenv("FUSIONSCOPE_READ_ONLY", "1")
        app = drawn(tmp_path / "store", "overview.py", first.run_id, shown_only)
        assert not [button for button in app.button if button.label == "Try it"]
    app = drawn(tmp_path / "store", "overview.py", first.run_id, monkeypatch)
    (button,) = [button for button in app.button if button.label == "Try it"]
    button.click().run()
    tag = trials.tag_of(first.run_id, "recomputed_producer")
    until = time.monotonic() + TRIAL_S
    while trials.running(tag) and time.monotonic() < until:
        time.sleep(0.5)
    assert trials.failure(tag) is None
    library.import_inbox()
    (trial_id,) = library.ask(overview.tagged, tag)
    trial = library.ask(overview.run, trial_id)
    assert trial.name == "wave, option realize_reads_threshold=1"
    assert trial.options is not None
    assert "realize_reads_threshold" in trial.options
    shown = texts(drawn(tmp_path / "store", "overview.py", first.run_id, monkeypatch))
    assert "Tried: a compiled call went from " in shown


def test_a_run_of_another_host_or_another_command_offers_no_trial(tmp_path: Path) -> None:
    run = replace(example_run("20261129-100000-0000aa"), host=platform.node(), cwd=str(tmp_path))
    recorded = replace(run, command="fusionscope record m.py --mode default")
    command = trials.command_of(recorded, "launch_bound", ("--mode", "reduce-overhead"), tmp_path)
    assert command is not None
    assert command[3:9] == ["record", "m.py", "--mode", "default", "--mode", "reduce-overhead"]
    for other in (
        replace(recorded, host="elsewhere"),
        replace(recorded, cwd=str(tmp_path / "gone")),
        replace(recorded, command="fusionscope run m.py"),
    ):
        assert trials.command_of(other, "launch_bound", ("--mode", "reduce-overhead"), tmp_path) is None
