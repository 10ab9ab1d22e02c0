"""A name in monospace that a click copies; it costs the page no syntax highlighter, as st.code would."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

STATIC = Path(__file__).parents[1] / "static"

_NAME = st.components.v2.component(
    "fusionscope_name",
    html='<button class="name" title="Copy"></button>',
    css=(STATIC / "name.css").read_text(),
    js=(STATIC / "name.js").read_text(),
)


def name(text: str, *, key: str) -> None:
    """Show `text`, whole and as text."""
    _NAME(data=text, key=key)
