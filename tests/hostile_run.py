"""The example run with the names that an unkind model could bear: markup, Markdown, ends of scripts, endless ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from example_graph import SOURCE
from example_run import example_records, example_run, publish

HOSTILE_ID = "20260102-060708-bad000"
NAMES = {
    "exp": "</script><script>window.hacked = 1</script>",
    "sub": "<img src=http://evil.example/a.png onerror=window.hacked=1>",
    "relu": "![x](http://evil.example/b.png) $x$ :red[y] `z`",
    "addmm": "a" * 10_000,
    "sum_1": "\u202egnp.exe\u2066\u202c",
    "div": 'x" onload="window.hacked=1" y="',
    "layers.0": "<b>layers</b>.0",
    "layers.1": "javascript:window.hacked=1",
    SOURCE: "/models/<svg onload=window.hacked=1>.py",
    "x = torch.relu(layer(x))": "x = '</textarea><script>window.hacked=1</script>'",
    "cpp_fused__softmax_1": "<iframe src=http://evil.example/c.html></iframe>",
    "cpp_fused_relu_0": "]]><script>window.hacked=1</script>",
}


def publish_hostile(store: Path) -> str:
    """Record it into `store`; returns its run id."""
    return publish(store, example_run(HOSTILE_ID, NAMES["exp"]), list(_records()))


def _records() -> Iterator[Any]:
    for record in example_records():
        yield replace(record, **{field.name: _renamed(getattr(record, field.name)) for field in fields(record)})


def _renamed(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_renamed, value))
    return NAMES.get(value, value) if isinstance(value, str) else value
