"""Snapshots that torch.cuda.memory._dump_snapshot wrote → runs: the allocator's history as a measured step.

A pickle can name any function and have it called when it is read. The reader here resolves no name at all, so that only
plain containers, texts and numbers come out; a file that wants more is refused. What is read is checked field by field.
"""

from __future__ import annotations

import gzip
import pickle
import re
import secrets
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, cast

from fusionscope.collector.lifetimes import category_of
from fusionscope.storage.database import StorageError
from fusionscope.storage.library import Library
from fusionscope.storage.records import Allocation, HookStatus, Measurement, MemoryPoint, Run
from fusionscope.storage.spool import Spool

LIMIT = 4 << 30  # bytes, unpacked
_GZIP, _PICKLE = b"\x1f\x8b", b"\x80"  # a pickle of protocol 2 or later
_DAMAGED = (
    *(pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError),
    *(AttributeError, MemoryError, OverflowError, RecursionError),
)  # what the unpickler raises on bytes that are no pickle
_GENERATED = re.compile(r"/[a-z2-7]{2}/c[a-z2-7]{50,}\.py$")  # a file of Inductor's (torch/_inductor/codecache.py)
_BACKWARD = {"backward", "_backward_impl", "_make_grads", "_engine_run_backward"}
_METHOD = "replay of the allocator's history in the snapshot; bytes as requested, what was there before as blocks"


class BadSnapshot(StorageError):
    """The file is no memory snapshot, or wants to run code."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """An allocation or a completed free of the allocator's history."""

    freed: bool
    address: int
    bytes: int
    time_us: int
    frames: tuple[tuple[str, int, str], ...]  # file, line, function; innermost first

    @property
    def phase(self) -> str:
        """Autograd's own thread runs no Python, so what has no frames is the backward's."""
        if any("/torch/optim/" in file for file, _, _ in self.frames):
            return "optimizer"
        backward = not self.frames or any(name in _BACKWARD and "/torch/" in file for file, _, name in self.frames)
        return "backward" if backward else "forward"

    @property
    def source(self) -> tuple[str, int] | None:
        """The innermost line that is neither torch's nor generated."""
        own = ((file, line) for file, line, _ in self.frames if "/torch/" not in file and not _GENERATED.search(file))
        return next(own, None)

    @property
    def label(self) -> str | None:
        """The innermost frame."""
        if not self.frames:
            return "autograd, no Python frames"
        file, line, name = self.frames[0]
        return f"{name}, {file.rpartition('/')[2]}:{line}"


def is_snapshot(path: Path) -> bool:
    """Whether a file is a pickle, packed with gzip or not."""
    try:
        with _opened(path) as file:
            return file.read(1) == _PICKLE
    except (OSError, EOFError, zlib.error):
        return False


def import_snapshot(library: Library, path: Path) -> str:
    """Take the snapshot at `path` into the library as a run; returns its id. Raises BadSnapshot with one sentence."""
    found = _read(path)
    traces = [_entries(trace, path) for trace in _list(found, "device_traces", path)]
    blocks = _blocks(found, path)
    run = _run(path)
    spool = Spool.create(library.store, run)
    many = sum(bool(trace) for trace in traces) > 1
    for device, trace in enumerate(traces):
        if trace:
            own = [block for block in blocks if block[0] == device]
            spool.append(list(_records(f"snapshot of device {device}" if many else "snapshot", trace, own)))
    spool.append([HookStatus(hook="memory_snapshot", state="recorded", recorded=sum(map(len, traces)))])
    spool.publish(run)
    library.import_inbox()
    return run.run_id


class _PlainUnpickler(pickle.Unpickler):
    """Reads containers, texts and numbers; every other object begins with a name, and no name is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        raise BadSnapshot(f"the file asks for {module}.{name}: a memory snapshot holds plain data only.")

    def persistent_load(self, pid: Any) -> Any:
        raise BadSnapshot("the file refers to objects outside of it: a memory snapshot holds plain data only.")


class _Bounded:
    """A file that is read up to a limit: a small gzip can unpack to any size."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, LIMIT

    def read(self, size: int = -1) -> bytes:
        return self._counted(self._file.read(size))

    def readline(self) -> bytes:
        return self._counted(self._file.readline())

    def _counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise BadSnapshot(f"the file unpacks to more than {LIMIT >> 30} GiB.")
        return data


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    return cast(IO[bytes], gzip.open(path, "rb")) if packed else path.open("rb")


def _read(path: Path) -> dict[str, Any]:
    try:
        with _opened(path) as file:
            found = _PlainUnpickler(_Bounded(file)).load()
    except BadSnapshot as error:
        raise BadSnapshot(f"{path} was not read: {error}") from None
    except (*_DAMAGED, OSError, zlib.error) as error:
        raise BadSnapshot(f"{path} is no memory snapshot: {type(error).__name__} while reading it.") from error
    if not isinstance(found, dict) or "device_traces" not in found:
        raise BadSnapshot(f"{path} is no memory snapshot: it has no device_traces.")
    return found


def _list(owner: Any, key: str, path: Path) -> list[Any]:
    value = owner.get(key, []) if isinstance(owner, dict) else None
    if not isinstance(value, (list, tuple)):
        raise BadSnapshot(f"{path} is no memory snapshot: {key} is no list.")
    return list(value)


