"""Rules about kernels: spills, launches, scalar loops, and work that a library does already."""

from __future__ import annotations

from collections import defaultdict

from fusionscope.storage.findings._rule import (
    NOTE,
    PROBLEM,
    Facts,
    Failed,
    NotApplicable,
    Passed,
    Rule,
    Verdict,
    several,
)
from fusionscope.storage.records import GemmChoice, Kernel, KernelConfig, KernelTiming
from fusionscope.storage.text import bytes_, microseconds

LIBRARY_SHARE = 0.8  # of the kernels' time: by Amdahl's law fusing the rest perfectly gains at most 1.25x
SCALAR_SHARE = 0.1  # of the kernels' time
HAIR = 0.05  # by which a library call beats the best template; a fused epilogue may be worth more
CROWDED = 0.25  # of the warps that a multiprocessor holds: so few hide little of the memory's latency
WORK_SHARE = 0.5  # of a call that kernels must fill, else guards and the wrapper cost more than the work
LONG_US = 1000.0  # a call that takes so long is not slow for its wrapper's sake
GENERATED = ("cpp", "triton", "template")


def spills(facts: Facts) -> Verdict:
    """A kernel needs more registers than a thread has, or so many that few warps fit."""
    configs = [config for config in facts.of(KernelConfig) if config.chosen is not False]
    if not configs:
        return NotApplicable("no kernel's registers were recorded: there are no Triton kernels")
    spilling = [config for config in configs if _spilled(config)]
    if not spilling:
        return _crowded(facts, configs)
    worst = max(spilling, key=_spilled)
    kernels = {config.kernel_id for config in spilling}
    return Failed(
        f"{several(len(kernels), 'kernel')} spilled registers to memory.",
        tuple(f"{c.kernel_id} ({c.config}): {bytes_(_spilled(c))} a thread, {c.registers} registers" for c in spilling),
        PROBLEM if any(config.chosen for config in spilling) or _no_way_out(configs, kernels) else NOTE,
        f"kernels?kernel={worst.kernel_id}",
    )


def _crowded(facts: Facts, configs: list[KernelConfig]) -> Verdict:
    """Fused kernels too large for more than a few warps at once; products in templates are meant to be so."""
    fused = {kernel.kernel_id for kernel in facts.of(Kernel) if kernel.backend == "triton"}
    large = [c for c in configs if c.kernel_id in fused and c.occupancy_limit == "registers" and _few_warps(c)]
    if not large:
        return Passed(
            f"None of {several(len({c.kernel_id for c in configs}), 'Triton kernel')} spills or is too large."
        )
    kernels = several(len({config.kernel_id for config in large}), "kernel")
    return Failed(
        f"Registers leave room for at most {CROWDED:.0%} of the warps in {kernels}.",
        tuple(
            f"{c.kernel_id} ({c.config}): {c.registers} registers, {c.occupancy or 0:.0%} of the warps" for c in large
        ),
        NOTE,
        f"kernels?kernel={large[0].kernel_id}",
    )


def _few_warps(config: KernelConfig) -> bool:
    return config.occupancy is not None and config.occupancy <= CROWDED


def _no_way_out(configs: list[KernelConfig], kernels: set[str]) -> bool:
    """Whether one of the kernels spills in each of its configurations, so that no choice avoids it."""
    return any(all(_spilled(config) for config in configs if config.kernel_id == kernel) for kernel in kernels)


def _spilled(config: KernelConfig) -> int:
    """Bytes a thread: ptxas' stores and loads, else Triton's words of local memory."""
    return config.spill_bytes if config.spill_bytes is not None else 4 * (config.n_spills or 0)


def launch_bound(facts: Facts) -> Verdict:
    """The host needs longer to issue a call than the device to run it."""
    host, device = facts.measured("host_us", "compiled"), facts.measured("device_us", "compiled")
    if host is None or device is None:
        return NotApplicable("host and device time were not measured apart")
    issued, worked = microseconds(host.median), microseconds(device.median)
    if host.median <= device.median:
        return Passed(f"The device works {worked} a call, the host issues it in {issued}.")
    others = {
        f"device, {variant}": facts.measured("device_us", variant) for variant in ("eager", "reduce-overhead")
    } | {"a call with CUDA graphs": facts.measured("latency_us", "reduce-overhead")}
    return Failed(
        f"The host needs {issued} to issue a call that keeps the device busy for {worked}.",
        tuple(f"{what}: {microseconds(found.median)}" for what, found in others.items() if found),
    )


def scalar_loops(facts: Facts) -> Verdict:
    """C++ kernels without vector instructions where they cost time."""
    loops = [k for k in facts.of(Kernel) if k.backend == "cpp" and k.source and "for(" in k.source]
    times = _times(facts)
    total = sum(times.values())
    if not loops or not total:
        return NotApplicable("no C++ kernel was timed" if loops else "there are no C++ kernels with loops")
    scalar = {k.kernel_id: times.get(k.kernel_id, 0.0) for k in loops if "at::vec::" not in str(k.source)}
    slow = sorted((k for k in scalar if scalar[k] >= SCALAR_SHARE * total), key=lambda k: -scalar[k])
    spent = f"{microseconds(sum(scalar.values()))} of {microseconds(total)}"
    if not slow:
        return Passed(f"Loops without vector instructions take {spent}.")
    return Failed(
        f"Loops without vector instructions take {spent}, most of it in {several(len(slow), 'kernel')}.",
        tuple(f"{kernel}: {microseconds(scalar[kernel])} a call" for kernel in slow),
        link=f"kernels?kernel={slow[0]}",
    )


