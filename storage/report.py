"""A comparison in sections of words: for the terminal, a comment in Markdown, a JUnit file, a page of HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from fusionscope.storage.budgets import Judgement
from fusionscope.storage.queries.changes import AREAS, Change
from fusionscope.storage.queries.deltas import BEYOND, INSIDE, SHARED, Delta
from fusionscope.storage.queries.diff import Diff
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.reasons import REASONS
from fusionscope.storage.text import bytes_, count, microseconds, or_dash, ratio, table

MOST_ROWS = 40  # of a section
NOISE = (
    "Times are medians with the 10–90 % interval of their samples, the baseline's over its repeats as well. A change "
    "is one where the intervals stand apart, and by more than eager and compiled code, sampled in turn, moved together."
)
SHOWN = ("kernels", "peak_bytes", "latency_us", "device_us", "host_us", "first_call_s")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, a sentence, a table; `rows` are data, whatever they look like."""

    title: str
    sentence: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()


def sections(diff: Diff, judgements: Sequence[Judgement] = ()) -> Iterator[Section]:
    """What a reader needs in order: the verdict, what spoils the comparison, figures, then what differs."""
    yield Section(f"{diff.before.name} → {diff.after.name}", f"{described(diff.before)} → {described(diff.after)}")
    if judgements:
        failed = sum(not j.passed for j in judgements)
        judged = tuple(("passed" if j.passed else "FAILED", j.budget, j.reason) for j in judgements)
        yield Section("Budgets", f"{failed} of {len(judgements)} failed.", ("", "budget", "why"), judged)
    if diff.incomparable:
        unlike = tuple((i.what, i.before, i.after, i.spoils) for i in diff.incomparable)
        yield Section("Not alike", "What makes the runs hard to compare.", ("what", "A", "B", "spoils"), unlike)
    if diff.deltas:
        figures = tuple(_figure(delta) for delta in diff.deltas if delta.metric in SHOWN)
        yield Section("Figures", NOISE, _FIGURES, figures)
    yield from _changes(diff.changes)


def described(run: RunSummary) -> str:
    """`mlp of 2 Jan 03:04 (id), device, torch`."""
    device = " on ".join(filter(None, (f"torch {run.torch_version}", run.device)))
    return f"{run.name}, {run.created_at:%Y-%m-%d %H:%M} ({run.run_id}), {device}"


def _changes(changes: Sequence[Change]) -> Iterator[Section]:
    if all(change.area == "options" for change in changes):
        yield Section("Decisions", "No decision differs.")
    for area, title in AREAS.items():
        found = [change for change in changes if change.area == area]
        if found:
            more = f"; the first {MOST_ROWS} are listed" if len(found) > MOST_ROWS else ""
            rows = tuple(_row(change) for change in found[:MOST_ROWS])
            yield Section(title, f"{len(found)} differ{'s' if len(found) == 1 else ''}{more}.", _HEAD, rows)


_HEAD = ("", "what", "where", "A", "B")
_FIGURES = ("quantity", "variant", "A", "B", "change", "noise")


def _row(change: Change) -> tuple[object, ...]:
    return change.status, what_of(change), change.where, change.before, change.after


def what_of(change: Change) -> str:
    """What differs, in words: of a refusal torch's reason, of a kernel also in what."""
    if change.area == "refusals" and change.what in REASONS:
        return f"{change.what}: {REASONS[change.what].sentence}"
    return f"{change.what}: {', '.join(change.differs)}" if change.differs else change.what


def _figure(delta: Delta) -> tuple[object, ...]:
    form = form_of(delta.unit)
    before, after = (
        f"{form(value)}{interval(delta.unit, bounds)}"
        for value, bounds in ((delta.before, delta.before_range), (delta.after, delta.after_range))
    )
    return delta.metric, delta.variant, before, after, change_of(delta), noise(delta)


def change_of(delta: Delta) -> str:
    """`+3.2%`; from twice as much on `2.4×`."""
    if delta.after == delta.before:
        return "the same"
    if delta.share is None:
        return ""
    return f"{ratio(delta.share + 1)}" if delta.share >= 1 else f"{delta.share:+.1%}"


