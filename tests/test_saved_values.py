"""What a forward saves for its backward, in the plan of the backward: blocks of memory, each counted once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.backends.distributed import DDPOptimizer
from torch._inductor.compile_fx import compile_fx

from fusionscope.collector import record
from fusionscope.storage.library import Library
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.records import Buffer, MemoryPoint

BACKWARD = "0/0.backward"
PACKED = (4, 3, 4, 128, 64)


class Plan:
    """The plan of the backward of a run."""

    def __init__(self, store: Path, drive: Any) -> None:
        torch._dynamo.reset()
        with record("saved", store=store, strict=True) as recording:
            drive()
        library, run_id = Library(store), recording.run_id
        self.buffers = [b for b in library.ask(records_of, Buffer, run_id) if b.graph_id == BACKWARD]
        self.saved = [b for b in self.buffers if b.category == "saved"]
        points = library.ask(records_of, MemoryPoint, run_id)
        self.points = [p for p in points if (p.graph_id, p.basis) == (BACKWARD, "plan")]


def attend(packed: torch.Tensor) -> torch.Tensor:
    """Query, key and value as views of one tensor of the shape PACKED."""
    mixed: torch.Tensor = torch.nn.functional.scaled_dot_product_attention(*packed.unbind(1), is_causal=True)
    return mixed


def kept_by(compiled: Any, inputs: tuple[torch.Tensor, ...]) -> list[int]:
    """Run forward and backward; bytes of each block that the forward kept for the backward, its inputs left out."""
    loss = compiled(*inputs).sum()
    saved = loss.grad_fn.next_functions[0][0].saved_tensors
    blocks = {s.untyped_storage().data_ptr(): s.untyped_storage().nbytes() for s in saved}
    given = {x.untyped_storage().data_ptr() for x in inputs}
    loss.backward()
    return sorted(size for block, size in blocks.items() if block not in given)


def scaled_by_a_mutated_input(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The saved value is a view of `y`, by a name that a pass over the forward takes away."""
    y[0].mul_(2)
    return (x * y.t()).exp()


def convolved(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """On a CPU the forward copies both into another layout, and saves the copies."""
    return torch.nn.functional.conv2d(x.sin(), weight).sin()


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x: attend(x.sin()), [PACKED]),
        (scaled_by_a_mutated_input, [(16, 16), (16, 16)]),
        (convolved, [(2, 4, 8, 8), (8, 4, 3, 3)]),
    ],
)
def test_what_a_backward_finds_is_what_the_forward_kept(tmp_path: Path, function: Any, shapes: list[Any]) -> None:
    kept: list[int] = []
    inputs = tuple(torch.randn(shape, requires_grad=index == 0) for index, shape in enumerate(shapes))
    plan = Plan(tmp_path, lambda: kept.extend(kept_by(torch.compile(function), inputs)))
    assert sorted(b.bytes or 0 for b in plan.saved if not b.reason) == kept
    freed = {b.freed_at for b in plan.saved}
    assert -sum(p.delta_bytes or 0 for p in plan.points if p.step in freed) == sum(kept)


def test_the_last_of_several_views_of_a_buffer_frees_it(tmp_path: Path) -> None:
    x = torch.randn(PACKED, requires_grad=True)
    plan = Plan(tmp_path, lambda: torch.compile(lambda x: attend(x.sin()))(x).sum().backward())
    saved = [b for b in plan.saved if b.bytes in (0, x.nbytes)]
    owner, *views = saved
    assert [(b.bytes, b.reason) for b in views] == [(0, f"a view of the memory of {owner.buffer}")] * 2
    assert (owner.bytes, owner.reason, {b.freed_at for b in saved}) == (x.nbytes, None, {owner.freed_at})


def test_a_saved_view_of_what_the_caller_holds_is_an_input_and_not_freed(tmp_path: Path) -> None:
    x = torch.randn(PACKED, requires_grad=True)
    plan = Plan(tmp_path, lambda: torch.compile(attend)(x).sum().backward())
    inputs = [b for b in plan.buffers if b.category == "input"]
    assert sorted(b.bytes or 0 for b in inputs) == [0, 0, x.nbytes]
    assert {b.freed_at for b in inputs} == {None}


def test_a_backward_that_ddp_split_off_has_the_sizes_of_its_own_values(tmp_path: Path) -> None:
    """Its backwards are compiled last part first: the one that is called like the first forward is not its own."""
    layers = [torch.nn.Linear(16, 16, bias=False), torch.nn.Linear(16, 64, bias=False)]
    model = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1], torch.nn.Tanh())
    room = layers[0].weight.nbytes
    parts = DDPOptimizer(bucket_bytes_cap=room, first_bucket_cap=room, backend_compile_fn=compile_fx)
    compiled = torch.compile(model, backend=parts.compile_fn)
    plan = Plan(tmp_path, lambda: compiled(torch.randn(16, 16)).sum().backward())
    assert plan.saved
    assert {b.bytes for b in plan.saved} == {4 * math.prod(int(n) for n in b.shape or ()) for b in plan.saved}
