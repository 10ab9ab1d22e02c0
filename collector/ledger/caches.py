"""Structured-trace events → lookups in torch's compile caches."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from fusionscope.collector.observations import TraceEvent
from fusionscope.storage.records import CacheEvent

_NAME = re.compile(r"(?P<cache>fx_graph|aotautograd)_cache_(?P<state>hit|miss|bypass)$")


def take(event: TraceEvent) -> Iterator[Any]:
    """A cache lookup, when the event is one."""
    match = _NAME.match(event.name or "")
    if match is None or event.compile_id is None:
        return
    details = cache_details(event)
    saved_ns = details.get("time_saved_ns")
    yield CacheEvent(
        compile_id=event.compile_id,
        cache=match["cache"],
        key=details.get("key"),
        state=match["state"],
        reason=details.get("cache_bypass_reason"),
        saved_s=None if saved_ns is None else saved_ns / 1e9,
    )


def cache_details(event: TraceEvent) -> dict[str, Any]:
    """The JSON payload of a cache event: key, time saved, reason of a bypass; empty where it is no JSON."""
    try:
        details = json.loads(event.payload or "{}")
    except ValueError:
        return {}
    return details if isinstance(details, dict) else {}
