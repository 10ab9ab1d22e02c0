"""A recording is published however it ends, and never reaches beyond its own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import torch

from fusionscope.collector import AlreadyRecording, record
from fusionscope.storage.library import Library
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.records import (
    Buffer,
    Compile,
    Counter,
    FusionDecision,
    FusionGroup,
    Graph,
    GraphNode,
    KernelCall,
    Measurement,
    NodeLink,
    PartitionChoice,
    PassChange,
    Run,
)

PROGRAM = """
import os, sys, time
import torch
from fusionscope.collector import record

with record("program", store=sys.argv[1]):
    torch.compile(torch.sin)(torch.ones(4))
    {then}
"""


def runs(store: Path) -> list[Run]:
    """Every run of a store, after what waits in its inbox was imported."""
    library = Library(store)
    library.import_inbox()
    ids = [str(run_id) for (run_id,) in library.ask(lambda con: con.execute("SELECT run_id FROM runs").fetchall())]
    return [run for run_id in ids for run in library.ask(records_of, Run, run_id)]


def compiles(store: Path, run_id: str) -> int:
    """How many compiles a run kept."""
    return len(Library(store).ask(records_of, Compile, run_id))


def start(store: Path, then: str) -> subprocess.Popen[str]:
    """Run a program that records one compile and then does `then`; returns once it says that it is ready."""
    code = textwrap.dedent(PROGRAM).format(then=then)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


WAIT = "print('ready', flush=True); time.sleep(60)"


def test_a_recorder_inside_a_recorder_is_refused(tmp_path: Path) -> None:
    with record("outer", store=tmp_path), pytest.raises(AlreadyRecording, match="one recording at a time"):  # noqa: SIM117
        with record("inner", store=tmp_path):
            pass
    assert [run.name for run in runs(tmp_path)] == ["outer"]


def test_an_exception_passes_through_and_the_run_is_kept_as_failed(tmp_path: Path) -> None:
    def fails() -> None:
        with record("raises", store=tmp_path):
            torch.compile(torch.cos)(torch.ones(4))
            raise ZeroDivisionError("division by zero")

    with pytest.raises(ZeroDivisionError):
        fails()
    (run,) = runs(tmp_path)
    assert (run.status, run.status_reason) == (
        "failed",
        "the recorded code raised ZeroDivisionError: division by zero",
    )
    assert compiles(tmp_path, run.run_id) == 1


def test_recording_stops_after_as_many_compiles_as_asked(tmp_path: Path) -> None:
    torch._dynamo.reset()
    with record("stop", store=tmp_path, stop_after=2):
        for function in (torch.sin, torch.cos, torch.tan):
            torch.compile(function)(torch.ones(5))
    (run,) = runs(tmp_path)
    assert (run.status, run.status_reason) == ("partial", "stopped after 2 compiles, as asked")
    assert compiles(tmp_path, run.run_id) == 2


def test_compiles_caused_by_measuring_are_kept_apart(tmp_path: Path) -> None:
    torch._dynamo.reset()
    with record("compare", store=tmp_path, strict=True) as recording, torch.no_grad():
        comparison = recording.compare(torch.nn.Linear(8, 8), (torch.ones(2, 8),))
    kept = Library(tmp_path).ask(records_of, Compile, recording.run_id)
    assert {compile.phase for compile in kept} == {"measure"}
    metrics = {(m.variant, m.metric) for m in Library(tmp_path).ask(records_of, Measurement, recording.run_id)}
    assert {("eager", "latency_us"), ("compiled", "latency_us"), ("compiled", "peak_bytes")} <= metrics
    assert comparison.compiled_kernels >= 1


def test_what_measuring_compiles_is_in_no_counter(tmp_path: Path) -> None:
    def counters(*, measure: bool) -> dict[tuple[str | None, str], int]:
        torch._dynamo.reset()
        with record("counted", store=tmp_path, strict=True) as recording, torch.no_grad():
            torch.compile(torch.sin)(torch.ones(4))
            if measure:
                recording.compare(torch.nn.Softmax(-1), (torch.ones(4, 6),))
            torch.compile(torch.cos)(torch.ones(4))
        counted = Library(tmp_path).ask(records_of, Counter, recording.run_id)
        return {(counter.graph_id, counter.name): counter.value for counter in counted}

    alone, beside = counters(measure=False), counters(measure=True)
    assert [name for graph, name in alone if graph is None]
    assert sorted((name, value) for (_, name), value in beside.items()) == sorted(
        (name, value) for (_, name), value in alone.items()
    )


CACHED = """
import sys
import torch
from fusionscope.collector import record

def gated(x, weight):
    return torch.sigmoid(x @ weight) * torch.cos(x @ weight) * float(sys.argv[2])

with record("cached", store=sys.argv[1], strict=True, keep_caches=True) as recording:
    torch.compile(gated)(torch.ones(8, 16), torch.ones(16, 16, requires_grad=True)).sum().backward()
