"""Reviewing in the browser: two runs compared, a verdict given, and found on the next run; filters, views, undo."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, errors, open_screen, server, settle
from example_run import EXAMPLE_ID, example_run, publish, publish_example
from playwright.sync_api import Browser, Locator, Page, expect
from streamlit.testing.v1 import AppTest
from test_app import drawn, texts
from test_diff import worse
from test_notes import NEXT_ID, RELU, publish_next

from fusionscope.app.screens._notes import KINDS
from fusionscope.app.screens._run_filters import FACETS, Filters
from fusionscope.app.screens._run_rows import folded, unfolded
from fusionscope.app.screens._trend import Series, pairs
from fusionscope.app.words import Metric
from fusionscope.storage import notes
from fusionscope.storage.library import Library
from fusionscope.storage.queries import anchors
from fusionscope.storage.queries import notes as queries
from fusionscope.storage.queries.runs import library_runs

WORSE_ID = "20260102-040000-c3d4e5"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, a run of it that is worse in what it breaks, and what somebody said of both."""
    folder = tmp_path_factory.mktemp("review") / "store"
    publish_example(folder)
    publish(folder, example_run(WORSE_ID, created_at=datetime(2026, 1, 2, 4)), list(worse("breaks")))
    library = Library(folder)
    library.write(notes.say, EXAMPLE_ID, "![x](http://evil.example) <b>why</b>", kind="kernel", object_id=RELU)
    library.write(notes.act, EXAMPLE_ID, "tag", "baseline")
    return folder


@pytest.fixture(scope="module")
def address(store: Path) -> Iterator[str]:
    with server(store) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": 1440, "height": 1000})
    yield opened
    assert errors(opened) == []
    opened.close()


def tick(page: Page, row: int) -> None:
    """Tick a row of the table of runs by the box before it."""
    page.locator('[data-testid="stDataFrame"]').first.click(position={"x": 16, "y": 32 + 28 * row + 14})
    settle(page)


def remarks(page: Page, where: str) -> Locator:
    """Notes shown as linked in the address, as here on what is open, or in the review."""
    return page.locator(f"[class*=st-key-remark-{where}-]")


def test_a_link_to_a_note_is_opened_two_runs_are_compared_and_a_verdict_is_found_on_the_next_run(
    page: Page, address: str, store: Path
) -> None:
    note = Library(store).ask(queries.pinned, EXAMPLE_ID)[0]
    open_screen(page, address, "kernels", run=EXAMPLE_ID, kernel=RELU, note=note.note_id)
    expect(remarks(page, "linked")).to_contain_text("![x](http://evil.example) <b>why</b>")  # data, shown as it is
    expect(remarks(page, "linked")).to_contain_text("on kernel relu at")

    page.get_by_role("link", name="Runs").click()
    settle(page)
    tick(page, 0)
    tick(page, 1)
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url(re.compile(f"/diff.*against={EXAMPLE_ID}"))
    settle(page)
    assert f"run={WORSE_ID}" in page.url
    expect(page.locator(".st-key-sentence")).to_contain_text("1 graph break differs")

    main = page.locator('[data-testid="stMain"]')
    main.locator(".st-key-verdict-overview").get_by_text("Regression").click()
    main.get_by_label("Note").fill("A print crept in.")
    main.get_by_role("button", name="Add note").click()
    expect(remarks(page, "review").first).to_contain_text("Regression: A print crept in.", timeout=20_000)

    publish_next(store)
    open_screen(page, address, "overview", run=NEXT_ID)
    verdict = remarks(page, "review").first
    expect(verdict).to_contain_text("Regression: A print crept in.", timeout=20_000)
    expect(verdict).to_contain_text("on the run of 02 Jan 04:00")

    remarks(page, "review").filter(has_text="why").get_by_role("link", name="Kernels").click()
    page.wait_for_url(re.compile("/kernels.*kernel=.*relu_7.*note="))
    settle(page)
    expect(remarks(page, "linked")).to_contain_text("on the run of 02 Jan 03:04")


def address_of(kind: str, object_id: str) -> tuple[str, dict[str, str]]:
    """The screen on which an object is open, and what its address holds."""
    graph, _, name = object_id.rpartition("/")
    match kind:
        case "kernel":
            return "kernels", {"kernel": object_id}
        case "fusion_group":
            return "fusion", {"graph": graph, "node": name}
        case "refusal":
            graph, _, first = graph.rpartition("/")
            return "fusion", {"graph": graph, "node": first, "with": name}
        case "buffer":
            return "memory", {"graph": graph, "block": name}
        case "peak":
            return "memory", {"graph": object_id}
        case _:
            return "compile", {}


