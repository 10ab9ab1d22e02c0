"""The Kernels page of a run on a GPU: times against the roofline, launches, candidates, another run beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_gpu import GPU_ID, GRAPH, SOFTMAX, publish_gpu
from example_run import EXAMPLE_ID, publish_example
from streamlit.testing.v1 import AppTest

from fusionscope.app.figures.candidates import Candidate
from fusionscope.app.screens import _launching
from fusionscope.app.screens._contests import margin
from fusionscope.storage.library import Library
from fusionscope.storage.queries import compare
from fusionscope.storage.queries.kernel_match import kernel_matches

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the example on a CPU and on an H200."""
    store = tmp_path_factory.mktemp("gpu") / "store"
    publish_example(store)
    publish_gpu(store)
    return store


def drawn(store: Path, screen: str, monkeypatch: pytest.MonkeyPatch, **params: str) -> AppTest:
    """The app on one page of a run."""
    monkeypatch.setenv("FUSIONSCOPE_STORE", str(store))
    app = AppTest.from_file(str(ROOT / "app" / "streamlit_app.py"), default_timeout=60)
    app.query_params["run"] = params["run"]
    app.run()
    for name, value in params.items():
        app.query_params[name] = value
    app.switch_page(f"screens/{screen}").run()
    assert not app.exception
    return app


def texts(app: AppTest) -> str:
    """All plain text on the page."""
    return "\n".join(str(text.value) for text in app.text)


def test_the_page_opens_on_the_few_kernels_that_take_the_time(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = drawn(store, "kernels.py", monkeypatch, run=GPU_ID)
    shown = texts(app)
    assert "1 of 3 kernels takes 89.6 % of device time, 90.7 µs a call of the model; none spills." in shown
    assert "of 4\u2009100 GB/s, a large copy, measured on this GPU" in shown
    columns = app.dataframe[0].value.columns
    assert {"share", "one call", "at least", "registers", "spills", "occupancy", "bandwidth"} <= set(columns)


def test_launch_bound_is_said_with_the_variant_that_helps(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = texts(drawn(store, "kernels.py", monkeypatch, run=GPU_ID))
    assert (
        "Compiled is launch-bound: the device works 90.5 µs in eager and 88.3 µs compiled, but the host needs 193 µs "
        "to issue a call; reduce-overhead brings a call to 104 µs."
    ) in shown
    overview = texts(drawn(store, "overview.py", monkeypatch, run=GPU_ID))
    assert ("device work is the same (90.5 and 88.3 µs), but the host needs 193 µs to issue a call") in overview
    assert "CUDA graphs bring a call to 104 µs." in overview


def test_a_call_is_launch_bound_where_issuing_it_takes_longer_than_its_work(store: Path) -> None:
    medians = _launching.medians_of(Library(store).ask(compare.measurements, GPU_ID))
    assert list(medians) == ["eager", "compiled", "reduce-overhead"]
    assert [_launching.launch_bound(of) for of in medians.values()] == [True, True, False]
    assert _launching.launch_bound({"device_us": 3.0}) is None


def test_candidates_show_the_winner_and_its_margin(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = texts(drawn(store, "kernels.py", monkeypatch, run=GPU_ID, kernel=SOFTMAX))
    first = "XBLOCK=1 num_warps=4 num_stages=1"
    assert f"{first} took 4.80 µs; the next of 2 timed candidates takes 12.5 % longer." in shown
    assert "Library or template: what was weighed for each product" in shown


def test_the_margin_of_one_candidate_is_none() -> None:
    assert margin([Candidate("only", 2.0, True)]) == "only took 2 µs; no other was timed."
    beaten = margin([Candidate("fast", 2.0, False), Candidate("fused", 3.0, True)])
    assert beaten.endswith("takes 50.0 % longer. fused was chosen all the same.")


def test_the_decisions_that_grew_a_kernel_are_told_in_order(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = drawn(store, "kernels.py", monkeypatch, run=GPU_ID, kernel=SOFTMAX)
    grown = next(frame.value for frame in app.dataframe if "saved" in frame.value.columns)
    assert list(grown["taken"]) == sorted(grown["taken"])
    assert "fusions that saved" in texts(app)


def test_a_run_on_a_cpu_says_why_it_has_no_lower_bound(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = texts(drawn(store, "kernels.py", monkeypatch, run=EXAMPLE_ID))
    assert "at least (a lower bound of the time): not recorded: no bandwidth of this CPU is known" in shown


def test_another_run_stands_beside_this_one_by_its_address(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = drawn(store, "kernels.py", monkeypatch, run=GPU_ID, against=EXAMPLE_ID)
    assert "NVIDIA H200 against Intel(R) Xeon(R) Platinum 8488C" in texts(app)
    matches = Library(store).ask(kernel_matches, GPU_ID, EXAMPLE_ID)
    same = [m for m in matches if m.a and m.a[0].row.graph_id == GRAPH and m.b]
    assert {m.matched_by for m in same} == {"operations"}