print(recording.run_id)
"""
DECISIONS = (FusionGroup, FusionDecision, KernelCall, Buffer, PartitionChoice, PassChange, NodeLink, GraphNode)


def test_a_process_that_finds_its_graphs_cached_shows_the_decisions_of_the_one_that_took_them(tmp_path: Path) -> None:
    """Three processes with one cache, and a constant that it never met; the third has them from the first as well."""
    command = [sys.executable, "-c", CACHED, str(tmp_path), str(time.time())]
    cold, *warm = (subprocess.run(command, text=True, capture_output=True, check=True).stdout.strip() for _ in range(3))
    ask = Library(tmp_path).ask
    (first,) = ask(records_of, Compile, cold)
    assert (first.cache_state, first.decisions_from_run) == ("miss", None)
    for run_id in warm:
        (cached,) = ask(records_of, Compile, run_id)
        assert (cached.cache_state, cached.decisions_from_run, cached.fx_key) == ("hit", cold, first.fx_key)
        for kind in DECISIONS:
            assert ask(records_of, kind, cold), kind
            assert set(map(repr, ask(records_of, kind, run_id))) == set(map(repr, ask(records_of, kind, cold))), kind
        graphs = {graph.graph_id: graph for graph in ask(records_of, Graph, run_id)}
        assert graphs.keys() == {graph.graph_id for graph in ask(records_of, Graph, cold)}
        assert graphs["0/0.forward"].output_code
    assert Library(tmp_path).check() == []


@pytest.mark.slow
def test_a_killed_run_keeps_what_was_flushed_and_every_earlier_run(tmp_path: Path) -> None:
    with record("earlier", store=tmp_path):
        pass
    process = start(tmp_path, WAIT)
    process.kill()
    process.wait()
    earlier, killed = sorted(runs(tmp_path), key=lambda run: run.created_at)
    assert (earlier.name, earlier.status) == ("earlier", "complete")
    assert (killed.status, killed.status_reason) == ("partial", "the process ended before the run did")
    assert compiles(tmp_path, killed.run_id) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGTERM, "ended by SIGTERM"), (signal.SIGINT, "interrupted by Ctrl-C")]
)
def test_a_signal_publishes_what_there_is_and_ends_the_process_as_it_would(
    number: signal.Signals, reason: str, tmp_path: Path
) -> None:
    process = start(tmp_path, WAIT)
    process.send_signal(number)
    assert process.wait(timeout=60) == -number
    (run,) = runs(tmp_path)
    assert (run.status, run.status_reason) == ("partial", reason)
    assert compiles(tmp_path, run.run_id) == 1


@pytest.mark.slow
def test_a_forked_child_leaves_the_recording_to_its_parent(tmp_path: Path) -> None:
    then = """
    child = os.fork()
    if not child:
        torch.compile(torch.cos)(torch.ones(4))
        sys.exit(0)
    os.waitpid(child, 0)
    print('ready', flush=True)
    """
    process = start(tmp_path, textwrap.indent(textwrap.dedent(then), "    ").strip())
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert errors.count("recorded program") == 1
    (run,) = runs(tmp_path)
    assert run.status == "complete"
    assert compiles(tmp_path, run.run_id) == 1


def test_a_store_that_cannot_be_written_is_said_before_anything_runs(tmp_path: Path) -> None:
    from fusionscope.storage.database import StorageError

    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError), record("nowhere", store=tmp_path / "file" / "store"):
        pytest.fail("the recording began")


def test_the_run_knows_its_surroundings(tmp_path: Path) -> None:
    before = datetime.now(UTC).replace(tzinfo=None)
    with record("facts", store=tmp_path, tags=("a", "b"), project="p"):
        pass
    (run,) = runs(tmp_path)
    assert (run.tags, run.project, run.torch_version) == (("a", "b"), "p", str(torch.__version__))
    assert (run.device_kind, run.fx_cache, run.cwd) == ("cpu", "off", os.getcwd())  # noqa: PTH109
    assert before <= run.created_at <= before + timedelta(minutes=1)


def test_two_models_compiled_at_once_in_two_threads_are_kept_apart(tmp_path: Path) -> None:
    torch._dynamo.reset()

    def compile_one(scale: float) -> None:
        torch.compile(lambda x: torch.softmax(torch.sin(x) * scale, -1))(torch.ones(4, 19))

    with record("threads", store=tmp_path, strict=True) as recording:
        threads = [threading.Thread(target=compile_one, args=(scale,)) for scale in (2.0, 3.0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ask = Library(tmp_path).ask
    graphs = [g for g in ask(records_of, Graph, recording.run_id) if g.stage == "post_grad"]
    assert len({g.graph_id for g in graphs}) == 2
    groups = ask(records_of, FusionGroup, recording.run_id)
    first, second = ([g.members for g in groups if g.graph_id == graph.graph_id] for graph in graphs)
    assert first == second
    assert first


def test_the_graph_cache_is_off_in_every_thread_and_comes_back(tmp_path: Path) -> None:
    seen: list[bool] = []
    before = torch._inductor.config.fx_graph_cache
    with record("cache", store=tmp_path, strict=True):
        thread = threading.Thread(target=lambda: seen.append(torch._inductor.config.fx_graph_cache))
        thread.start()
        thread.join()
        seen.append(torch._inductor.config.fx_graph_cache)
    assert seen == [False, False]
    assert torch._inductor.config.fx_graph_cache == before