def say(page: Page, text: str, *, on_finding: bool) -> None:
    """Add a note in the sidebar, on what is open; or on the page, on the first problem that was found."""
    form = page.locator('[data-testid="stMain"]')
    if on_finding:
        finding = page.get_by_role("option").nth(1)
        for _ in range(20):  # what is drawn late above the field moves it, which closes its list
            if not finding.is_visible():
                form.get_by_role("combobox", name="About").click()
                page.wait_for_timeout(500)
        finding.click()
    else:
        page.locator(".st-key-note-here button").first.click()
        form = page.get_by_test_id("stPopoverBody")
    form.get_by_label("Note", exact=True).fill(text)
    form.get_by_role("button", name="Add note").click()
    settle(page)


def test_a_note_on_each_kind_of_object_is_said_on_its_screen_and_says_on_later_runs_where_the_object_is_or_that_it_went(
    browser: Browser, tmp_path: Path
) -> None:
    publish_example(tmp_path)
    library = Library(tmp_path)
    with server(tmp_path) as started:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        for kind in anchors.KINDS:
            object_id = "" if kind == "run" else sorted(library.ask(anchors.objects, EXAMPLE_ID, kind))[0]
            screen, params = ("overview", {}) if kind == "finding" else address_of(kind, object_id)
            open_screen(page, started, screen, run=EXAMPLE_ID, **params)
            say(page, f"about the {kind}", on_finding=kind == "finding")
        publish_next(tmp_path)
        publish(tmp_path, example_run("later", created_at=datetime(2026, 1, 4)), [])
        assert {note.anchor_kind for note in library.ask(queries.pinned, "later")} == set(anchors.KINDS)
        for run_id, lost in ((NEXT_ID, set()), ("later", set(anchors.KINDS) - {"run", "finding"})):
            open_screen(page, started, "overview", run=run_id)
            for kind in anchors.KINDS:
                shown = remarks(page, "review").filter(has_text=f"about the {kind}").inner_text()
                assert ("which is gone in this run" in shown) is (kind in lost), (run_id, shown)
                assert (KINDS[kind] in shown) is (kind != "run"), shown
        page.close()


def app(store: Path, monkeypatch: pytest.MonkeyPatch, **params: str) -> AppTest:
    monkeypatch.setenv("FUSIONSCOPE_STORE", str(store))
    opened = AppTest.from_file(
        str(Path(__file__).resolve().parent.parent / "app" / "streamlit_app.py"), default_timeout=60
    )
    for name, value in params.items():
        opened.query_params[name] = value
    return opened.run()


def publish_run(store: Path, run_id: str, **changed: Any) -> None:
    """A run of which nothing but its row is known."""
    publish(store, example_run(run_id, **changed), [])


