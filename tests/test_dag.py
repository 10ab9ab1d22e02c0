"""The kernel graph: its layout, its boxes and the facts behind them."""

from __future__ import annotations

import random
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from example_run import EXAMPLE_ID

from fusionscope.app.figures.boxes import LABEL_LENGTH, box_size, breadth, label, operators, short_kernel
from fusionscope.app.figures.dag import KernelGraph, kernel_graph
from fusionscope.app.figures.dag_colours import FIGURES, SEQUENTIAL, UNKNOWN, Paint
from fusionscope.app.figures.dag_items import NO_MODULE, OTHER, Facts, calls_of, module_of, tree
from fusionscope.app.figures.layout import Point, Size, layered
from fusionscope.storage.library import Library
from fusionscope.storage.queries import fusion, fusion_ops, fusion_refusals, graphs
from fusionscope.storage.queries.fusion import Group, Lowering
from fusionscope.storage.queries.fusion_ops import Handover, Op, Use

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
        "modules": (None,),
        "file": None,
        "line": None,
    }
    return Group(**facts | changed)  # type: ignore[arg-type]


def lowering(node: str, realized: bool, groups: tuple[str, ...]) -> Lowering:
    return Lowering(node, None, None, None, None, len(groups), 1, 1, None, realized, None, None, groups)


def handover(src: str, dst: str, buffer: str, count: int | None = 1, materialised: bool = True) -> Handover:
    return Handover(src, dst, src, dst, buffer, count, materialised)


def op(group: str, node: str, target: str = "aten.add.Tensor") -> Op:
    none = dict.fromkeys(("stride", "dtype", "bytes", "flops", "module_path", "file", "line", "source_text"))
    return Op(group_id=group, node=node, ir_nodes=(group,), target=target, shape=("4", "8"), recomputed=False, **none)


def picture(facts: Facts, level: str = "kernel", toggled: frozenset[str] = frozenset()) -> KernelGraph:
    return kernel_graph([("forward", tree(facts, level, toggled))], Paint())


def overlap(a: Point, b: Point, size: Size) -> bool:
    return abs(a[0] - b[0]) < size[0] and abs(a[1] - b[1]) < size[1]


def test_an_edge_of_a_short_graph_points_down() -> None:
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    places = layered(dict.fromkeys("abcd", BOX), edges, WIDE).places
    assert all(places[src][1] < places[dst][1] for src, dst in edges)


def test_boxes_never_overlap() -> None:
    chance = random.Random(7)
    names = [f"n{i}" for i in range(120)]
    edges = [(names[chance.randrange(max(0, i - 6), i)], names[i]) for i in range(1, 120) for _ in range(2)]
    places = layered(dict.fromkeys(names, BOX), edges, WIDE).places
    assert not [pair for pair in combinations(names, 2) if overlap(places[pair[0]], places[pair[1]], BOX)]


def test_a_long_chain_is_folded_to_the_viewport_and_a_short_one_is_not() -> None:
    def columns(count: int) -> int:
        names = [f"n{i}" for i in range(count)]
        return len({x for x, _ in layered(dict.fromkeys(names, BOX), pairwise(names), WIDE).places.values()})

    assert columns(5) == 1
    assert 4 <= columns(100) <= 9


def test_a_source_stands_beside_its_first_user() -> None:
    places = layered(
        dict.fromkeys(["a", "b", "weight", "c"], BOX), [("a", "b"), ("b", "c"), ("weight", "c")], WIDE
    ).places
    assert places["weight"][1] == places["b"][1]


def test_a_cycle_and_an_empty_graph_are_laid_out_too() -> None:
    assert layered({}, [], WIDE).places == {}
    assert len(layered(dict.fromkeys("ab", BOX), [("a", "b"), ("b", "a")], WIDE).places) == 2


