"""The command line: what each subcommand prints, and how it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fusionscope.collector.cli import COMMANDS, main
from fusionscope.collector.first_call import first_calls
from fusionscope.storage import schema
from fusionscope.storage.library import Library
from fusionscope.storage.queries import overview
from fusionscope.storage.queries.runs import RunSummary, library_runs
from fusionscope.storage.records import HookStatus, Measurement

MODEL = """
import torch

CONFIG = {"inductor.max_fusion_size": 64}

def shifted(x):
    return torch.sin(x) + 1

def build():
    return shifted, (torch.ones(8, 8),), {}

def build_eager():
    return shifted, (torch.ones(8, 8),), {"backend": "eager"}

@torch.compiler.disable
def stop(x):
    raise ValueError("no more")

def build_failing():
    return lambda x: stop(torch.sin(x)), (torch.ones(8, 8),), {}

def build_nothing():
    return None
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A model file of a name of its own: it becomes a module of this process."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / f"model_of_{request.node.name}.py"
    path.write_text(MODEL)
    return path


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence with which a command line is refused."""
    try:
        code = main(words)
    except SystemExit as end:  # argparse exits by itself
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    return err


def only_run(store: Path) -> RunSummary:
    (run,) = Library(store).ask(library_runs)
    return run


def test_list_names_every_run(example_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--store", str(example_store)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["run", "name"]
    assert {row.split()[0] for row in rows} == {run.run_id for run in Library(example_store).ask(library_runs)}


def test_list_prints_json(example_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json", "--store", str(example_store)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["run_id"] for row in rows} == {run.run_id for run in Library(example_store).ask(library_runs)}


def test_show_prints_each_section_of_a_run(example_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Library(example_store).ask(library_runs)[0]
    for shown in Library(example_store).ask(library_runs):
        assert main(["show", shown.run_id, "--store", str(example_store)]) == 0
    out = capsys.readouterr().out
    assert run.run_id in out
    assert all(head in out for head in ("speed-up", "measured", "graph", "plan, above entry", "recompile", "hook"))
    assert main(["show", run.run_id, "--json", "--store", str(example_store)]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["run_id"] == run.run_id


def test_an_exported_run_is_imported_elsewhere(example_store: Path, tmp_path: Path) -> None:
    run = Library(example_store).ask(library_runs)[0]
    there = tmp_path / "there"
    assert main(["export", run.run_id, str(tmp_path / "run.zip"), "--store", str(example_store)]) == 0
    assert main(["import", str(tmp_path / "run.zip"), "--store", str(there)]) == 0
    assert main(["check", "--store", str(there)]) == 0
    assert only_run(there).run_id == run.run_id


def test_commands_on_the_library_run_without_torch(example_store: Path) -> None:
    program = "import sys; sys.modules['torch'] = None\nfrom fusionscope.collector.cli import main\n"
    run_id = Library(example_store).ask(library_runs)[0].run_id
    for words in (["list"], ["show", run_id], ["check"], ["import"], ["samples"]):
        program += f"assert main({[*words, '--store', str(example_store)]}) == 0\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"usage: fusionscope {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["bogus"], "invalid choice: 'bogus'"),
        (["list", "--bogus"], "unrecognized arguments: --bogus"),
        (["record"], "arguments are required"),
        (["record", "no_such_sample"], "there is no sample model 'no_such_sample'"),
        (["record", "no_such_file.py"], "there is no file no_such_file.py"),
        (["record", "mlp_parameters", "--stop-after", "0"], "'0' is no number from 1"),
        (["run"], "give a script, or -m and a module"),
        (["run", "--bogus", "script.py"], "unrecognized arguments: --bogus"),
        (["run", "no_such_file.py"], "no_such_file.py does not exist"),
        (["run", "-m", "no_such_module"], "there is no module no_such_module"),
        (["app", "--port", "70000"], "'70000' is no port"),
        (["list", "--store", "no_such_store"], "there is no library at"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(words, capsys)


@pytest.mark.parametrize("words", [["record", "mlp_parameters"], ["run", __file__]])
def test_a_store_that_cannot_be_written_is_refused_before_anything_runs(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    command, target = words
    assert "cannot be written" in refused([command, "--store", str(tmp_path / "file" / "store"), target], capsys)


@pytest.mark.parametrize("words", [["list"], ["record", "mlp_parameters"], ["run", __file__]])
def test_a_library_of_a_newer_version_is_refused(
    words: list[str], example_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(schema, "VERSION", schema.VERSION - 1)
    command, *target = words
    assert "update Fusionscope" in refused([command, "--store", str(example_store), *target], capsys)


def test_record_takes_a_model_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    assert main(["record", str(model), "--no-measure", "--tag", "a", "--json", "--store", str(store)]) == 0
    run = only_run(store)
    assert (run.name, run.status, run.graphs) == (model.stem, "complete", 1)
    assert json.loads(capsys.readouterr().out)["run_id"] == run.run_id
    kept = Library(store).ask(overview.run, run.run_id)
    assert (kept.source_path, kept.tags) == (str(model), ("a",))
    assert kept.command is not None
    assert kept.command.startswith("fusionscope record")


def test_record_keeps_what_a_failing_model_compiled(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", f"{model}:build_failing", "--no-measure", "--store", str(tmp_path / "store")]) == 3
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "collector/" not in err
    assert err.splitlines()[-1] == f"fusionscope: {model.stem} failed with ValueError: no more"
    run = only_run(tmp_path / "store")
    assert (run.status, run.graphs) == ("failed", 1)
    assert run.status_reason == f"{model.stem} failed with ValueError: no more"


def test_record_says_that_another_backend_decides(model: Path, tmp_path: Path) -> None:
    assert main(["record", f"{model}:build_eager", "--no-measure", "--store", str(tmp_path / "store")]) == 0
    hooks = Library(tmp_path / "store").ask(overview.hooks, only_run(tmp_path / "store").run_id)
    assert "not recorded: backend eager" in {hook.reason for hook in hooks}


@pytest.mark.parametrize(
    ("function", "sentence"), [("nothing_there", "has no nothing_there()"), ("build_nothing", "must return")]
)
def test_record_refuses_a_module_without_a_proper_build(
    function: str, sentence: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused(["record", f"{model}:{function}", "--store", str(tmp_path / "store")], capsys)


def test_the_ranks_of_a_model_file_are_recorded_as_one_group(tmp_path: Path) -> None:
    model, store = tmp_path / "model_of_ranks.py", tmp_path / "store"
    model.write_text(
        "import os\nimport torch\n\nRANKS = 2\n\ndef build():\n"
        "    return torch.sin, (torch.ones(8 + int(os.environ['CASE_RANK'])),), {}\n"
    )
    assert main(["record", str(model), "--no-measure", "--store", str(store)]) == 0
    runs = [Library(store).ask(overview.run, run.run_id) for run in Library(store).ask(library_runs)]
    assert sorted((run.rank, run.world_size) for run in runs) == [(0, 2), (1, 2)]
    assert len({run.group_id for run in runs} - {None}) == 1


def test_the_first_call_is_measured_in_a_process_of_its_own(model: Path) -> None:
    kwargs = {"compiled": {}, "dynamic": {"dynamic": True}}
    rows = list(first_calls(f"{model}:build_eager", None, kwargs, {"eager": 2.0, "compiled": 1.0}))
    assert [(row.variant, row.metric) for row in rows if isinstance(row, Measurement)] == [
        ("compiled", "first_call_s"),
        ("compiled", "break_even_calls"),
        ("dynamic", "first_call_s"),
    ]
    (failed,) = first_calls("no_such_file.py", None, {"compiled": {}}, {})
    assert isinstance(failed, HookStatus)


def test_an_unknown_variant_is_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["record", str(model), "--variants", "default,fast"])
    assert "there is no variant 'fast': choose from torchscript, default" in capsys.readouterr().err


def test_a_model_that_compiles_by_itself_is_recorded_and_not_measured(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with model.open("a") as file:
        file.write("\ndef build_compiled():\n    return torch.compile(shifted), (torch.ones(8, 8),), None\n")
    assert main(["record", f"{model}:build_compiled", "--store", str(tmp_path / "store")]) == 0
    run = only_run(tmp_path / "store")
    assert (run.graphs, run.status) == (1, "complete")
    assert "no eager twin to measure against" in capsys.readouterr().err
