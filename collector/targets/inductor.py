"""Has Inductor compile for a GPU that is not there: its own decisions, no benchmarks, no launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from fusionscope.collector.targets.replacing import replace
from fusionscope.storage.records import DeviceFact

met: Counter[str] = Counter()  # decisions that Inductor would have taken by timing → how often


def compile_for(target: DeviceFact, mode: Any) -> None:
    """Compile in this process, benchmark and launch nothing, and forget what was concluded before the GPU came.

    Wrappers run in `mode`, a FakeTensorMode.
    """
    import torch.utils._triton
    from torch._inductor import compile_fx, config, utils
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    config.compile_threads = 1
    config.triton.cudagraphs = False
    config.autotune_local_cache = False
    config.max_autotune_report_choices_stats = False  # there are no times to print
    config.benchmark_fusion = config.benchmark_epilogue_fusion = False
    config.use_static_triton_launcher = False  # it loads the binary by the driver, and hides the other artifacts
    replace(utils, get_gpu_dram_gbps=lambda: target.bandwidth_gbps)
    for module in (torch.utils._triton, utils):
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()
    replace(CachingAutotuner, run=lambda *arguments, **keywords: None)
    nothing: Callable[..., Any] = lambda *arguments, **keywords: lambda *pointers: None  # noqa: E731
    replace(AsyncCompile, cpp=nothing, cpp_pybinding=nothing)  # parts on the CPU are not the target's
    for module in (utils, compile_fx):
        replace(module, copy_misaligned_inputs=lambda inputs, *arguments: ([], []))  # it reads addresses
    _constants_on_the_cpu()
    _padding_undecided()
    _templates_undecided()
    _nothing_remembered()
    replace(compile_fx, cudagraphify=lambda model, *arguments, **keywords: model)  # there is nothing to replay
    _wrappers_on_fakes(mode)


def _constants_on_the_cpu() -> None:
    """Inductor folds constants by running tiny operators on their device (fx_passes/joint_graph.py)."""
    import torch
    from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder
    from torch.utils._python_dispatch import TorchDispatchMode

    class OnTheCpu(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            moved = dict(kwargs or {})
            if isinstance(moved.get("device"), torch.device):
                moved["device"] = torch.device("cpu")
            return func(*args, **moved)

    original = UniformValueConstantFolder._deduce_value

    def _deduce_value(folder: Any, node: Any) -> Any:
        with OnTheCpu():  # type: ignore[no-untyped-call]
            return original(folder, node)

    replace(UniformValueConstantFolder, _deduce_value=_deduce_value)


def _padding_undecided() -> None:
    """Inductor times a padded against an unpadded matrix product (fx_passes/pad_mm.py); here it stays unpadded."""
    from torch._inductor.fx_passes import pad_mm

    original: Callable[..., Any] = pad_mm._should_pad

    def _should_pad(*arguments: Any, **keywords: Any) -> bool:
        try:
            return bool(original(*arguments, **keywords))
        except (NotImplementedError, RuntimeError):
            met["pad_mm"] += 1
            return False

    replace(pad_mm, _should_pad=_should_pad)


def _templates_undecided() -> None:
    """Inductor times a library call against its templates (select_algorithm.py); here no time is known.

    Then it takes the library call itself, or the first candidate where there is none, as for flex attention.
    """
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    def untimed(candidates: Any) -> dict[Any, float]:
        met["templates"] += 1
        return {}

    replace(
        AlgorithmSelectorCache,
        make_benchmark_fn=lambda *arguments, **keywords: untimed,
        make_precompile_fn=lambda *arguments, **keywords: lambda: {},
        log_results=lambda name, input_nodes, timings, *arguments, **keywords: None,
    )


def _nothing_remembered() -> None:
    """Keep Inductor's caches of timings out: a winner found on a real GPU is none here, nor the other way round."""
    from torch._inductor import codecache

    def lookup(cache: Any, choices: Any, op: Any, inputs: Any, benchmark: Any, hint_override: Any = None) -> Any:
        return benchmark(choices) if benchmark else {}

    replace(codecache.PersistentCache, lookup=lookup)
    replace(codecache.LocalCache, lookup=lambda cache, *keys: None, set_value=lambda cache, *keys, value: None)


def _wrappers_on_fakes(mode: Any) -> None:
    """Run each emitted wrapper on FakeTensors: it allocates, calls library operators and returns, but computes nothing.

    Its helpers that reach into C++ memory are replaced by operators that a FakeTensor understands.
    """
    import torch
    from torch._inductor.graph import GraphLowering

    helpers = {
        "empty_strided_cuda": lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device="cuda"),
        "empty_strided_cpu": lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device="cpu"),
        "reinterpret_tensor": lambda base, size, stride, offset=0: torch.as_strided(base, size, stride, offset),
        "assert_alignment": lambda *arguments: None,
        "assert_size_stride": lambda *arguments: None,
    }
    helpers["empty_strided_cpu_pinned"] = helpers["empty_strided_cpu"]
    original: Callable[..., Any] = GraphLowering._compile_to_module_lines

    def _compile_to_module_lines(lowering: Any, code: Any) -> Any:
        module: Any = original(lowering, code)
        replace(module, **{name: helper for name, helper in helpers.items() if hasattr(module, name)})
        call = module.call

        def on_fakes(arguments: Any) -> Any:
            with mode, torch.no_grad():
                return call(arguments)

        module.call = on_fakes
        return module

    replace(GraphLowering, _compile_to_module_lines=_compile_to_module_lines)