def test_columns_begin_where_a_part_of_the_model_does() -> None:
    names = [f"n{i}" for i in range(60)]
    parts = {name: i // 7 for i, name in enumerate(names)}
    columns = layered(dict.fromkeys(names, BOX), pairwise(names), WIDE, parts).columns
    assert len(columns) > 3
    assert all(parts[column.names[0]] != parts[before.names[-1]] for before, column in pairwise(columns))


def test_an_edge_runs_where_no_box_stands() -> None:
    chance = random.Random(3)
    names = [f"n{i}" for i in range(90)]
    edges = [(names[chance.randrange(max(0, i - 30), i)], names[i]) for i in range(1, 90) for _ in range(2)]
    layout = layered(dict.fromkeys(names, BOX), edges, WIDE)
    for (src, dst), route in layout.routes.items():
        for a, b in pairwise(route):
            crossed = {
                name for name, place in layout.places.items() if a[0] == b[0] or a[1] == b[1] if crosses(a, b, place)
            }
            assert crossed <= {src, dst}


def crosses(a: Point, b: Point, place: Point) -> bool:
    """Whether a level or upright line from a to b goes through the inside of a box at `place`."""
    (left, right), (top, bottom) = sorted((a[0], b[0])), sorted((a[1], b[1]))
    x, y, half_width, half_height = *place, BOX[0] / 2 - 1, BOX[1] / 2 - 1
    return left < x + half_width and right > x - half_width and top < y + half_height and bottom > y - half_height


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
    groups = [group(f"g{i}") for i in range(6)]
    drawn = picture(Facts(groups, [handover(f"g{i}", f"g{i + 1}", f"b{i}") for i in range(5)], []))
    (frame,) = drawn.frames
    for node in drawn.network.nodes:
        assert frame.x < node["x"] - node["boxWidth"] / 2
        assert node["x"] + node["boxWidth"] / 2 < frame.x + frame.width
        assert frame.y < node["y"] - node["boxHeight"] / 2
        assert node["y"] + node["boxHeight"] / 2 < frame.y + frame.height


def test_a_group_that_nothing_writes_for_and_no_kernel_runs_stands_alone() -> None:
    assert len(calls_of([group("a", 0), group("b", 0), group("c", None)], [])) == 2


def test_a_group_without_a_kernel_joins_the_last_call_that_writes_for_it_so_that_no_cycle_arises() -> None:
    groups = [group("a", 0), group("cat", None, kind="nop"), group("b", 0), group("first", 1), group("view", None)]
    handovers = [handover("a", "cat", "x"), handover("cat", "b", "y"), handover("first", "view", "z")]
    inside = [[held.group_id for held in call] for call in calls_of(groups, handovers)]
    assert inside == [["a", "cat", "b"], ["first", "view"]]


def test_an_inlined_producer_is_named_in_each_box_that_computes_it_and_a_realized_one_is_not() -> None:
    decided = [lowering("sin", False, ("a", "b")), lowering("exp", True, ("a",))]
    nodes = picture(Facts([group("a", 0), group("b", 1)], [], decided)).network.nodes
    assert [node["lines"][-1] for node in nodes] == ["inlined: sin", "inlined: sin"]
    assert [node["marks"] for node in nodes] == [("again",), ("again",)]


def test_an_edge_is_wider_with_more_bytes_and_thin_where_they_are_not_recorded() -> None:
    handovers = [handover("a", "b", "x", 1 << 30), handover("b", "c", "y", 1 << 20), handover("a", "c", "z", None)]
    edges = picture(Facts([group(name, i) for i, name in enumerate("abc")], handovers, [])).network.edges
    assert [edge["width"] for edge in edges] == [4.0, pytest.approx(1.0, abs=0.05), 1.0]


def test_a_value_in_registers_is_told_from_one_in_memory() -> None:
    handovers = [handover("a", "b", "x", 4), handover("b", "c", "y", 4, materialised=False)]
    edges = picture(Facts([group(name, i) for i, name in enumerate("abc")], handovers, [])).network.edges
    assert [edge["kind"] for edge in edges] == ["memory", "register"]


def opened() -> Facts:
    """Two groups, the first of three FX nodes."""
    groups = [group("g", 0, ops=("x", "y", "z")), group("h", 1)]
    ops = [op("g", "x"), op("g", "y"), op("g", "z"), op("h", "add")]
    uses = [Use("x", "y"), Use("y", "z"), Use("z", "add")]
    return Facts(groups, [handover("g", "h", "buf0", 64)], [], ops, uses)


def test_a_group_opens_in_place_into_its_fx_nodes() -> None:
    closed, drawn = picture(opened()), picture(opened(), toggled=frozenset({"g"}))
    assert [node["id"] for node in closed.network.nodes] == ["g", "h"]
    assert [node["id"] for node in drawn.network.nodes] == ["g/x", "g/y", "g/z", "h"]
    assert [frame.id for frame in drawn.frames] == ["g"]
    assert {(edge["from"], edge["to"]): edge["kind"] for edge in drawn.network.edges} == {
        ("g/x", "g/y"): "register",
        ("g/y", "g/z"): "register",
        ("g/z", "h"): "memory",
    }


def test_the_level_op_opens_every_group_and_a_toggled_one_is_closed() -> None:
    assert picture(opened(), "op").network.nodes == picture(opened(), toggled=frozenset({"g"})).network.nodes
    assert picture(opened(), "op", frozenset({"g"})).network.nodes == picture(opened()).network.nodes


def test_the_level_module_shows_a_stretch_of_one_module_as_one_box_that_opens() -> None:
    paths = ("blocks.0.up", "blocks.0.down", "blocks.1.up", "head")
    groups = [group(f"g{i}", i, modules=(path,)) for i, path in enumerate(paths)]
    facts = Facts(groups, [handover(f"g{i}", f"g{i + 1}", f"b{i}") for i in range(3)], [])
    drawn = picture(facts, "module")
    assert [node["lines"][0] for node in drawn.network.nodes] == ["blocks.0", "blocks.1", "head"]
    assert [(edge["from"], edge["to"]) for edge in drawn.network.edges] == [
        ("module g0", "module g2"),
        ("module g2", "module g3"),
    ]
    inside = picture(facts, "module", frozenset({"module g0"}))
    assert [node["id"] for node in inside.network.nodes] == ["g0", "g1", "module g2", "module g3"]
    assert [frame.label for frame in inside.frames] == ["blocks.0"]


def test_a_call_belongs_to_the_module_of_most_of_its_ops() -> None:
    assert module_of([group("g", modules=("blocks.0.mlp", "blocks.1.norm", "blocks.1.norm"))]) == "blocks.1"
    assert module_of([group("g")]) == NO_MODULE


def test_colours_follow_a_figure_and_what_is_not_recorded_is_grey() -> None:
    groups = [group(name, i) for i, name in enumerate("abc")]
    paint = Paint(FIGURES["time"], {"a": 1.0, "b": 10.0, "c": None})
    drawn = kernel_graph([("forward", tree(Facts(groups, [], []), "kernel", frozenset()))], paint)
    assert [node["fill"] for node in drawn.network.nodes] == [SEQUENTIAL[0], SEQUENTIAL[-1], UNKNOWN]
    assert [node["lines"][1] for node in drawn.network.nodes] == ["1 µs", "10 µs", "—"]
    assert (drawn.legend[0]["low"], drawn.legend[0]["high"]) == ("1 µs", "10 µs")


def test_two_graphs_of_one_picture_keep_their_own_figures() -> None:
    facts = Facts([group("a")], [], [])
    trees = [(name, tree(facts, "kernel", frozenset(), mark)) for name, mark in (("forward", ""), ("backward", OTHER))]
    drawn = kernel_graph(trees, Paint(FIGURES["time"], {"a": 1.0, f"{OTHER}a": 10.0}))
    assert [(node["id"], node["lines"][1]) for node in drawn.network.nodes] == [("a", "1 µs"), ("~a", "10 µs")]
    assert drawn.network.nodes[0]["x"] + 100 < drawn.network.nodes[1]["x"]
    assert [heading.text for heading in drawn.headings] == ["forward", "backward"]


@pytest.mark.parametrize(
    "name", ["a" * 10_000, "\u202eabc\u202c\x00\n", "日本語のとても長い名前です、本当に", "</script><b>", "![x](y)"]
)
def test_a_label_fits_its_box_whatever_the_name(name: str) -> None:
    shown = label(name)
    assert breadth(shown) <= LABEL_LENGTH
    assert not set("\u202e\u202c\x00\n") & set(shown)
    assert breadth(shown) * 7.3 + 20 <= box_size((shown,), True)[0]


def test_the_example_becomes_one_box_per_group_joined_by_its_buffers(example_store: Path) -> None:
    library = Library(example_store)
    groups = library.ask(fusion.groups, EXAMPLE_ID, GRAPH)
    handovers = library.ask(fusion_ops.handovers, EXAMPLE_ID, GRAPH)
    drawn = picture(Facts(groups, handovers, library.ask(fusion.lowerings, EXAMPLE_ID, GRAPH)))
    assert [g.kind for g in groups] == ["extern", "pointwise"] * 3 + ["extern", "reduction"]
    assert len(drawn.network.nodes) == len(groups) == 8
    assert len(drawn.network.edges) == 7
    assert drawn.frames == []


def test_the_worklist_counts_a_pair_of_groups_once_under_the_last_answer(example_store: Path) -> None:
    library = Library(example_store)
    rows = library.ask(fusion_refusals.worklist, EXAMPLE_ID, GRAPH)
    pairs = library.ask(fusion.decisions, EXAMPLE_ID, GRAPH)
    apart = {frozenset((*p.a_groups, *p.b_groups)) for p in pairs}
    assert sum(row.pairs for row in rows) == len({ends for ends in apart if len(ends) == 2})
    activation = 64 * 512 * 4  # what each addmm hands to its relu; refusals inside the softmax were fused in the end
    assert [(row.verdict, row.bytes, row.line) for row in rows] == [
        ("refused", activation, 16),
        ("refused", activation, 17),
        ("refused", activation, 18),
        ("legal", 0, 20),
    ]


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
