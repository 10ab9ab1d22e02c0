"""Makes this process take a GPU for present: torch, Inductor and Triton then decide as they would on it.

Nothing is restored: this is for a process of its own (`fusionscope.collector.targets.child`). Tensors are FakeTensors,
which have shapes but no memory. Inductor, Triton and ptxas run unchanged; what is replaced is only what asks the driver
(torch/cuda/__init__.py, torch/_dynamo/device_interface.py, triton.runtime.driver) or would launch a kernel.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from fusionscope.collector.hook import patched
from fusionscope.collector.targets import stand_in
from fusionscope.collector.targets.binaries import resources
from fusionscope.collector.targets.devices import capability
from fusionscope.storage.records import DeviceFact, HookStatus

_present: list[DeviceFact] = []
_met: Counter[str] = Counter()  # decisions that torch would have taken by timing → how often

_THREADS_PER_BLOCK = 1024  # on every target
_REGISTERS = 65536  # of a multiprocessor, as both drivers report them (hipDeviceProp_t counts only a part)


def stand_in_for(target: DeviceFact) -> Any:
    """Take `target` for present; returns the FakeTensorMode to run user code in. Raises StandInFailed."""
    from torch._subclasses import fake_tensor

    stand_in.load()
    properties = _properties(target)
    _torch_cuda(target, properties)
    _device_interface(target, properties)
    _triton(target)
    _inductor(target)
    _attention(target)
    _conversions()
    fake_tensor.init_gpu_context = lambda device: None  # a build for CUDA would look for the GPU
    fake_tensor.FakeTensorMode.avoid_device_init = property(lambda mode: True)
    mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
    _wrappers(mode)
    _warned(mode)
    _present.append(target)
    return mode


def present() -> DeviceFact | None:
    """The GPU that this process takes for present, or None."""
    return _present[0] if _present else None


def undecided() -> list[HookStatus]:
    """What only the GPU itself can decide or tell, each with the reason, as rows of the coverage statement."""
    name = _present[0].name
    absent = f"there is no {name} here, and only timing on it can tell"
    reasons = {
        "measure": f"{absent} how fast it is",
        "autotune": f"{absent} which of a kernel's configurations wins: each is recorded, none is chosen",
        "library_kernels": f"which kernel a library would pick on the {name}, and what it takes, is known only there",
    }
    if count := _met["pad_mm"]:
        reasons["pad_mm"] = f"{absent} whether padding pays: left unpadded {count} times"
    if count := _met["templates"]:
        reasons["templates"] = f"{absent} whether a template beats the library: the library stands, {count} times"
    return [HookStatus(hook=hook, state="unavailable", reason=reason) for hook, reason in reasons.items()]


def _replace(owner: Any, **values: Any) -> None:
    for name, value in values.items():
        setattr(owner, name, value)


def _properties(target: DeviceFact) -> Any:
    """What torch.cuda.get_device_properties tells, by cudaDeviceProp's figures."""
    major, minor = capability(target)
    return types.SimpleNamespace(
        name=target.product,
        major=major,
        minor=minor,
        total_memory=target.memory_bytes,
        multi_processor_count=target.multiprocessors,
        regs_per_multiprocessor=_REGISTERS,
        max_threads_per_multi_processor=target.warps_per_multiprocessor * target.warp_size,
        max_threads_per_block=_THREADS_PER_BLOCK,
        warp_size=target.warp_size,
        L2_cache_size=target.l2_bytes,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=target.shared_bytes_per_block,
        shared_memory_per_multiprocessor=target.shared_bytes_per_multiprocessor,
        gcnArchName=f"{target.architecture}:sramecc+:xnack-" if target.backend == "hip" else "",
        is_integrated=0,
        is_multi_gpu_board=0,
        clock_rate=target.clock_mhz * 1000,
        uuid="",
    )


