"""What each block of a step is for, and which buffer of which plan it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fusionscope.collector.ledger.plan import Plan
from fusionscope.collector.lifetimes import category_of
from fusionscope.collector.measure.blocks import Block, Timeline, WrapperCall
from fusionscope.storage.records import Buffer

PlanOf = Callable[[str], Plan | None]  # of the graph whose wrapper is in this file


@dataclass(frozen=True, slots=True)
class Known:
    """A block with its category and the planned buffer that it is, where it is one."""

    block: Block
    category: str
    graph_id: str | None = None
    buffer: Buffer | None = None

    @property
    def planned_bytes(self) -> int:
        """What the plan counts for it; of a block that is in no plan all of it."""
        planned = self.buffer.bytes if self.buffer else None
        return self.block.bytes if planned is None else planned


def known_blocks(timeline: Timeline, plan_of: PlanOf, given: Mapping[int, str]) -> list[Known]:
    """Every block of the step. `given` tells the category of what was there before by address."""
    buffers = _Buffers(timeline, plan_of)
    return [_known(block, timeline, buffers, given) for block in timeline.blocks]


def _known(block: Block, timeline: Timeline, buffers: _Buffers, given: Mapping[int, str]) -> Known:
    if block.start_ns is None:
        return Known(block, given.get(block.address, "other"))
    if block.origin.wrapper is None:
        made = category_of(block.origin.phase, block.end_ns, timeline.backward_ns)
        return Known(block, "workspace" if block.is_scratch else made)
    file, _ = block.origin.wrapper
    graph_id, buffer = buffers.take(file, block)
    if buffer is not None:
        return Known(block, buffers.category(file, buffer), graph_id, buffer)
    return Known(block, "workspace" if block.is_scratch else "intermediate", graph_id)


class _Buffers:
    """The planned buffers of each run of a wrapper, taken one by one as the step allocates them."""

    def __init__(self, timeline: Timeline, plan_of: PlanOf) -> None:
        self._timeline, self._plan_of = timeline, plan_of
        self._left: dict[WrapperCall | str, dict[str, Buffer]] = {}

    def take(self, file: str, block: Block) -> tuple[str | None, Buffer | None]:
        """The buffer that a wrapper line's name means; of a call that returns several the first of the same size.

        What is freed before its operator ends is none: the operator's scratch memory.
        """
        plan = self._plan_of(file)
        graph_id = next((buffer.graph_id for buffer in plan.buffers.values()), None) if plan else None
        left = self._of(self._timeline.call_at(file, block.start_ns or 0) or file, plan)
        name = block.origin.buffer
        if name is None or block.is_scratch:
            return graph_id, None
        if name not in left:
            name = best_fit({key: item.bytes or 0 for key, item in left.items()}, block.bytes) or name
        return graph_id, left.pop(name, None)

    def category(self, file: str, buffer: Buffer) -> str:
        """That of the last buffer in the block: memory that ends up as a saved value is held as one."""
        plan = self._plan_of(file)
        return (plan.last_in_block(buffer) if plan else buffer).category

    def _of(self, call: WrapperCall | str, plan: Plan | None) -> dict[str, Buffer]:
        if call not in self._left:
            made = plan.buffers.values() if plan else ()
            self._left[call] = {b.buffer: b for b in made if b.allocated_at is not None and not b.reuses}
        return self._left[call]


_MIN_BLOCK, _SMALL = 512, 2**20  # bytes; kMinBlockSize and kSmallSize in c10/cuda/CUDACachingAllocator.h


def best_fit(asked: Mapping[str, int], given: int) -> str | None:
    """Whose request a block of `given` bytes answers: the closest of those that it can, None where it can none.

    CUDA's allocator rounds up to multiples of 512 bytes; a block above 1 MiB is not split for a rest of 1 MiB or less
    (should_split in c10/cuda/CUDACachingAllocator.cpp).
    """
    able = {name: given - size for name, size in asked.items() if size and 0 <= given - size < _MIN_BLOCK + _rest(size)}
    return min(able, key=lambda name: able[name], default=None)


def _rest(size: int) -> int:
    return _SMALL if size > _SMALL else 0
