"""What a compiled kernel takes of a GPU, read from the binary itself, and its machine code as text."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_INFO = {0x2F: "registers", 0x11: "local"}  # EIATTR_REGCOUNT and EIATTR_FRAME_SIZE of a cubin's .nv.info section
_RESERVED = 1024
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True, slots=True)
class Resources:
    """What one thread (registers, local memory) and one block (shared memory) of a kernel take; bytes."""

    registers: int
    local_bytes: int
    static_shared_bytes: int


def resources(binary: bytes, architecture: str) -> Resources:
    """Resources of the one kernel in a cubin (sm_90) or a hsaco (gfx942). Raises ValueError for anything else."""
    if binary[:4] != b"\x7fELF":
        raise ValueError("the kernel's binary is no ELF file")
    return _of_hsaco(binary) if architecture.startswith("gfx") else _of_cubin(binary, int(architecture[3:]))


def _of_cubin(binary: bytes, capability: int) -> Resources:
    """The largest of each figure over the functions, as `cuobjdump -res-usage` prints REG and STACK, and SHARED.

    From sm_90 on, SHARED begins with the kilobyte that the driver reserves, which `ptxas -v` does not count: no more
    does this.
    """
    found = {"registers": 0, "local": 0, "shared": 0}
    for name, offset, size in _sections(binary):
        if name == ".nv.info":
            for kind, value in _attributes(binary[offset : offset + size]):
                found[kind] = max(found[kind], value)
        elif name.startswith(".nv.shared.") and "reserved" not in name:
            found["shared"] += size
    reserved = _RESERVED if capability >= 90 else 0
    return Resources(found["registers"], found["local"], max(found["shared"] - reserved, 0))


def _sections(binary: bytes) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size of every section of a 64-bit ELF file (System V ABI, section header table)."""
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    entry, count, names = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", binary, table + i * entry) for i in range(count)]
    strings = headers[names][4]
    for name, _type, _flags, _address, offset, size in headers:
        start = strings + name
        yield binary[start : binary.index(b"\0", start)].decode(), offset, size


def _attributes(info: bytes) -> Iterator[tuple[str, int]]:
    """Attributes of .nv.info that name a symbol and a value: format 4, code, length, payload."""
    at = 0
    while at + 4 <= len(info):
        form, code, length = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == 4 and code in _INFO:
            yield _INFO[code], struct.unpack_from("<II", info, at)[1]
        at += length if form == 4 else 0


def _of_hsaco(binary: bytes) -> Resources:
    """From the code object's metadata, a MessagePack map (LLVM, AMDGPUUsage, "Code Object V5 Metadata")."""
    return Resources(
        _message_value(binary, b".vgpr_count"),
        _message_value(binary, b".private_segment_fixed_size"),
        _message_value(binary, b".group_segment_fixed_size"),
    )


def _message_value(binary: bytes, key: bytes) -> int:
    """The unsigned integer behind a MessagePack string. Raises ValueError where the key is absent."""
    at = binary.index(key) + len(key)
    kind = binary[at]
    width = {0xCC: 1, 0xCD: 2, 0xCE: 4}.get(kind, 0)
    return int.from_bytes(binary[at + 1 : at + 1 + width], "big") if width else kind


def artifact(folder: Path, kind: str) -> Path | None:
    """A stage of a kernel (ttir, ptx, cubin, json, …) in its folder of Triton's cache; None where it is not there."""
    return next((path for path in folder.glob(f"*.{kind}") if not path.name.startswith("__grp__")), None)


def spill_bytes(folder: Path, local_bytes: int) -> int | None:
    """Bytes of spill stores and loads that `ptxas -v` counts for a kernel of Triton's CUDA backend, by its folder.

    Spilled registers live in the stack frame, so a kernel without one spills nothing. Else Triton assembles the PTX
    once more, as it did the first time, and prints ptxas's log (triton/backends/nvidia/compiler.py, make_cubin). None
    where its cache does not hold the PTX.
    """
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    if not local_bytes:
        return 0
    ptx, facts = artifact(folder, "ptx"), artifact(folder, "json")
    if ptx is None or facts is None:
        return None
    metadata = json.loads(facts.read_text())
    target = GPUTarget(**metadata["target"])
    backend = make_backend(target)
    log = io.StringIO()
    with knobs.nvidia.scope(), contextlib.redirect_stdout(log):
        knobs.nvidia.dump_ptxas_log = True
        backend.make_cubin(ptx.read_text(), {}, backend.parse_options(metadata), target.arch)
    return sum(int(count) for pair in _SPILLS.findall(log.getvalue()) for count in pair)


def sass(binary: bytes) -> str | None:
    """The machine code of a cubin as text, by the nvdisasm that comes with Triton; None where it does not run.

    It takes a quarter of a second, so the text is kept in torch's cache folder.
    """
    from torch._inductor.runtime.cache_dir_utils import cache_dir
    from triton import knobs

    text = Path(cache_dir()) / "fusionscope" / "sass" / hashlib.sha256(binary).hexdigest()
    if not text.exists():
        text.parent.mkdir(parents=True, exist_ok=True)
        unfinished = text.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(binary)
        try:
            command = [knobs.nvidia.nvdisasm.path, "-c", str(unfinished)]
            unfinished.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        except (OSError, RuntimeError, subprocess.CalledProcessError):
            unfinished.unlink()
            return None
        unfinished.replace(text)
    return text.read_text()
