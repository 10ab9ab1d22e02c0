"""Structured-trace events → compiles, graph breaks, recompiles and guards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fusionscope.collector.ledger.caches import cache_details
from fusionscope.collector.observations import TraceEvent
from fusionscope.storage.records import Compile, GraphBreak, Guard, Recompile

_USER_CODE = re.compile(r"Graph break in user code at (?P<file>.+):(?P<line>\d+)$", re.M)
_KIND = re.compile(r"^(?P<kind>\S.*)\n  Explanation: ", re.M)  # the line above the explanation is Dynamo's gb_type
_EXPLANATION = re.compile(r"^  Explanation: (.+?)(?=\n  Hint: |\n\n  Developer|\nUser code traceback|\Z)", re.M | re.S)
_REASON_PREFIX = "Graph Break Reason: "
_SKIPPED = "Skipping the function and falling back to eager"
_DEVELOPER = "  Developer debug context: "
_RESUME = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_\d+$")
_RECOMPILE = re.compile(r"(?P<previous>\S+?): (?P<guard>.*)", re.S)
_ACTUAL = re.compile(r"expected .+?, actual (?P<value>.+)$")
_GUARD = re.compile(r"^[| ]*\+- (?P<name>[A-Z_]+): (?P<text>.+)$")
_MANAGER = re.compile(r"^[| ]*\+- \w*GuardManager: source=(?P<source>.+?), accessed_by=")
_AT = re.compile(r"# (?P<file>\S+):(?P<line>\d+) in ")


class Compiles:
    """Follows each compile from its start to its metrics."""

    def __init__(self, began_at_s: float, compile_limit: int | None, backends: Mapping[str, str]) -> None:
        self._began_at_s, self._compile_limit, self._backends = began_at_s, compile_limit, backends
        self._started: dict[str, TraceEvent] = {}
        self._cache: dict[str, tuple[str, str | None]] = {}  # the forward graph's lookup: state and key
        self._with_graph: set[str] = set()
        self._recompile_of: dict[str, str] = {}
        self._asked: list[tuple[TraceEvent, Recompile]] = []  # recompiles whose outcome is not known yet
        self._break_sites: set[tuple[str | None, int | None, str]] = set()
        self._given_up: dict[str, str] = {}  # compile → the break for which Dynamo gave the frame up

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
            yield from self._graph_break(event)
        elif event.name == "recompile_reasons":
            self._recompiles(event)
        elif (event.name or "").startswith("fx_graph_cache_"):
            lookup = (event.name or "").rpartition("_")[2], cache_details(event).get("key")
            self._cache.setdefault(event.compile_id, lookup)
        elif event.kind == "dynamo_cpp_guards_str":
            yield from _guards(event)
        elif event.kind == "compilation_metrics":
            yield self._compile(event)

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
        cache_state, fx_key = self._cache.get(event.compile_id or "", (None, None))
        return Compile(
            compile_id=event.compile_id or "",
            epoch=event.epoch,
            phase=event.phase,
            function=metrics.get("co_name"),
            file=metrics.get("co_filename"),
            line=metrics.get("co_firstlineno"),
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

    def _outcome(self, event: TraceEvent) -> tuple[str, str | None]:
        metrics = event.data
        failure = metrics.get("fail_type")
        if failure and "RecompileLimitExceeded" in failure:
            return "limit", metrics.get("fail_reason")
        if failure and event.compile_id in self._given_up:
            return "skipped", f"{self._given_up[event.compile_id]}: Dynamo left the frame to Python"
        if failure:
            return "failed", f"{failure}: {metrics.get('fail_reason')}"
        if event.compile_id in self._with_graph:
            return "compiled", None
        return "skipped", "no operation to compile: Dynamo left the frame to Python"

    def _graph_break(self, event: TraceEvent) -> Iterator[GraphBreak]:
        text = (event.payload or "").split("\nTraceback (most recent call last)")[0]
        site, kinds = _USER_CODE.search(text), _break_kinds(text)
        file, line = (site["file"], int(site["line"])) if site else (None, None)
        if _SKIPPED in text:
            self._given_up[event.compile_id or ""] = kinds[-1]
        if (file, line, kinds[-1]) in self._break_sites:
            return  # every attempt and every recompile tells it again
        self._break_sites.add((file, line, kinds[-1]))
        hints = [part.strip() for part in re.findall(r"^  Hint: (.+)$", text, re.M)]
        yield GraphBreak(
            compile_id=event.compile_id or "",
            file=file,
            line=line,
            kind=kinds[0],
            reason=_explanation(text),
            hint="\n".join(hints) or None,
            context="\n".join(_context(text, kinds[0])) or None,
        )

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


def _break_kinds(text: str) -> list[str]:
    """The break, and what handling it led to: in a loop, Dynamo cannot go on after it. The last one is torch's own."""
    if kinds := [match["kind"].removeprefix(_REASON_PREFIX) for match in _KIND.finditer(text)]:
        return kinds
    reason = next((line for line in text.splitlines() if line.startswith(_REASON_PREFIX)), None)
    return [reason.removeprefix(_REASON_PREFIX) if reason else (text.strip().splitlines() or ["unnamed"])[0]]


def _explanation(text: str) -> str | None:
    """Each explanation: handling one break may lead to another, such as "in a for/while loop"."""
    return "\n".join(match[1].strip() for match in _EXPLANATION.finditer(text)) or None


def _context(text: str, kind: str) -> Iterator[str]:
    """What Dynamo was tracing when it broke and what it does about it, then its own notes for developers."""
    for line in text.splitlines():
        if line.startswith(_REASON_PREFIX) and kind not in line:
            yield line.removeprefix(_REASON_PREFIX)
        elif line.startswith(_DEVELOPER):
            yield line.removeprefix(_DEVELOPER)


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
