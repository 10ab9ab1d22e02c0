"""The one kind of table of the app: right-aligned figures with their units that still sort by value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from fusionscope.app.style import MISSING

ROW_PX = 28
MOST_ROWS = 20  # a longer table scrolls
STYLED_CELLS = 60_000  # pandas formats cell by cell: about a second for this many


def table(
    rows: Sequence[Mapping[str, Any]],
    formats: Mapping[str, Callable[[Any], str]] | None = None,
    *,
    key: str,
    choose: bool = False,
    height: int | None = None,
    config: Mapping[str, Any] | None = None,
    colours: Mapping[str, Sequence[str | None]] | None = None,
) -> int | None:
    """Show `rows`, whose keys are the column titles; a figure is written by the format of its column.

    With `choose`, a click on any cell chooses its row: the index of the row in `rows` is returned (kept in session
    state under `key` until another click). `config` is st.dataframe's column_config, for widths. `colours` gives, per
    column, the text colour of every row, None for the usual one.
    """
    frame = pd.DataFrame(list(rows))
    shown = _formatted(frame, formats or {}, colours or {})
    options = _options(frame, key, height, config)
    if not choose:
        st.dataframe(shown, **options)
        return None
    event = st.dataframe(shown, on_select="rerun", selection_mode="single-cell", **options)
    cells = event["selection"]["cells"]
    return cells[0][0] if cells else None


def ticked_table(
    rows: Sequence[Mapping[str, Any]],
    formats: Mapping[str, Callable[[Any], str]],
    *,
    key: str,
    config: Mapping[str, Any],
    colours: Mapping[str, Sequence[str | None]],
) -> tuple[int | None, list[int]]:
    """A `table` whose rows can be clicked and ticked: the row that was clicked, and the ticked ones in order."""
    frame = pd.DataFrame(list(rows))
    shown, options = _formatted(frame, formats, colours), _options(frame, key, None, config)
    event = st.dataframe(shown, on_select="rerun", selection_mode=["multi-row", "single-cell"], **options)
    cells = event["selection"]["cells"]
    return (cells[0][0] if cells else None), sorted(event["selection"]["rows"])


def _options(frame: pd.DataFrame, key: str, height: int | None, config: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "hide_index": True,
        "key": key,
        "height": height or ("content" if len(frame) <= MOST_ROWS else (MOST_ROWS + 1) * ROW_PX),
        "row_height": ROW_PX,
        "column_config": config,
        "placeholder": MISSING,
    }


def _formatted(
    frame: pd.DataFrame,
    formats: Mapping[str, Callable[[Any], str]],
    colours: Mapping[str, Sequence[str | None]],
) -> Any:
    """A pandas Styler keeps the values for sorting and shows the formatted text; too large a frame goes as it is."""
    present = {column: form for column, form in formats.items() if column in frame}
    if frame.size > STYLED_CELLS:
        return frame
    styled = frame.style.format(present, na_rep=MISSING)
    for column, colour in colours.items():
        css = [f"color: {shade}" if shade else "" for shade in colour]
        styled = styled.apply(lambda _, css=css: css, subset=[column])
    return styled
