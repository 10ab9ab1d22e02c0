"""The memory figures: places of rectangles, axes, and the live set behind them."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from bench_memory import publish
from example_run import EXAMPLE_ID, PLAN_PEAK

from fusionscope.app.figures.memory_timeline import BAND, Picture, Small, byte_ticks, small_figure, timeline_figure
from fusionscope.app.figures.packing import pack
from fusionscope.storage.library import Library
from fusionscope.storage.queries import blocks, live_set, memory
from fusionscope.storage.queries.blocks import Level, Span
from fusionscope.storage.queries.memory import Lifetime, Point

GRAPH = "0/0.inference"


def life(name: str, size: int, start: int | None, stop: int | None) -> Lifetime:
    return Lifetime(name, "intermediate", size, None, None, start, stop, stop, None, None, None, (), None, None, None)


def point(step: int, live: int, label: str | None = None) -> Point:
    return Point(step, None, live, None, None, label)


def span(key: str, size: int, first: int | None, last: int | None, reuses: str | None = None, name: str = "") -> Span:
    return Span(key, name or key, "intermediate", size, first, last, False, reuses, None)


def picture(points: list[Point], spans: list[Span], **changed: Any) -> Picture:
    peak = max(points, key=lambda one: one.live_bytes)
    return Picture(**{"points": points, "spans": spans, "band": (), "peak": peak, "chosen": peak, **changed})


def test_rectangles_that_live_at_the_same_time_never_overlap() -> None:
    spans = [span(f"b{i}", 1 + i * 37 % 11, i % 9, i % 9 + 1 + i % 5) for i in range(60)]
    offsets = pack(spans, 20)
    for a, b in combinations(spans, 2):
        together = a.first < b.last and b.first < a.last  # type: ignore[operator]
        low, high = sorted((a, b), key=lambda one: offsets[one.key])
        assert not together or offsets[low.key] + low.bytes <= offsets[high.key]


def test_a_buffer_that_takes_over_memory_stands_where_its_predecessor_stood() -> None:
    offsets = pack([span("big", 100, 0, 9), span("a", 10, 0, 4), span("b", 10, 4, 8, reuses="a")], 10)
    assert offsets == {"big": 0, "a": 100, "b": 100}


def test_rectangles_stand_above_the_band_of_small_blocks() -> None:
    shown = picture([point(0, 8), point(1, 0)], [span("b", 8, 0, 1)], band=[Level(0, 5), Level(1, 2)])
    band, bar = timeline_figure(shown).data[1:]
    assert (band.name, max(band.y)) == (BAND, 5)
    assert bar.y[0] == 5 + 8 / 2


def test_the_block_that_is_lit_has_a_border_and_its_life_on_the_curve() -> None:
    figure = timeline_figure(picture([point(0, 8), point(9, 0)], [span("b", 8, 2, 5), span("c", 8, 0, 1)], lit="b"))
    assert figure.data[1].marker.line.width == (3.0, 0.6)
    lives = [(shape.x0, shape.x1) for shape in figure.layout.shapes if shape.type == "rect"]
    assert lives == [(2, 5)]


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


def test_text_of_a_model_cannot_become_markup() -> None:
    bad = "<a href='javascript:x'>"
    figure = timeline_figure(picture([point(0, 8, bad)], [span("b", 8, 0, None, name=bad, reuses=bad)]))
    assert bad not in "".join(figure.data[0].text)
    assert bad not in figure.data[1].hovertext[0] + figure.data[1].text[0]


def test_a_curve_marks_its_first_peak() -> None:
    figure = small_figure([Small("measured", "event", "#8C8C8C", [point(0, 1), point(1, 9), point(2, 9)])])
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


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Library, str]:
    """A run with five thousand buffers, of which most are too many to draw."""
    store = tmp_path_factory.mktemp("crowded")
    return Library(store), publish(store, 5000)


@pytest.mark.parametrize(("graph_id", "basis", "axis"), [(GRAPH, "plan", "order"), ("", "measured", "time")])
def test_the_peak_is_drawn_to_the_byte_however_many_blocks_there_are(
    crowded: tuple[Library, str], graph_id: str, basis: str, axis: str
) -> None:
    library, run_id = crowded
    curve = next(one for one in library.ask(memory.curves, run_id, GRAPH) if one.basis == basis)
    scene = blocks.Scene(run_id, graph_id, basis, "compiled", axis)
    points = {one.step: one.live_bytes for one in library.ask(blocks.curve, scene)}
    assert len(points) <= 2 * blocks.BINS + 2
    assert points[curve.peak_step] == curve.peak_bytes
    spans = library.ask(blocks.drawn, scene, curve.peak_step)
    count, small = library.ask(blocks.undrawn, scene, curve.peak_step)
    assert (len(spans), count) == (blocks.DRAWN, 5000 - blocks.DRAWN)
    assert sum(one.bytes for one in spans if one.alive_at_peak) + small == curve.peak_bytes
    assert small < curve.peak_bytes / 10
    assert max(level.bytes for level in library.ask(blocks.band, scene, curve.peak_step)) >= small


def test_the_live_set_of_a_crowded_plan_is_its_largest(crowded: tuple[Library, str]) -> None:
    library, run_id = crowded
    plan = next(one for one in library.ask(memory.curves, run_id, GRAPH) if one.basis == "plan")
    few = library.ask(live_set.live_set, run_id, GRAPH, plan.peak_step, 10)
    whole = library.ask(live_set.live_set, run_id, GRAPH, plan.peak_step, 5000)
    assert [one.life.bytes for one in few] == [one.life.bytes for one in whole[:10]]
    assert sum(one.life.bytes or 0 for one in whole) == plan.peak_bytes
