"""What recording costs and keeps. Every figure is a ratio of processes run in turn on the same machine.

compile: CPU time (compilers that it starts included) and wall time of one cold compile with its first step. What counts
is all from importing the recorder to the end of that step; publishing the run, when the `with` ends, is a line of its
own. Recorded over plain; beside it plain over plain (A/A, the noise) and torch's own structured trace over plain; then
the median step after recording over the same in a plain process.
calls: function calls of the same compile, recorded over plain. Nothing that runs beside it moves this number, but it
weighs a cheap call like a dear one and does not see the C++ compiler.
growth: rows and bytes of a run per scheduler node, for a GPT of 1 to 32 layers.
targets: seconds per kernel to record three programs for an H200 that is not here, and what part of them is recording.
agree: the latency that a recording measures over torch.utils.benchmark's of the same model in the same process, with
the latter over itself beside it (A/A, the noise).
fusion: how long the Fusion screen takes to open and to answer, for a GPT of about 100 to 5,000 FX nodes.
memory: seconds from the shell of the Memory page, and from navigation, to its picture in a browser with and without a
cache, and the bytes sent, by number of buffers.
library: seconds until the Runs page over 10,000 runs can be used, and until each filter answers; a minute or two.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from bench_targets import PROGRAMS, costs

MODELS = ("mlp_parameters", "transformer_step", "gpt:12")
VARIANTS = {"plain": "plain", "again": "plain again (A/A)", "recorded": "recorded", "trace": "torch's own trace"}
STEPS = 30
LAYERS = (1, 2, 4, 8, 16, 32)

Found = dict[str, float]  # what one process measured


def main() -> None:
    """Run the benches that are asked for, or one measurement in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=[*BENCHES, "one"])
    parser.add_argument("--pairs", type=int, default=5, help="processes of each variant")
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--layers", nargs="*", type=int, default=LAYERS)
    parser.add_argument("--store", help="fusion: where its runs are kept, so that the next bench finds them")
    parser.add_argument("--buffers", nargs="*", type=int, default=(1_000, 10_000, 100_000))
    parser.add_argument("--runs", type=int, default=10_000, help="library: how many")
    parser.add_argument("--variant", default="plain", help=argparse.SUPPRESS)
    parser.add_argument("--take", default="cost", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.what == ["one"]:
        say(json.dumps(TAKEN[asked.take](asked.models[0], asked.variant)))
        return
    for what in asked.what:
        BENCHES[what](asked)


def compiling(asked: argparse.Namespace) -> None:
    """Print the ratios of each model: the variants in turn, each in a process and a cache folder of its own."""
    for model in asked.models:
        found: dict[str, list[Found]] = {variant: [] for variant in VARIANTS}
        load = os.getloadavg()[0]
        for turn in range(asked.pairs):
            first = turn % len(VARIANTS)  # so that no variant is always the first after an idle moment
            for variant in [*VARIANTS][first:] + [*VARIANTS][:first]:
                found[variant].append(in_process(model, variant))
        say(f"\n{model}: {asked.pairs} of each, load {load:.1f} before and {os.getloadavg()[0]:.1f} after")
        tell_costs(found)


def tell_costs(found: dict[str, list[Found]]) -> None:
    """Print plain seconds, then each variant over plain: the median of the pairs, and the lowest over the lowest."""
    plain = found["plain"]
    say(f"  {VARIANTS['plain']:20}" + "  ".join(f"{key[:-2]} {spread(plain, key)}" for key in ("cpu_s", "wall_s")))
    for variant in ("again", "recorded", "trace"):
        costs = (f"{key[:-2]} {over(found[variant], plain, key)}" for key in ("cpu_s", "wall_s", "step_s"))
        say(f"  {VARIANTS[variant]:20}" + "  ".join(costs))
    say(f"  {'publishing':20}" + "  ".join(f"{key[8:-2]} {spread(found['recorded'], key)}" for key in PUBLISHING))


def over(these: list[Found], plain: list[Found], key: str) -> str:
    """Ratios of pairs: median, range, and the ratio of the two minima, which other work on the machine moves least."""
    ratios = [this[key] / other[key] for this, other in zip(these, plain, strict=True)]
    lowest = min(this[key] for this in these) / min(other[key] for other in plain)
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f}; of minima {lowest:.3f})"