def _whole(owner: Any, key: str, path: Path) -> int:
    value = owner.get(key) if isinstance(owner, dict) else None
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise BadSnapshot(f"{path} is no memory snapshot: {key} is {value!r:.40}, no size, address or time.")
    return value


def _entries(trace: Any, path: Path) -> list[_Entry]:
    """Allocations and completed frees of one device, in order."""
    if not isinstance(trace, (list, tuple)):
        raise BadSnapshot(f"{path} is no memory snapshot: a device's history is no list.")
    wanted = [e for e in trace if isinstance(e, dict) and e.get("action") in ("alloc", "free_completed")]
    return [
        _Entry(
            freed=entry["action"] == "free_completed",
            address=_whole(entry, "addr", path),
            bytes=_whole(entry, "size", path),
            time_us=_whole(entry, "time_us", path),
            frames=tuple(_frames(entry, path)),
        )
        for entry in wanted
    ]


def _frames(entry: dict[str, Any], path: Path) -> Iterator[tuple[str, int, str]]:
    for frame in _list(entry, "frames", path):
        if isinstance(frame, dict):
            yield str(frame.get("filename"))[:500], _whole(frame, "line", path), str(frame.get("name"))[:200]


def _blocks(found: dict[str, Any], path: Path) -> list[tuple[int, int, int]]:
    """Device, address and size of the blocks that are in use at the end."""
    return [
        (_whole(segment, "device", path), _whole(block, "address", path), _whole(block, "size", path))
        for segment in _list(found, "segments", path)
        for block in _list(segment, "blocks", path)
        if isinstance(block, dict) and block.get("state") != "inactive"
    ]


def _run(path: Path) -> Run:
    now = datetime.now(UTC).replace(tzinfo=None)
    return Run(
        run_id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        name=path.name.removesuffix(".gz").removesuffix(".pickle"),
        created_at=now,
        status="complete",
        source="imported",
        source_path=str(path.absolute()),
        device_kind="cuda",
    )


def _records(variant: str, trace: list[_Entry], at_end: list[tuple[int, int, int]]) -> Iterator[Any]:
    ends = _paired(trace)
    made = {index for index, entry in enumerate(trace) if not entry.freed}
    known = {trace[index].address for index in made if ends.get(index) is None}
    before = [(address, size) for _, address, size in at_end if address not in known]
    freed = [(index, entry) for index, entry in enumerate(trace) if entry.freed and index not in set(ends.values())]
    base = sum(size for _, size in before) + sum(entry.bytes for _, entry in freed)
    points = list(_points(variant, trace, base))
    highest = max((point.live_bytes for point in points), default=0)
    for metric, value in (("peak_bytes", highest), ("base_bytes", base)):
        yield Measurement(variant=variant, metric=metric, median=value, unit="bytes", method=_METHOD)
    yield from points
    for address, size in before:
        yield _held(variant, address, size)
    for index, entry in freed:
        yield _held(variant, entry.address, entry.bytes, index, float(entry.time_us - trace[0].time_us))
    yield from _allocations(variant, trace, ends)


def _paired(trace: list[_Entry]) -> dict[int, int | None]:
    """Allocation → the free that ends it, None where there is none, by address."""
    held: dict[int, int] = {}
    ends: dict[int, int | None] = {}
    for index, entry in enumerate(trace):
        if not entry.freed:
            held[entry.address] = index
            ends[index] = None
        elif entry.address in held:
            ends[held.pop(entry.address)] = index
    return ends


def _points(variant: str, trace: list[_Entry], base: int) -> Iterator[MemoryPoint]:
    live = 0
    for step, entry in enumerate(trace):
        delta = -entry.bytes if entry.freed else entry.bytes
        live += delta
        yield MemoryPoint(
            graph_id="",
            basis="measured",
            variant=variant,
            step=step,
            time_us=float(entry.time_us - trace[0].time_us),
            live_bytes=live,
            base_bytes=base,
            delta_bytes=delta,
            label=f"free {entry.label}" if entry.freed else entry.label,
        )


def _held(
    variant: str, address: int, size: int, last_event: int | None = None, end_us: float | None = None
) -> Allocation:
    return Allocation(
        variant=variant,
        phase="before",
        end_us=end_us,
        last_event=last_event,
        bytes=size,
        address=address,
        category="other",
        label="there before the history begins: a snapshot does not tell weights from optimizer state",
    )


def _allocations(variant: str, trace: list[_Entry], ends: dict[int, int | None]) -> Iterator[Allocation]:
    times = [entry.time_us for index, entry in enumerate(trace) if index in ends and entry.phase == "backward"]
    backward = (float(min(times)), float(max(times))) if times else None
    for index, end in ends.items():
        entry, end_us = trace[index], None if end is None else trace[end].time_us
        yield Allocation(
            variant=variant,
            phase=entry.phase,
            start_us=float(entry.time_us - trace[0].time_us),
            end_us=None if end_us is None else float(end_us - trace[0].time_us),
            first_event=index,
            last_event=end,
            bytes=entry.bytes,
            address=entry.address,
            category=category_of(entry.phase, end_us, backward),
            label=entry.label,
            file=entry.source[0] if entry.source else None,
            line=entry.source[1] if entry.source else None,
        )
