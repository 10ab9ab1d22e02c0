"""Files of other programs become runs: a memory snapshot opens, and one that wants to run code is refused."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_app import drawn, texts

from fusionscope.collector.importers.memory_snapshot import BadSnapshot, import_snapshot, is_snapshot
from fusionscope.storage.library import Library
from fusionscope.storage.queries import blocks, memory
from fusionscope.storage.queries.blocks import Scene

MODEL = ({"filename": "/home/ada/model.py", "line": 7, "name": "forward"},)
TORCH = ({"filename": "/venv/torch/nn/functional.py", "line": 9, "name": "linear"}, *MODEL)
STEP = ({"filename": "/venv/torch/optim/adam.py", "line": 3, "name": "step"},)


def event(action: str, address: int, size: int, time: int, frames: Any = ()) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "time_us": time, "stream": 0, "frames": list(frames)}


def snapshot() -> dict[str, Any]:
    """A step: an activation that the backward frees, a gradient that stays, and a block from before that is freed."""
    history = [
        event("alloc", 1, 100, 10, TORCH),
        event("alloc", 2, 50, 20),  # no frames: autograd's thread
        event("free_requested", 1, 100, 30),
        event("free_completed", 1, 100, 30),
        event("alloc", 3, 8, 40),
        event("free_completed", 3, 8, 50),
        event("free_completed", 9, 40, 60, STEP),
    ]
    active = [
        {"address": address, "size": size, "state": "active_allocated"} for address, size in ((2, 512), (7, 1024))
    ]
    segment = {"device": 0, "address": 0, "blocks": [*active, {"address": 8, "size": 64, "state": "inactive"}]}
    return {"device_traces": [history], "segments": [segment], "allocator_settings": {}}


def written(folder: Path, content: Any) -> Path:
    path = folder / "step.pickle"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    return path


def test_a_snapshot_becomes_a_run_with_its_peak_and_its_blocks(tmp_path: Path) -> None:
    library = Library(tmp_path / "store")
    run = import_snapshot(library, written(tmp_path, snapshot()))
    (curve,) = library.ask(memory.curves, run, "")
    assert (curve.variant, curve.peak_bytes, curve.base_bytes) == ("snapshot", 150, 1024 + 40)
    scene = Scene(run, "", "measured", "snapshot")
    shares = {share.category: share.bytes for share in library.ask(blocks.shares, scene, curve.peak_step)}
    assert shares == {"saved": 100, "gradient": 50, "other": 1024 + 40}
    (line, unknown) = library.ask(blocks.by_source, scene, curve.peak_step)
    assert (line.file, line.line, line.bytes) == ("/home/ada/model.py", 7, 100)
    assert (unknown.label, unknown.bytes) == ("autograd, no Python frames", 50)


def test_the_snapshot_of_a_real_step_has_the_peak_that_the_allocator_read(tmp_path: Path) -> None:
    """A training step of a compiled GPT-2 of 4 layers on an H200, torch 2.11: the history begins a little late."""
    library = Library(tmp_path / "store")
    run = import_snapshot(library, Path(__file__).parent / "data" / "snapshot_gpt2_train_compiled.pickle.gz")
    (curve,) = library.ask(memory.curves, run, "")
    assert curve.peak_bytes + (curve.base_bytes or 0) == pytest.approx(1_137_017_856, rel=0.003)
    (largest, *_) = library.ask(blocks.by_source, Scene(run, "", "measured", "snapshot"), curve.peak_step)
    assert (Path(largest.file or "").name, largest.line) == ("modeling_gpt2.py", 697)


def test_an_imported_snapshot_opens_on_the_memory_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = import_snapshot(Library(tmp_path / "store"), written(tmp_path, snapshot()))
    app = drawn(tmp_path / "store", "memory.py", run, monkeypatch)
    assert not app.exception
    assert "Snapshot as measured: the peak is 150 B" in texts(app)


def test_a_snapshot_may_be_packed_and_is_told_from_a_bundle(tmp_path: Path) -> None:
    packed = tmp_path / "step.pickle.gz"
    packed.write_bytes(gzip.compress(pickle.dumps(snapshot())))
    assert is_snapshot(packed)
    assert import_snapshot(Library(tmp_path / "store"), packed)
    assert not is_snapshot(written(tmp_path, b"PK\x03\x04"))
    assert not is_snapshot(tmp_path / "absent")
    assert not is_snapshot(tmp_path)


class Hostile:
    """Unpickled, it would make a file."""

    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._proof),)


@pytest.mark.parametrize("inside", [False, True])
def test_a_pickle_that_wants_to_run_code_is_refused_and_nothing_runs(tmp_path: Path, inside: bool) -> None:
    proof = tmp_path / "proof"
    content = snapshot() | {"external_annotations": [Hostile(proof)]} if inside else Hostile(proof)
    with pytest.raises(BadSnapshot, match=r"asks for posix.mkdir: a memory snapshot holds plain data only"):
        import_snapshot(Library(tmp_path / "store"), written(tmp_path, content))
    assert not proof.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04",
        b"\x80\x04garbage",
        b"\x80\x04\x96" + b"\xff" * 8 + b".",  # a byte array of 2^64 - 1 bytes
        b"\x80\x02(cos\nsystem\nS'true'\nR.",
        b"\x80\x04Pelsewhere\n.",  # a persistent id
        {"device_traces": 3},
        {"device_traces": [3]},
        {"device_traces": [[event("alloc", 1, "large", 1)]]},  # type: ignore[arg-type]
        {"device_traces": [[event("alloc", 1, 1 << 70, 1)]]},
        {"device_traces": [[event("alloc", 1, -5, 1)]]},
        {"device_traces": [], "segments": [{"device": 0, "blocks": [{"state": "active_allocated"}]}]},
        ["no", "dict"],
    ],
)
def test_what_is_no_snapshot_is_refused_in_a_sentence(tmp_path: Path, content: Any) -> None:
    with pytest.raises(BadSnapshot, match=r"step\.pickle (is no memory snapshot|was not read): .+\.$"):
        import_snapshot(Library(tmp_path / "store"), written(tmp_path, content))


def test_the_command_imports_a_snapshot_without_torch_and_refuses_a_hostile_one(tmp_path: Path) -> None:
    run = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "fusionscope.collector.cli",
        "import",
        "--store",
        str(tmp_path / "s"),
    ]
    done = subprocess.run([*run, str(written(tmp_path, snapshot()))], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert " torch\n" not in done.stderr
    refused = [*run, str(written(tmp_path, Hostile(tmp_path / "proof")))]
    done = subprocess.run(refused, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "a memory snapshot holds plain data only" in done.stderr
    assert "Traceback" not in done.stderr
