"""`fusionscope run`: the program behaves as under `python`, whatever ends it, and what it compiled is recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fusionscope.storage.library import Library
from fusionscope.storage.queries import compare, overview
from fusionscope.storage.queries.runs import RunSummary, library_runs

RUN = [str(Path(sys.executable).with_name("fusionscope")), "run"]

TRAIN = """
import argparse, os, pickle, sys
from dataclasses import dataclass

os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is imported
import app, storage, collector
import torch

@dataclass
class Config:
    width: int

def step(x, w):
    return torch.relu(x @ w).sum(dim=1)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    print(sys.argv, sys.path[0], app.NAME, storage.NAME, collector.NAME)
    print(__file__, __spec__, sorted(globals()))
    print(pickle.loads(pickle.dumps(Config(3))), torch.get_num_threads())
    fast = torch.compile(step)
    for _ in range(args.steps):
        y = fast(torch.ones(8, 32), torch.ones(32, 32))
    print(y.sum().item())
"""

WAITING = """
import sys, time
import torch

print(torch.compile(lambda x: x.sin() + 1)(torch.zeros(4)).sum().item(), flush=True)
time.sleep(60)
"""

FORKING = """
import os
import torch
from torch.utils.data import DataLoader

loader = DataLoader(torch.arange(8.0), batch_size=4, num_workers=2, multiprocessing_context="fork")
double = torch.compile(lambda x: x * 2)
print(sum(double(batch).sum().item() for batch in loader), flush=True)
if os.fork():
    os.wait()
print("end")
"""

ONCE = """
import os, sys
import torch

been_here = os.path.exists("mark")
open("mark", "w").close()
sys.exit(been_here)
"""

ENDINGS = {
    "nothing": "print('done')",
    "none": "import sys; sys.exit()",
    "number": "import sys; sys.exit(7)",
    "words": "import sys; sys.exit('no more')",
    "error": "def f():\n    raise ValueError('lost')\n\nf()",
    "chained": "try:\n    {}['a']\nexcept KeyError as e:\n    raise RuntimeError('b') from e",
    "syntax": "x = (",
    "own_hook": "import sys\nsys.excepthook = lambda kind, *_: print(kind)\nraise ValueError",
    "globals": "print(sorted(globals()), __name__, __package__, __doc__)",
    "arguments": "import sys; print(sys.argv, sys.path)",
}


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's project with packages of its own that bear the names of ours."""
    folder = tmp_path_factory.mktemp("project")
    for package in ("app", "storage", "collector"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text(f"NAME = 'own {package}'\n")
    (folder / "app" / "__main__.py").write_text("import sys; print(sys.argv, __package__, __spec__.name)\n")
    (folder / "app" / "tool.py").write_text("import sys; print(sys.argv, sys.path[0], __package__, __spec__.name)\n")
    (folder / "train.py").write_text(TRAIN)
    return folder


def under_python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)


