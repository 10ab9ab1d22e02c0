"""The app in a real browser: start the server, open Chromium, open a screen and wait until it is drawn."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode, urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DRAWN = '[data-testid="stApp"][data-test-script-state="notRunning"]'
WATCH = """(selectors) => {  // when each selector first matches, in ms since navigation; looked at before each frame
    const wanted = new Set(selectors);
    const roots = () => [document, ...[...document.querySelectorAll("*")].map((e) => e.shadowRoot).filter(Boolean)];
    window.painted = {};
    const look = () => {
        const inside = roots();
        for (const selector of wanted) if (inside.some((root) => root.querySelector(selector))) {
            wanted.delete(selector);
            setTimeout(() => { painted[selector] = performance.now(); });  // after this frame is painted
        }
        if (wanted.size) requestAnimationFrame(look);
    };
    look();
}"""
LOCAL = {"localhost", "127.0.0.1", ""}  # data: and blob: addresses have no host


def free_port() -> int:
    """A port of the loopback address on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def serving(command: list[str], answers: str, cwd: Path = ROOT, **settings: str) -> Iterator[None]:
    """`command` as a process of its own, with `settings` in its environment, from when the address `answers` does."""
    process = subprocess.Popen(command, cwd=cwd, env=os.environ | settings, stdout=subprocess.DEVNULL)
    try:
        _wait_for(answers)
        yield
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def server(store: Path) -> Iterator[str]:
    """The app on `store`; yields its address."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "streamlit", "run", "app", "--server.port", str(port)]
    with serving(command, f"{address}/_stcore/health", FUSIONSCOPE_STORE=str(store)):
        yield address


def _wait_for(address: str, timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium of the system, else the one that Playwright installed."""
    system = Path("/usr/bin/chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=system if system.exists() else None, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def outside_requests(page: Page) -> list[str]:
    """A list that grows with every request of `page` that leaves the machine."""
    seen: list[str] = []
    page.on("request", lambda request: _note_outside(request.url, seen))
    page.on("websocket", lambda socket: _note_outside(socket.url, seen))
    return seen


def _note_outside(url: str, seen: list[str]) -> None:
    if (urlsplit(url).hostname or "") not in LOCAL:
        seen.append(url)


def open_screen(page: Page, address: str, screen: str, **params: str) -> None:
    """Open a screen by its path in the URL and wait until the script has ended and skeletons are gone."""
    page.goto(f"{address}/{screen}?{urlencode(params)}")
    settle(page)


def settle(page: Page) -> None:
    """Wait until the page shows what the script drew."""
    page.wait_for_selector(DRAWN, timeout=60_000)
    page.wait_for_selector('[data-testid="stSkeleton"]', state="detached", timeout=30_000)
    page.wait_for_timeout(300)


def painted(page: Page, address: str, *selectors: str) -> tuple[list[float], int]:
    """Open `address` in a page at rest; seconds from navigation until each selector is painted, and bytes until then.

    The browser itself takes the times: a selector that Playwright waits for is looked for twice a second at last.
    """
    received: list[int] = []
    page.goto("about:blank")
    page.once("websocket", lambda socket: socket.on("framereceived", lambda frame: received.append(len(frame))))
    page.goto(address, wait_until="commit")
    page.evaluate(WATCH, selectors)
    page.wait_for_function("count => Object.keys(window.painted).length == count", arg=len(selectors), timeout=120_000)
    taken = sum(received)
    return [page.evaluate("selector => painted[selector]", selector) / 1000 for selector in selectors], taken


class Unwatched:
    """A page of 1440 × 900 px with an empty cache, to which Playwright does not listen.

    Where it listens (Runtime.enable), V8 looks up the line of each exception, caught ones too, and parses the script
    once more for that: 0.3 s for those that plotly's module throws and catches as it starts, which no user waits for.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser.new_browser_cdp_session()
        self._heard: dict[int, Any] = {}
        self._browser.on("Target.receivedMessageFromTarget", self._hear)
        self._context = self._browser.send("Target.createBrowserContext")["browserContextId"]
        place = {"url": "about:blank", "browserContextId": self._context, "width": 1440, "height": 900}
        page = self._browser.send("Target.createTarget", place)["targetId"]
        self._session = self._browser.send("Target.attachToTarget", {"targetId": page, "flatten": False})["sessionId"]
        self._asked = 0

    def painted(self, address: str, *selectors: str) -> list[float]:
        """Open `address`; seconds from navigation until each selector is painted."""
        self._ask("Page.enable")
        self._ask("Page.addScriptToEvaluateOnNewDocument", source=f"({WATCH})({json.dumps(selectors)})")
        self._ask("Page.navigate", url=address)
        while True:
            time.sleep(0.5)  # without a question meanwhile, which the page would have to answer
            seen = self._ask("Runtime.evaluate", expression="painted", returnByValue=True)["result"]["value"]
            if len(seen) == len(selectors):
                return [seen[selector] / 1000 for selector in selectors]

    def close(self) -> None:
        self._browser.send("Target.disposeBrowserContext", {"browserContextId": self._context})
        self._browser.detach()

    def _hear(self, event: dict[str, Any]) -> None:
        message = json.loads(event["message"])
        self._heard[message.get("id", 0)] = message.get("result")

    def _ask(self, method: str, **params: Any) -> Any:
        self._asked += 1
        message = json.dumps({"id": self._asked, "method": method, "params": params})
        self._browser.send("Target.sendMessageToTarget", {"sessionId": self._session, "message": message})
        while self._asked not in self._heard:
            self._browser.send("Browser.getVersion")  # Playwright hands out what it heard when it is asked something
        return self._heard.pop(self._asked)


def errors(page: Page) -> list[str]:
    """Text of every error that Streamlit shows on the page."""
    return page.locator('[data-testid="stException"]').all_inner_texts()
