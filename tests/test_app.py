"""Every screen on a full, a partly recorded and an empty store, without a browser and without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from example_run import EXAMPLE_ID, PARTLY_ID
from streamlit.testing.v1 import AppTest

from fusionscope.app import style, words
from fusionscope.app.figures.phases import bars, icicle_figure, stage_of, stretches
from fusionscope.app.screens import PAGES
from fusionscope.storage.records import CompilePhase, Measurement

ROOT = Path(__file__).resolve().parent.parent
SCREENS = [file for _, _, file in PAGES]
TIMEOUT_S = 60


def drawn(store: Path, screen: str, run_id: str | None, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The app after it drew `screen` of a run."""
    monkeypatch.setenv("FUSIONSCOPE_STORE", str(store))
    app = AppTest.from_file(str(ROOT / "app" / "streamlit_app.py"), default_timeout=TIMEOUT_S)
    if run_id:
        app.query_params["run"] = run_id
    app.run()
    if screen != "runs.py":
        app.switch_page(f"screens/{screen}").run()
    return app


def texts(app: AppTest) -> str:
    """All plain text on the page."""
    return "\n".join(str(text.value) for text in app.text)


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("run_id", [EXAMPLE_ID, PARTLY_ID])
def test_every_screen_opens_for_a_full_and_a_partly_recorded_run(
    example_store: Path, screen: str, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = drawn(example_store, screen, run_id, monkeypatch)
    assert not app.exception
    assert texts(app)


@pytest.mark.parametrize("screen", SCREENS)
def test_every_screen_of_an_empty_store_names_the_command_that_makes_a_run(
    tmp_path: Path, screen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = drawn(tmp_path / "store", screen, None, monkeypatch)
    assert not app.exception
    assert [code.value for code in app.code] == ["fusionscope record mlp_parameters"]


def test_the_overview_opens_on_the_numbers_of_the_run(example_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = texts(drawn(example_store, "overview.py", EXAMPLE_ID, monkeypatch))
    assert "Compiled is 1.22× eager (faster)" in shown
    assert "384 → 256 KiB" in shown


def test_a_partial_run_says_so_with_its_reason(example_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = texts(drawn(example_store, "overview.py", PARTLY_ID, monkeypatch))
    assert "This run is partial: the process ended before the run did" in shown
    assert "wrapper_plan failed (AttributeError" in shown


def test_a_run_without_measurements_names_the_commands_that_measure(
    example_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = drawn(example_store, "comparison.py", PARTLY_ID, monkeypatch)
    assert "Nothing was measured" in texts(app)
    assert "fusionscope run --compare" in app.code[0].value


def test_an_address_with_an_unknown_run_says_so(example_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = drawn(example_store, "memory.py", "no-such-run", monkeypatch)
    assert not app.exception
    assert "does not hold the run" in texts(app)


def test_a_library_from_a_newer_version_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "library.duckdb").write_bytes(b"this is no database" * 400)
    app = drawn(store, "runs.py", None, monkeypatch)
    assert not app.exception
    assert "is not a Fusionscope library" in texts(app)


def test_the_app_runs_where_torch_cannot_be_imported(example_store: Path) -> None:
    script = f"""
import sys
sys.modules["torch"] = None  # every import of it raises
from streamlit.testing.v1 import AppTest
app = AppTest.from_file({str(ROOT / "app" / "streamlit_app.py")!r}, default_timeout=120)
app.query_params["run"] = {EXAMPLE_ID!r}
app.run()
for screen in {SCREENS!r}:
    app.switch_page("screens/" + screen).run()
    assert not app.exception, (screen, app.exception)
assert not any(name.startswith("fusionscope.collector") for name in sys.modules)
"""
    env = os.environ | {"FUSIONSCOPE_STORE": str(example_store)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (style.size(262_656), "256 KiB"),
        (style.size(0), "0 B"),
        (style.size(1023.9), "1.00 KiB"),
        (style.size(None), style.MISSING),
        (style.duration(412.0), "412 µs"),
        (style.duration(999.9), "1.00 ms"),
        (style.duration(0.25), "250 ns"),
        (style.seconds(5.32), "5.32 s"),
        (style.ratio(1.2189), "1.22×"),
        (style.percent(0.0678), "6.78 %"),
        (style.size_delta(393_216, 262_656), "−128 KiB"),
        (style.change(412, 338), "−18.0 %"),
        (style.number(12_345), "12\u2009345"),
        (style.plural(1, "graph break"), "1 graph break"),
        (style.short("triton_poi_fused_relu_softmax_0", 15), "triton_…ftmax_0"),
        (style.source_line("/a/b/model.py", 42), "model.py:42"),
        (words.arrow(393_216, 262_656, style.size), "384 → 256 KiB"),
        (words.arrow(None, None, style.size), ""),
    ],
)
def test_numbers_have_three_digits_and_a_unit(shown: str, expected: str) -> None:
    assert shown == expected


def test_a_difference_within_the_noise_is_called_that() -> None:
    def latency(variant: str, median: float) -> Measurement:
        spread = {"p10": median - 10, "p90": median + 10}
        return Measurement(variant=variant, metric="latency_us", median=median, unit="us", method="test", **spread)

    assert "neither clearly faster nor slower" in words.speed([latency("eager", 100), latency("compiled", 95)])
    assert "slower" in words.speed([latency("eager", 100), latency("compiled", 195)])
    assert words.speed([latency("eager", 100)]) == ""


def phase(number: int, name: str, start: float, length: float, parent: int | None = None) -> CompilePhase:
    """A phase of compile 0/0."""
    return CompilePhase(compile_id="0/0", phase_id=number, name=name, parent=parent, start_s=start, duration_s=length)


def test_a_phase_lies_under_its_parent_and_beside_nothing_parallel() -> None:
    whole = phase(0, "entire_frame_compile", 10.0, 4.0)
    halves = [phase(1, "bytecode_tracing", 10.0, 1.0, 0), phase(2, "backend_compile", 11.0, 3.0, 0)]
    parallel = [phase(3, "compile_file", 11.5, 1.0, 2), phase(4, "compile_file", 11.6, 1.0, 2)]
    lanes = {bar.phase.phase_id: bar.lane for bar in bars([whole, *halves, *parallel])}
    assert lanes == {0: 0, 1: 1, 2: 1, 3: 2, 4: 3}


def test_phases_too_short_to_see_are_counted_not_drawn() -> None:
    _, hidden = icicle_figure([phase(0, "entire_frame_compile", 0.0, 4.0), phase(1, "gc", 1.0, 1e-4, 0)])
    assert hidden == 1


def test_each_moment_of_a_compile_belongs_to_its_innermost_phase() -> None:
    whole = phase(0, "entire_frame_compile", 0.0, 4.0)
    passes, parallel = phase(1, "pass.post_grad", 1.0, 1.0, 0), phase(2, "pass.pre_grad", 1.5, 1.0, 0)
    found = [(s.stage, s.start_s, s.end_s) for s in stretches([whole, passes, parallel])]
    assert found == [("Dynamo", 0.0, 1.0), ("FX passes", 1.0, 2.5), ("Dynamo", 2.5, 4.0)]


def test_stages_follow_torchs_own_names() -> None:
    assert stage_of("Scheduler.fused_nodes") == "Scheduling and fusion"
    assert stage_of("something_new") == "Other"
