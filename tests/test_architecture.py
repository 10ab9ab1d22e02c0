"""The house stands as it was drawn: who imports whom, who speaks SQL, how long a file is, what a hook offers."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusionscope.collector import hooks

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {
    "storage": {"storage"},
    "collector": {"collector", "storage", "sample_models"},
    "app": {"app", "storage"},
    "sample_models": {"sample_models"},
}  # a room and the rooms that it may import
OUTSIDE = {
    "storage": {"duckdb"},
    "collector": {"duckdb", "torch", "triton"},
    "app": {"duckdb", "streamlit", "pandas", "plotly", "pyvis"},  # pandas comes with streamlit
    "sample_models": {"torch"},
}  # what a room may import from other packages
SQL = re.compile(r"\b(SELECT\s|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+TABLE)")
LONGEST = 500  # lines


def sources(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imports(source: Path) -> Iterator[str]:
    """Absolute names of what a file imports, anywhere in it; relative imports count as a name that nobody may use."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = (f"{module}.{alias.name}" for alias in node.names) if module == "fusionscope" else [module]
            yield from (["." * node.level + module] if node.level else names)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_what_stands_before_them(room: str) -> None:
    found = {
        (source.relative_to(ROOT).as_posix(), name)
        for source in sources(room)
        for name in imports(source)
        if name.startswith((".", "fusionscope")) and name.split(".")[1] not in ROOMS[room]
    }
    assert found == set()


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_use_only_their_own_packages(room: str) -> None:
    found = {
        (source.relative_to(ROOT).as_posix(), top)
        for source in sources(room)
        for top in (name.split(".")[0] for name in imports(source))
        if top not in sys.stdlib_module_names | OUTSIDE[room] | {"fusionscope", ""}
    }
    assert found == set()


def test_the_app_and_the_collector_hold_no_sql() -> None:
    found = [
        f"{source.relative_to(ROOT)}:{node.lineno}"
        for room in ("app", "collector", "sample_models")
        for source in sources(room)
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.search(node.value)
    ]
    assert found == []


def test_one_file_opens_duckdb() -> None:
    found = [
        source.relative_to(ROOT).as_posix()
        for room in ROOMS
        for source in sources(room)
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "duckdb.connect"
    ]
    assert set(found) == {"storage/database.py"}


def test_no_file_is_long() -> None:
    written = [
        path
        for folder in (*ROOMS, "tests")
        for kind in ("*.py", "*.js", "*.css")
        for path in (ROOT / folder).rglob(kind)
        if ".min." not in path.name
    ]
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in written}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(hooks.__path__)])
def test_a_hook_keeps_the_contract(name: str) -> None:
    hook = importlib.import_module(f"{hooks.__name__}.{name}")
    assert name == hook.NAME
    assert hook.RECORDS
    assert all(isinstance(record, type) for record in hook.RECORDS)
    assert hook.TARGETS
    assert callable(hook.install)
    assert hook.problem() is None
    siblings = [found for found in imports(Path(hook.__file__ or "")) if found.startswith(f"{hooks.__name__}.")]
    assert siblings == []
