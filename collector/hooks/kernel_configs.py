"""Every configuration in which a Triton kernel was compiled: what it takes of the GPU, and the code that it became.

CachingAutotuner.precompile ends with all launchers made, before benchmarking drops any; it runs in this process even
where a worker compiled (torch/_inductor/async_compile.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.targets.binaries import Resources, resources, sass, spill_bytes
from fusionscope.collector.targets.occupancy import occupancy
from fusionscope.storage.records import KernelCode, KernelConfig

NAME = "kernel_configs"
RECORDS = (KernelConfig, KernelCode)
TARGETS = {"torch._inductor.runtime.triton_heuristics:CachingAutotuner.precompile": ("self",)}

_TEXTS = ("ttir", "ptx", "amdgcn")  # stages of Triton's backends that a reader asks for


def problem() -> str | None:
    """CachingAutotuner keeps its launchers from torch 2.11 on."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Read the launchers of each kernel once they are made; a kernel that several graphs share is read for each."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    seen: set[tuple[str, str]] = set()

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def precompile(tuner: Any, *arguments: Any, **keywords: Any) -> Any:
            heuristics = len(tuner.configs or tuner.compile_results)
            result = original(tuner, *arguments, **keywords)
            with emit.guarded():
                kernel_id = _kernel_id(tuner)
                for position, launcher in enumerate(tuner.launchers):
                    config = config_name(launcher.config)
                    if (kernel_id, config) not in seen:
                        seen.add((kernel_id, config))
                        origin = "heuristics" if position < heuristics else "register_pressure"
                        _emit_config(emit, tuner, launcher, kernel_id, origin)
            return result

        return precompile

    with patched(CachingAutotuner, "precompile", wrap):
        yield


def config_name(config: Any) -> str:
    """A Triton config in one line, such as "XBLOCK=1024 num_warps=4 num_stages=1"."""
    settings = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _kernel_id(tuner: Any) -> str:
    return f"{whereabouts.graph_id() or ''}/{tuner.inductor_meta['kernel_name']}"


def _emit_config(emit: Emit, tuner: Any, launcher: Any, kernel_id: str, origin: str) -> None:
    kernel = next((r.kernel for r in tuner.compile_results if r.config is launcher.config), None)
    artifacts = getattr(kernel, "asm", None) or {}  # the static launcher keeps none
    nvidia, architecture = _architecture(tuner.device_props)
    binary = artifacts.get("cubin" if nvidia else "hsaco")
    found = resources(binary, architecture) if binary else None
    config = config_name(launcher.config)
    emit(
        KernelConfig(
            kernel_id=kernel_id,
            config=config,
            num_warps=launcher.config.num_warps,
            num_stages=launcher.config.num_stages,
            grid=_grid(tuner, launcher.config),
            registers=launcher.n_regs,
            n_spills=launcher.n_spills,
            spill_bytes=spill_bytes(kernel, found.local_bytes) if found and nvidia else None,
            shared_bytes=launcher.shared,
            static_shared_bytes=found.static_shared_bytes if found else None,
            chosen=True if len(tuner.launchers) == 1 else None,
            origin=origin,
            **_occupancy(architecture, launcher, found),
        )
    )
    for kind in _TEXTS:
        if kind in artifacts:
            emit(KernelCode(kernel_id=kernel_id, config=config, kind=kind, text=artifacts[kind]))
    if nvidia and binary and (text := sass(binary)):
        emit(KernelCode(kernel_id=kernel_id, config=config, kind="sass", text=text))


def _architecture(device: Any) -> tuple[bool, str]:
    """Whether a device of Inductor is NVIDIA's, and its architecture: sm_90, gfx942."""
    nvidia = device.type == "cuda"
    return nvidia, f"sm_{device.cc}" if nvidia else str(device.cc)


def _occupancy(architecture: str, launcher: Any, found: Resources | None) -> dict[str, Any]:
    """The columns of occupancy; empty for a GPU whose limits are not known, or a binary that was not read."""
    if found is None:
        return {}
    shared = launcher.shared + found.static_shared_bytes
    fits = occupancy(architecture, launcher.n_regs, shared, launcher.config.num_warps)
    return {"occupancy": fits.fraction, "occupancy_limit": fits.limit} if fits else {}


def _grid(tuner: Any, config: Any) -> str | None:
    """Blocks along x, y, z, by the launcher's own expressions; None where they need what is known at run time only."""
    from torch._inductor.runtime.triton_heuristics import GridExpr

    if "grid_type" not in tuner.inductor_meta:
        return None
    try:
        blocks = GridExpr.from_meta(tuner.inductor_meta, config).eval_slow(_sizes(tuner))
    except NameError:
        return None
    return ", ".join(map(str, blocks))


def _sizes(tuner: Any) -> dict[str, int]:
    """The numbers, such as xnumel, that the wrapper's first call of the kernel passes, and those fixed in it."""
    lines = getattr(getattr(whereabouts.graph(), "wrapper_code", None), "lines", ())
    name = tuner.inductor_meta["kernel_name"]
    call = next((line for line in lines if hasattr(line, "call_args") and line.kernel_name == name), None)
    if call is None or tuner.fn is None:
        return {}
    fixed = tuner.triton_meta["constants"]
    names = [name for name in tuner.fn.arg_names if name not in fixed]
    passed = zip(names, call.call_args, strict=False)  # block sizes follow, which the configuration sets
    return {name: int(value) for name, value in (*passed, *fixed.items()) if str(value).isdecimal()}
