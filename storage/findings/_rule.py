"""What a rule is: a question to the recorded facts of a run, and the three answers that it may give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.records import Compile, Finding, Graph, Measurement, Run

Record = TypeVar("Record")
PROBLEM, NOTE = "problem", "note"


@dataclass(frozen=True, slots=True)
class Failed:
    """The rule found what it looks for."""

    explanation: str
    evidence: tuple[str, ...] = ()
    severity: str = PROBLEM
    link: str | None = None  # where another than the rule's screen shows it
    action: str | None = None  # where another than the rule's helps


@dataclass(frozen=True, slots=True)
class Passed:
    """The rule had what it needs and found nothing."""

    explanation: str


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """The run does not hold what the rule needs."""

    reason: str


Verdict = Failed | Passed | NotApplicable


class Facts:
    """The records of a run that belong to the program's own calls, each kind read once."""

    def __init__(self, con: DuckDBPyConnection, run_id: str) -> None:
        self._con, self._run_id = con, run_id
        self._read: dict[type[Any], list[Any]] = {}

    @cached_property
    def run(self) -> Run:
        """The run's own record."""
        return self._all(Run)[0]

    def of(self, kind: type[Record]) -> list[Record]:
        """The records of one kind; of what was compiled only the drive's (measuring compiles again)."""
        if kind not in self._read:
            self._read[kind] = [record for record in self._all(kind) if self._is_own(record)]
        return self._read[kind]

    def measured(self, metric: str, variant: str) -> Measurement | None:
        """A measured quantity of one variant; None where it was not measured."""
        rows = self.of(Measurement)
        return next((row for row in rows if row.metric == metric and row.variant == variant), None)

    def ask(self, query: Callable[..., list[Record]], *arguments: object) -> list[Record]:
        """The rows of a query about this run."""
        return query(self._con, self._run_id, *arguments)

    def _all(self, kind: type[Record]) -> list[Record]:
        return records_of(self._con, kind, self._run_id)

    def _is_own(self, record: object) -> bool:
        compile_id = getattr(record, "compile_id", None) or self._compile_of.get(
            getattr(record, "graph_id", None) or ""
        )
        return compile_id is None or compile_id in self._drive

    @cached_property
    def _drive(self) -> frozenset[str]:
        return frozenset(c.compile_id for c in self._all(Compile) if c.phase == "drive")

    @cached_property
    def _compile_of(self) -> dict[str, str]:
        return {graph.graph_id: graph.compile_id for graph in self._all(Graph) if graph.compile_id}


@dataclass(frozen=True, slots=True)
class Rule:
    """A question: its code, its name, the screen that shows what it is about, what to do, and how it is answered.

    Where an option of torch.compile is what to do, `trial` holds the words of `fusionscope record` that try it.
    """

    code: str
    title: str
    screen: str
    action: str
    check: Callable[[Facts], Verdict]
    trial: tuple[str, ...] = ()

    def conclude(self, facts: Facts) -> Finding:
        """The finding of this rule for a run."""
        verdict = self.check(facts)
        return Finding(
            finding_id=self.code,
            code=self.code,
            title=self.title,
            status={Failed: "failed", Passed: "passed", NotApplicable: "not_applicable"}[type(verdict)],
            severity=verdict.severity if isinstance(verdict, Failed) else PROBLEM,
            explanation=verdict.reason if isinstance(verdict, NotApplicable) else verdict.explanation,
            evidence=verdict.evidence if isinstance(verdict, Failed) else (),
            action=(verdict.action or self.action) if isinstance(verdict, Failed) else None,
            link=(verdict.link if isinstance(verdict, Failed) else None) or self.screen,
        )


def several(count: int, noun: str) -> str:
    """`1 kernel`, `3 kernels`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def at(file: str | None, line: int | None) -> str:
    """`model.py:42`, without the folders."""
    name = (file or "unknown file").replace("\\", "/").rpartition("/")[2]
    return name if line is None else f"{name}:{line}"
