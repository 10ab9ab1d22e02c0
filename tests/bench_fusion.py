"""How long the Fusion screen takes to open and to answer, in Chromium, for a GPT of growing depth."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from browser import chromium, painted, server, settle
from duckdb import DuckDBPyConnection
from playwright.sync_api import Page

from fusionscope.app.figures.dag import kernel_graph
from fusionscope.app.figures.dag_colours import Paint
from fusionscope.app.figures.dag_items import Facts, tree
from fusionscope.storage.library import Library
from fusionscope.storage.queries import fusion, fusion_ops, graphs
from fusionscope.storage.queries.runs import library_runs

DEPTHS = (2, 9, 37, 92)  # layers: about 100, 500, 2,000 and 5,000 FX nodes
VISITS, CLICKS = 3, 5
MODEL = """
from fusionscope.sample_models import gpt

def build():
    model, inputs, options = gpt.build(gpt.GPTConfig(layers={layers}))
    return model.requires_grad_(False), inputs, options
"""
PLACES = """(canvas) => [...canvas.shown.boxes.values()].map(({ id, x, y, title }) => {
    const at = canvas.network.canvasToDOM({ x, y });
    const view = canvas.querySelector(".view").getBoundingClientRect();
    return [id, view.x + at.x, view.y + at.y, title.split("\\n")[0]];
})"""


def opening(asked: argparse.Namespace) -> None:
    """Print, per depth and level: seconds to a graph that answers clicks, from a click to the panel, and of layout.

    All of them grow with the load of the machine, and no graph can be drawn before a page without one would be.
    """
    with nullcontext(asked.store) if asked.store else tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        runs = [recorded(store, layers) for layers in DEPTHS]
        with server(store) as address, chromium() as browser:
            page = browser.new_page(viewport={"width": 1440, "height": 1000})
            page.goto(address)
            settle(page)
            empty = min(visit(page, f"{address}/overview?run={runs[0]}", ".st-key-sentence")[0] for _ in range(VISITS))
            say(f"a page without a graph: {empty:.2f} s; load {os.getloadavg()[0]:.1f}")
            for run_id in runs:
                for level in ("kernel", "op"):
                    told(page, address, store, run_id, level)


def recorded(store: Path, layers: int) -> str:
    """The run of a GPT of so many layers in inference; recorded unless the store has it."""
    name = f"gpt_{layers}"
    library = Library(store)
    library.import_inbox()
    known = {run.name: run.run_id for run in library.ask(library_runs)}
    if name not in known:
        file = store / f"{name}.py"
        file.write_text(MODEL.format(layers=layers))
        command = [sys.executable, "-m", "fusionscope.collector.cli", "record", str(file), "--no-measure"]
        subprocess.run([*command, "--store", str(store)], check=True, capture_output=True)
        library.import_inbox()
    return library.find(name)


def told(page: Page, address: str, store: Path, run_id: str, level: str) -> None:
    """Measure one run at one level, and print it."""
    boxes, ops, layout = laid_out(store, run_id, level)
    visits = [visit(page, f"{address}/fusion?run={run_id}&level={level}") for _ in range(VISITS)]
    settle(page)
    clicks = sorted(clicked(page, CLICKS)) if level == "kernel" else []
    first, *others = (seconds for seconds, _ in visits)
    answer = f"{statistics.median(clicks):.2f} s" if clicks else "–"
    say(
        f"{ops:5} ops, level {level:6} {boxes:5} boxes: drawn in {first:.2f} s at first, {min(others):.2f} s again; "
        f"click to panel {answer}; {visits[-1][1] / 1e6:.2f} MB; layout {layout:.2f} s; load {os.getloadavg()[0]:.1f}"
    )


def laid_out(store: Path, run_id: str, level: str) -> tuple[int, int, float]:
    """Boxes of the picture, FX nodes of the graph, and CPU seconds to arrange it."""
    ask = Library(store).ask
    graph = ask(graphs.decided_graphs, run_id)[0].graph_id
    queries = (fusion.groups, fusion_ops.handovers, fusion.lowerings, fusion_ops.ops, fusion_ops.uses)
    facts = Facts(*(ask(query, run_id, graph) for query in queries))
    start = time.process_time()
    drawn = kernel_graph([("", tree(facts, level, frozenset()))], Paint())
    took = time.process_time() - start
    return len(drawn.network.nodes), ask(count_ops, run_id, graph), took


def count_ops(con: DuckDBPyConnection, run_id: str, graph_id: str) -> int:
    """FX nodes that compute something, views included."""
    rows = "graph_nodes WHERE run_id = ? AND graph_id = ? AND op = 'call_function'"
    (count,) = con.execute(f"SELECT count(*) FROM {rows}", [run_id, graph_id]).fetchone() or (0,)
    return int(count)


def visit(page: Page, url: str, drawn: str = ".canvas[data-ready]") -> tuple[float, int]:
    """Seconds from navigation to what is waited for, and bytes of all messages until then; the page is at rest before.

    Without that rest the server would still be at work on the rest of the last page.
    """
    settle(page)
    (seconds,), received = painted(page, url, drawn)
    return seconds, received


def clicked(page: Page, times: int) -> list[float]:
    """Seconds from a click on a box to its panel."""
    places = page.locator(".canvas").evaluate(PLACES)
    found, shown = [], ""
    for _, x, y, kernel in places[1 :: max(1, len(places) // (2 * times))]:
        if len(found) == times or kernel == shown:
            continue
        start = time.perf_counter()
        page.mouse.click(x, y)
        page.locator(".name").get_by_text(kernel, exact=True).wait_for()
        found.append(time.perf_counter() - start)
        shown = kernel
        page.wait_for_timeout(300)
    return found


def say(text: str) -> None:
    """Print at once: a bench takes minutes."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
