"""Source text with numbered lines, some of them lit; the text is set as text, never as HTML."""

from __future__ import annotations

from collections.abc import Collection

import streamlit as st

CSS = """
.code { font: 12px/1.5 var(--st-code-font); background: var(--st-code-background-color); color: var(--st-text-color);
  border-radius: 4px; overflow: auto; padding: 6px 0; tab-size: 4; }
.code div { display: flex; white-space: pre; width: max-content; min-width: 100%; padding-right: 12px; box-sizing: border-box; }
.code div::before { content: attr(data-line); flex: 0 0 3.2em; text-align: right; padding-right: 1em; opacity: 0.45; user-select: none; }
.code .lit { background: color-mix(in srgb, var(--st-primary-color) 22%, transparent); box-shadow: inset 3px 0 var(--st-primary-color); }
"""
JS = """
export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".code");
  root.style.maxHeight = `${data.height}px`;
  const lit = new Set(data.lit);
  root.replaceChildren(...data.text.split("\\n").map((text, i) => {
    const line = document.createElement("div");
    line.dataset.line = i + 1;
    line.textContent = text;
    if (lit.has(i + 1)) line.className = "lit";
    return line;
  }));
  const first = root.querySelector(".lit");
  root.scrollTop = first ? Math.max(0, first.offsetTop - root.offsetTop - data.height / 3) : 0;
}
"""

_VIEW = st.components.v2.component("fusionscope_code", html='<div class="code" tabindex="0"></div>', css=CSS, js=JS)


def code_view(text: str, lit: Collection[int], *, height: int, key: str) -> None:
    """Show `text`, scrolled to the first of the lines (from 1) that are `lit`."""
    _VIEW(data={"text": text, "lit": sorted(lit), "height": height}, key=key)
