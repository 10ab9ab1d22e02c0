"""The Fusion, Memory and Kernels screens under a reader's hands: clicks, addresses, the back button."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import chromium, errors, open_screen, outside_requests, server, settle
from example_run import EXAMPLE_ID
from playwright.sync_api import Page, expect

SOFTMAX = "op7_op8_op9_op10"
PLACE = """(canvas, node) => {
    const at = canvas.network.canvasToDOM(canvas.network.getPosition(node));
    const view = canvas.querySelector('.view').getBoundingClientRect();
    return [view.x + at.x, view.y + at.y];
}"""


@pytest.fixture(scope="module")
def address(example_store: Path) -> Iterator[str]:
    with server(example_store) as started:
        yield started


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        outside = outside_requests(page)
        yield page
        assert outside == []


def open_fusion(page: Page, address: str, **params: str) -> None:
    open_screen(page, address, "fusion", run=EXAMPLE_ID, **params)
    page.wait_for_selector(".canvas[data-ready]")


def click_node(page: Page, node: str) -> None:
    x, y = page.locator(".canvas").evaluate(PLACE, node)
    page.mouse.click(x, y)
    page.wait_for_url(lambda url: f"node={node}" in url)
    settle(page)


def selected(page: Page) -> list[str]:
    nodes: list[str] = page.locator(".canvas").evaluate("canvas => canvas.network.getSelectedNodes()")
    return nodes


def inspector(page: Page, tab: str) -> str:
    page.get_by_role("tab", name=tab).click()
    return page.locator(".st-key-inspector").locator("xpath=..").inner_text()


def test_a_click_on_a_box_shows_its_decisions_code_and_source(page: Page, address: str) -> None:
    open_fusion(page, address)
    click_node(page, "op1")
    assert "op1 with op0" in inspector(page, "Why")
    assert "mlp.py" in inspector(page, "Source")
    click_node(page, SOFTMAX)
    assert "intermediate nodes between node1 & node2" in inspector(page, "Why")
    assert "sub: inlined" in inspector(page, "Why")
    assert selected(page) == [SOFTMAX]
    assert errors(page) == []


def test_an_address_with_a_node_opens_on_it_and_the_back_button_returns_to_it(page: Page, address: str) -> None:
    open_fusion(page, address, node="op3")
    assert selected(page) == ["op3"]
    click_node(page, "op5")
    page.go_back()
    page.wait_for_url(lambda url: "node=op3" in url)
    settle(page)
    assert selected(page) == ["op3"]


def test_an_address_may_name_a_scheduler_node_inside_a_group_and_ignores_one_that_is_unknown(
    page: Page, address: str
) -> None:
    open_fusion(page, address, node="op9")
    assert selected(page) == [SOFTMAX]
    open_fusion(page, address, node="op999")
    assert selected(page) == [SOFTMAX]
    assert "cpp_fused__softmax" in inspector(page, "Node")


def test_a_search_fades_what_it_does_not_find(page: Page, address: str) -> None:
    open_fusion(page, address, search="softmax")
    assert page.locator(".canvas").evaluate("canvas => [...canvas.shown.matches]") == [SOFTMAX]


def test_refused_pairs_are_drawn_when_asked_for(page: Page, address: str) -> None:
    open_fusion(page, address, refused="true")
    drawn = page.locator(".canvas").evaluate("canvas => canvas.network.body.data.edges.getIds()")
    assert "refused op0 op1" in drawn
    assert page.locator(".legend").inner_text().count("refused pair") == 1


def test_a_step_in_the_address_shows_what_lives_there(page: Page, address: str) -> None:
    open_screen(page, address, "memory", run=EXAMPLE_ID, step="0")
    expect(page.locator(".st-key-section-live")).to_contain_text("Alive after step 0")
    open_screen(page, address, "memory", run=EXAMPLE_ID)
    expect(page.locator(".st-key-section-live")).to_contain_text("Alive at the peak")
    expect(page.locator(".st-key-note-live")).to_contain_text("262 656 B")


def test_an_address_with_a_kernel_opens_its_source(page: Page, address: str) -> None:
    open_screen(page, address, "kernels", run=EXAMPLE_ID, kernel="0/0.inference/cpp_fused_relu_0")
    expect(page.locator('[data-testid="stCode"]').nth(1)).to_contain_text("in_out_ptr0")
