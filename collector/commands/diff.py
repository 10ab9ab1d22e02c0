"""Compare two runs: what makes them incomparable, then only what differs; exit code 1 where a budget is exceeded."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fusionscope.collector.commands import CHECK_FAILED, DONE, add_store, answer, as_json, opened, say
from fusionscope.storage import report
from fusionscope.storage.budgets import Judgement, judge, parse, read_policy
from fusionscope.storage.database import writable
from fusionscope.storage.queries.diff import Diff, diff


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `fusionscope diff`."""
    names = "id of a run, the beginning of one, or a name (its latest run; NAME~1 the one before, and so on)"
    parser.add_argument("before", metavar="A", help=f"the baseline: {names}")
    parser.add_argument("after", metavar="B", help="the run that is judged")
    add_store(parser)
    parser.add_argument(
        "--fail-on",
        metavar="BUDGET",
        action="append",
        default=[],
        help="exit with 1 where B is worse than A by more: latency>3%%, peak>5%%, kernels>0, spills>0, breaks>0, "
        "recompiles>0, refusals>0 or refusals.CLASS>0, findings>0 or findings.CODE>0; may be repeated",
    )
    parser.add_argument("--policy", metavar="FILE", type=Path, help='a TOML file with fail-on = ["peak>5%%", …]')
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the comparison as Markdown")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write the budgets as a JUnit file")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write the comparison as one offline page")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: Namespace) -> int:
    """Print the comparison and judge it."""
    budgets = [*map(parse, options.fail_on), *(read_policy(options.policy) if options.policy else ())]
    library = opened(options.store)
    found = library.ask(diff, library.find(options.before), library.find(options.after))
    judgements = [judge(found, budget) for budget in budgets]
    parts = list(report.sections(found, judgements))
    answer(as_json(_plain(found, judgements)) if options.json else report.as_text(parts))
    _write(options.markdown, report.as_markdown(parts))
    _write(options.junit, report.as_junit(judgements))
    _write(options.html, report.as_html(parts[0].title, parts))
    failed = [judgement for judgement in judgements if not judgement.passed]
    for judgement in failed:
        say(judgement.reason)
    return CHECK_FAILED if failed else DONE


def _plain(found: Diff, judgements: list[Judgement]) -> dict[str, Any]:
    told = asdict(found) | {"budgets": [asdict(judgement) for judgement in judgements]}
    told["deltas"] = [asdict(d) | {"noise": d.noise, "within_noise": d.within_noise} for d in found.deltas]
    return told


def _write(path: Path | None, text: str) -> None:
    if path is not None:
        with writable(path):
            path.write_text(text, encoding="utf-8")