def spread(runs: list[Found], key: str) -> str:
    """The median in seconds, with the lowest and highest value."""
    values = [run[key] for run in runs]
    return f"{statistics.median(values):.2f} s ({min(values):.2f}–{max(values):.2f})"


def calling(asked: argparse.Namespace) -> None:
    """Print how many function calls recording adds to each model's compile."""
    for model in asked.models:
        plain, recorded = (in_process(model, variant, "calls")["calls"] for variant in ("plain", "recorded"))
        say(f"{model:18} {plain:12,.0f} function calls plain, {recorded / plain:.3f} times as many recorded")


def growth(asked: argparse.Namespace) -> None:
    """Print how many rows and bytes a GPT of each size records."""
    with tempfile.TemporaryDirectory() as cache:  # of kernels, which all sizes share
        for layers in asked.layers:
            run = in_process(f"gpt:{layers}", "recorded", "rows", cache)
            nodes, rows, size = run["nodes"], run["rows"], run["bytes"]
            say(
                f"{layers:3} layers  {nodes:6.0f} scheduler nodes  {rows:8.0f} rows ({rows / nodes:5.1f} a node)"
                f"  {size / 1024:8.0f} KiB ({size / nodes:6.0f} B a node)"
            )


def agree(asked: argparse.Namespace) -> None:
    """Print what `Recording.compare` measures against torch.utils.benchmark, eager and compiled, in one process."""
    for model in asked.models:
        ours, again = agreement(model, asked.pairs)
        say(f"\n{model}: latency over that of torch.utils.benchmark, {asked.pairs} times in one process")
        for name in ours:
            say(f"  {name:10} measured {ratios(ours[name])}  A/A {ratios(again[name])}")


