"""The app in Chromium: every screen of every run opens, nothing leaves the machine, doors and addresses work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import chromium, errors, open_screen, outside_requests, server, settle
from example_run import EXAMPLE_ID, PARTLY_ID, publish_example
from playwright.sync_api import Browser, expect

from fusionscope.app.screens import PAGES
from fusionscope.sample_models import RECORDED_ON_GPU
from fusionscope.storage.library import Library
from fusionscope.storage.queries.runs import library_runs


@pytest.fixture(scope="module")
def address(example_store: Path) -> Iterator[str]:
    with server(example_store) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def test_every_screen_of_every_run_opens_without_error_or_outside_request(
    address: str, browser: Browser, example_store: Path
) -> None:
    _open_all(browser, address, example_store)


def test_every_screen_opens_on_runs_of_a_gpu_that_is_not_here(browser: Browser, tmp_path: Path) -> None:
    for bundle in RECORDED_ON_GPU:
        Library(tmp_path).import_path(bundle)
    with server(tmp_path) as address:
        _open_all(browser, address, tmp_path)


def _open_all(browser: Browser, address: str, store: Path) -> None:
    page = browser.new_page()
    outside = outside_requests(page)
    for run in Library(store).ask(library_runs):
        for _, screen, _ in PAGES:
            open_screen(page, address, screen, run=run.run_id)
            assert errors(page) == [], (run.name, screen)
            assert page.locator(".st-key-heading").count() == 1, (run.name, screen)
    assert outside == []
    page.close()


def test_text_from_a_model_is_shown_as_it_is_and_fetches_nothing(browser: Browser, tmp_path: Path) -> None:
    name = "![x](http://evil.example/a.png) <img src='http://evil.example/b.png'> $x$ :red[y]"
    run_id = publish_example(tmp_path / "store", name=name)
    page = browser.new_page()
    outside = outside_requests(page)
    with server(tmp_path / "store") as address:
        for _, screen, _ in PAGES:
            open_screen(page, address, screen, run=run_id)
            assert errors(page) == [], screen
            assert page.locator('[data-testid="stMain"] img').count() == 0, screen
            if screen == "overview":
                expect(page.locator(".st-key-heading")).to_contain_text(name)
    assert outside == []
    page.close()


def test_the_address_names_the_run_and_the_back_button_returns(address: str, browser: Browser) -> None:
    page = browser.new_page()
    open_screen(page, address, "overview", run=EXAMPLE_ID)
    page.get_by_role("link", name="Memory", exact=True).first.click()
    page.wait_for_url(re.compile(f"/memory.*run={EXAMPLE_ID}"))
    settle(page)
    page.go_back()
    page.wait_for_url(re.compile(f"/overview.*run={EXAMPLE_ID}"))
    expect(page.locator(".st-key-heading")).to_contain_text("mlp")
    page.close()


def test_a_click_on_a_run_opens_its_overview(address: str, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    open_screen(page, address, "")
    table = page.locator('[data-testid="stDataFrame"]').first
    table.click(position={"x": 40, "y": 28 + 28 + 14})  # the header, the first row, the middle of the second
    page.wait_for_url(re.compile(r"/overview\?run="))
    settle(page)
    assert errors(page) == []
    page.close()


def test_choosing_another_run_changes_the_page_and_the_address(address: str, browser: Browser) -> None:
    page = browser.new_page()
    open_screen(page, address, "compile", run=EXAMPLE_ID)
    page.locator('[data-testid="stSidebar"] [data-testid="stSelectbox"] input').click()
    page.get_by_role("option", name=re.compile("mlp_killed")).click()
    page.wait_for_url(re.compile(f"run={PARTLY_ID}"))
    expect(page.locator(".st-key-heading")).to_contain_text("mlp_killed")
    page.close()


def test_a_click_on_a_block_of_memory_tells_its_story(address: str, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    open_screen(page, address, "memory", run=EXAMPLE_ID)
    page.wait_for_selector(".barlayer .point path", state="attached")
    page.locator(".barlayer .point path").first.click(force=True)
    page.wait_for_url(re.compile(r"block=buf\d+"))
    expect(page.locator(".st-key-block")).to_contain_text("allocated at step")
    assert errors(page) == []
    page.close()
