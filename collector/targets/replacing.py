"""Replaces attributes for good: only for a process that takes an absent GPU for present."""

from __future__ import annotations

from typing import Any


def replace(owner: Any, **values: Any) -> None:
    """Set attributes of a module or class for the rest of this process."""
    for name, value in values.items():
        setattr(owner, name, value)
