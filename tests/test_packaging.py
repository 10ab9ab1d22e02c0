"""A wheel holds everything, and what is installed from it serves the dashboard on loopback only."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path
from urllib.error import URLError

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("collector", "storage", "app", "sample_models")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy: setuptools leaves a build folder behind."""
    folder = tmp_path_factory.mktemp("build")
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__", ".mypy_cache"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, folder)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that finds the wheel's Fusionscope before any other."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return os.environ | {"PYTHONPATH": str(site)}


def test_the_wheel_holds_every_file_of_the_rooms(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.is_file()]
    kept = [path for path in files if not {"__pycache__", ".mypy_cache"} & set(path.parts)]
    assert {f"fusionscope/{path.relative_to(ROOT).as_posix()}" for path in kept} <= held
    assert "fusionscope/app/.streamlit/config.toml" in held
    assert not [name for name in held if name.startswith(("tests/", "app/", "collector/"))]


def test_the_installed_dashboard_listens_on_loopback_only(
    installed: dict[str, str], example_store: Path, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "fusionscope.collector.cli", "app", "--port", str(port)]
    environment = installed | {"FUSIONSCOPE_STORE": str(example_store)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        assert server.stderr.readline().endswith(f"is at http://127.0.0.1:{port} (Ctrl-C stops it)\n")
        try:
            assert healthy(port)
            assert listening(port) == {"0100007F"}
            assert str(installed["PYTHONPATH"]) in Path(f"/proc/{server.pid}/cmdline").read_text()
            taken = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        finally:
            server.send_signal(signal.SIGTERM)
    assert (taken.returncode, taken.stderr.count("\n")) == (2, 1)
    assert f"port {port} of 127.0.0.1 cannot be used" in taken.stderr


def healthy(port: int) -> bool:
    """Whether the server answers within a minute."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5) as answer:
                return bool(answer.read() == b"ok")
        except URLError:
            time.sleep(0.1)
    return False


def listening(port: int) -> set[str]:
    """The local addresses, in the kernel's notation, on which something listens on the port."""
    rows = [row.split() for table in ("tcp", "tcp6") for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}
