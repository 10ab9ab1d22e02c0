"""Structured-trace events → graph breaks: distinct sites, why Dynamo broke there, and how often each ran."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from fusionscope.collector.observations import TraceEvent
from fusionscope.storage.records import Compile, GraphBreak

_USER_CODE = re.compile(r"Graph break in user code at (?P<file>.+):(?P<line>\d+)$", re.M)
_KIND = re.compile(r"^(?P<kind>\S.*)\n  Explanation: ", re.M)  # the line above the explanation is Dynamo's gb_type
_EXPLANATION = re.compile(r"^  Explanation: (.+?)(?=\n  Hint: |\n\n  Developer|\nUser code traceback|\Z)", re.M | re.S)
_REASON_PREFIX = "Graph Break Reason: "
_SKIPPED = "Skipping the function and falling back to eager"
_DEVELOPER = "  Developer debug context: "
_FUNCTION = re.compile(r'^  File ".+", line \d+, in (?P<name>.+)$', re.M)
_RESUME = "torch_dynamo_resume_in_{}_at_{}"  # torch/_dynamo/resume_execution.py
_VERSION = re.compile(r"/\d+(?=@|$)")  # of a compile id: which compilation of its frame

ENDED = "the run ended before its calls were counted"
IN_PYTHON = "Python runs the frame of the break, uncounted"
FATAL = "torch raised an error in its place, since fullgraph asks for no break"
OLDER = "the frame was compiled before the recording as well"
UNCOUNTED = "no graph of Inductor runs just before or just after the break, by which it could be counted"


@dataclass(slots=True)
class _Site:
    record: GraphBreak
    function: str | None  # whose code holds the break
    told_by: set[str] = field(default_factory=set)  # compiles: of that function, and of those that it was inlined in


class Breaks:
    """Keeps one site of what every attempt, every recompile and every caller tells again."""

    def __init__(self, calls: Mapping[str, int]) -> None:
        self._calls = calls  # compile → how often the program ran its graph
        self._sites: dict[tuple[str | None, int | None, str], _Site] = {}
        self._compiles: dict[str, Compile] = {}
        self.given_up: dict[str, str] = {}  # compile → the break for which Dynamo gave the frame up

    def take(self, event: TraceEvent) -> Iterator[GraphBreak]:
        """The site, where it is new."""
        text = (event.payload or "").split("\nTraceback (most recent call last)")[0]
        found, kinds, compile_id = _USER_CODE.search(text), _break_kinds(text), event.compile_id or ""
        file, line = (found["file"], int(found["line"])) if found else (None, None)
        if _SKIPPED in text:
            self.given_up[compile_id] = kinds[-1]
        if (key := (file, line, kinds[-1])) not in self._sites:
            record = _record(compile_id, file, line, text, kinds[0])
            functions = _FUNCTION.findall(text)
            self._sites[key] = _Site(record, functions[-1] if functions else None)
            yield record
        self._sites[key].told_by.add(compile_id)

    def fatal(self, event: TraceEvent) -> Iterator[GraphBreak]:
        """The break for which a compile failed: torch logs it nowhere but in the metrics."""
        file, line = event.data.get("fail_user_frame_filename"), event.data.get("fail_user_frame_lineno")
        kind = _break_kinds(text := event.data["fail_reason"])[0]
        record = replace(_record(event.compile_id or "", file, line, text, kind), executions_reason=FATAL)
        self._sites[file, line, f"fatal {kind}"] = _Site(record, None)
        yield record

    def compiled(self, compile: Compile) -> None:
        """Note how a compile ended: whether a graph runs before the breaks that it told."""
        self._compiles[compile.compile_id] = compile

    def counted(self) -> list[GraphBreak]:
        """Every site with the number of times that the program ran it, or why that is not known."""
        return [self._counted(site) for site in self._sites.values()]

    def before_any_operation(self, compile_id: str) -> str | None:
        """The kind of the break that a compile met, for one that has no graph."""
        return next((site.record.kind for site in self._sites.values() if compile_id in site.told_by), None)

    def _counted(self, site: _Site) -> GraphBreak:
        """A frame runs its graph once and then meets its break; what resumes it runs a graph once after that."""
        if site.record.executions_reason == FATAL:
            return site.record
        own = [self._compiles[c] for c in site.told_by if self._holds(site, c)]
        frame = [c for c in self._compiles.values() if _code(c) in {_code(compile) for compile in own}]
        if not own or any(self._left_to_python(compile) for compile in frame):
            return replace(site.record, executions_reason=IN_PYTHON)
        if any(_VERSION.sub("/0", compile.compile_id) not in self._compiles for compile in own):
            return replace(site.record, executions_reason=OLDER)
        calls = self._total(own)
        if calls is None:
            calls = self._total(self._resuming(site))
        return replace(site.record, executions=calls, executions_reason=UNCOUNTED if calls is None else None)

    def _holds(self, site: _Site, compile_id: str) -> bool:
        """Whether the break is in the compiled frame's own code, not in a function that was inlined."""
        compile = self._compiles.get(compile_id)
        return (
            compile is not None
            and compile.file == site.record.file
            and (compile.resume_of or compile.function) == site.function
        )

    def _left_to_python(self, compile: Compile) -> bool:
        return compile.outcome in ("limit", "failed") or compile.compile_id in self.given_up

    def _total(self, compiles: list[Compile]) -> int | None:
        counts = [self._calls.get(compile.compile_id) for compile in compiles]
        return None if not counts or None in counts else sum(filter(None, counts))

    def _resuming(self, site: _Site) -> list[Compile]:
        """Compiles of the functions that go on after the break; none where another break shares its line."""
        file, line = site.record.file, site.record.line
        if len([key for key in self._sites if key[:2] == (file, line)]) > 1:
            return []
        name = _RESUME.format(site.function, line)
        return [c for c in self._compiles.values() if (c.function, c.file) == (name, file)]


def _code(compile: Compile) -> tuple[str | None, str | None, int | None]:
    return compile.function, compile.file, compile.line


def _record(compile_id: str, file: str | None, line: int | None, text: str, kind: str) -> GraphBreak:
    hints = [part.strip() for part in re.findall(r"^  Hint: (.+)$", text, re.M)]
    return GraphBreak(
        compile_id=compile_id,
        file=file,
        line=line,
        kind=kind,
        reason=_explanation(text),
        hint="\n".join(hints) or None,
        executions_reason=ENDED,
        context="\n".join(_context(text, kind)) or None,
    )


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
