"""The only reader of torch's version: the supported range and the facts that differ within it."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

SUPPORTED = ((2, 11), (2, 14))  # first and last minor release that the hooks were run on


def installed(package: str) -> str | None:
    """The installed version of a package, without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def outside_supported_range(torch_version: str) -> str | None:
    """Say in words that this torch was never tried, or None."""
    match = re.match(r"(\d+)\.(\d+)", torch_version)
    minor = (int(match[1]), int(match[2])) if match else (0, 0)
    if SUPPORTED[0] <= minor <= SUPPORTED[1]:
        return None
    first, last = (".".join(map(str, release)) for release in SUPPORTED)
    return f"torch {torch_version} is outside the tried range {first} to {last}: hooks that do not fit are listed"
