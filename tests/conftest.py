"""Stores that tests share: recorded once for the session, never changed by a test."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_run import publish_example, publish_partly_recorded


@pytest.fixture(scope="session")
def example_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the complete example run and one that was recorded only in part."""
    store = tmp_path_factory.mktemp("example") / "store"
    publish_example(store)
    publish_partly_recorded(store)
    return store
