"""The kernel graph: its layout, its boxes and the facts behind them."""

from __future__ import annotations

import random
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from example_run import EXAMPLE_ID

from fusionscope.app.figures.boxes import Box, Unit, operators, short_kernel, units
from fusionscope.app.figures.dag import kernel_graph
from fusionscope.app.figures.layout import Point, Size, layered
from fusionscope.storage.library import Library
from fusionscope.storage.queries import fusion, graphs
from fusionscope.storage.queries.fusion import Flow, Group, Lowering

GRAPH = "0/0.inference"
BOX = (100.0, 40.0)
WIDE = (1000.0, 600.0)


def group(name: str, call: int | None = 0, **changed: object) -> Group:
    facts: dict[str, object] = {
        "group_id": name,
        "position": 0,
        "members": (name,),
        "kind": "pointwise",
        "ops": ("add",),
        "targets": ("aten.add.Tensor",),
        "bytes_read": 1024,
        "bytes_written": 1024,
        "recomputed": False,
        "call": call,
        "kernel_id": None if call is None else "k",
        "kernel": None if call is None else "cpp_fused_add_0",
        "backend": None if call is None else "cpp",
    }
    return Group(**facts | changed)  # type: ignore[arg-type]


def lowering(node: str, realized: bool, groups: tuple[str, ...]) -> Lowering:
    return Lowering(node, None, None, None, None, len(groups), 1, 1, None, realized, None, None, groups)


def overlap(a: Point, b: Point, size: Size) -> bool:
    return abs(a[0] - b[0]) < size[0] and abs(a[1] - b[1]) < size[1]


def test_an_edge_of_a_short_graph_points_down() -> None:
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    places = layered(dict.fromkeys("abcd", BOX), edges, WIDE)
    assert all(places[src][1] < places[dst][1] for src, dst in edges)


def test_boxes_never_overlap() -> None:
    chance = random.Random(7)
    names = [f"n{i}" for i in range(120)]
    edges = [(names[chance.randrange(max(0, i - 6), i)], names[i]) for i in range(1, 120) for _ in range(2)]
    places = layered(dict.fromkeys(names, BOX), edges, WIDE)
    assert not [pair for pair in combinations(names, 2) if overlap(places[pair[0]], places[pair[1]], BOX)]


def test_a_long_chain_is_folded_to_the_viewport_and_a_short_one_is_not() -> None:
    def columns(count: int) -> int:
        names = [f"n{i}" for i in range(count)]
        return len({x for x, _ in layered(dict.fromkeys(names, BOX), pairwise(names), WIDE).values()})

    assert columns(5) == 1
    assert 4 <= columns(100) <= 9


def test_a_source_stands_beside_its_first_user() -> None:
    places = layered(dict.fromkeys(["a", "b", "c", "weight"], BOX), [("a", "b"), ("b", "c"), ("weight", "c")], WIDE)
    assert places["weight"][1] == places["b"][1]


def test_a_cycle_and_an_empty_graph_are_laid_out_too() -> None:
    assert layered({}, [], WIDE) == {}
    assert len(layered(dict.fromkeys("ab", BOX), [("a", "b"), ("b", "a")], WIDE)) == 2


@pytest.mark.parametrize(
    ("kernel", "label"),
    [
        ("cpp_fused_relu_0", "relu_0"),
        ("triton_poi_fused_add_mul_3", "add_mul_3"),
        ("extern_kernels.addmm", "addmm"),
        (
            "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default",
            "_scaled_dot_product_flash_attention_for_cpu",
        ),
    ],
)
def test_a_kernel_is_named_by_what_is_its_own(kernel: str, label: str) -> None:
    assert short_kernel(kernel) == label


def test_operators_leave_out_views_unless_there_is_nothing_else() -> None:
    assert operators(group("g", targets=("aten.view.default", "aten.add.Tensor", "aten.add.Tensor"))) == "add"
    assert operators(group("g", targets=("<built-in function getitem>",))) == "getitem"
    assert operators(group("g", targets=("prims.convert_element_type.default",))) == "convert_element_type"


def test_groups_of_one_kernel_call_share_a_frame_that_holds_them() -> None:
    unit = Unit(tuple(Box(group(f"g{i}"), "add", ("add", "1 op")) for i in range(6)))
    width, height = unit.size
    places = unit.places((0.0, 0.0))
    assert [len(column) for column in unit.columns] == [3, 3]
    assert all(abs(x) + box.size[0] / 2 < width / 2 for (x, _), box in zip(places, unit.boxes, strict=True))
    assert all(abs(y) + box.size[1] / 2 < height / 2 for (_, y), box in zip(places, unit.boxes, strict=True))
    assert not [pair for pair in combinations(places, 2) if overlap(*pair, unit.boxes[0].size)]


