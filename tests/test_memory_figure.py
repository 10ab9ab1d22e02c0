"""The memory figures: places of rectangles, axes, and the live set behind them."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from example_run import EXAMPLE_ID, PLAN_PEAK

from fusionscope.app.figures.memory_timeline import byte_ticks, curve_figure, pack, plan_figure
from fusionscope.storage.library import Library
from fusionscope.storage.queries import memory
from fusionscope.storage.queries.memory import Lifetime, Point

GRAPH = "0/0.inference"


def life(
    name: str, size: int, start: int | None, stop: int | None, reuses: str | None = None, ops: tuple[str, ...] = ()
) -> Lifetime:
    return Lifetime(
        name, "intermediate", size, None, None, start, stop, stop, reuses, None, None, ops, None, None, None
    )


def point(step: int, live: int, label: str | None = None) -> Point:
    return Point(step, None, live, None, None, label)


def test_rectangles_that_live_at_the_same_time_never_overlap() -> None:
    lives = [life(f"b{i}", 1 + i * 37 % 11, i % 9, i % 9 + 1 + i % 5) for i in range(60)]
    offsets = pack(lives, 20)
    for a, b in combinations(lives, 2):
        together = a.allocated_at < b.freed_at and b.allocated_at < a.freed_at  # type: ignore[operator]
        low, high = sorted((a, b), key=lambda one: offsets[one.buffer])
        assert not together or offsets[low.buffer] + (low.bytes or 0) <= offsets[high.buffer]


def test_a_buffer_that_takes_over_memory_stands_where_its_predecessor_stood() -> None:
    offsets = pack([life("big", 100, 0, 9), life("a", 10, 0, 4), life("b", 10, 4, 8, reuses="a")], 10)
    assert offsets == {"big": 0, "a": 100, "b": 100}


def test_ticks_are_multiples_of_a_power_of_two_and_go_below_zero_where_the_curve_does() -> None:
    assert byte_ticks(256 * 1024) == [0, 65536, 131072, 196608, 262144]
    assert byte_ticks(100, -100) == [-64, 0, 64]
    assert byte_ticks(0) == [0]


def test_a_buffer_is_alive_from_its_allocation_until_it_is_freed() -> None:
    one, input_, output = life("b", 1, 2, 5), life("x", 1, None, 3), life("y", 1, 4, None)
    assert [step for step in range(7) if one.alive_at(step)] == [2, 3, 4]
    assert [step for step in range(7) if input_.alive_at(step)] == [0, 1, 2]
    assert [step for step in range(7) if output.alive_at(step)] == [4, 5, 6]
    assert input_.at_entry
    assert not one.at_entry


def test_inputs_that_the_call_leaves_alone_are_not_drawn_and_those_it_frees_are() -> None:
    lives = [life("weight", 8, None, None), life("saved", 8, None, 1), life("b", 8, 0, None)]
    drawn = plan_figure([point(0, 8), point(1, 0)], lives, 0, 0).data[1:]
    assert [text for bar in drawn for text in bar.text] == ["saved · 8 B", "b · 8 B"]


def test_text_of_a_model_cannot_become_markup() -> None:
    bad = "<a href='javascript:x'>"
    figure = plan_figure([point(0, 8, bad)], [life("b", 8, 0, None, ops=(bad,))], 0, 0)
    assert bad not in "".join(figure.data[0].text)
    assert bad not in figure.data[1].hovertext[0]


def test_a_curve_marks_its_first_peak() -> None:
    figure = curve_figure([point(0, 1), point(1, 9), point(2, 9)], "event", "#8C8C8C", 9)
    assert (figure.data[1].x, figure.data[1].y) == ((1,), (9,))


def test_the_live_set_at_the_peak_adds_up_to_the_plan(example_store: Path) -> None:
    library = Library(example_store)
    plan = next(curve for curve in library.ask(memory.curves, EXAMPLE_ID, GRAPH) if curve.basis == "plan")
    assert plan.peak_bytes == PLAN_PEAK
    for step in library.ask(memory.points, EXAMPLE_ID, GRAPH, "plan", "compiled"):
        lives = library.ask(memory.lifetimes, EXAMPLE_ID, GRAPH)
        assert sum(one.bytes or 0 for one in lives if one.alive_at(step.step) and not one.at_entry) == step.live_bytes


@pytest.mark.parametrize(("buffer", "op"), [("buf5", "relu_2"), ("buf0", "addmm")])
def test_a_buffer_names_the_operator_and_the_line_that_made_it(example_store: Path, buffer: str, op: str) -> None:
    lives = {one.buffer: one for one in Library(example_store).ask(memory.lifetimes, EXAMPLE_ID, GRAPH)}
    assert lives[buffer].ops[0] == op
    assert lives[buffer].line is not None
