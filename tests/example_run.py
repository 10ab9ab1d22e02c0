"""A hand-made run, small but complete: four linear layers with ReLU between them and a softmax, batch 64, hidden 512.

Its shape is what Inductor does with that model on a CPU (eleven scheduler nodes, eight kernel calls, a plan that peaks
at 262,656 bytes), so the numbers that a screen must show can be worked out by hand. `python tests/example_run.py STORE`
writes it, and a run that was recorded only in part, into a store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from example_graph import HIDDEN, LAYERS, SOURCE, inductor_graph

from fusionscope.storage import records as r
from fusionscope.storage.library import Library
from fusionscope.storage.spool import Spool

EXAMPLE_ID = "20260102-030405-a1b2c3"
PARTLY_ID = "20260102-040506-d4e5f6"
PLAN_PEAK = 2 * 64 * HIDDEN * 4 + 2 * 64 * 4  # two activations, and the maximum and sum of each row: 262,656
EAGER_PEAK = 3 * 64 * HIDDEN * 4  # 393,216


def publish_example(store: Path, run_id: str = EXAMPLE_ID, name: str = "mlp") -> str:
    """Record the example into `store` and import it; returns its run id."""
    return publish(store, example_run(run_id, name), list(example_records()))


def publish_partly_recorded(store: Path, run_id: str = PARTLY_ID) -> str:
    """A run of which only compiles and the state of the hooks are known, as when nothing reached Inductor."""
    reason = "the process ended before the run did"
    run = example_run(run_id, "mlp_killed", status="partial", status_reason=reason, device_name=None, mode=None)
    hooks = [
        r.HookStatus(hook="compiles", state="recorded", recorded=1, self_s=0.001),
        r.HookStatus(
            hook="fusion_pairs", state="unavailable", reason="torch 2.13.0 has no Scheduler.score_fusion_memory"
        ),
        r.HookStatus(
            hook="wrapper_plan", state="failed", reason="AttributeError: 'NoneType' object has no attribute 'lines'"
        ),
    ]
    compiles = [r.Compile(compile_id="0/0", function="forward", file=SOURCE, line=14, outcome="failed", attempts=1)]
    return publish(store, run, [*hooks, *compiles])


def publish(store: Path, run: r.Run, facts: list[Any]) -> str:
    """Record a run that holds `facts` into `store` and import it; returns its run id."""
    spool = Spool.create(store, run)
    spool.append(facts)
    spool.publish(run)
    Library(store).import_inbox()
    return run.run_id


def example_run(run_id: str, name: str = "mlp", **changed: Any) -> r.Run:
    """The row of the example run, with fields changed."""
    return r.Run(
        **{
            "run_id": run_id,
            "name": name,
            "project": "examples",
            "tags": ("mlp", "cpu"),
            "created_at": datetime(2026, 1, 2, 3, 4, 5),
            "author": "ada",
            "status": "complete",
            "torch_version": "2.13.0+cpu",
            "triton_version": "3.7.1",
            "python_version": "3.11.7",
            "host": "bench-1",
            "device_kind": "cpu",
            "device_name": "Intel(R) Xeon(R) Platinum 8488C",
            "threads": 2,
            "mode": "default",
            "git_commit": "9f2c1e7d0b6a4c3f8e5d2a1b0c9f8e7d6c5b4a39",
            "git_branch": "main",
            "git_dirty": True,
            "command": "fusionscope record mlp.py",
            "cwd": "/home/ada/models",
            "source_path": SOURCE,
            "options": '{"keep_caches": false}',
            "fx_cache": "off",
            "kernel_cache": "cold",
            "recorder_overhead_s": 0.041,
            **changed,
        }
    )


def example_records() -> Iterator[Any]:
    """Every record of the example but its run."""
    yield from _compiling()
    yield from _passes()
    yield from inductor_graph("0/0", batch=64, position=0)
    yield from inductor_graph("0/1", batch=32, position=1)
    yield from _measured()


def _compiling() -> Iterator[Any]:
    yield r.HookStatus(hook="compiles", state="recorded", recorded=3, self_s=0.002)
    yield r.HookStatus(hook="fusion_pairs", state="recorded", recorded=14, self_s=0.011)
    yield r.HookStatus(
        hook="wrapper_plan",
        state="partial",
        reason="1 line of the wrapper was of an unknown kind",
        recorded=43,
        lost=1,
        self_s=0.004,
    )
    yield r.HookStatus(hook="cudagraph_events", state="unavailable", reason="no CUDA device")
    mlp: dict[str, Any] = {"function": "forward", "file": SOURCE, "line": 14}
    yield r.Compile(
        compile_id="0/0",
        **mlp,
        outcome="compiled",
        attempts=2,
        fx_key="fx1",
        cache_state="bypass",
        start_s=0.4,
        duration_s=3.1,
    )
    yield r.Compile(
        compile_id="0/1",
        **mlp,
        outcome="compiled",
        recompile_of="0/0",
        fx_key="fx2",
        cache_state="bypass",
        start_s=3.9,
        duration_s=2.2,
    )
    resumed = "torch_dynamo_resume_in_forward_at_21"
    yield r.Compile(
        compile_id="1/0",
        function=resumed,
        file=SOURCE,
        line=21,
        outcome="skipped",
        reason="nothing to compile",
        resume_of="forward",
        start_s=3.6,
        duration_s=0.02,
    )
    yield from _phases("0/0", 0.4, (0.3, 0.5, 2.1))
    yield from _phases("0/1", 3.9, (0.2, 0.3, 1.6))
    yield r.CacheEvent(compile_id="0/0", cache="fx_graph", key="fx1", state="bypass", reason="fx_graph_cache is off")
    yield r.GraphBreak(
        compile_id="0/0",
        file=SOURCE,
        line=21,
        kind="Failed to trace builtin operator",
        reason="Dynamo does not know how to trace builtin operator `print`",
        hint="Move the print out of the compiled function.",
        executions=2,
        context="Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):",
    )
    guard = "tensor 'x' size mismatch at index 0. expected 64, actual 32"
    yield r.Recompile(
        compile_id="0/1",
        previous_compile_id="0/0",
        guard="L['x'].size()[0] == 64",
        guard_value="32",
        reason=guard,
        compile_limit=8,
    )
    yield r.Guard(
        compile_id="0/0", expression="check_tensor(L['x'], size=[64, 512])", source="L['x']", file=SOURCE, line=15
    )
    yield r.Guard(compile_id="0/0", expression="___check_grad_mode(False)")
    for name, value in {
        "graph_break": 1,
        "generated_kernel_count": 4,
        "cpp_vec_kernels": 4,
        "pattern_matcher_count": 3,
    }.items():
        yield r.Counter(name=name, value=value)


def _passes() -> Iterator[Any]:
    yield r.Symbol(compile_id="0/1", symbol="s77", source="L['x'].size()[0]", hint="32", range="[2, int_oo]")
    yield r.SideEffect(
        compile_id="0/0", kind="Mutating object of type list", target="L['self'].seen", file=SOURCE, line=20
    )
    yield r.PartitionChoice(
        graph_id="0/0.joint",
        node="primals_1",
        saved=True,
        recomputed=False,
        banned=True,
        is_input=True,
        bytes=64 * HIDDEN * 4,
        budget=1.0,
        reason="primal input",
    )
    yield r.PassChange(
        graph_id="0/0.joint",
        pass_name="pass_pattern_0",
        pattern="_sfdp_pattern_1_inference",
        outcome="near_miss",
        reason="it would match, but the value of aten.div.Tensor is also used elsewhere",
    )
    yield r.PerfHint(compile_id="0/0", graph_id="0/0.inference", text="Skip comprehensive padding on CPU")
    yield r.CudagraphEvent(
        compile_id="0/0", event="skipped", reason="skipping cudagraphs due to cpu device (x)", file=SOURCE, line=14
    )


def _phases(compile_id: str, start: float, seconds: tuple[float, ...]) -> Iterator[r.CompilePhase]:
    names = ("bytecode_tracing", "create_aot_dispatcher_function", "inductor_compile")
    yield r.CompilePhase(
        compile_id=compile_id,
        phase_id=0,
        name="entire_frame_compile",
        thread=1,
        start_s=start,
        duration_s=sum(seconds) + 0.1,
    )
    for phase, (name, duration) in enumerate(zip(names, seconds, strict=True), start=1):
        yield r.CompilePhase(
            compile_id=compile_id, phase_id=phase, name=name, parent=0, thread=1, start_s=start, duration_s=duration
        )
        start += duration


def _measured() -> Iterator[Any]:
    activation, row = 64 * HIDDEN * 4, 64 * 4
    base = activation + LAYERS * HIDDEN * (HIDDEN + 1) * 4
    curves = {
        "compiled": [
            ("aten::addmm", activation),
            ("aten::addmm", activation),
            ("cpp_fused__softmax_1", row),
            ("cpp_fused__softmax_1", row),
            ("return", -activation),
            ("return", -2 * row),
        ],
        "eager": [
            ("aten::addmm", activation),
            ("aten::relu", activation),
            ("aten::addmm", activation),
            ("aten::relu", -activation),
            ("aten::_softmax", activation),
            ("return", -2 * activation),
        ],
    }
    for variant, events in curves.items():
        live = 0
        for step, (label, delta) in enumerate(events):
            live += delta
            yield r.MemoryPoint(
                graph_id="",
                basis="measured",
                variant=variant,
                step=step,
                time_us=step * 41.5,
                live_bytes=live,
                base_bytes=base,
                delta_bytes=delta,
                label=label,
            )
    yield from _measurements(base)
    timed: dict[str, Any] = {"method": "median of 100 calls, torch.profiler"}
    gemm, relu, softmax = (
        f"0/0.inference/{name}" for name in ("extern_kernels.addmm", "cpp_fused_relu_0", "cpp_fused__softmax_1")
    )
    yield r.KernelTiming(
        name="extern_kernels.addmm",
        kernel_id=gemm,
        variant="compiled",
        calls=4,
        median_us=70.1,
        total_us=280.4,
        **timed,
    )
    yield r.KernelTiming(
        name="cpp_fused_relu_0", kernel_id=relu, variant="compiled", calls=3, median_us=4.2, total_us=12.6, **timed
    )
    yield r.KernelTiming(
        name="cpp_fused__softmax_1",
        kernel_id=softmax,
        variant="compiled",
        calls=1,
        median_us=21.3,
        total_us=21.3,
        **timed,
    )
    yield r.KernelTiming(name="aten::addmm", variant="eager", calls=4, median_us=71.0, total_us=284.0, **timed)
    yield r.KernelTiming(name="aten::relu", variant="eager", calls=3, median_us=12.4, total_us=37.2, **timed)
    yield r.KernelTiming(name="aten::_softmax", variant="eager", calls=1, median_us=55.0, total_us=55.0, **timed)


def _measurements(base: int) -> Iterator[r.Measurement]:
    calls = "median of 100 calls, eager and compiled in turn, time.perf_counter"
    latency: dict[str, Any] = {"metric": "latency_us", "unit": "us", "samples": 100, "method": calls}
    yield r.Measurement(variant="eager", median=412.0, p10=401.5, p90=438.0, **latency)
    yield r.Measurement(
        variant="compiled",
        median=338.0,
        p10=331.0,
        p90=352.5,
        discarded=2,
        reason="a compilation fell into them",
        **latency,
    )
    for metric, unit, eager, compiled, method in (
        ("kernels", "count", 8, 8, "operators with a kernel of their own, torch.profiler"),
        ("peak_bytes", "bytes", EAGER_PEAK, PLAN_PEAK, "allocation events above the entry of the call, torch.profiler"),
        ("base_bytes", "bytes", base, base, "sizes of inputs and parameters"),
    ):
        yield r.Measurement(variant="eager", metric=metric, median=eager, unit=unit, method=method)
        yield r.Measurement(variant="compiled", metric=metric, median=compiled, unit=unit, method=method)
    yield r.Measurement(
        variant="compiled",
        metric="first_call_s",
        median=3.4,
        unit="s",
        method="wall time of the first call, recorder on",
    )


if __name__ == "__main__":
    for publish in (publish_example, publish_partly_recorded):
        publish(Path(sys.argv[1]))
