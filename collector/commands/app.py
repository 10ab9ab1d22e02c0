"""Serve the dashboard: on this machine's loopback address, unless told otherwise."""

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
    parser.add_argument("--address", default=HOST, help=f"address to serve on (default: {HOST}, this machine alone)")
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a name under which browsers reach the dashboard, such as that of a reverse proxy; may be repeated",
    )
    parser.add_argument("--read-only", action="store_true", help="show the library, import and change nothing")
    parser.add_argument(
        "--login",
        action="store_true",
        help="let in only who logs in (see Streamlit's [auth] in .streamlit/secrets.toml)",
    )
    parser.add_argument("--port", type=port_number, default=8501, help="port to serve on (default: 8501)")


def run(options: Namespace) -> int:
    """Become the Streamlit server; its working folder and the terminal's signals stay what they are."""
    library = Library(options.store or default_address())
    script = app_folder() / "streamlit_app.py"
    if options.login and find_spec("authlib") is None:
        raise CommandError("a login needs Authlib: pip install 'fusionscope[login]'")
    require_free(options.address, options.port)
    say(f"the dashboard of {library.store} is at http://{options.address}:{options.port} (Ctrl-C stops it)")
    arguments = [f"--server.port={options.port}", f"--server.address={options.address}"]
    hosts = ("localhost", HOST, options.address, *options.allow_host)  # other names: DNS rebinding
    arguments += [f"--server.allowedHosts={name}" for name in dict.fromkeys(hosts)]
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.headless=true", *arguments]
    command.append("--browser.gatherUsageStats=false")
    settings = {"FUSIONSCOPE_STORE": str(library.store)}
    settings |= {f"FUSIONSCOPE_{name}": "1" for name in ("READ_ONLY", "LOGIN") if getattr(options, name.lower())}
    os.execve(sys.executable, command, os.environ | settings)


def app_folder() -> Path:
    """Where the app is installed, found without importing it. Raises CommandError where it cannot run."""
    for needed in ("streamlit", "plotly", "pyvis"):
        if find_spec(needed) is None:
            raise CommandError(f"the dashboard needs {needed}: pip install 'fusionscope[app]'")
    spec = find_spec("fusionscope.app")
    if spec is None or not spec.submodule_search_locations:
        raise CommandError("the dashboard is not installed with this fusionscope")
    return Path(spec.submodule_search_locations[0])


def require_free(address: str, port: int) -> None:
    """Raise CommandError where the address is none of this machine's, or something else serves on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that just ended does not count
        try:
            probe.bind((address, port))
        except OSError as error:
            raise CommandError(
                f"port {port} of {address} cannot be used: {error.strerror}; try another --port"
            ) from error
