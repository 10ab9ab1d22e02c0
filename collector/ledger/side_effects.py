"""Structured-trace events → mutations that Dynamo replays after the graph, a row per object and place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fusionscope.collector.observations import TraceEvent
from fusionscope.storage.records import SideEffect

# torch/_dynamo/side_effects.py, _format_side_effect_message and _emit_side_effect_messages
_BETWEEN = "\n\n========================================\n\n"
_MESSAGE = re.compile(r"(?P<kind>[^(\n]+?) \((?:source(?: name)?: (?P<target>.+?)\)|no source\))(?:\n| \(unable|$)")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def take(event: TraceEvent) -> Iterator[SideEffect]:
    """The side effects of a compile, when the event tells them."""
    if event.name != "dynamo_side_effects" or event.compile_id is None:
        return
    for message in (event.payload or "").split(_BETWEEN):
        match = _MESSAGE.match(message)
        frames = _FRAME.findall(message)
        file, line = frames[-1] if frames else (None, None)
        yield SideEffect(
            compile_id=event.compile_id,
            kind=match["kind"] if match else message.partition("\n")[0],
            target=match["target"] if match else None,
            file=file,
            line=int(line) if line else None,
        )
