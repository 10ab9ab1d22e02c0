"""Pictures of every screen, light and dark: `python tests/screenshots.py --store STORE --out docs/pictures`."""

from __future__ import annotations

import argparse
from pathlib import Path

from browser import chromium, open_screen, server
from playwright.sync_api import Page

from fusionscope.app.screens import PAGES
from fusionscope.storage.library import Library

WIDTH, HEIGHT = 1440, 900


def main() -> None:
    """Take the pictures of one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--run", default=None, help="id or name; left out: the newest")
    parser.add_argument("--screens", nargs="*", default=[path for _, path, _ in PAGES])
    parser.add_argument("--themes", nargs="*", default=["light", "dark"])
    parser.add_argument("--fold", action="store_true", help="only what shows without scrolling, as in the README")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    params = {"run": Library(asked.store).find(asked.run)} if asked.run else {}
    with server(asked.store) as address, chromium() as browser:
        for theme in asked.themes:
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=theme)
            for screen in asked.screens:
                open_screen(page, address, screen, **params)
                picture(page, asked.out / f"{screen or 'runs'}_{theme}.png", whole=not asked.fold)
            page.close()


def picture(page: Page, path: Path, *, whole: bool) -> None:
    """Save the page; for the whole of it the window is made as tall as the inner element that Streamlit scrolls."""
    page.wait_for_timeout(1200)  # charts and canvases draw after the script has ended
    if not whole:
        page.screenshot(path=path)
        return
    height = page.evaluate("document.querySelector('[data-testid=\"stMainBlockContainer\"]').scrollHeight + 60")
    page.set_viewport_size({"width": WIDTH, "height": max(HEIGHT, int(height))})
    page.wait_for_timeout(600)
    page.screenshot(path=path)
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


if __name__ == "__main__":
    main()
