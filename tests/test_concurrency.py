"""Several recorders and the dashboard on one store at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from fusionscope.storage.library import Library
from fusionscope.storage.queries.runs import library_runs

ROOT = Path(__file__).resolve().parent.parent
RUNS = 20  # of each recorder

RECORDER = f"""
import sys
import torch
from fusionscope.collector import record

for number in range({RUNS}):
    torch._dynamo.reset()
    with record(f"{{sys.argv[2]}} {{number}}", store=sys.argv[1]):
        torch.compile(lambda x: x.sin() + 1)(torch.zeros(4))
"""


def test_two_recorders_and_the_dashboard_share_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    recorders = [
        subprocess.Popen([sys.executable, "-c", RECORDER, str(store), name], stderr=subprocess.PIPE, text=True)
        for name in ("a", "b")
    ]
    monkeypatch.setenv("FUSIONSCOPE_STORE", str(store))
    app = AppTest.from_file(str(ROOT / "app" / "streamlit_app.py"), default_timeout=60)
    while any(recorder.poll() is None for recorder in recorders):
        assert not app.run().exception
    said = [recorder.communicate()[1] for recorder in recorders]
    assert [text.count("recorded ") for text in said] == [RUNS, RUNS], said
    library = Library(store)
    library.import_inbox()
    runs = library.ask(library_runs)
    assert {(run.status, run.graphs) for run in runs} == {("complete", 1)}
    assert len(runs) == 2 * RUNS
    assert library.check() == []
    assert not app.run().exception