def agreement(model: str, pairs: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Variant → our latency over torch.utils.benchmark's before it, and the latter after over before."""
    import torch
    from torch.utils.benchmark import Timer

    from fusionscope.collector.measure import compare as measured
    from fusionscope.collector.measure.step import gradient_leaves, loss_of, step_of

    net, inputs, kwargs, backward = model_of(model)
    leaves = gradient_leaves(loss_of(net(*inputs))) if backward else None
    models = {"eager": net, "compiled": torch.compile(net, **kwargs)}
    timers = {
        name: Timer("step()", globals={"step": step_of(callee, inputs, leaves)}, num_threads=torch.get_num_threads())
        for name, callee in models.items()
    }
    ours: dict[str, list[float]] = {name: [] for name in models}
    again: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(pairs):
        before = {name: timer.blocked_autorange(min_run_time=1).median for name, timer in timers.items()}
        found = measured(*models.values(), inputs, backward=backward, emit=lambda _: None, graph_of=lambda _: None)
        for name, timer in timers.items():
            ours[name].append(found.latency_us[name] / 1e6 / before[name])
            again[name].append(timer.blocked_autorange(min_run_time=1).median / before[name])
    return ours, again


def ratios(values: list[float]) -> str:
    """The median, with the lowest and highest value."""
    return f"{statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f})"


def targets(asked: argparse.Namespace) -> None:
    """Print what recording for a GPU that is not here takes per kernel, with cold and with warm caches."""
    say(f"\n{Path(PROGRAMS).name} for an H200, load {os.getloadavg()[0]:.1f}")
    for caches, cost in costs(PROGRAMS, "H200"):
        say(f"  {caches:8}{cost}")


def screen(asked: argparse.Namespace) -> None:
    """Print what bench_fusion.py measures; its imports are kept out of the processes that measure compiling."""
    from bench_fusion import opening

    opening(asked)


def memory(asked: argparse.Namespace) -> None:
    """Print how long the Memory page takes to be usable."""
    from bench_memory import seconds_and_payload

    for line in seconds_and_payload(asked.buffers):
        say(line)


def library(asked: argparse.Namespace) -> None:
    """Print how long the Runs page takes over many runs."""
    from bench_library import seconds

    with tempfile.TemporaryDirectory() as folder:
        for line in seconds(Path(folder), asked.runs):
            say(line)


BENCHES: dict[str, Callable[[argparse.Namespace], None]] = {
    "compile": compiling,
    "calls": calling,
    "growth": growth,
    "agree": agree,
    "targets": targets,
    "fusion": screen,
    "memory": memory,
    "library": library,
}
PUBLISHING = ("publish_cpu_s", "publish_wall_s")


def in_process(model: str, variant: str, take: str = "cost", cache: str | None = None) -> Found:
    """One measurement in a process of its own, with caches that nobody used before, or with those of a folder."""
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache or f"{folder}/cache", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        if variant == "trace":
            env["TORCH_TRACE"] = f"{folder}/trace"
        command = [sys.executable, __file__, "one", "--models", model, "--variant", variant, "--take", take]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    answer: Found = json.loads(done.stdout)
    return answer


def cost(model: str, variant: str) -> Found:
    """Compile a model once in this process: what it took, what publishing took, and the median step after it."""
    step = built(model)
    with tempfile.TemporaryDirectory() as folder:
        began = spent()
        with ExitStack() as recorder:
            if variant == "recorded":
                recorder.enter_context(recording(Path(folder)))
            step()
            compiled = spent()
        published = spent()
        taken = {f"{clock}_s": compiled[clock] - began[clock] for clock in began}
        taken |= {f"publish_{clock}_s": published[clock] - compiled[clock] for clock in began}
        return taken | {"step_s": median_step(step)}


def calls(model: str, variant: str) -> Found:
    """The function calls, those of built-in functions included, of a model's compile and first step."""
    step, profile = built(model), cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as recorder:
        profile.enable()
        if variant == "recorded":
            recorder.enter_context(recording(Path(folder)))
        step()
        profile.disable()
    return {"calls": sum(entry.callcount for entry in profile.getstats())}


def built(model: str) -> Callable[[], Any]:
    """A training or inference step of a compiled sample model; `gpt:N` has N layers."""
    import torch

    net, inputs, kwargs, backward = model_of(model)
    compiled = torch.compile(net, **kwargs)
    return (lambda: compiled(*inputs).sum().backward()) if backward else (lambda: compiled(*inputs))


def rows(model: str, _variant: str) -> Found:
    """Rows, bytes and scheduler nodes of a model's run."""
    step = built(model)
    with tempfile.TemporaryDirectory() as folder:
        with recording(Path(folder)):
            step()
        (bundle,) = Path(folder).glob("inbox/*")
        tables = json.loads((bundle / "manifest.json").read_text())["rows"]
        size = sum(file.stat().st_size for file in bundle.iterdir())
    return {"rows": sum(tables.values()), "bytes": size, "nodes": tables["ir_nodes"]}


TAKEN = {"cost": cost, "calls": calls, "rows": rows}  # what a process measures


def model_of(model: str) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], bool]:
    """What a sample's `build()` returns, and whether its step has a backward pass."""
    from fusionscope.sample_models import SAMPLES

    name, _, layers = model.partition(":")
    module = import_module(SAMPLES[name])
    net, inputs, kwargs = module.build(module.GPTConfig(layers=int(layers))) if layers else module.build()
    return net, inputs, kwargs, bool(getattr(module, "BACKWARD", False))


@contextmanager
def recording(folder: Path) -> Iterator[None]:
    """A recording as a user makes it, import into the library left out."""
    from fusionscope.collector import record

    with record("bench", store=folder, import_on_exit=False):
        yield


def median_step(step: Callable[[], Any]) -> float:
    """Seconds of a step once everything is compiled."""
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def spent() -> Found:
    """CPU seconds of this process and of the compilers that it waited for, and the clock on the wall."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"cpu": sum(usage.ru_utime + usage.ru_stime for usage in used), "wall": time.perf_counter()}


def say(text: str) -> None:
    """Print at once: a bench takes minutes."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
