"""The Memory page with many buffers: seconds from the page's shell to a usable page, and what the browser is sent."""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from browser import Unwatched, chromium, open_screen, painted, server, settle
from example_run import example_run
from playwright.sync_api import Browser, Page

from fusionscope.storage import records as r
from fusionscope.storage.library import Library
from fusionscope.storage.spool import Spool

GRAPH = "0/0.inference"
CATEGORIES = ("intermediate", "intermediate", "intermediate", "saved", "output")
VIEWS = ("plan", "compiled")
TIMES = 3
DRAWN = (".st-key-heading", ".js-plotly-plot .barlayer", '[data-testid="stDataFrame"] canvas')


@dataclass(frozen=True)
class Opened:
    """One opening of the page: seconds until the picture and the live set are there."""

    usable: float  # from the shell
    navigated: float  # from navigation


def seconds_and_payload(counts: list[int]) -> Iterator[str]:
    """A line per number of buffers and view: the first opening, with an empty cache, and later ones."""
    with chromium() as browser:
        for count in counts:
            with tempfile.TemporaryDirectory() as folder:
                run_id = publish(Path(folder), count)
                with server(Path(folder)) as address:
                    page = browser.new_page()
                    open_screen(page, address, "", run=run_id)  # the library is read, Python is warm
                    page.close()
                    for view in VIEWS:
                        yield told(count, view, browser, f"{address}/memory?run={run_id}&view={view}")


def told(count: int, view: str, browser: Browser, address: str) -> str:
    first = empty_cache(browser, address)
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    (_, payload), *later = [opened(page, address) for _ in range(1 + TIMES)]
    page.close()
    usable, navigated = (statistics.median(getattr(one, name) for one, _ in later) for name in ("usable", "navigated"))
    return (
        f"{count:7,} buffers, {view:8}  usable {first.usable:5.2f} s after the shell, {first.navigated:5.2f} s after "
        f"navigation with an empty cache; later {usable:5.2f} s, {navigated:5.2f} s; payload {payload / 1024:4.0f} KiB"
    )


def empty_cache(browser: Browser, address: str) -> Opened:
    """The first opening, in a page of its own."""
    page = Unwatched(browser)
    shell, *parts = page.painted(address, *DRAWN)
    page.close()
    return Opened(max(parts) - shell, max(parts))


def opened(page: Page, address: str) -> tuple[Opened, int]:
    """Open an address, and let the page come to rest; with the bytes that came from the server until it was drawn."""
    (shell, *parts), received = painted(page, address, *DRAWN)
    settle(page)
    return Opened(max(parts) - shell, max(parts)), received


def publish(store: Path, count: int) -> str:
    """A run with a plan and a measured step of so many buffers."""
    run = example_run(f"memory-{count}")
    spool = Spool.create(store, run)
    spool.append(list(many(count)))
    spool.publish(run)
    Library(store).import_inbox()
    return run.run_id


def many(count: int) -> Iterator[Any]:
    """A chain of operations, each with a buffer of its own that a later one reads; sizes over five decades."""
    chance = random.Random(0)
    yield r.Compile(compile_id="0/0", function="forward", file="model.py", line=1, outcome="compiled")
    yield r.Graph(graph_id=GRAPH, compile_id="0/0", stage="post_grad", direction="inference")
    yield r.Kernel(kernel_id=f"{GRAPH}/kernel", graph_id=GRAPH, name="kernel", backend="triton")
    sizes = [2 ** chance.randint(9, 24) for _ in range(count)]
    reach = [chance.choice((1, 1, 2, 3, 20, count // 3 + 1)) for _ in range(count)]
    ends = [index + reach[index] if index + reach[index] < count else None for index in range(count)]
    yield from _plan(sizes, ends)
    yield from _measured(sizes, ends, chance)


def _plan(sizes: list[int], ends: list[int | None]) -> Iterator[Any]:
    freed: dict[int, list[int]] = {}
    for index, end in enumerate(ends):
        freed.setdefault(len(sizes) if end is None else end, []).append(index)
    step = live = 0
    allocated: dict[int, int] = {}
    for index, size in enumerate(sizes):
        live, allocated[index] = live + size, step
        yield _point("plan", GRAPH, step, live, f"allocate buf{index}")
        yield r.KernelCall(
            graph_id=GRAPH, position=index, kernel_id=f"{GRAPH}/kernel", group_ids=(f"op{index}",), step=step + 1
        )
        yield r.FusionGroup(graph_id=GRAPH, group_id=f"op{index}", members=(f"op{index}",), position=index)
        yield r.IrNode(graph_id=GRAPH, ir_node=f"op{index}", kind="pointwise", buffers=(f"buf{index}",), position=index)
        step += 2
        for dead in freed.get(index, ()):
            live -= sizes[dead]
            yield _point("plan", GRAPH, step, live, f"free buf{dead}")
            yield r.IrEdge(graph_id=GRAPH, src=f"op{dead}", dst=f"op{index}", buffer=f"buf{dead}", bytes=sizes[dead])
            yield _buffer(dead, sizes[dead], allocated[dead], step)
            step += 1
    for index in freed.get(len(sizes), ()):
        yield _buffer(index, sizes[index], allocated[index], None)


def _buffer(index: int, size: int, allocated: int, freed: int | None) -> r.Buffer:
    return r.Buffer(
        graph_id=GRAPH,
        buffer=f"buf{index}",
        category=CATEGORIES[index % len(CATEGORIES)] if freed is None else "intermediate",
        bytes=size,
        allocated_at=allocated,
        freed_at=freed,
        ir_node=f"op{index}",
        kernel_id=f"{GRAPH}/kernel",
    )


def _measured(sizes: list[int], ends: list[int | None], chance: random.Random) -> Iterator[Any]:
    """The same buffers as blocks of a measured step."""
    freed: dict[int, list[int]] = {}
    for index, end in enumerate(ends):
        if end is not None:
            freed.setdefault(end, []).append(index)
    event = live = 0
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, size in enumerate(sizes):
        live, first[index] = live + size, event
        yield _point("measured", "", event, live, f"buf{index} = empty_strided_cuda")
        event += 1
        for dead in freed.get(index, ()):
            live, last[dead] = live - sizes[dead], event
            yield _point("measured", "", event, live, f"free buf{dead}")
            event += 1
    for index, size in enumerate(sizes):
        end = last.get(index)
        yield r.Allocation(
            variant="compiled",
            phase="forward",
            start_us=first[index] * 3.0,
            end_us=None if end is None else end * 3.0,
            first_event=first[index],
            last_event=end,
            bytes=size,
            category=CATEGORIES[index % len(CATEGORIES)],
            graph_id=GRAPH,
            buffer=f"buf{index}",
            label=f"buf{index} = empty_strided_cuda",
            file="model.py",
            line=chance.randint(1, 400),
        )


def _point(basis: str, graph_id: str, step: int, live: int, label: str) -> r.MemoryPoint:
    return r.MemoryPoint(
        graph_id=graph_id,
        basis=basis,
        variant="compiled",
        step=step,
        time_us=step * 3.0,
        live_bytes=live,
        base_bytes=0,
        label=label,
    )
