"""Answers what torch, Dynamo and Triton ask the GPU's driver, for a GPU that is not there."""

from __future__ import annotations

import functools
import types
from typing import Any

from fusionscope.collector.targets.binaries import resources
from fusionscope.collector.targets.devices import capability
from fusionscope.collector.targets.replacing import replace
from fusionscope.storage.records import DeviceFact

_THREADS_PER_BLOCK = 1024  # on every target
_REGISTERS = 65536  # of a multiprocessor, as both drivers report them (hipDeviceProp_t counts only a part)


def answer_for(target: DeviceFact) -> None:
    """Answer every question with the facts of `target`."""
    properties = _properties(target)
    _torch_cuda(target, properties)
    _device_interface(target, properties)
    _triton(target)


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
        clock_rate=_clock_khz(target),
        uuid="",
    )


def _clock_khz(target: DeviceFact) -> int:
    return (target.clock_mhz or 0) * 1000  # every target has one


def _torch_cuda(target: DeviceFact, properties: Any) -> None:
    import torch

    replace(
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
    replace(
        torch._C,
        _cuda_getCurrentRawStream=lambda device: 0,
        _cuda_cudaCachingAllocator_is_enabled=lambda: True,
    )
    # What torch was built for, where the code asks for it; any release with the target will do.
    hip, cuda = ("6.4.0", None) if target.backend == "hip" else (None, "13.0")
    replace(torch.version, hip=hip, cuda=cuda)


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
            "sm_clock_rate": _clock_khz(target),
            "arch": target.architecture,
        },
        load_binary=functools.partial(_load_binary, target.architecture),
        unload_module=lambda module: None,  # Triton 3.8 unloads what it drops
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


def _load_binary(
    architecture: str, name: str, binary: bytes, shared: int, device: int
) -> tuple[int, int, int, int, int]:
    """Module, function, n_regs, n_spills and n_max_threads, as cuFuncGetAttribute would give them after loading.

    Inductor's _dynamic_scale_rblock decides by n_regs. n_spills is local memory in words (triton's driver.c).
    """
    found = resources(binary, architecture)
    return 1, 1, found.registers, found.local_bytes // 4, _THREADS_PER_BLOCK