def _torch_cuda(target: DeviceFact, properties: Any) -> None:
    import torch

    _replace(
        torch.cuda,
        is_available=lambda: True,
        is_initialized=lambda: False,
        is_current_stream_capturing=lambda: False,
        is_bf16_supported=lambda including_emulation=True: True,
        is_tf32_supported=lambda: target.backend == "cuda",
        device_count=lambda: 1,
        current_device=lambda: 0,
        set_device=lambda device: None,
        synchronize=lambda device=None: None,
        empty_cache=lambda: None,
        get_device_properties=lambda device=None: properties,
        get_device_capability=lambda device=None: capability(target),
        get_device_name=lambda device=None: target.product,
        get_arch_list=lambda: [target.architecture],
        get_rng_state=lambda device="cuda": torch.zeros(16, dtype=torch.uint8),
        set_rng_state=lambda state, device="cuda": None,
        mem_get_info=lambda device=None: (target.memory_bytes, target.memory_bytes),
        memory_allocated=lambda device=None: 0,
        _exchange_device=lambda device: 0,
        _maybe_exchange_device=lambda device: 0,
        _is_compiled=lambda: True,
        _lazy_init=lambda: None,
    )
    torch._C._cuda_getCurrentRawStream = lambda device: 0  # type: ignore[attr-defined]
    # What torch was built for, where the code asks for it; any release with the target will do.
    torch.version.hip, torch.version.cuda = ("6.4.0", None) if target.backend == "hip" else (None, "13.0")


def _device_interface(target: DeviceFact, properties: Any) -> None:
    """Dynamo's and Inductor's view of the device; CudaInterface binds torch.cuda's functions when it is imported."""
    from torch._dynamo import device_interface as interfaces

    class Interface(interfaces.CudaInterface):
        class Worker(interfaces.CudaInterface.Worker):
            get_device_properties = staticmethod(lambda device=None: properties)
            current_device = staticmethod(lambda: 0)

        is_available = staticmethod(lambda: True)
        is_bf16_supported = staticmethod(lambda including_emulation=False: True)
        is_triton_capable = staticmethod(lambda device=None: True)
        raise_if_triton_unavailable = staticmethod(lambda device=None: None)
        device_count = staticmethod(lambda: 1)
        current_device = staticmethod(lambda: 0)
        set_device = staticmethod(lambda device: None)
        exchange_device = staticmethod(lambda device: 0)
        maybe_exchange_device = staticmethod(lambda device: 0)
        synchronize = staticmethod(lambda device=None: None)
        memory_allocated = staticmethod(lambda device=None: 0)
        get_raw_stream = staticmethod(lambda device=0: 0)
        get_device_properties = staticmethod(lambda device=None: properties)
        get_compute_capability = staticmethod(lambda device=None: _architecture(target))

    interfaces.get_interface_for_device("cpu")  # the registry is filled when it is first asked
    interfaces.register_interface_for_device("cuda", Interface)
    interfaces.register_interface_for_device("cuda:0", Interface)


def _architecture(target: DeviceFact) -> int | str:
    """90 or gfx942, as Triton's GPUTarget names it."""
    major, minor = capability(target)
    return target.architecture if target.backend == "hip" else major * 10 + minor


def _triton(target: DeviceFact) -> None:
    """A driver of Triton that answers for the target, reads a binary instead of loading it and launches nothing."""
    from triton.backends import backends
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    answers = types.SimpleNamespace(
        get_device_properties=lambda device: {
            "max_shared_mem": target.shared_bytes_per_block,
            "max_num_regs": _REGISTERS,
            "multiprocessor_count": target.multiprocessors,
            "warpSize": target.warp_size,
            "sm_clock_rate": target.clock_mhz * 1000,
            "arch": target.architecture,
        },
        load_binary=functools.partial(_load_binary, target.architecture),
    )

    class Driver(backends["amd" if target.backend == "hip" else "nvidia"].driver):  # type: ignore[misc]
        def __init__(self) -> None:
            self.utils = answers
            self.launcher_cls = lambda source, metadata: lambda *arguments: None
            self.get_device_capability = lambda device=0: capability(target)
            self.get_current_device = lambda: 0
            self.get_current_stream = lambda device=0: 0
            self.set_current_device = lambda device: None

        def get_current_target(self) -> Any:
            return GPUTarget(target.backend, _architecture(target), target.warp_size)

    driver.set_active(Driver())