def interval(unit: str, bounds: tuple[float, float] | None) -> str:
    """` (412 µs – 1.2 ms)`; nothing where there is none."""
    form = form_of(unit)
    return "" if bounds is None else f" ({form(bounds[0])} – {form(bounds[1])})"


def noise(delta: Delta) -> str:
    """Whether a change is one, in words."""
    words = {INSIDE: "inside the noise", SHARED: f"{delta.control} moved alike", BEYOND: "beyond the noise"}
    if delta.noise is None:
        return ""
    untested = ", no repeat of the baseline" if delta.noise == BEYOND else ""
    return words[delta.noise] + (f", {delta.repeats} repeats of the baseline" if delta.repeats else untested)


def form_of(unit: str) -> Callable[[float | None], str | None]:
    """How a quantity of that unit is written."""
    return {"us": microseconds, "s": lambda s: None if s is None else microseconds(s * 1e6), "bytes": bytes_}.get(
        unit, count
    )


# Forms


def as_text(parts: Iterable[Section]) -> str:
    """For the terminal."""
    return "\n\n".join(f"{p.title}\n{p.sentence}" + (f"\n{table(p.head, p.rows)}" if p.rows else "") for p in parts)


def as_markdown(parts: Iterable[Section]) -> str:
    """For a comment on a pull request; cells are data, so every character that Markdown reads is escaped."""
    return "\n\n".join(_markdown(part) for part in parts) + "\n"


def _markdown(part: Section) -> str:
    lines = [f"### {_escaped(part.title)}", "", _escaped(part.sentence)]
    if part.rows:
        lines += ["", _line(part.head), "|" + " --- |" * len(part.head), *map(_line, part.rows)]
    return "\n".join(lines)


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join("" if cell is None else _escaped(or_dash(cell)) for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Backslashes keep Markdown from reading it, entities keep HTML, mentions and links from being made of it."""
    safe = html.escape(re.sub(r"([\\`*_{}\[\]()#+!|~$])", r"\\\1", text), quote=False)
    return safe.replace("@", "&#64;").replace("://", "&#58;//").replace("www.", "www&#46;")


def as_junit(judgements: Sequence[Judgement]) -> str:
    """A test per budget, for what reads JUnit's XML."""
    failed = str(sum(not j.passed for j in judgements))
    suite = ElementTree.Element("testsuite", name="fusionscope diff", tests=str(len(judgements)), failures=failed)
    for judgement in judgements:
        case = ElementTree.SubElement(suite, "testcase", classname="fusionscope.budget", name=judgement.budget)
        if not judgement.passed:
            ElementTree.SubElement(case, "failure", message=_printable(judgement.reason))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """XML has no control characters, not even escaped."""
    return "".join(c if c.isprintable() else " " for c in text)


def as_html(title: str, parts: Iterable[Section]) -> str:
    """One page that needs nothing else: no script, no other file, no request."""
    body = "\n".join(_html(part) for part in parts)
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    return (
        f"<!doctype html>\n<html lang=en><head>{head}<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _html(part: Section) -> str:
    text = f"<h2>{html.escape(part.title)}</h2>\n<p>{html.escape(part.sentence)}</p>"
    if not part.rows:
        return text
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in part.head)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(or_dash(c))}</td>" for c in row) + "</tr>" for row in part.rows
    )
    return f"{text}\n<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"


_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; font: 14px/1.45 system-ui, sans-serif; }
body { margin: 0; background: light-dark(#FDFCFA, #15181B); color: light-dark(#1E2227, #E3E1DC); }
main { max-width: 1200px; margin: 0 auto; padding: 2rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 0.3rem; } h2:first-child { font-size: 1.4rem; margin-top: 0; }
p { margin: 0 0 0.6rem; max-width: 120ch; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 1rem 0.25rem 0; white-space: pre-wrap;
  border-bottom: 1px solid light-dark(#E1DED7, #32373E); overflow-wrap: anywhere; }
th { font-weight: 500; opacity: 0.65; }
pre { font: 12px/1.4 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
"""
