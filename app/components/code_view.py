"""Source text with numbered lines, some of them lit; the text is set as text, never as HTML."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import streamlit as st

STATIC = Path(__file__).parents[1] / "static"

_VIEW = st.components.v2.component(
    "fusionscope_code",
    html='<div class="code" tabindex="0"></div>',
    css=(STATIC / "code_view.css").read_text(),
    js=(STATIC / "code_view.js").read_text(),
)


def code_view(text: str, lit: Collection[int], *, height: int, key: str) -> None:
    """Show `text`, scrolled to the first of the lines (from 1) that are `lit`."""
    _VIEW(data={"text": text, "lit": sorted(lit), "height": height}, key=key)