def under_fusionscope(folder: Path, store: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*RUN, "--store", str(store), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def of_the_program(stderr: str) -> str:
    """Standard error without our own lines."""
    return "".join(line for line in stderr.splitlines(True) if not line.startswith("fusionscope: "))


def only_run(store: Path) -> RunSummary:
    library = Library(store)
    library.import_inbox()
    (run,) = library.ask(library_runs)
    return run


@contextmanager
def waiting(folder: Path, store: Path) -> Iterator[subprocess.Popen[str]]:
    """A recorded program that has compiled something and now sleeps."""
    (folder / "waiting.py").write_text(WAITING)
    command = [*RUN, "--store", str(store), "waiting.py"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "4.0\n"
        yield process


@pytest.fixture(scope="session")
def trained(project: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The project's train.py, recorded with --compare."""
    store = tmp_path_factory.mktemp("trained") / "store"
    return store, under_fusionscope(project, store, "--compare", "--name", "t", "train.py", "--steps", "6")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_script_ends_as_under_python(ending: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ENDINGS[ending])
    expected = under_python(tmp_path, "script.py", "--", "--a", "-b")
    found = under_fusionscope(tmp_path, tmp_path / "store", "script.py", "--", "--a", "-b")
    assert (found.returncode, found.stdout) == (expected.returncode, expected.stdout)
    assert of_the_program(found.stderr) == expected.stderr


@pytest.mark.parametrize("module", ["app", "app.tool"])
def test_a_module_runs_as_under_python(module: str, project: Path, tmp_path: Path) -> None:
    expected = under_python(project, "-m", module, "--", "b")
    found = under_fusionscope(project, tmp_path / "store", "-m", module, "--", "b")
    assert (found.returncode, found.stdout) == (expected.returncode, expected.stdout)


def test_a_program_without_torch_leaves_no_run(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print(1)")
    found = under_fusionscope(tmp_path, tmp_path / "store", "script.py")
    assert found.stderr == "fusionscope: the program never imported torch: nothing was recorded\n"
    assert list((tmp_path / "store" / "inbox").iterdir()) == []


def test_a_projects_own_packages_are_what_its_script_imports(
    project: Path, trained: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    store, found = trained
    expected = under_python(project, "train.py", "--steps", "6")
    assert (found.returncode, found.stdout) == (0, expected.stdout)
    run = only_run(store)
    assert (run.name, run.status, run.graphs) == ("t", "complete", 1)
    assert Library(store).ask(overview.run, run.run_id).source_path == str(project / "train.py")


def test_comparing_measures_both_runs_the_same_way(trained: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    store, found = trained
    assert "running the program again, eagerly" in found.stderr
    measured = Library(store).ask(compare.measurements, only_run(store).run_id)
    values = {(row.metric, row.variant): row for row in measured}
    metrics = ("latency_us", "wall_s", "peak_rss_bytes")
    assert set(values) == {(metric, variant) for metric in metrics for variant in ("eager", "compiled")}
    for variant in ("eager", "compiled"):
        latency = values["latency_us", variant]
        assert (latency.samples, latency.discarded) == (5, 1)
        assert latency.method.startswith("each forward call of step ")
        assert values["peak_rss_bytes", variant].median > 2**26
    # the child's peak is its own, not the one that a process inherits from the one that started it
    assert values["peak_rss_bytes", "eager"].median < values["peak_rss_bytes", "compiled"].median


def test_comparing_says_so_where_the_second_run_ends_otherwise(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ONCE)
    found = under_fusionscope(tmp_path, tmp_path / "store", "--compare", "script.py")
    assert found.returncode == 0
    assert "fusionscope: not compared: the second run ended with exit code 1, not 0\n" in found.stderr


def test_a_failing_script_leaves_a_failed_run(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys, torch\nsys.exit(5)")
    found = under_fusionscope(tmp_path, tmp_path / "store", "script.py")
    run = only_run(tmp_path / "store")
    assert (found.returncode, run.status) == (5, "failed")
    assert run.status_reason == "the program exited with code 5"


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")])
def test_an_interrupted_program_leaves_what_it_recorded(number: signal.Signals, reason: str, tmp_path: Path) -> None:
    with waiting(tmp_path, tmp_path / "store") as process:
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    run = only_run(tmp_path / "store")
    assert process.returncode == -number
    assert "collector" not in of_the_program(err)
    assert (run.status, run.graphs) == ("partial", 1)
    assert reason in (run.status_reason or "")


def test_forked_processes_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(FORKING)
    found = under_fusionscope(tmp_path, tmp_path / "store", "script.py")
    assert (found.returncode, found.stdout.splitlines()) == (0, ["56.0", "end", "end"]), found.stderr
    assert only_run(tmp_path / "store").status == "complete"


def test_stopping_after_a_number_of_compiles_ends_the_program(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import torch\nfor n in range(9):\n    torch.compile(lambda x: x * 2)(torch.zeros(n + 2))\n    print(n)\n"
    )
    found = under_fusionscope(tmp_path, tmp_path / "store", "--stop-after", "2", "script.py")
    assert (found.returncode, found.stdout) == (0, "0\n"), found.stderr
    assert only_run(tmp_path / "store").graphs == 2


def test_a_notebook_records_with_the_context_manager(tmp_path: Path) -> None:
    cells = [
        "import torch\nfrom fusionscope.collector import record",
        "with record('cell') as run:\n    torch.compile(lambda x: x.cos())(torch.zeros(4))",
        "with record('again') as run:\n    torch.compile(lambda x: x.sin())(torch.zeros(4))",
    ]
    shell = "from IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell.instance()\n"
    program = shell + "".join(f"shell.run_cell({cell!r}).raise_error()\n" for cell in cells)
    environment = os.environ | {"FUSIONSCOPE_STORE": str(tmp_path / "store"), "IPYTHONDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, cwd=tmp_path, check=True)
    runs = Library(tmp_path / "store").ask(library_runs)
    assert [(run.name, run.status, run.graphs) for run in runs] == [("again", "complete", 1), ("cell", "complete", 1)]
