"""Serve the dashboard on this machine's loopback address."""

from __future__ import annotations

import os
import socket
import sys
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path

from fusionscope.collector.commands import CommandError, add_store, port_number, say
from fusionscope.storage.library import Library, default_address

HOST = "127.0.0.1"


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `fusionscope app`."""
    add_store(parser)
    parser.add_argument("--port", type=port_number, default=8501, help="port to serve on (default: 8501)")


def run(options: Namespace) -> int:
    """Become the Streamlit server; its working folder and the terminal's signals stay what they are."""
    library = Library(options.store or default_address())
    script = app_folder() / "streamlit_app.py"
    require_free(options.port)
    say(f"the dashboard of {library.store} is at http://{HOST}:{options.port} (Ctrl-C stops it)")
    arguments = [f"--server.port={options.port}", f"--server.address={HOST}", "--browser.gatherUsageStats=false"]
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.headless=true", *arguments]
    os.execve(sys.executable, command, os.environ | {"FUSIONSCOPE_STORE": str(library.store)})


def app_folder() -> Path:
    """Where the app is installed, found without importing it. Raises CommandError where it cannot run."""
    for needed in ("streamlit", "plotly", "pyvis"):
        if find_spec(needed) is None:
            raise CommandError(f"the dashboard needs {needed}: pip install 'fusionscope[app]'")
    spec = find_spec("fusionscope.app")
    if spec is None or not spec.submodule_search_locations:
        raise CommandError("the dashboard is not installed with this fusionscope")
    return Path(spec.submodule_search_locations[0])


def require_free(port: int) -> None:
    """Raise CommandError where something else serves on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that just ended does not count
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise CommandError(f"port {port} cannot be used: {error.strerror}; try another --port") from error
