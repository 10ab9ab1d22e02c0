"""Names from a hostile model are text wherever the Fusion screen shows them, and in what it exports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from browser import chromium, errors, open_screen, outside_requests, server, settle
from hostile_run import HOSTILE_ID, NAMES, publish_hostile
from playwright.sync_api import Page

from fusionscope.app.figures.dag import kernel_graph
from fusionscope.app.figures.dag_colours import Paint
from fusionscope.app.figures.dag_export import as_html, as_svg
from fusionscope.app.figures.dag_items import Facts, tree
from fusionscope.storage.library import Library
from fusionscope.storage.queries import fusion, fusion_ops

GRAPH = "0/0.inference"
TABLES = ("Not fused", "Every pair", "At lowering", "As a table")
TABS = ("Node", "Why", "Code", "Source", "Buffers")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "store"
    publish_hostile(folder)
    return folder


@pytest.fixture(scope="module")
def address(store: Path) -> Iterator[str]:
    with server(store) as started:
        yield started


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        outside = outside_requests(page)
        yield page
        assert outside == []


def unharmed(page: Page) -> None:
    assert page.evaluate("window.hacked") is None
    assert page.locator('[data-testid="stMain"] :is(img, iframe, script)').count() == 0
    assert errors(page) == []


@pytest.mark.parametrize("level", ["module", "kernel", "op"])
def test_the_screen_shows_hostile_names_as_text_at_every_level(page: Page, address: str, level: str) -> None:
    open_screen(page, address, "fusion", run=HOSTILE_ID, level=level, refused="true", node="op9")
    page.wait_for_selector(".canvas[data-ready]")
    titles = page.locator(".canvas").evaluate(
        """async (canvas) => {
            const titles = [];
            const view = canvas.querySelector(".view");
            const frame = view.getBoundingClientRect();
            for (const { x, y } of canvas.shown.boxes.values()) {
                const at = canvas.network.canvasToDOM({ x, y });
                view.onmousemove({ clientX: frame.x + at.x, clientY: frame.y + at.y });
                titles.push(canvas.querySelector(".tip").textContent);
            }
            return titles;
        }"""
    )
    assert level != "op" or any(NAMES["exp"] in title for title in titles)
    for name in (*(TABS if level == "kernel" else ()), *TABLES):
        page.get_by_role("tab", name=name).click()
        settle(page)
        unharmed(page)


@pytest.fixture(scope="module")
def exported(store: Path) -> tuple[str, str]:
    """SVG and page with every FX node in sight."""
    ask = Library(store).ask
    rows = (fusion.groups, fusion_ops.handovers, fusion.lowerings, fusion_ops.ops, fusion_ops.uses)
    facts = Facts(*(ask(query, HOSTILE_ID, GRAPH) for query in rows))
    drawn = kernel_graph([("forward", tree(facts, "op", frozenset()))], Paint())
    return as_svg(drawn, NAMES["exp"]), as_html(drawn, NAMES["exp"])


def test_an_exported_picture_is_well_formed_and_holds_the_names_as_text(exported: tuple[str, str]) -> None:
    root = ElementTree.fromstring(exported[0])
    assert not [element for element in root.iter() if element.tag.endswith(("script", "image", "foreignObject"))]
    assert {name for element in root.iter() for name in element.attrib if name.startswith("on")} == set()
    titles = [element.text or "" for element in root.iter() if element.tag.endswith("title")]
    assert all(any(NAMES[name] in title for title in titles) for name in ("exp", "sub", "div"))


def test_an_exported_page_runs_nothing_of_the_model_and_asks_for_nothing(
    page: Page, exported: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "fusion.html").write_text(exported[1], encoding="utf-8")
    page.goto(f"file://{tmp_path / 'fusion.html'}")
    assert page.evaluate("window.hacked") is None
    assert page.locator("script").count() == 1
    assert NAMES["exp"] in page.locator("h1").inner_text()
    page.locator("input").fill("sum")
    assert page.evaluate("window.hacked") is None
