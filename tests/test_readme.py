"""The README stays true: its tables, hooks, pages, pictures and queries are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from example_run import EXAMPLE_ID

from fusionscope.app.screens import PAGES
from fusionscope.collector.hooks import HOOKS, compiled_calls
from fusionscope.storage.findings import RULES
from fusionscope.storage.library import Library
from fusionscope.storage.records import TABLES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SQL = "\n".join(re.findall(r"```sql\n(.+?)```", README, re.S))
QUERIES = [query.strip() for query in SQL.split(";") if "-- " in query]


def rows_below(heading: str) -> list[str]:
    """The first cell of each row of the table that stands below a heading."""
    section = README.split(heading, 1)[1]
    table = re.search(r"(?:^\|.*\n)+", section, re.M)
    assert table is not None
    return [line.split("|")[1].strip(" *`") for line in table[0].splitlines()[2:]]


def test_the_schema_lists_every_table() -> None:
    assert rows_below("## Schema") == list(TABLES)


def test_the_hook_table_lists_every_hook() -> None:
    assert sorted(rows_below("**Hooks**")) == sorted([*(hook.NAME for hook in HOOKS), compiled_calls.NAME])


def test_the_page_table_lists_every_page() -> None:
    assert rows_below("## How to read each page") == [title for title, *_ in PAGES]


def test_the_findings_table_lists_every_rule() -> None:
    assert sorted(rows_below("## Why is it slow?")) == sorted(rule.code for rule in RULES)


def test_every_picture_is_there() -> None:
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert pictures
    assert not [picture for picture in pictures if not (ROOT / picture).is_file()]


def test_there_are_ten_queries() -> None:
    assert [query.splitlines()[0][:6].split(".")[0] for query in QUERIES] == [f"-- {n}" for n in range(1, 11)]


@pytest.mark.parametrize("query", QUERIES, ids=range(1, len(QUERIES) + 1))
def test_a_query_of_the_readme_answers(query: str, example_store: Path) -> None:
    def ask(con: object) -> list[object]:
        con.execute(f"SET VARIABLE run = '{EXAMPLE_ID}'")  # type: ignore[attr-defined]
        return con.execute(query).fetchall()  # type: ignore[attr-defined, no-any-return]

    assert isinstance(Library(example_store).ask(ask), list)