@pytest.fixture(scope="module")
def various(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of a job, a sweep of two modes at one commit, and a run that differs from them in everything."""
    folder = tmp_path_factory.mktemp("various") / "store"
    for rank in (1, 0):
        publish_run(folder, f"rank-{rank}", name="job", rank=rank, group_id="cafe", git_commit=None)
    for mode in ("default", "max-autotune"):
        publish_run(folder, f"mode-{mode}", name="sweep", mode=mode)
    publish_run(
        folder,
        "other",
        name="gpt",
        project="search",
        tags=("nightly",),
        author="grace",
        device_name="NVIDIA H200",
        torch_version="2.14.1",
        git_commit="0123456789abcdef",
        mode="reduce-overhead",
        status="partial",
        created_at=datetime(2026, 3, 4, 5, 6),
    )
    Library(folder).write(notes.say, "other", verdict="looks_good")
    return folder


@pytest.mark.parametrize(
    "asked",
    [
        {"q": "GRACE h200"},
        {"q": "0123456789abcd"},
        {"project": "search"},
        {"name": "gpt"},
        {"tag": "nightly"},
        {"device": "NVIDIA H200"},
        {"torch": "2.14.1"},
        {"commit": "0123456789"},
        {"author": "grace"},
        {"mode": "reduce-overhead"},
        {"verdict": "Looks good"},
        {"status": "partial"},
        {"since": "2026-03-04"},
        {"since": "2026-03-04", "until": "2026-03-04", "project": "search", "fold": "run"},
    ],
    ids=str,
)
def test_every_filter_in_the_address_leaves_the_run_that_it_asks_for(
    various: Path, asked: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = app(various, monkeypatch, **asked)
    assert not opened.exception
    assert "1 run," in texts(opened)


@pytest.mark.parametrize("asked", [{"q": "nothing like it"}, {"tag": "unknown"}, {"until": "2020-01-01"}], ids=str)
def test_an_address_that_asks_for_what_no_run_has_says_so_and_its_filters_can_be_cleared(
    various: Path, asked: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = app(various, monkeypatch, **asked)
    assert "No run passes" in texts(opened)
    opened.button(key="clear-filters").click().run()
    assert "5 runs," in texts(opened)


@pytest.mark.parametrize(
    ("fold", "lines"),
    [
        ("job", [("other", 1), ("mode-default", 1), ("mode-max-autotune", 1), ("rank-0", 2)]),
        ("commit", [("other", 1), ("mode-default", 2), ("rank-0", 1), ("rank-1", 1)]),
        ("name", [("other", 1), ("mode-default", 2), ("rank-0", 2)]),
        ("run", [("other", 1), ("mode-default", 1), ("mode-max-autotune", 1), ("rank-0", 1), ("rank-1", 1)]),
    ],
)
def test_runs_that_belong_together_share_a_line_and_its_filters_find_them_all(
    various: Path, fold: str, lines: list[tuple[str, int]]
) -> None:
    runs = Library(various).ask(library_runs)
    found = folded(runs, fold)
    assert [(line.run.run_id, len(line.runs)) for line in found] == lines
    for line in (line for line in found if len(line.runs) > 1):
        asked = unfolded(line, fold)
        chosen = {key: values for key, values in asked.items() if key in FACETS}
        wanted = Filters("".join(asked.get("q", ())), chosen)
        assert [run for run in runs if wanted.let_through(run)] == line.runs


def test_what_is_done_to_a_line_is_done_to_all_of_its_runs(page: Page, tmp_path: Path) -> None:
    for rank in range(3):
        publish_run(tmp_path, f"rank-{rank}", name="job", rank=rank, group_id="cafe")
    with server(tmp_path) as started:
        open_screen(page, started, "")
        tick(page, 0)
        page.get_by_role("button", name="Delete").click()
        expect(page.locator(".st-key-undo")).to_contain_text("3 runs deleted.")
        page.get_by_role("button", name="Undo").click()
        expect(page.locator(".st-key-sentence")).to_contain_text("3 runs,")
        settle(page)
        tick(page, 0)
        page.get_by_role("button", name="Show its 3 runs").click()
        page.wait_for_url(re.compile("fold=run"))
        assert "q=cafe" in page.url


def test_a_trend_names_what_changed_at_a_step_and_leads_to_the_diff(page: Page, tmp_path: Path) -> None:
    publish_example(tmp_path, "first")
    again = example_run("second", created_at=datetime(2026, 1, 3), torch_version="2.14.1")
    publish(tmp_path, again, list(worse("breaks")))
    with server(tmp_path) as started:
        open_screen(page, started, "", metric="Graph breaks")
        expect(page.locator(".st-key-note-steps")).to_contain_text("The largest of 1 step beyond the noise")
        page.locator('.st-key-steps [data-testid="stDataFrame"]').click(position={"x": 60, "y": 32 + 14})
        page.wait_for_url(re.compile("/diff.*run=second.*against=first"))
        settle(page)


def test_a_step_is_a_change_beyond_the_noise_from_the_run_before_on_the_same_device(tmp_path: Path) -> None:
    for number, device in enumerate(("A", "B", "A", "B")):
        publish_run(tmp_path, f"{number}", device_name=device, created_at=datetime(2026, 1, 1 + number))
    runs = Library(tmp_path).ask(library_runs)[::-1]
    assert [before and before.run_id for before, _ in pairs(runs)] == [None, None, "0", "1"]
    series = Series(Metric("x", "us"), {"0": 10, "1": 12, "2": 12, "3": 30}, {"0": (9, 13), "2": (11, 13)})
    assert not series.moved("0", "2")
    assert series.moved("1", "3")


def test_a_deleted_run_is_gone_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for run_id in ("a", "b"):
        publish_example(tmp_path, run_id)
    library = Library(tmp_path)
    library.write(notes.act, "a", "delete")
    opened = app(tmp_path, monkeypatch)
    assert "1 run," in texts(opened)
    opened.multiselect(key="restore").set_value(["a"]).run()
    opened.button(key="do-restore").click().run()
    assert not opened.exception
    assert "2 runs," in texts(opened)


def test_a_view_is_kept_and_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_example(tmp_path, "a", "mlp")
    publish_example(tmp_path, "b", "gpt")
    opened = app(tmp_path, monkeypatch, q="gpt", since="2026-01-02", fold="name")
    opened.text_input(key="view-name").set_value("Only *gpt*").run()
    opened.button(key="keep-view").click().run()
    fresh = app(tmp_path, monkeypatch)
    assert "2 runs," in texts(fresh)
    fresh.button(key="view-0").click().run()
    assert "1 run," in texts(fresh)
    assert fresh.session_state["fold"] == "name"


def test_a_read_only_app_offers_no_change_and_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_example(tmp_path, "a")
    publish_example(tmp_path, "b")
    monkeypatch.setenv("FUSIONSCOPE_READ_ONLY", "1")
    opened = drawn(tmp_path, "overview.py", "a", monkeypatch)
    assert "read-only" in texts(opened)
    assert not [button for button in opened.button if button.label == "Add note"]


@pytest.mark.parametrize("run_id", ["a", "gone"])
def test_a_comparison_without_a_baseline_says_what_to_do(
    tmp_path: Path, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_example(tmp_path, "a")
    opened = drawn(tmp_path, "diff.py", run_id, monkeypatch)
    assert not opened.exception
    assert ("choose a baseline" if run_id == "a" else "does not hold the run") in texts(opened)
