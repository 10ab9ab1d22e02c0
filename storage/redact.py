"""A run without its source: what may leave the company is what the compiler decided, not the code, paths or hosts.

Kept are names of operators, modules, functions and kernels, shapes, guards, and a file's last name with the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Any

CODE = {
    "graphs": ("code", "output_code"),
    "graph_nodes": ("source_text",),
    "graph_breaks": ("context",),
    "kernels": ("source",),
    "allocations": ("source_text",),
}
WITHHELD = ("kernel_code", "notes")  # all of it is code, or may quote it
HOST = ("host", "cwd", "command", "author", "git_branch")

_FRAME = re.compile(
    r'(File "[^"]*", line \d+[^\n]*)(?:\n[ \t]+[^\n]*)+'
)  # of a traceback, with the lines of code below
_PATH = re.compile(r"(?<![\w.)\]/\\])(?:~|[A-Za-z]:)?(?:[/\\][^\s/\\:'\",;<>|()\[\]]+)+")


def without_source(table: str, records: Iterable[Any], host: str | None) -> Iterator[Any]:
    """The records of a table as they may leave: code is None, folders and the host's name are taken out of texts."""
    if table in WITHHELD:
        return
    blank = dict.fromkeys((*CODE.get(table, ()), *(HOST if table == "runs" else ())))
    for record in records:
        known = {field.name: getattr(record, field.name) for field in fields(record)}
        changed = {name: _clean(value, host) for name, value in known.items() if name not in blank}
        yield replace(record, **blank, **{name: value for name, value in changed.items() if value is not known[name]})


def _clean(value: Any, host: str | None) -> Any:
    if isinstance(value, tuple):
        return tuple(_clean(text, host) for text in value)
    if not isinstance(value, str):
        return value
    text = _PATH.sub(_last_name, _FRAME.sub(r"\1", value))
    return text.replace(host, "host") if host and len(host) > 1 else text


def _last_name(found: re.Match[str]) -> str:
    """`/home/ada/models/mlp.py` becomes `mlp.py`; a division and a graph's `0/0.forward` are no paths."""
    return re.split(r"[/\\]", found.group())[-1]
