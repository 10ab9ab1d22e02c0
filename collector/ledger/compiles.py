"""Structured-trace events → compiles, recompiles and guards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fusionscope.collector.ledger.breaks import Breaks
from fusionscope.collector.ledger.caches import cache_details
from fusionscope.collector.observations import TraceEvent
from fusionscope.storage.records import Compile, GraphBreak, Guard, Recompile

_RESUME = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_\d+$")
_RECOMPILE = re.compile(r"(?P<previous>\S+?): (?P<guard>.*)", re.S)
_ACTUAL = re.compile(r"expected .+?, actual (?P<value>.+)$")
_GUARD = re.compile(r"^[| ]*\+- (?P<name>[A-Z_]+): (?P<text>.+)$")
_MANAGER = re.compile(r"^[| ]*\+- \w*GuardManager: source=(?P<source>.+?), accessed_by=")
_AT = re.compile(r"# (?P<file>\S+):(?P<line>\d+) in ")


class Compiles:
    """Follows each compile from its start to its metrics."""

    def __init__(
        self, began_at_s: float, compile_limit: int | None, backends: Mapping[str, str], calls: Mapping[str, int]
    ) -> None:
        self._began_at_s, self._compile_limit, self._backends = began_at_s, compile_limit, backends
        self._started: dict[str, TraceEvent] = {}
        self._cache: dict[str, tuple[str, str | None]] = {}  # the forward graph's lookup: state and key
        self._with_graph: set[str] = set()
        self._recompile_of: dict[str, str] = {}
        self._asked: list[tuple[TraceEvent, Recompile]] = []  # recompiles whose outcome is not known yet
        self._codes: dict[tuple[str, int], tuple[str | None, str | None, int | None]] = {}  # frame → name, file, line
        self._breaks = Breaks(calls)

    def take(self, event: TraceEvent) -> Iterator[Any]:
        """Records that this event completes."""
        if event.compile_id is None:
            return
        if event.kind == "dynamo_start":
            self._started[event.compile_id] = event
            yield from self._settle(event.compile_id)
        elif event.kind == "dynamo_output_graph":
            self._with_graph.add(event.compile_id)
        elif event.name == "dynamo_graph_break_reason":
            yield from self._breaks.take(event)
        elif event.name == "recompile_reasons":
            self._recompiles(event)
        elif (event.name or "").startswith("fx_graph_cache_"):
            lookup = (event.name or "").rpartition("_")[2], cache_details(event).get("key")
            self._cache.setdefault(event.compile_id, lookup)
        elif event.kind == "dynamo_cpp_guards_str":
            yield from _guards(event)
        elif event.kind == "compilation_metrics":
            compiled = self._compile(event)
            self._breaks.compiled(compiled)
            yield compiled
            if compiled.outcome == "failed" and event.data["fail_type"] == "Unsupported":
                yield from self._breaks.fatal(event)

    def breaks(self) -> list[GraphBreak]:
        """Every break so far, with how often it ran."""
        return self._breaks.counted()

    def finish(self) -> Iterator[Any]:
        """Compiles that never ended, and recompiles that torch refused: asked for and never started."""
        for _, recompile in self._asked:
            yield replace(recompile, outcome="refused")
        for compile_id, event in self._started.items():
            yield Compile(
                compile_id=compile_id,
                epoch=event.epoch,
                phase=event.phase,
                outcome="failed",
                reason="the compile did not end while it was recorded",
                attempts=(event.attempt or 0) + 1,
                start_s=event.at_s - self._began_at_s,
            )

    def _compile(self, event: TraceEvent) -> Compile:
        metrics = event.data
        started = self._started.pop(event.compile_id or "", None)
        resume = _RESUME.match(metrics.get("co_name") or "")
        outcome, reason = self._outcome(event)
        function, file, line = self._code_of(event)
        cache_state, fx_key = self._cache.get(event.compile_id or "", (None, None))
        return Compile(
            compile_id=event.compile_id or "",
            epoch=event.epoch,
            phase=event.phase,
            function=function,
            file=file,
            line=line,
            outcome=outcome,
            reason=reason,
            attempts=max(started.attempt or 0 if started else 0, event.attempt or 0) + 1,
            backend=self._backends.get(event.compile_id or ""),
            resume_of=resume["function"] if resume else None,
            recompile_of=self._recompile_of.get(event.compile_id or ""),
            fx_key=fx_key,
            cache_state=cache_state,
            start_s=started.at_s - self._began_at_s if started else None,
            duration_s=metrics.get("entire_frame_compile_time_s"),
        )

    def _code_of(self, event: TraceEvent) -> tuple[str | None, str | None, int | None]:
        """Name, file and line of the frame; torch leaves them out where it refuses to compile it once more."""
        told = event.data.get("co_name"), event.data.get("co_filename"), event.data.get("co_firstlineno")
        frame = (event.compile_id or "").rpartition("/")[0], event.epoch
        return self._codes.get(frame, told) if told[0] is None else self._codes.setdefault(frame, told)

    def _outcome(self, event: TraceEvent) -> tuple[str, str | None]:
        metrics = event.data
        failure = metrics.get("fail_type")
        if failure and any(asked.compile_id == event.compile_id for asked, _ in self._asked):  # and not begun
            return "limit", metrics.get("fail_reason")
        if failure and event.compile_id in self._breaks.given_up:
            return "skipped", f"{self._breaks.given_up[event.compile_id]}: Dynamo left the frame to Python"
        if failure:
            return "failed", f"{failure}: {metrics.get('fail_reason')}"
        if event.compile_id in self._with_graph:
            return "compiled", None
        if (kind := self._breaks.before_any_operation(event.compile_id or "")) is not None:
            return "skipped", f"no operation to compile before the break: {kind}"
        return "skipped", "no operation to compile: Dynamo left the frame to Python"

    def _recompiles(self, event: TraceEvent) -> None:
        for reason in _as_list(event.payload or ""):
            match = _RECOMPILE.match(reason)
            previous = _in_epoch(match["previous"], event.epoch) if match else None
            guard = (match["guard"] if match else reason).splitlines()[0].split("  # ")[0].strip()
            actual = _ACTUAL.search(guard)
            if previous is not None:
                self._recompile_of.setdefault(event.compile_id or "", previous)
            recompile = Recompile(
                compile_id=event.compile_id or "",
                previous_compile_id=previous,
                guard=guard,
                guard_value=actual["value"] if actual else None,
                reason=reason,
                compile_limit=self._compile_limit,
            )
            self._asked.append((event, recompile))

    def _settle(self, compile_id: str) -> Iterator[Recompile]:
        """The compile that a recompile asked for has begun."""
        yield from (recompile for event, recompile in self._asked if event.compile_id == compile_id)
        self._asked = [pair for pair in self._asked if pair[0].compile_id != compile_id]


def _in_epoch(torch_id: str, epoch: int) -> str:
    return f"{torch_id}@{epoch}" if epoch else torch_id


def _as_list(payload: str) -> list[str]:
    """torch marks the payload as JSON, yet writes a single reason as bare text."""
    try:
        reasons = json.loads(payload)
    except ValueError:
        return [payload]
    return [str(reason) for reason in reasons] if isinstance(reasons, list) else [str(reasons)]


def _guards(event: TraceEvent) -> Iterator[Guard]:
    source = None
    for text in (event.payload or "").splitlines():
        if manager := _MANAGER.match(text):
            source = manager["source"]
        elif guard := _GUARD.match(text):
            expression, *comment = re.split(r"\s+# ", guard["text"], maxsplit=1)
            at = _AT.search("# " + comment[0]) if comment else None
            yield Guard(
                compile_id=event.compile_id or "",
                expression=f"{guard['name']}: {expression}",
                source=source,
                file=f"…{at['file']}" if at else None,  # torch keeps only the end of the path
                line=int(at["line"]) if at else None,
            )
