"""The Fusion, Memory and Kernels screens under a reader's hands: clicks, addresses, the back button."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from browser import chromium, errors, open_screen, outside_requests, server, settle
from example_run import EXAMPLE_ID, publish_example
from playwright.sync_api import Page, expect

AGAIN_ID = "20260102-050607-aaaaaa"
SOFTMAX = "op7_op8_op9_op10"
PLACE = """(canvas, node) => {
    const at = canvas.network.canvasToDOM(canvas.network.getPosition(node));
    const view = canvas.querySelector('.view').getBoundingClientRect();
    return [view.x + at.x, view.y + at.y];
}"""


EDGE = """(canvas, [from, to]) => {
    const refused = canvas.shown.edges.filter((edge) => edge.kind === "refused");
    const { touch } = refused.find((edge) => edge.from === from && edge.to === to);
    const at = canvas.network.canvasToDOM({ x: touch[16], y: touch[17] });
    const view = canvas.querySelector('.view').getBoundingClientRect();
    return [view.x + at.x, view.y + at.y];
}"""
SIGN = """(canvas, frame) => {
    const { x, y, width } = canvas.shown.frames.get(frame);
    const at = canvas.network.canvasToDOM({ x: x + width - 13, y: y + 13 });
    const view = canvas.querySelector('.view').getBoundingClientRect();
    return [view.x + at.x, view.y + at.y];
}"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("fusion") / "store"
    publish_example(store)
    publish_example(store, run_id=AGAIN_ID, name="mlp_again")
    with server(store) as started:
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
    page.wait_for_url(lambda url: f"node={node}" in unquote(url))
    settle(page)


def selected(page: Page) -> list[str]:
    chosen: list[str] = page.locator(".canvas").evaluate("({ shown }) => [shown.focus, shown.second].filter(Boolean)")
    return chosen


def boxes(page: Page) -> list[str]:
    drawn: list[str] = page.locator(".canvas").evaluate("({ shown }) => [...shown.boxes.keys()]")
    return drawn


def inspector(page: Page, tab: str) -> str:
    page.get_by_role("tab", name=tab).click()
    settle(page)
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
    expect(page.locator(".name")).to_contain_text("cpp_fused__softmax")


def test_a_search_fades_what_it_does_not_find(page: Page, address: str) -> None:
    open_fusion(page, address, search="softmax")
    assert page.locator(".canvas").evaluate("canvas => [...canvas.shown.matches]") == [SOFTMAX]


def test_refused_pairs_are_drawn_when_asked_for(page: Page, address: str) -> None:
    open_fusion(page, address, refused="true")
    drawn = page.locator(".canvas").evaluate(
        "({ shown }) => shown.edges.filter(({ kind }) => kind === 'refused').map(({ from, to }) => `${from} ${to}`)"
    )
    assert "op0 op1" in drawn
    assert page.locator(".legend").inner_text().count("refused pair") == 1


def test_a_kernel_opens_in_place_by_its_sign_and_closes_again(page: Page, address: str) -> None:
    open_fusion(page, address)
    x, y = page.locator(".canvas").evaluate(PLACE, SOFTMAX)
    page.mouse.dblclick(x, y)
    page.wait_for_url(lambda url: f"open={SOFTMAX}" in url)
    page.wait_for_function("document.querySelector('.st-key-fusion-graph') !== null")
    settle(page)
    assert [box for box in boxes(page) if box.startswith(SOFTMAX)] == [
        f"{SOFTMAX}/{node}" for node in ("amax", "sub", "exp", "sum_1", "div")
    ]
    click_node(page, f"{SOFTMAX}/exp")
    assert "exp" in inspector(page, "Code")
    x, y = page.locator(".canvas").evaluate(SIGN, SOFTMAX)
    page.mouse.click(x, y)
    page.wait_for_url(lambda url: "open=" not in url)
    settle(page)
    assert SOFTMAX in boxes(page)


def test_a_pair_is_picked_explained_and_followed_to_its_kernel_and_its_memory_and_back(
    page: Page, address: str
) -> None:
    open_fusion(page, address)
    click_node(page, "op6")
    page.keyboard.down("Shift")
    x, y = page.locator(".canvas").evaluate(PLACE, SOFTMAX)
    page.mouse.click(x, y)
    page.keyboard.up("Shift")
    page.wait_for_url(lambda url: f"with={SOFTMAX}" in url)
    settle(page)
    assert selected(page) == ["op6", SOFTMAX]
    answer = page.locator(".st-key-entry-verdict")
    expect(answer).to_contain_text("Never tested: one of the two is a library call")
    expect(answer).to_contain_text("128 KiB went through memory: buf6")
    pair = page.url
    page.get_by_role("link", name="Kernel of the second").click()
    page.wait_for_url(lambda url: "/kernels" in url and "cpp_fused__softmax_1" in url)
    settle(page)
    page.go_back()
    page.wait_for_url(pair)
    settle(page)
    page.get_by_role("link", name="In memory").click()
    page.wait_for_url(lambda url: "/memory" in url and "step=" in url)
    settle(page)
    page.goto(pair)
    settle(page)
    expect(page.locator(".st-key-entry-verdict")).to_contain_text("Never tested")


