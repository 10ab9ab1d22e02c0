"""Stores that tests share: recorded once for the session, never changed by a test."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from example_run import publish_example, publish_partly_recorded

CASES = Path(__file__).parent / "cases"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Other cases than the repository's own."""
    parser.addoption("--cases", type=Path, default=CASES, metavar="DIR", help="folder of the cases of test_cases.py")


# A shell starts background jobs with Ctrl-C ignored, and programs that the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def example_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the complete example run and one that was recorded only in part."""
    store = tmp_path_factory.mktemp("example") / "store"
    publish_example(store)
    publish_partly_recorded(store)
    return store
