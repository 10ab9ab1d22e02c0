"""The fusion graph as an SVG file, and as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from fusionscope.app import style
from fusionscope.app.figures.dag import Frame, KernelGraph

MARGIN = 24
INK, PAPER, LINE, SAVED = "#1E2227", "#FDFCFA", "#C9C4B8", "#CC79A7"
FONT = "'Source Code Pro', ui-monospace, monospace"
LINES: dict[str, tuple[str, str, float]] = {  # colour, dashes, opacity
    "memory": (INK, "", 0.45),
    "register": (INK, "2 3", 0.45),
    "saved": (SAVED, "", 0.6),
    "refused": (style.LOSS, "6 4", 0.9),
}
STATIC = Path(__file__).parents[1] / "static"


def as_svg(drawn: KernelGraph, title: str) -> str:
    """The picture at scale 1. Names are text nodes; the pointer shows them whole."""
    heat = any("ramp" in entry for entry in drawn.legend)
    width, height = drawn.width + 2 * MARGIN, drawn.height + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-MARGIN} {-MARGIN} {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="{FONT}" font-size="12" role="img">',
        f"<title>{_text(title)}</title>",
        f'<rect x="{-MARGIN}" y="{-MARGIN}" width="{width:.0f}" height="{height:.0f}" fill="{PAPER}"/>',
        _hatching(),
        *(_heading(heading.text, heading.x, heading.y) for heading in drawn.headings),
        *map(_frame, drawn.frames),
        *map(_edge, drawn.network.edges),
        *(line for node in drawn.network.nodes for line in _box(node, heat)),
        "</svg>",
    ]
    return "\n".join(parts)


def as_html(drawn: KernelGraph, title: str) -> str:
    """A page with the picture, a search and the same as a table; it asks for nothing from anywhere."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    css, js = ((STATIC / f"offline.{kind}").read_text() for kind in ("css", "js"))
    rows = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in _rows(drawn))
    legend = "".join(map(_entry, drawn.legend))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{_text(title)}</title><style>{css}</style></head><body>
<header><h1>{_text(title)}</h1><p>{legend}</p><label>Search <input></label></header>
{as_svg(drawn, title)}
<table><thead><tr><th>box</th><th>shows</th><th>is</th></tr></thead><tbody>{rows}</tbody></table>
<script>{js}</script></body></html>
"""


def _entry(entry: dict[str, str]) -> str:
    """An entry of the legend: a swatch of its colour, the scale between its ends, or the name of a mark."""
    if "ramp" in entry:
        ramp = f'<i class="ramp" style="background: linear-gradient(90deg, {entry["ramp"]})"></i>'
        return f"<span>{_text(entry['name'])}: {_text(entry['low'])} {ramp} {_text(entry['high'])}</span>"
    look = f'style="background: {entry["colour"]}"' if "colour" in entry else f'class="{entry["mark"]}"'
    return f"<span><i {look}></i>{_text(entry['name'])}</span>"


def _rows(drawn: KernelGraph) -> Iterable[tuple[str, str, str]]:
    for node in drawn.network.nodes:
        yield node["id"], "\n".join(node["lines"]), node["title"]


def _text(text: str) -> str:
    """Escaped, without the control characters that XML has no place for."""
    return escape(
        "".join(c if c >= " " or c in "\n\t" else " " for c in text).replace("\ufffe", "").replace("\uffff", "")
    )


def _hatching() -> str:
    return (
        '<defs><pattern id="again" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<line x1="0" y1="0" x2="0" y2="6" stroke="{INK}" stroke-opacity="0.35"/></pattern></defs>'
    )


def _heading(text: str, x: float, y: float) -> str:
    return f'<text x="{x:.0f}" y="{y + 10:.0f}" fill="{INK}" opacity="0.62" font-weight="600">{_text(text)}</text>'


def _frame(frame: Frame) -> str:
    colour = style.KIND_COLOURS.get(frame.work, LINE)
    return (
        f'<g><title>{_text(frame.title)}</title><rect x="{frame.x}" y="{frame.y}" width="{frame.width}" '
        f'height="{frame.height}" rx="8" fill="{colour}" fill-opacity="0.08" stroke="{colour}"/>'
        f'<text x="{frame.x + 11}" y="{frame.y + 18}" fill="{INK}" opacity="0.75">{_text(frame.label)}</text></g>'
    )


def _edge(edge: dict[str, Any]) -> str:
    colour, dashes, opacity = LINES[edge["kind"]]
    return (
        f'<path d="{" ".join(_path(edge))}" fill="none" stroke="{colour}" stroke-width="{edge["width"]}" '
        f'stroke-dasharray="{dashes}" stroke-opacity="{opacity}"><title>{_text(edge["title"])}</title></path>'
    )


def _path(edge: dict[str, Any]) -> Iterator[str]:
    """Straight where x or y stays the same, else a curve from row to row."""
    points = list(zip(edge["route"][::2], edge["route"][1::2], strict=True))
    yield f"M{points[0][0]} {points[0][1]}"
    for (ax, ay), (bx, by) in pairwise(points):
        middle = (ay + by) / 2
        straight = ay == by or ax == bx or edge["kind"] in ("saved", "refused")
        yield f"L{bx} {by}" if straight else f"C{ax} {middle} {bx} {middle} {bx} {by}"


def _box(node: dict[str, Any], heat: bool) -> Iterator[str]:
    """A box in the tint of its kind, or in the full colour of its figure."""
    ink, opacity = (_ink_on(node["fill"]), 0.94) if heat else (INK, 0.28)
    width, height = node["boxWidth"], node["boxHeight"]
    left, top = node["x"] - width / 2, node["y"] - height / 2
    place = f'x="{left:.0f}" y="{top:.0f}" width="{width}" height="{height}" rx="5"'
    yield f'<g class="box"><title>{_text(node["title"])}</title><rect {place} fill="{PAPER}"/>'
    yield f'<rect {place} fill="{node["fill"]}" fill-opacity="{opacity}" stroke="{node["fill"]}"/>'
    if "again" in node["marks"]:
        yield f'<rect {place} fill="url(#again)"/>'
    if "library" in node["marks"]:
        yield (
            f'<rect x="{left + 2.5}" y="{top + 2.5}" width="{width - 5}" height="{height - 5}" rx="3" fill="none" '
            f'stroke="{ink}" stroke-opacity="0.5"/>'
        )
    if "copy" in node["marks"]:
        right, bottom = left + width, top + height
        yield f'<path d="M{right - 13} {bottom}L{right} {bottom - 13}L{right} {bottom}Z" fill="{style.LOSS}"/>'
    for i, line in enumerate(node["lines"]):
        weight = "600" if i == 0 else "400"
        yield (
            f'<text x="{left + 12:.0f}" y="{top + 17 + 16 * i:.0f}" fill="{ink}" font-weight="{weight}" '
            f'direction="ltr" unicode-bidi="isolate-override">{_text(line)}</text>'
        )
    yield "</g>"


def _ink_on(colour: str) -> str:
    """Dark or light, whichever is legible on a colour; the weights are those of Rec. 601 luma."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#FFFFFF"
