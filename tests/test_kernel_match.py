"""Kernels of two runs are matched by what they compute, whatever they are called."""

from __future__ import annotations

from fusionscope.storage.queries.identity import Op, Pairing, match


def op(line: int, target: str, ordinal: int = 1) -> Op:
    """An operation of the forward pass of one file."""
    return Op("forward", "layers.0", "model.py", f"line {line}", target, ordinal, line)


ADD, GELU, MEAN, MUL = op(1, "aten.add"), op(2, "aten.gelu"), op(3, "aten.mean"), op(4, "aten.mul")


def sides(pairings: list[Pairing]) -> set[tuple[tuple[str, ...], tuple[str, ...], str]]:
    return {(tuple(sorted(p.a)), tuple(sorted(p.b)), p.matched_by) for p in pairings}


def test_equal_work_is_matched_under_other_names() -> None:
    found = match({"k0": {ADD}, "k1": {GELU, MUL}}, {"x7": {GELU, MUL}, "x8": {ADD}})
    assert sides(found) == {(("k0",), ("x8",), "operations"), (("k1",), ("x7",), "operations")}


def test_a_kernel_stands_beside_the_pieces_that_it_was_split_into() -> None:
    found = match({"whole": {ADD, GELU, MEAN}}, {"first": {ADD, GELU}, "second": {MEAN}})
    assert sides(found) == {(("whole",), ("first", "second"), "operations")}


def test_a_producer_that_is_computed_again_elsewhere_joins_no_kernels() -> None:
    a = {"k0": {ADD, GELU}, "k1": {ADD, MEAN, MUL}}
    b = {"x0": {GELU}, "x1": {ADD, MEAN, MUL}, "x2": {ADD}}
    assert (("k1",), ("x1",), "operations") in sides(match(a, b))


def test_layers_of_a_loop_are_told_apart_by_their_place_in_the_graph() -> None:
    first, second = op(1, "aten.add", 1), op(1, "aten.add", 2)
    found = match({"k0": {first}, "k1": {second}}, {"x0": {second}, "x1": {first}})
    assert sides(found) == {(("k0",), ("x1",), "operations"), (("k1",), ("x0",), "operations")}


def test_source_lines_match_where_a_version_has_other_operators() -> None:
    found = match({"k0": {op(5, "aten.silu")}}, {"x0": {op(5, "aten.sigmoid"), op(5, "aten.mul")}})
    assert sides(found) == {(("k0",), ("x0",), "source lines")}


def test_what_only_one_run_has_is_alone() -> None:
    found = match({"k0": {ADD}, "k1": set()}, {"x0": {MUL}})
    assert sides(found) == {(("k0",), (), "nothing"), (("k1",), (), "nothing"), ((), ("x0",), "nothing")}


def test_a_line_that_moved_is_known_by_its_text() -> None:
    moved = Op("forward", "layers.0", "model.py", "line 1", "aten.add", 1, line=71)
    assert sides(match({"k0": {ADD}}, {"x0": {moved}})) == {(("k0",), ("x0",), "operations")}
