"""The drift report finds what the hooks observe, and tells a changed signature from a changed body."""

from __future__ import annotations

import ast

import drift
import pytest


def test_every_target_of_a_hook_is_found_in_torchs_source() -> None:
    absent = [t for _, t in drift.targets() if t.startswith("torch") and drift.find(drift.installed, t) is None]
    assert absent == []


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("def f(a):\n    'Doc.'\n    return a", 'def f(a: int) -> int:\n    "Other."\n    return a', ""),
        ("def f(a): return a", "def f(a): return 1", "1 of 2 lines"),
        ("def f(a): return a", "def f(a, b=0): return a", "(a) → (a, b=0), 1 of 2 lines"),
        ("x = 1", "y = 1", "gone"),
    ],
)
def test_a_change_is_told_in_a_few_words(before: str, after: str, change: str) -> None:
    name = "x" if before.startswith("x") else "f"
    here, there = (drift.named(ast.parse(source).body, name) for source in (before, after))
    assert drift.difference(here, there) == change
