"""Reviewing in the browser: two runs compared, a verdict given, and found on the next run; filters, views, undo."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from browser import chromium, errors, open_screen, server, settle
from example_run import EXAMPLE_ID, example_run, publish, publish_example
from playwright.sync_api import Browser, Page, expect
from streamlit.testing.v1 import AppTest
from test_app import drawn, texts
from test_diff import worse
from test_notes import NEXT_ID, RELU, publish_next

from fusionscope.storage import notes
from fusionscope.storage.library import Library

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


def test_two_ticked_runs_are_compared(page: Page, address: str) -> None:
    open_screen(page, address, "")
    tick(page, 0)
    tick(page, 1)
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url(re.compile(f"/diff.*against={EXAMPLE_ID}"))
    settle(page)
    assert f"run={WORSE_ID}" in page.url
    expect(page.locator(".st-key-sentence")).to_contain_text("1 graph break differs")


def test_a_verdict_is_given_and_found_on_the_next_run(page: Page, address: str, store: Path) -> None:
    open_screen(page, address, "diff", run=WORSE_ID, against=EXAMPLE_ID)
    page.locator('[data-testid="stMain"] .st-key-verdict-overview').get_by_text("Regression").click()
    page.locator('[data-testid="stMain"]').get_by_label("Note").fill("A print crept in.")
    page.locator('[data-testid="stMain"]').get_by_role("button", name="Add note").click()
    expect(page.locator("[class*=st-key-remark]").first).to_contain_text(
        "Regression: A print crept in.", timeout=20_000
    )
    publish_next(store)
    open_screen(page, address, "overview", run=NEXT_ID)
    remarks = page.locator("[class*=st-key-remark]")
    expect(remarks.first).to_contain_text("Regression: A print crept in.", timeout=20_000)
    expect(remarks.first).to_contain_text("on the run of 02 Jan 04:00")


def test_a_link_to_a_pinned_note_opens_its_object_in_the_run_that_is_shown(
    page: Page, address: str, store: Path
) -> None:
    publish_next(store)
    open_screen(page, address, "overview", run=NEXT_ID)
    note = page.locator("[class*=st-key-remark]").filter(has_text="why")
    expect(note).to_contain_text("![x](http://evil.example) <b>why</b>")  # data, shown as it is
    note.get_by_role("link", name="Kernels").click()
    page.wait_for_url(re.compile("/kernels.*kernel=.*relu_7"))
    settle(page)


def test_a_note_is_pinned_to_the_kernel_that_is_open(page: Page, address: str, store: Path) -> None:
    open_screen(page, address, "kernels", run=EXAMPLE_ID, kernel=RELU)
    page.get_by_role("button", name="Note on what is open").click()
    page.get_by_label("Note", exact=True).fill("read twice")
    page.get_by_role("button", name="Add note").click()
    page.wait_for_timeout(500)
    settle(page)
    sql = "SELECT anchor_kind, object_id FROM notes WHERE text = 'read twice'"
    assert Library(store).ask(lambda con: con.execute(sql).fetchall()) == [("kernel", RELU)]


def app(store: Path, monkeypatch: pytest.MonkeyPatch, **params: str) -> AppTest:
    monkeypatch.setenv("FUSIONSCOPE_STORE", str(store))
    opened = AppTest.from_file(
        str(Path(__file__).resolve().parent.parent / "app" / "streamlit_app.py"), default_timeout=60
    )
    for name, value in params.items():
        opened.query_params[name] = value
    return opened.run()


def test_filters_in_the_address_choose_the_runs(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "1 run," in texts(app(store, monkeypatch, q=WORSE_ID))
    assert "No run passes" in texts(app(store, monkeypatch, q="nothing like it"))


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
    opened = app(tmp_path, monkeypatch, q="gpt")
    opened.text_input(key="view-name").set_value("Only *gpt*").run()
    opened.button(key="keep-view").click().run()
    fresh = app(tmp_path, monkeypatch)
    assert "2 runs," in texts(fresh)
    fresh.button(key="view-0").click().run()
    assert "1 run," in texts(fresh)


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
