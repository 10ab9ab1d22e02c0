"""What recording costs: `make bench`. Every figure is a ratio of processes run in turn on the same machine.

compile: CPU time (children included) and wall time of one cold compile with its first step, code generation included,
recorded over plain; beside it plain over plain (A/A, the noise) and torch's own structured trace over plain; then the
median step after recording over the same in a plain process.
growth: rows and bytes of a run per scheduler node, for a GPT of 1 to 32 layers.
targets: seconds per kernel to record three programs for an H200 that is not here, and what part of them is recording.
agree: the latency that a recording measures over torch.utils.benchmark's of the same model in the same process, with
the latter over itself beside it (A/A, the noise).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from bench_targets import PROGRAMS, costs

MODELS = ("mlp_parameters", "transformer_step", "gpt:12")
VARIANTS = ("plain", "again", "recorded", "trace")
STEPS = 30
LAYERS = (1, 2, 4, 8, 16, 32)


def main() -> None:
    """Run the bench that is asked for, or one measurement in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compile", "growth", "agree", "targets", "one"))
    parser.add_argument("--pairs", type=int, default=3, help="processes of each variant")
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--layers", nargs="*", type=int, default=LAYERS)
    parser.add_argument("--variant", default="plain", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.what == "one":
        say(json.dumps(one(asked.models[0], asked.variant)))
    elif asked.what == "compile":
        for model in asked.models:
            compare(model, asked.pairs)
    elif asked.what == "targets":
        for caches, cost in costs(PROGRAMS, "H200"):
            say(f"{caches:8}{cost}")
    elif asked.what == "agree":
        for model in asked.models:
            agree(model, asked.pairs)
    else:
        for layers in asked.layers:
            grow(layers)


def compare(model: str, pairs: int) -> None:
    """Print the ratios of one model: the variants in turn, each in a process and a cache folder of its own."""
    found: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for turn in range(pairs):
        first = turn % len(VARIANTS)  # so that no variant is always the first after an idle moment
        for variant in VARIANTS[first:] + VARIANTS[:first]:
            found[variant].append(in_process(model, variant))
    say(f"\n{model}: plain {spread([run['cpu_s'] for run in found['plain']], 's')} of CPU time, {pairs} of each")
    for variant, name in (("again", "plain over plain (A/A)"), ("recorded", "recorded"), ("trace", "torch's trace")):
        ratios = {
            key: [run[key] / plain[key] for run, plain in zip(found[variant], found["plain"], strict=True)]
            for key in ("cpu_s", "wall_s", "step_s")
        }
        say(f"  {name:24}" + "  ".join(f"{key[:-2]} {spread(values, 'x')}" for key, values in ratios.items()))


def grow(layers: int) -> None:
    """Print how many rows and bytes a GPT of so many layers records."""
    run = in_process(f"gpt:{layers}", "recorded")
    nodes, rows, size = run["nodes"], run["rows"], run["bytes"]
    say(
        f"{layers:3} layers  {nodes:6.0f} scheduler nodes  {rows:8.0f} rows ({rows / nodes:5.1f} a node)"
        f"  {size / 1024:8.0f} KiB ({size / nodes:6.0f} B a node)"
    )


def agree(model: str, pairs: int) -> None:
    """Print what `Recording.compare` measures against torch.utils.benchmark, eager and compiled."""
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
            after = timer.blocked_autorange(min_run_time=1).median
            ours[name].append(found.latency_us[name] / 1e6 / before[name])
            again[name].append(after / before[name])
    say(f"\n{model}: latency over that of torch.utils.benchmark, {pairs} times in one process")
    for name in models:
        say(f"  {name:10} measured {spread(ours[name], 'x')}  A/A {spread(again[name], 'x')}")


def in_process(model: str, variant: str) -> dict[str, float]:
    """One measurement in a process of its own, with caches that nobody used before."""
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        if variant == "trace":
            env["TORCH_TRACE"] = f"{folder}/trace"
        command = [sys.executable, __file__, "one", "--models", model, "--variant", variant]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def one(model: str, variant: str) -> dict[str, float]:
    """Compile a model once in this process: CPU and wall seconds, the median step after it, and what was recorded."""
    step = built(model)
    with tempfile.TemporaryDirectory() as folder:
        cpu, wall = cpu_s(), time.perf_counter()
        with recording(Path(folder)) if variant == "recorded" else nullcontext():
            step()
        cost = {"cpu_s": cpu_s() - cpu, "wall_s": time.perf_counter() - wall}
        return cost | {"step_s": median_step(step)} | kept(Path(folder))


def built(model: str) -> Callable[[], Any]:
    """A training or inference step of a compiled sample model; `gpt:N` has N layers."""
    import torch

    net, inputs, kwargs, backward = model_of(model)
    compiled = torch.compile(net, **kwargs)
    if backward:
        return lambda: compiled(*inputs).sum().backward()
    return lambda: compiled(*inputs)


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


def kept(folder: Path) -> dict[str, float]:
    """Rows, bytes and scheduler nodes of the published bundle."""
    manifests = list(folder.glob("inbox/*/manifest.json"))
    if not manifests:
        return {}
    rows = json.loads(manifests[0].read_text())["rows"]
    size = sum(file.stat().st_size for file in manifests[0].parent.iterdir())
    return {"rows": sum(rows.values()), "bytes": size, "nodes": rows["ir_nodes"]}


def median_step(step: Callable[[], Any]) -> float:
    """Seconds of a step once everything is compiled."""
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def cpu_s() -> float:
    """CPU seconds of this process and of the compilers that it waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def spread(values: list[float], unit: str) -> str:
    """The median with the lowest and highest value."""
    return f"{statistics.median(values):.3f}{unit} ({min(values):.3f}–{max(values):.3f})"


def say(text: str) -> None:
    """Print at once: a bench takes minutes."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