def library_bound(facts: Facts) -> Verdict:
    """Library calls fill the time: there is little left for a compiler to gain."""
    times, backends = _times(facts), {k.kernel_id: k.backend for k in facts.of(Kernel)}
    library = {kernel: time for kernel, time in times.items() if backends.get(kernel) not in GENERATED}
    if not times:
        return NotApplicable("no kernel of the compiled model was timed")
    share = sum(library.values()) / sum(times.values())
    if share < LIBRARY_SHARE:
        return Passed(f"Library calls take {share:.0%} of the kernels' time.")
    order = sorted(library, key=lambda kernel: -library[kernel])
    return Failed(
        f"Library calls take {share:.0%} of the kernels' time: do not expect more from fusion.",
        tuple(f"{kernel}: {microseconds(library[kernel])} a call" for kernel in order[:5]),
        NOTE,
    )


def small_work(facts: Facts) -> Verdict:
    """Guards, the wrapper and launches cost more than the kernels."""
    latency, times = facts.measured("latency_us", "compiled"), _times(facts)
    if latency is None or not times:
        return NotApplicable("the compiled model or its kernels were not timed")
    work = sum(times.values())
    if facts.run.device_kind == "cuda":
        return NotApplicable("on a CUDA device launch_bound answers this")
    if work >= WORK_SHARE * latency.median or latency.median >= LONG_US:
        return Passed(f"Kernels fill {work / latency.median:.0%} of a call.")
    filled = f"{microseconds(work)} of a call of {microseconds(latency.median)}"
    return Failed(f"Kernels fill {filled}; the rest is guards and the wrapper.", (), NOTE)


def autotune_hair(facts: Facts) -> Verdict:
    """A library call won by a hair over a template that could have taken the epilogue in."""
    contests: dict[tuple[str, str | None, str | None], list[GemmChoice]] = defaultdict(list)
    for choice in facts.of(GemmChoice):
        contests[choice.graph_id, choice.node or choice.op, choice.shapes].append(choice)
    timed = [rows for rows in contests.values() if sum(row.time_us is not None for row in rows) > 1]
    if not timed:
        return NotApplicable("no contest between a library and templates was timed")
    close = [pair for rows in timed if (pair := _close(rows))]
    if not close:
        return Passed(f"{several(len(timed), 'contest')}, none won by a library call within {HAIR:.0%}.")
    close_ones = f"{several(len(close), 'product')} went to a library call that won by less than {HAIR:.0%}."
    return Failed(close_ones, tuple(_margin(*pair) for pair in close), NOTE)


def _margin(won: GemmChoice, lost: GemmChoice) -> str:
    times = f"{won.choice} {microseconds(won.time_us)}, {lost.choice} {microseconds(lost.time_us)}"
    return f"{won.node or won.op} ({won.shapes}): {times}"


def _close(rows: list[GemmChoice]) -> tuple[GemmChoice, GemmChoice] | None:
    ranked = sorted((row for row in rows if row.time_us is not None), key=lambda row: row.time_us or 0)
    rivals = [row for row in ranked if row.kind != "library"]
    if ranked[0].kind != "library" or not rivals:
        return None
    return (ranked[0], rivals[0]) if (rivals[0].time_us or 0) <= (1 + HAIR) * (ranked[0].time_us or 0) else None


def _times(facts: Facts) -> dict[str, float]:
    """Kernel (or operator, where it is no kernel of ours) → µs a call of the compiled model."""
    found: dict[str, float] = defaultdict(float)
    for row in facts.of(KernelTiming):
        if row.variant == "compiled":
            found[row.kernel_id or row.name] += row.total_us
    return found


RULES = (
    Rule(
        "spills",
        "A kernel is too large for its registers",
        "kernels",
        "Fuse less: options={'max_fusion_size': 8}, or torch.compiler.disable around a part of it.",
        spills,
        trial=("--option", "max_fusion_size=8"),
    ),
    Rule(
        "launch_bound",
        "Launch-bound",
        "kernels",
        'Compile with mode="reduce-overhead" (CUDA graphs), or give each call more work.',
        launch_bound,
        trial=("--mode", "reduce-overhead"),
    ),
    Rule(
        "scalar_loops",
        "Loops without vector instructions",
        "kernels",
        "Convert to float32 or int32 before the loop, or keep what cannot be vectorised (a gather, int16, float64) "
        "out with torch.compiler.disable.",
        scalar_loops,
    ),
    Rule(
        "library_bound",
        "Nothing left to gain",
        "kernels",
        'Try mode="max-autotune", a smaller dtype, or fewer operations.',
        library_bound,
        trial=("--mode", "max-autotune"),
    ),
    Rule(
        "small_work",
        "Too little work in a call",
        "comparison",
        "Compile a larger part of the program, or give each call more work.",
        small_work,
    ),
    Rule(
        "autotune_hair",
        "A library call won by a hair",
        "kernels",
        "Take the template and measure: torch._inductor.config.max_autotune_gemm_backends = 'TRITON' (on a CPU 'CPP').",
        autotune_hair,
    ),
)
