"""What was concluded of a run: problems first, each with its evidence, what to do, and the screen that shows it."""

from __future__ import annotations

from urllib.parse import parse_qsl

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.screens import TITLES
from fusionscope.app.screens._trial import show_trial
from fusionscope.app.table import table
from fusionscope.storage.queries import findings
from fusionscope.storage.records import Finding

EVIDENCE = 4  # facts shown of a finding; the table below has them all


def show_findings(run_id: str) -> None:
    """The findings of a run: what failed as entries, the rest as a table."""
    found = data.ask(findings.findings, run_id)
    style.section("Findings", "findings")
    style.note(_counted(found), "findings")
    for finding in found:
        if finding.status == "failed":
            _entry(finding, run_id)
    if found:
        with st.expander("Every rule"):
            table([_row(finding) for finding in found], key="findings")


def _counted(found: list[Finding]) -> str:
    if not found:
        return "not recorded: nothing was concluded of this run yet; the next import does so."
    failed = [finding for finding in found if finding.status == "failed"]
    problems = sum(finding.severity == "problem" for finding in failed)
    passed, other = (sum(f.status == status for f in found) for status in ("passed", "not_applicable"))
    notes = len(failed) - problems
    return (
        f"{style.plural(problems, 'problem')} and {style.plural(notes, 'note')}; "
        f"{style.plural(passed, 'rule')} passed, {other} could not be asked of this run."
    )


def _entry(finding: Finding, run_id: str) -> None:
    with st.container(key=f"finding-{finding.severity}-{finding.code}"):
        st.text(f"{finding.title}: {finding.explanation}")
        for fact in finding.evidence[:EVIDENCE]:
            st.text(style.short(fact, 160))
        if (more := len(finding.evidence) - EVIDENCE) > 0:
            st.text(f"and {more} more")
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.text(finding.action or "")
            _door(finding, run_id)
            show_trial(finding, run_id)


def _door(finding: Finding, run_id: str) -> None:
    screen, _, query = (finding.link or "").partition("?")
    if screen in TITLES:
        style.door(TITLES[screen], screen, run_id, **dict(parse_qsl(query)))


def _row(finding: Finding) -> dict[str, str]:
    return {
        "rule": finding.title,
        "verdict": finding.status.replace("_", " "),
        "weight": finding.severity if finding.status == "failed" else "",
        "why": finding.explanation,
        "evidence": "; ".join(finding.evidence),
    }