def test_a_row_of_the_worklist_shows_its_pair(page: Page, address: str) -> None:
    open_fusion(page, address)
    table = page.locator('[data-testid="stDataFrame"]').last
    table.scroll_into_view_if_needed()
    table.click(position={"x": 40, "y": 28 + 14})
    page.wait_for_url(lambda url: "with=" in url)
    settle(page)
    assert len(selected(page)) == 2


def test_level_colour_search_and_neighbourhood_are_in_the_address(page: Page, address: str) -> None:
    open_fusion(page, address, level="module")
    assert all(box.startswith("module ") for box in boxes(page))
    open_fusion(page, address, level="op")
    assert f"{SOFTMAX}/amax" in boxes(page)
    open_fusion(page, address, colour="time")
    assert "time of one call: 4.20 µs" in page.locator(".legend").inner_text()
    open_fusion(page, address, colour="registers")
    expect(page.locator(".st-key-note-no-figure")).to_contain_text("this run is on a CPU")
    open_fusion(page, address, node="op3", hops="1 hop")
    assert boxes(page) == ["op2", "op3", "op4"]


def test_a_replay_begins_where_the_address_says_and_ends_in_the_final_groups(page: Page, address: str) -> None:
    open_fusion(page, address, replay="true", fused="1")
    assert page.locator(".replay span").inner_text().startswith("1 of 3: round 1, ")
    page.locator(".replay input").press("End")
    page.wait_for_url(lambda url: "fused=3" in url)
    joined = page.locator(".canvas").evaluate("({ shown }) => shown.data.steps.flatMap(({ parts }) => parts)")
    assert {box.partition("/")[0] for box in joined} == {SOFTMAX}


def test_a_run_against_itself_has_nothing_but_groups_that_are_the_same(page: Page, address: str) -> None:
    open_fusion(page, address, against=AGAIN_ID, table="Against the other run")
    expect(page.get_by_text("8 same: time 0 µs, bytes 0 B, peak 0 B")).to_be_visible()


def test_the_exported_page_needs_nothing_but_itself(page: Page, address: str, tmp_path: Path) -> None:
    open_fusion(page, address)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save offline page").click()
    file = tmp_path / "fusion.html"
    download.value.save_as(file)
    with page.expect_download() as png:
        page.get_by_role("button", name="PNG").click()
    assert Path(png.value.path()).read_bytes().startswith(b"\x89PNG")
    page.context.set_offline(True)
    page.goto(f"file://{file}")
    assert page.locator("g.box").count() == 8
    page.locator("input").fill("softmax")
    assert page.locator("g.box").evaluate_all("boxes => boxes.filter((box) => !box.style.opacity).length") == 1
    page.context.set_offline(False)


def test_a_click_on_a_refused_edge_explains_its_pair(page: Page, address: str) -> None:
    open_fusion(page, address, refused="true")
    x, y = page.locator(".canvas").evaluate(EDGE, ["op2", "op3"])
    page.mouse.click(x, y)
    page.wait_for_url(lambda url: "node=op2" in url and "with=op3" in url)
    settle(page)
    expect(page.locator(".st-key-entry-verdict")).to_contain_text("Refused: they met in round 1.")
    expect(page.locator(".st-key-entry-verdict")).to_contain_text("Torch says: node1 is a library call")


def test_a_step_in_the_address_shows_what_lives_there(page: Page, address: str) -> None:
    open_screen(page, address, "memory", run=EXAMPLE_ID, step="0")
    expect(page.locator(".st-key-section-live")).to_contain_text("Alive after step 0")
    open_screen(page, address, "memory", run=EXAMPLE_ID)
    expect(page.locator(".st-key-section-live")).to_contain_text("Alive at the peak")
    expect(page.locator(".st-key-note-live")).to_contain_text("262 656 B")


def test_an_address_with_a_kernel_opens_its_source(page: Page, address: str) -> None:
    open_screen(page, address, "kernels", run=EXAMPLE_ID, kernel="0/0.inference/cpp_fused_relu_0")
    expect(page.locator('[data-testid="stCode"]').nth(1)).to_contain_text("in_out_ptr0")