def _load_binary(architecture: str, name: str, binary: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
    """Module, function, n_regs, n_spills and n_max_threads, as cuFuncGetAttribute would give them after loading.

    Inductor's _dynamic_scale_rblock decides by n_regs. n_spills is local memory in words (triton's driver.c).
    """
    found = resources(binary, architecture)
    return 1, 1, found.registers, found.local_bytes // 4, _THREADS_PER_BLOCK


def _inductor(target: DeviceFact) -> None:
    """Compile in this process, benchmark nothing, and forget what was concluded before the GPU came."""
    import torch.utils._triton
    from torch._inductor import compile_fx, config, utils
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    config.compile_threads = 1
    config.triton.cudagraphs = False
    config.autotune_local_cache = False
    config.benchmark_fusion = config.benchmark_epilogue_fusion = False
    config.use_static_triton_launcher = False  # it loads the binary by the driver, and hides the other artifacts
    utils.get_gpu_dram_gbps = lambda: target.bandwidth_gbps  # type: ignore[assignment]
    for module in (torch.utils._triton, utils):
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()
    CachingAutotuner.run = lambda *arguments, **keywords: None  # type: ignore[method-assign]
    nothing: Callable[..., Any] = lambda *arguments, **keywords: lambda *pointers: None  # noqa: E731
    _replace(AsyncCompile, cpp=nothing, cpp_pybinding=nothing)  # parts on the CPU are not the target's
    utils.copy_misaligned_inputs = lambda inputs, *arguments: ([], [])  # it reads addresses
    compile_fx.copy_misaligned_inputs = utils.copy_misaligned_inputs
    _constants_on_the_cpu()
    _padding_undecided()
    _templates_undecided()
    _nothing_remembered()
    torch._C._cuda_cudaCachingAllocator_is_enabled = lambda: True  # type: ignore[attr-defined]
    compile_fx.cudagraphify = lambda model, *arguments, **keywords: model  # there is nothing to replay


def _conversions() -> None:
    """Let `module.to(…)` convert FakeTensors in place: it swaps them, which weak references to them forbid."""
    import torch.utils

    torch.utils.weakref = types.SimpleNamespace(getweakrefs=lambda tensor: [])  # type: ignore[attr-defined]


def _warned(mode: Any) -> None:
    """Have torch give its one warning of a FakeTensor's address now, unheard: its runtime asks for addresses."""
    import torch

    with mode, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.empty(1, device="cuda").untyped_storage().data_ptr()


def _constants_on_the_cpu() -> None:
    """Inductor folds constants by running tiny operators on their device (fx_passes/joint_graph.py)."""
    import torch
    from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder
    from torch.utils._python_dispatch import TorchDispatchMode

    class OnTheCpu(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            moved = dict(kwargs or {})
            if isinstance(moved.get("device"), torch.device):
                moved["device"] = torch.device("cpu")
            return func(*args, **moved)

    original = UniformValueConstantFolder._deduce_value

    def _deduce_value(folder: Any, node: Any) -> Any:
        with OnTheCpu():
            return original(folder, node)

    UniformValueConstantFolder._deduce_value = _deduce_value  # type: ignore[method-assign]


def _padding_undecided() -> None:
    """Inductor times a padded against an unpadded matrix product (fx_passes/pad_mm.py); here it stays unpadded."""
    from torch._inductor.fx_passes import pad_mm

    original = pad_mm._should_pad

    def _should_pad(*arguments: Any, **keywords: Any) -> bool:
        try:
            return bool(original(*arguments, **keywords))
        except (NotImplementedError, RuntimeError):
            _met["pad_mm"] += 1
            return False

    pad_mm._should_pad = _should_pad


def _templates_undecided() -> None:
    """Inductor times a library call against its templates (select_algorithm.py); here the library call stands.

    Where there is none, as for flex attention, the first candidate does.
    """
    from torch._inductor.select_algorithm import AlgorithmSelectorCache, ExternKernelCaller

    def ranked(candidates: Any) -> dict[Any, float]:
        _met["templates"] += 1
        first = next((c for c in candidates if isinstance(c, ExternKernelCaller)), candidates[0])
        return {candidate: 1.0 if candidate is first else 2.0 for candidate in candidates}

    _replace(
        AlgorithmSelectorCache,
        make_benchmark_fn=lambda *arguments, **keywords: ranked,
        make_precompile_fn=lambda *arguments, **keywords: lambda: {},
        log_results=lambda *arguments, **keywords: None,  # these are no times to print
    )


def _nothing_remembered() -> None:
    """Keep Inductor's caches of timings out: a winner found on a real GPU is none here, nor the other way round."""
    from torch._inductor import codecache

    def lookup(cache: Any, choices: Any, op: Any, inputs: Any, benchmark: Any, hint_override: Any = None) -> Any:
        return benchmark(choices) if benchmark else {}

    _replace(codecache.PersistentCache, lookup=lookup)
    _replace(codecache.LocalCache, lookup=lambda cache, *keys: None, set_value=lambda cache, *keys, value: None)


def _attention(target: DeviceFact) -> None:
    """Choose the kernel of scaled_dot_product_attention, which torch's C++ does not do for an absent GPU.

    cuDNN first on sm_90 and sm_100, else flash attention, memory-efficient attention where flash cannot, as
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp orders them.
    """
    import torch

    aten = torch.ops.aten
    cudnn = target.architecture in ("sm_90", "sm_100")

    def attention(
        q: Any,
        k: Any,
        v: Any,
        mask: Any = None,
        dropout: float = 0.0,
        causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        heads_fit = q.dim() == 4 and q.shape[-1] % 8 == 0 and q.shape[-1] <= (128 if cudnn else 256)
        grads = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v))
        half = q.dtype in (torch.float16, torch.bfloat16)
        if enable_gqa or q.dim() != 4 or q.shape[-1] % 4:
            math = aten._scaled_dot_product_attention_math
            return math(q, k, v, mask, dropout, causal, None, scale=scale, enable_gqa=enable_gqa)[0]
        if half and heads_fit and cudnn:
            fused = aten._scaled_dot_product_cudnn_attention
            return fused(q, k, v, mask, grads, dropout, causal, False, scale=scale)[0]
        if half and heads_fit and mask is None:
            return aten._scaled_dot_product_flash_attention(q, k, v, dropout, causal, False, scale=scale)[0]
        return aten._scaled_dot_product_efficient_attention(q, k, v, mask, grads, dropout, causal, scale=scale)[0]

    library = torch.library.Library("aten", "IMPL")  # noqa: TOR901
    _attention_library.append(library)  # dropped, it would take its kernels along
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an operator is overridden is the point
        for key in ("AutogradCUDA", "CUDA"):
            library.impl("scaled_dot_product_attention", attention, key)


_attention_library: list[Any] = []


def _wrappers(mode: Any) -> None:
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
    original = GraphLowering._compile_to_module_lines

    def _compile_to_module_lines(lowering: Any, code: Any) -> Any:
        module = original(lowering, code)
        _replace(module, **{name: helper for name, helper in helpers.items() if hasattr(module, name)})
        call = module.call

        def on_fakes(arguments: Any) -> Any:
            with mode, torch.no_grad():
                return call(arguments)

        module.call = on_fakes
        return module

    GraphLowering._compile_to_module_lines = _compile_to_module_lines  # type: ignore[method-assign]
