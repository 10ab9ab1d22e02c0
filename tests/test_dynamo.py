"""What Dynamo did with each frame: where it broke and how often, what it refused, what it left to Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_ledger import Recorded, recorded
from torch import Tensor

from fusionscope.collector.ledger import breaks
from fusionscope.storage import records

LIBRARY = torch.library.Library("fusionscope_tests", "DEF")
LIBRARY.define("opaque(Tensor x) -> Tensor")
LIBRARY.impl("opaque", lambda x: x.clone(), "CPU")  # and nothing for fake tensors


def printing(x: Tensor) -> Tensor:
    """Breaks once a call, whoever calls."""
    x = x.sin()
    print(end="")  # noqa: T201
    return x.cos()


def calling(x: Tensor) -> Tensor:
    """Inlines printing until it breaks, and has no operation before."""
    return printing(x) + 1


def branching(x: Tensor) -> Tensor:
    """A branch that depends on data."""
    y = x.sin()
    return y.cos() if y.sum() > 0 else y.tan()


def starting(x: Tensor) -> Tensor:
    """Breaks before any operation."""
    torch._dynamo.graph_break()
    return x.sin()


def looping(x: Tensor) -> Tensor:
    """Breaks in a loop: Dynamo gives the whole frame up."""
    for _ in range(2):
        x = x.sin()
        torch._dynamo.graph_break()
    return x


def switching(x: Tensor) -> Tensor:
    """Compiled anew for every width, up to the limit."""
    x = x.sin()
    torch._dynamo.graph_break()
    return x.cos()


def unbroken(x: Tensor) -> Tensor:
    """Fails with fullgraph."""
    return printing(x.cos())


@torch.compiler.disable
def disabled(x: Tensor) -> Tensor:
    """Runs in Python."""
    return x * 3


def around(x: Tensor) -> Tensor:
    """Calls what is disabled, and an operator that the compiler cannot look into."""
    x = disabled(x.sin()) + 1
    x = torch.ops.fusionscope_tests.opaque(x)
    return x * 2


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Each function as often as its test says."""

    def drive() -> None:
        x, compiled = torch.ones(3), torch.compile(calling)
        for _ in range(7):
            compiled(x)
        torch.compile(printing)(x)
        for sign in (1, -1, 1):
            torch.compile(branching)(x * sign)
        for _ in range(4):
            torch.compile(starting)(x)
        torch.compile(looping)(x)
        torch.compile(around)(x)
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(unbroken, fullgraph=True)(x)
        with torch._dynamo.config.patch(recompile_limit=1):
            for width in (3, 4, 5):
                torch.compile(switching, dynamic=False)(torch.ones(width))

    return recorded(tmp_path_factory.mktemp("dynamo"), drive)


def _line(function: Callable[..., Any], text: str) -> int:
    """The line of a function that holds a text."""
    code = Path(__file__).read_text().splitlines()
    start = function.__code__.co_firstlineno
    return next(n for n in range(start, len(code)) if text in code[n - 1])


def _break(run: Recorded, function: Callable[..., Any], text: str, kind: str = "") -> records.GraphBreak:
    line = _line(function, text)
    (found,) = [b for b in run.all(records.GraphBreak) if b.line == line and kind in b.kind and b.file == __file__]
    return found


def _of(run: Recorded, function: Callable[..., Any]) -> list[records.Compile]:
    return [c for c in run.all(records.Compile) if c.function == function.__name__]


def test_a_break_in_a_function_that_was_called_eight_times_ran_eight_times(driven: Recorded) -> None:
    sites = [b for b in driven.all(records.GraphBreak) if b.line == _line(printing, "print(")]
    assert [site.executions for site in sites if site.executions_reason != breaks.FATAL] == [8]
    (caller,) = _of(driven, calling)
    assert (caller.outcome, caller.reason) == (
        "skipped",
        "no operation to compile before the break: Failed to trace builtin operator",
    )


def test_a_branch_that_depends_on_data_is_counted_whichever_way_it_goes(driven: Recorded) -> None:
    assert _break(driven, branching, "if y.sum()").executions == 3


def test_a_break_before_any_operation_is_counted_by_what_resumes_after_it(driven: Recorded) -> None:
    assert _break(driven, starting, "graph_break()").executions == 4


def test_a_break_in_a_frame_that_python_runs_is_not_counted_and_says_so(driven: Recorded) -> None:
    site = _break(driven, looping, "graph_break()")
    assert (site.executions, site.executions_reason) == (None, breaks.IN_PYTHON)


def test_at_the_limit_a_recompile_is_refused_and_the_frame_is_left_to_python(driven: Recorded) -> None:
    first, refused = _of(driven, switching)
    assert [first.outcome, refused.outcome] == ["compiled", "limit"]
    assert (refused.file, refused.line) == (first.file, first.line)
    assert [r.outcome for r in driven.all(records.Recompile) if r.compile_id == refused.compile_id] == ["refused"]
    site = _break(driven, switching, "graph_break()")
    assert (site.executions, site.executions_reason) == (None, breaks.IN_PYTHON)


def test_a_break_that_fullgraph_forbids_is_a_site_of_the_failed_compile(driven: Recorded) -> None:
    (failed,) = _of(driven, unbroken)
    (site,) = [b for b in driven.all(records.GraphBreak) if b.compile_id == failed.compile_id]
    assert failed.outcome == "failed"
    assert (site.line, site.kind) == (_line(printing, "print("), "Failed to trace builtin operator")
    assert (site.executions, site.executions_reason) == (None, breaks.FATAL)


def test_what_is_disabled_and_what_cannot_be_looked_into_end_a_graph(driven: Recorded) -> None:
    call, operator = _break(driven, around, "disabled("), _break(driven, around, "opaque(")
    assert "disabled" in (call.reason or "")
    assert operator.kind == "Operator does not support running with fake tensors"
    assert (call.executions, operator.executions) == (1, 1)


def test_a_guard_says_what_it_is_about(driven: Recorded) -> None:
    first, *_ = _of(driven, switching)
    guards = [g for g in driven.all(records.Guard) if g.compile_id == first.compile_id]
    (shape,) = [g for g in guards if g.source == "L['x']" and "size=[3]" in g.expression]
    assert (Path(shape.file or "").name, shape.line) == (Path(__file__).name, _line(switching, "x = x.sin()"))
