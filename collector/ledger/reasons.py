"""Inductor's refusal texts → a stable code each. An unknown text keeps the code "other" and its own words."""

from __future__ import annotations

# the beginning of the text (torch/_inductor/scheduler.py and choices.py, WhyNoFuse) → code
_CODES = (
    ("intermediate nodes between", "intermediate_nodes"),
    ("no shared data due to indexing mismatch", "indexing_mismatch"),
    ("no shared data", "no_shared_data"),
    ("memory deps did not match", "memory_deps_mismatch"),
    ("node1 must go before node2", "wrong_order"),
    ("node1 is nop", "nop"),
    ("node1 is extern", "extern"),
    ("node2 is extern or nop", "extern"),
    ("grouped node", "grouped_node"),
    ("device mismatch", "device_mismatch"),
    ("template epilogue", "template_epilogue"),
    ("template prologue", "template_prologue"),
    ("prologue fusion", "template_prologue"),
    ("exceeds max fusion", "fusion_cap"),
    ("Fusion will increase peak memory", "peak_memory"),
    ("will create cycle", "cycle"),
    ("fusing the pair would make a cycle", "cycle"),
    ("score_fusion_memory_threshold", "memory_threshold"),
    ("Nodes are too far away", "too_far"),
    ("foreach", "foreach"),
    ("candidate", "foreach"),
)


def reason_code(reason: str | None, refused_by: str | None) -> str:
    """The code of a refusal; one without a text is named by the predicate that refused."""
    if reason is None:
        return f"silent:{refused_by}" if refused_by else "silent"
    return next((code for start, code in _CODES if reason.startswith(start)), "other")
