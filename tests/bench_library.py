"""The Runs page over many runs: seconds from the page's shell to a usable page, and until each filter answers.

The library is made of the recorded runs that are shipped: each is imported as it is and then copied under other ids,
names, moments, devices and versions. Of the copies' texts (code, sources) only those of the originals are kept.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
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
NOT_RUNNING = '[data-testid="stApp"][data-test-script-state="notRunning"]'
SEARCHES = ("model-1", "commit-49", "tag-7")
CHOICES = {
    "project": ("project-1", "project-2", "project-3"),
    "name": ("model-1", "model-2", "model-3"),
    "tag": ("tag-1", "tag-2", "tag-3"),
    "device": ("NVIDIA A100", "NVIDIA H200", "AMD EPYC"),
    "torch": ("2.11.0", "2.12.0", "2.13.0"),
    "commit": ("commit-1", "commit-2", "commit-3"),
    "author": ("author-1", "author-2", "author-3"),
    "mode": ("default", "max-autotune", "reduce-overhead"),
    "verdict": ("Looks good", "Needs work", "Regression"),
    "status": ("partial", "complete"),
}
DATES = ("since", "until")


def seconds(store: Path, runs: int) -> Iterator[str]:
    """A line per measured act, each the median of several."""
    began = time.perf_counter()
    multiply(store, runs)
    size = (store / "library.duckdb").stat().st_size >> 20
    yield f"made {runs:,} runs in {time.perf_counter() - began:.1f} s, {size} MiB; load {os.getloadavg()[0]:.1f}"
    with server(store) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        open_screen(page, address, "")  # the first reading of the library, and the browser's cache
        yield line("page usable after its shell", [opened(page, address) for _ in range(TIMES)])
        empty = [rerun(page, words) for words in (" ", "") * (TIMES // 2 + 1)]
        yield line("an empty rerun", empty)
        yield "beyond it, until a filter has answered:"
        usual = statistics.median(empty)
        for name, taken in filtered(page):
            yield line(f"  {name}", [seconds - usual for seconds in taken])
        page.close()
    yield f"load {os.getloadavg()[0]:.1f}"


def line(what: str, taken: list[float]) -> str:
    """The median with its range."""
    return f"{what:32}{statistics.median(taken):6.2f} s ({min(taken):.2f}–{max(taken):.2f})"


def opened(page: Page, address: str) -> float:
    """Seconds from the frame of the page to its table, with filters that can be used."""
    page.goto(address)
    page.wait_for_selector('[data-testid="stApp"]')
    began = time.perf_counter()
    page.wait_for_selector('[data-testid="stDataFrame"] canvas')
    page.wait_for_selector(NOT_RUNNING)
    taken = time.perf_counter() - began
    settle(page)
    return taken


def rerun(page: Page, words: str) -> float:
    """Seconds of a rerun that finds the same runs: a search for no words, spaces or none."""
    page.locator(".st-key-q input").fill(words)
    began = time.perf_counter()
    page.keyboard.press("Enter")
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="running"]')
    page.wait_for_selector(NOT_RUNNING)
    taken = time.perf_counter() - began
    settle(page)
    return taken


def filtered(page: Page) -> Iterator[tuple[str, list[float]]]:
    """Each filter's name, with the seconds until it has answered, by value; those of a choice add up."""
    yield "search", [answered(page, partial(search, page, words)) for words in SEARCHES]
    clear(page)
    for key, values in CHOICES.items():
        open_further(page, key)
        yield key, [chosen(page, key, value) for value in values]
        page.keyboard.press("Escape")
        clear(page)
    for key in DATES:
        open_further(page, key)
        yield key, [dated(page, key, days) for days in (3, 2, 1)]
        clear(page)


def open_further(page: Page, key: str) -> None:
    """Open the popover, where the field of a filter is in it."""
    field = page.locator(f".st-key-{key} label")
    if not field.is_visible():
        page.locator(".st-key-more-filters button").first.click()
        field.wait_for()


def clear(page: Page) -> None:
    """Take all filters back."""
    page.locator(".st-key-clear-filters button").click()
    page.locator(".st-key-clear-filters").wait_for(state="detached")
    settle(page)


def answered(page: Page, act: Callable[[], object]) -> float:
    """Seconds from an act until the sentence counts what was found and the script has ended."""
    before = page.locator(".st-key-sentence").inner_text()
    began = time.perf_counter()
    act()
    page.wait_for_function(
        "before => (document.querySelector('.st-key-sentence') ?? {innerText: before}).innerText !== before", arg=before
    )
    page.wait_for_selector(NOT_RUNNING)
    taken = time.perf_counter() - began
    settle(page)
    return taken


def search(page: Page, words: str) -> None:
    """Search for words."""
    page.locator(".st-key-q input").fill(words)
    page.keyboard.press("Enter")


def chosen(page: Page, key: str, value: str) -> float:
    """Seconds until a choice has answered."""
    page.locator(f".st-key-{key} input").fill(value)
    page.get_by_role("option", name=value, exact=True).wait_for()
    return answered(page, lambda: page.keyboard.press("Enter"))


def dated(page: Page, key: str, days: int) -> float:
    """Seconds until a day as bound has answered: so many days ago, typed into a field that is then left."""
    page.locator(f".st-key-{key} [data-type=year]").click()
    page.keyboard.type(time.strftime("%Y%m%d", time.gmtime(time.time() - days * 86_400)))
    return answered(page, lambda: [page.keyboard.press("Tab") for _ in range(3)])  # past what else the field holds


def multiply(store: Path, runs: int) -> None:
    """Fill the store up to `runs` runs."""
    library = Library(store)
    originals = [library.import_path(file) for file in RECORDED_ON_GPU if file.stem in SMALL]
    each = -(-(runs - len(originals)) // len(originals))
    for run_id in originals:
        library.write(_copy, run_id, each)
    library.write(lambda con: con.execute(_VERDICTS))


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
    ['NVIDIA H200', 'NVIDIA A100', 'AMD EPYC'][1 + i % 3] AS device_name, 'author-' || (i % 9) AS author,
    ['default', 'max-autotune', 'reduce-overhead'][1 + i % 3] AS mode,
    CASE WHEN i % 10 < 4 THEN 'job-' || (i // 10) END AS group_id, CASE WHEN i % 10 < 4 THEN i % 10 END AS rank,
    CASE WHEN i % 40 = 0 THEN 'partial' ELSE status END AS status, 'commit-' || (i % 500) AS git_commit"""

_VERDICTS = """
INSERT INTO notes BY NAME
SELECT run_id, run_id AS note_id, created_at, 'note' AS act, 'run' AS anchor_kind,
    ['looks_good', 'needs_work', 'regression'][1 + row_number() OVER () % 3] AS verdict
FROM runs WHERE hash(run_id) % 5 = 0
"""
