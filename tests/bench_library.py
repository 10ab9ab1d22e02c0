"""The Runs page over many runs: seconds from the page's shell to a usable page, and until a filter answers.

The library is made of the recorded runs that are shipped: each is imported as it is and then copied under other ids,
names, moments, devices and versions. Of the copies' texts (code, sources) only those of the originals are kept.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
from browser import chromium, open_screen, server, settle
from playwright.sync_api import Page

from fusionscope.sample_models import RECORDED_ON_GPU
from fusionscope.storage import schema
from fusionscope.storage.library import Library
from fusionscope.storage.records import TABLES

SMALL = ("h200_mlp_weights", "h200_mlp_inline", "h200_spills")
TEXTS = {"code", "output_code", "source", "text", "source_text"}
TIMES = 5
SEARCHES = ("model-1", "commit-49", "tag-7", "model-0", "commit-4")  # no two of them find as many runs


def seconds(store: Path, runs: int) -> Iterator[str]:
    """A line per measured act, each the median of several."""
    began = time.perf_counter()
    multiply(store, runs)
    size = (store / "library.duckdb").stat().st_size >> 20
    yield f"made {runs:,} runs in {time.perf_counter() - began:.1f} s, {size} MiB"
    with server(store) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        open_screen(page, address, "")  # the first reading of the library, and the browser's cache
        yield line("page usable after its shell", [opened(page, address) for _ in range(TIMES)])
        empty = [rerun(page) for _ in range(TIMES)]
        yield line("an empty rerun", empty)
        found = [searched(page, words) for words in SEARCHES]
        yield line("a search beyond it", [seconds - statistics.median(empty) for seconds in found])
        page.close()


def line(what: str, taken: list[float]) -> str:
    """The median with its range."""
    return f"{what:32}{statistics.median(taken):6.2f} s ({min(taken):.2f}–{max(taken):.2f})"


def opened(page: Page, address: str) -> float:
    """Seconds from the frame of the page to its table, with filters that can be used."""
    page.goto(address)
    page.wait_for_selector('[data-testid="stApp"]')
    began = time.perf_counter()
    page.wait_for_selector('[data-testid="stDataFrame"] canvas')
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    taken = time.perf_counter() - began
    settle(page)
    return taken


def rerun(page: Page) -> float:
    """Seconds of a rerun that finds the same runs: another fold is chosen, of which no run has anything to fold."""
    other = page.locator(".st-key-fold button").nth(2)
    first = page.locator(".st-key-fold button").nth(0)
    taken = []
    for button in (other, first):
        began = time.perf_counter()
        button.click()
        page.wait_for_selector('[data-testid="stApp"][data-test-script-state="running"]')
        page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
        taken.append(time.perf_counter() - began)
        settle(page)
    return statistics.mean(taken)


def searched(page: Page, words: str) -> float:
    """Seconds until the sentence counts what a search found."""
    sentence = page.locator(".st-key-sentence")
    before = sentence.inner_text()
    field = page.locator(".st-key-q input")
    field.fill(words)
    began = time.perf_counter()
    field.press("Enter")
    page.wait_for_function(
        "before => (document.querySelector('.st-key-sentence') ?? {innerText: before}).innerText !== before", arg=before
    )
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    taken = time.perf_counter() - began
    settle(page)
    return taken


def multiply(store: Path, runs: int) -> None:
    """Fill the store up to `runs` runs."""
    library = Library(store)
    originals = [library.import_path(file) for file in RECORDED_ON_GPU if file.stem in SMALL]
    each = -(-(runs - len(originals)) // len(originals))
    for run_id in originals:
        library.write(_copy, run_id, each)


def _copy(con: duckdb.DuckDBPyConnection, run_id: str, times: int) -> None:
    """Every table's rows of a run, `times` times under other ids."""
    for table in TABLES:
        without = "".join(f", NULL AS {name}" for name in schema.columns(table) if name in TEXTS)
        replaced = f"run_id || '-' || i AS run_id{without}{_VARIED if table == 'runs' else ''}"
        con.execute(
            f"INSERT INTO {table} BY NAME SELECT t.* REPLACE ({replaced}) FROM {table} t, range({times}) r(i) "
            "WHERE run_id = ?",
            [run_id],
        )


_VARIED = """, 'model-' || (i % 200) AS name, 'project-' || (i % 12) AS project, ['tag-' || (i % 20)] AS tags,
    created_at - to_minutes(i * 7) AS created_at, '2.' || (11 + i % 4) || '.0' AS torch_version,
    ['NVIDIA H200', 'NVIDIA A100', 'AMD EPYC'][1 + i % 3] AS device_name,
    CASE WHEN i % 40 = 0 THEN 'partial' ELSE status END AS status, 'commit-' || (i % 500) AS git_commit"""
