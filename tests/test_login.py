"""An app with --login, a provider of OpenID Connect beside it, and a browser: who is let in, where to, and as whom."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser import ROOT, chromium, errors, free_port, open_screen, serving, settle
from example_run import EXAMPLE_ID, publish_example
from playwright.sync_api import Browser, Page, expect
from streamlit.testing.v1 import AppTest
from test_app import texts

from fusionscope.storage.library import Library

LISTENS = "127.0.0.2"
NAME = "Ada **L** <b onclick=x>[x](http://evil.example)</b>"
SECRETS = """[auth]
redirect_uri = "{address}/oauth2callback"
cookie_secret = "a secret of this test, and of nothing else"
client_id = "fusionscope"
client_secret = "any"
server_metadata_url = "{provider}/.well-known/openid-configuration"
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("login") / "store"
    publish_example(folder)
    return folder


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """A provider that knows one user by name; any other is who they say."""
    port = free_port()
    address = f"http://localhost:{port}"  # another host than the app's: cookies know no ports
    claims = json.dumps({"sub": "ada", "name": NAME})
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--user-claims", claims]
    with serving(command, f"{address}/.well-known/openid-configuration"):
        yield address


@contextmanager
def team_server(folder: Path, store: Path, provider: str, *options: str) -> Iterator[str]:
    """`fusionscope app --login` as docs/team.md says, its secrets in the folder that it starts from."""
    port = free_port()
    address = f"http://{LISTENS}:{port}"
    (folder / ".streamlit").mkdir()
    (folder / ".streamlit" / "secrets.toml").write_text(SECRETS.format(address=address, provider=provider))
    command = [sys.executable, "-m", "fusionscope.collector.cli", "app", "--login", "--port", str(port)]
    with serving(
        [*command, "--address", LISTENS, "--store", str(store), *options], f"{address}/_stcore/health", folder
    ):
        yield address


@pytest.fixture(scope="module")
def address(store: Path, provider: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with team_server(tmp_path_factory.mktemp("team"), store, provider) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()  # with no cookie of another test
    yield opened
    assert errors(opened) == []
    opened.context.close()


def log_in(page: Page, who: str) -> None:
    page.get_by_role("button", name="Log in").click()
    page.locator("input[name=sub]").fill(who)
    page.get_by_role("button", name="Authorize").click()


def test_who_is_not_logged_in_sees_no_run(page: Page, address: str) -> None:
    open_screen(page, address, "kernels", run=EXAMPLE_ID)
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert page.locator("[data-testid=stMain]").inner_text().strip().splitlines()[0].startswith("Fusionscope shows")
    assert EXAMPLE_ID not in page.content()
    assert page.locator("[data-testid=stSidebar] a").count() == 0


def test_a_login_leads_to_what_the_link_named_and_signs_notes_until_it_ends(
    page: Page, address: str, store: Path
) -> None:
    open_screen(page, address, "overview", run=EXAMPLE_ID, note="x")
    asked = page.url
    log_in(page, "ada")
    page.wait_for_url(asked)
    settle(page)
    main_part = page.locator('[data-testid="stMain"]')
    main_part.get_by_label("Note").fill("seen")
    main_part.get_by_role("button", name="Add note").click()
    expect(page.locator("[class*=st-key-remark]")).to_contain_text(NAME, timeout=20_000)
    expect(page.locator(".st-key-log-out")).to_contain_text(NAME)
    assert page.locator("[onclick], a[href*=evil]").count() == 0
    sql = "SELECT author, text FROM notes"
    assert Library(store).ask(lambda con: con.execute(sql).fetchall()) == [(NAME, "seen")]

    page.get_by_role("button", name="Log out").click()
    page.get_by_role("button", name="End session").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible(timeout=20_000)
    open_screen(page, address, "overview", run=EXAMPLE_ID)
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_who_is_turned_away_is_still_outside(page: Page, address: str) -> None:
    open_screen(page, address, "memory", run=EXAMPLE_ID)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Deny").click()
    page.wait_for_url(f"{address}/")
    log_in(page, "bob@example.com")
    page.wait_for_url(f"{address}/memory?run={EXAMPLE_ID}")  # the link is still what was asked for


def test_a_read_only_app_with_a_login_lets_in_and_offers_no_note(
    page: Page, store: Path, provider: str, tmp_path: Path
) -> None:
    with team_server(tmp_path, store, provider, "--read-only") as address:
        open_screen(page, address, "overview", run=EXAMPLE_ID)
        log_in(page, "ada")
        expect(page.get_by_text("The library is shown read-only").first).to_be_visible(timeout=20_000)
        assert page.get_by_role("button", name="Add note").count() == 0


def test_a_server_without_a_provider_lets_nobody_in(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSIONSCOPE_STORE", str(store))
    monkeypatch.setenv("FUSIONSCOPE_LOGIN", "1")
    shown = AppTest.from_file(str(ROOT / "app" / "streamlit_app.py"), default_timeout=60).run()
    assert "Nobody can log in" in texts(shown)
    assert not shown.button
