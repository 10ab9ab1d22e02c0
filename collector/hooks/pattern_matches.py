"""Patterns that were applied to a graph, and those that came near: matched but refused, or held back by other users.

PatternMatcherPass.apply tries each pattern at each node (torch/_inductor/pattern_matcher.py): it matches, then asks the
pattern's own check, then applies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, located, patched, unmet
from fusionscope.storage.records import PassChange

NAME = "pattern_matches"
RECORDS = (PassChange,)
_MODULE = "torch._inductor.pattern_matcher"
_MATCHES = (f"{_MODULE}:PatternExpr.match", f"{_MODULE}:MultiOutputPattern.match")
_APPLIES = tuple(f"{_MODULE}:{kind}PatternEntry.apply" for kind in ("Replacement", "Graph", "Lowering"))
TARGETS: dict[str, tuple[str, ...]] = {
    f"{_MODULE}:PatternMatcherPass.apply": ("gm",),
    **dict.fromkeys(_MATCHES, ("node",)),
    **dict.fromkeys(_APPLIES, ("match", "node")),
    f"{_MODULE}:FailedMatch": ("format_string",),
}

_OTHER_USERS = "multiple_users {}"  # torch's reason of a match that failed so, with the pattern inside as argument
REFUSED = "it matched, but its own check refused it, or a mutation lies in between"
OTHER_USERS = "it would match, but the value of {} is also used elsewhere"


def problem() -> str | None:
    """The methods keep their parameters from torch 2.11 on; a replacement's name came with 2.13."""
    return unmet(TARGETS)


@dataclass(frozen=True, slots=True)
class _Match:
    pattern: str
    node: str
    nodes: int


@dataclass(slots=True)
class _Pass:
    """A pass at work: what its patterns are called, and how often each did what."""

    names: dict[int, str]  # id of a pattern → name
    counts: dict[tuple[str, str, str | None], list[int]] = field(default_factory=dict)  # → [times, nodes]
    latest: _Match | None = None  # until it is applied or the next pattern matches
    held_back: set[tuple[str, str]] = field(default_factory=set)  # (node, value with other users)

    def note(self, pattern: str, outcome: str, reason: str | None, nodes: int) -> None:
        count = self.counts.setdefault((pattern, outcome, reason), [0, 0])
        count[0] += 1
        count[1] += nodes

    def settle(self) -> None:
        """The latest match was not applied."""
        if self.latest is not None:
            self.note(self.latest.pattern, "near_miss", REFUSED, self.latest.nodes)
            self.latest = None

    def records(self, pass_name: str, graph_id: str) -> Iterator[PassChange]:
        for (pattern, outcome, reason), (times, nodes) in self.counts.items():
            yield PassChange(
                graph_id=graph_id,
                pass_name=pass_name,
                pattern=pattern,
                outcome=outcome,
                reason=reason,
                count=times,
                nodes_removed=nodes if outcome == "applied" else None,
            )


class _Thread(threading.local):
    def __init__(self) -> None:
        self.passes: list[_Pass] = []  # a pattern's check may run passes of its own


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note what comes of each match."""
    from torch._inductor.pattern_matcher import FailedMatch

    here = _Thread()

    def wrap_pass(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(patterns: Any, *args: Any, **kwargs: Any) -> Any:
            with emit.guarded():
                here.passes.append(_Pass(_names(patterns)))
            try:
                return original(patterns, *args, **kwargs)
            finally:
                with emit.guarded():
                    _tell(emit, here.passes.pop(), patterns.pass_name)

        return apply

    def wrap_match(original: Callable[..., Any]) -> Callable[..., Any]:
        def match(pattern: Any, node: Any) -> Any:
            found = original(pattern, node)
            failed = isinstance(found, FailedMatch)  # not bool(found): nearly every match fails, and says so in Python
            if here.passes and (not failed or found.format_string == _OTHER_USERS):
                with emit.guarded():
                    _tried(here.passes[-1], pattern, node, found)
            return found

        return match

    def wrap_apply(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(entry: Any, match: Any, graph: Any, node: Any) -> Any:
            if here.passes:
                with emit.guarded():
                    here.passes[-1].latest = None
                    here.passes[-1].note(_name(entry), "applied", None, len(match.nodes))
            return original(entry, match, graph, node)

        return apply

    with ExitStack() as stack:
        stack.enter_context(patched(*located(f"{_MODULE}:PatternMatcherPass.apply"), wrap_pass))
        for target in _MATCHES:
            stack.enter_context(patched(*located(target), wrap_match))
        for target in _APPLIES:
            stack.enter_context(patched(*located(target), wrap_apply))
        yield


def _names(patterns: Any) -> dict[int, str]:
    return {id(entry.pattern): _name(entry) for entries in patterns.patterns.values() for entry in entries}


def _name(entry: Any) -> str:
    """torch's own name of a replacement, else the function that a pattern runs."""
    handler = getattr(entry, "handler", None)
    name = getattr(entry, "pattern_name", None) or getattr(handler, "__qualname__", None)
    return str(name or f"unnamed {type(entry).__name__}")


def _tried(at_work: _Pass, pattern: Any, node: Any, found: Any) -> None:
    name = at_work.names.get(id(pattern))
    if name is None:
        return  # a pattern's check matches once more, with real shapes
    if found:
        match = _Match(name, node.name, len(found.nodes))
        if match != at_work.latest:
            at_work.settle()
            at_work.latest = match
    elif (held := _held_back(pattern, found)) and (node.name, held) not in at_work.held_back:
        at_work.held_back.add((node.name, held))  # the variants of a pattern fail alike: the first one tells
        at_work.note(name, "near_miss", OTHER_USERS.format(held), 0)


def _held_back(pattern: Any, failed: Any) -> str | None:
    """The operation inside the pattern that may have one user and has more; at the root nothing matched yet."""
    inner = next(iter(failed.args), None)
    return str(inner.fns_repr()) if inner is not None and inner is not pattern and inner.users == 1 else None


def _tell(emit: Emit, at_work: _Pass, pass_name: str | None) -> None:
    at_work.settle()
    name = whereabouts.outermost_pass() or pass_name or "pattern_matcher"
    for record in at_work.records(name, whereabouts.graph_to_come() or ""):
        emit(record)