def test_a_group_that_nothing_writes_for_and_no_kernel_runs_stands_alone() -> None:
    assert len(units([group("a", 0), group("b", 0), group("c", None)], [], [])) == 2


def test_a_group_without_a_kernel_joins_the_last_call_that_writes_for_it_so_that_no_cycle_arises() -> None:
    groups = [group("a", 0), group("cat", None, kind="nop"), group("b", 0), group("first", 1), group("view", None)]
    flows = [Flow("a", "cat", ("x",), 1), Flow("cat", "b", ("y",), 1), Flow("first", "view", ("z",), 1)]
    inside = [[box.group.group_id for box in unit.boxes] for unit in units(groups, flows, []).values()]
    assert inside == [["a", "cat", "b"], ["first", "view"]]


def test_an_inlined_producer_is_named_in_each_box_that_computes_it_and_a_realized_one_is_not() -> None:
    decided = [lowering("sin", False, ("a", "b")), lowering("exp", True, ("a",))]
    boxes = [box for unit in units([group("a", 0), group("b", 1)], [], decided).values() for box in unit.boxes]
    assert [box.lines[-1] for box in boxes] == ["inlined: sin", "inlined: sin"]


def test_an_edge_is_wider_with_more_bytes_and_thin_where_they_are_not_recorded() -> None:
    flows = [Flow("a", "b", ("x",), 1 << 30), Flow("b", "c", ("y",), 1 << 20), Flow("a", "c", ("z",), None)]
    edges = kernel_graph([group(name, i) for i, name in enumerate("abc")], flows, []).network.edges
    assert [edge["width"] for edge in edges] == [4.0, pytest.approx(1.0, abs=0.05), 1.0]


def test_the_example_becomes_one_box_per_group_joined_by_its_buffers(example_store: Path) -> None:
    library = Library(example_store)
    groups = library.ask(fusion.groups, EXAMPLE_ID, GRAPH)
    flows = library.ask(fusion.flows, EXAMPLE_ID, GRAPH)
    drawn = kernel_graph(groups, flows, library.ask(fusion.lowerings, EXAMPLE_ID, GRAPH))
    assert [g.kind for g in groups] == ["extern", "pointwise"] * 3 + ["extern", "reduction"]
    assert len(drawn.network.nodes) == len(groups) == 8
    assert len(drawn.network.edges) == len(flows) == 7
    assert drawn.frames == []


def test_counts_of_the_example_are_those_of_its_decisions(example_store: Path) -> None:
    library = Library(example_store)
    counts = library.ask(fusion.counts, EXAMPLE_ID, GRAPH)
    pairs = library.ask(fusion.decisions, EXAMPLE_ID, GRAPH)
    assert (counts.scheduler_nodes, counts.groups, counts.calls, counts.rounds) == (11, 8, 8, 2)
    assert counts.refused == len({(p.a, p.b) for p in pairs if p.verdict == "refused"}) == 5
    shared = [pair.shared_bytes or 0 for pair in pairs if pair.verdict == "refused"]
    assert shared == sorted(shared, reverse=True)


def test_a_fused_name_in_a_decision_is_described_by_what_its_members_compute(example_store: Path) -> None:
    pairs = Library(example_store).ask(fusion.decisions, EXAMPLE_ID, GRAPH)
    last = next(pair for pair in pairs if pair.b == "op10" and pair.verdict == "fused")
    assert set(last.a_ops) == {"amax", "sub", "exp", "sum_1"}
    assert last.b_ops == ("div",)
    assert last.a_groups == last.b_groups == ("op7_op8_op9_op10",)


def test_graphs_are_offered_in_order_of_compilation(example_store: Path) -> None:
    offered = Library(example_store).ask(graphs.decided_graphs, EXAMPLE_ID)
    assert [graph.graph_id for graph in offered] == [GRAPH, "0/1.inference"]


def test_buffers_of_a_group_are_told_apart_by_what_it_does_with_them(example_store: Path) -> None:
    found = Library(example_store).ask(fusion.group_buffers, EXAMPLE_ID, GRAPH, "op7_op8_op9_op10")
    roles = {buffer.buffer: buffer.role for buffer in found}
    assert roles["buf6"] == "reads"
    assert roles["buf8"] == "inside"
    assert roles["buf10"] == "writes"
