"""The record of a conclusion about a run.

Part of the contract in `records.py`, which offers it with all others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule concludes from the recorded facts of a run; written when the run is imported."""

    finding_id: str  # the rule's code: a rule concludes once a run
    status: str  # failed, passed, not_applicable
    severity: str  # problem, note (informative); of a rule that did not fail the one it would have
    code: str
    title: str
    explanation: str  # one sentence with numbers; of what is not applicable the reason
    evidence: tuple[str, ...] = ()  # the facts behind it, most weighty first
    action: str | None = None  # what to change or try
    link: str | None = None  # screen that shows it, e.g. "kernels?kernel=0/0.forward/triton_poi_0"
