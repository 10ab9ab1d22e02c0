"""What Inductor's CachingAutotuner says of itself: which kernels it is, and its launchers in plain values.

It benchmarks when a kernel first runs, when no graph is being compiled any more; so that a time can be told of the
right kernel, each is noted by name while it is compiled.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.observations import KernelName, LauncherMade

_names: weakref.WeakKeyDictionary[Any, dict[KernelName, None]] = weakref.WeakKeyDictionary()


def note(tuner: Any) -> None:
    """Note that the graph which this thread compiles runs the tuner's kernel; graphs share kernels of equal text."""
    graph_id, kernel = whereabouts.graph_id(), tuner.inductor_meta.get("kernel_name")
    if graph_id is not None and kernel is not None:
        _names.setdefault(tuner, {})[KernelName(graph_id, kernel)] = None


def names(tuner: Any) -> tuple[KernelName, ...]:
    """The kernels that a tuner is; none where it was compiled outside a graph."""
    return tuple(_names.get(tuner, ()))


def config_name(config: Any) -> str:
    """A Triton config in one line, such as "XBLOCK=1024 num_warps=4 num_stages=1"."""
    settings = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return " ".join(f"{name}={value}" for name, value in settings.items())


def launchers_made(tuner: Any, launcher: Any, origin: str) -> Iterator[LauncherMade]:
    """A launcher, once for each kernel that the tuner is."""
    for name in names(tuner):
        yield LauncherMade(
            name=name,
            config=config_name(launcher.config),
            num_warps=launcher.config.num_warps,
            num_stages=launcher.config.num_stages,
            registers=launcher.n_regs,
            n_spills=launcher.n_spills,
            shared_bytes=launcher.shared,
            static=bool(getattr(launcher, "_is_static", False)),
            architecture=_architecture(tuner.device_props),
            artifacts=_artifacts(tuner, launcher),
            grid=_grid(tuner, launcher.config),
            parameters=_parameters(tuner),
            constants={key: value for key, value in _constants(tuner).items() if isinstance(value, int)},
            origin=origin,
        )


def _architecture(device: Any) -> str:
    """sm_90, or gfx942."""
    return f"sm_{device.cc}" if device.type == "cuda" else str(device.cc)


def _artifacts(tuner: Any, launcher: Any) -> Path:
    """The folder in Triton's cache that holds every stage of the kernel (triton/compiler/compiler.py, compile)."""
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

    return Path(triton_cache_dir(tuner.triton_meta.get("device") or 0), launcher.cache_hash)


def _grid(tuner: Any, config: Any) -> Any | None:
    from torch._inductor.runtime.triton_heuristics import GridExpr

    return GridExpr.from_meta(tuner.inductor_meta, config) if "grid_type" in tuner.inductor_meta else None


def _constants(tuner: Any) -> dict[str, Any]:
    return dict(tuner.triton_meta.get("constants") or {})


def _parameters(tuner: Any) -> tuple[str, ...]:
    """What the wrapper passes, in order: arguments, then the grid of a template (FixedGrid in triton_heuristics.py).

    Block sizes are not among them: the configuration sets those.
    """
    if tuner.fn is None:
        return ()
    own = (name for name in tuner.fn.arg_names if name not in _constants(tuner))
    return (*own, *tuner.inductor_meta.get("extra_launcher_args", ()))
