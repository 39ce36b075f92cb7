"""Command `hopplus serve`."""

import logging
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import tyro

from hopplus.cli.output import Plugin, console, run_plugin
from hopplus.core.errors import InputError

PORT = 8477
HOST_HELP = "Address to listen on. By default only this machine has access; 0.0.0.0 gives access to the whole network."


def serve(
    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="[DIR]")] = Path("runs"),
    host: Annotated[str, tyro.conf.arg(help=HOST_HELP)] = "127.0.0.1",
    port: int = PORT,
    browser: bool = True,
    plugin: Plugin = None,
) -> None:
    """Serve a web page with all runs below a directory, live during training, and human play against their policies.

    For example: hopplus serve, or hopplus serve demo --port 0. The server writes nothing into the directory except
    recorded sessions, in its games/.

    Args:
        directory: Directory of the runs.
        port: Port to listen on; 0 for any free port.
        browser: Open the page in a browser, if there is one.
    """
    run_plugin(plugin)
    if not directory.is_dir():
        raise InputError(f"there is no directory {directory}: hopplus serve DIR shows the runs below DIR")
    serve_page(directory, host, port, "/" if browser else None)


def serve_page(directory: Path, host: str, port: int, opened: str | None) -> None:
    """Serve until Ctrl-C.

    Args:
        directory: Directory of the runs.
        host: Address to listen on.
        port: Port to listen on; 0 for any free port.
        opened: Path of the page to open in a browser, or None.
    """
    from hopplus.human_play.app import Server, make_app, open_port

    logging.basicConfig(stream=sys.stderr, format="hopplus: %(message)s", level=logging.WARNING)
    listening = open_port(host, port)
    bound_host, bound_port = listening.getsockname()[:2]
    name = f"[{bound_host}]" if ":" in bound_host else "127.0.0.1" if bound_host == "0.0.0.0" else bound_host
    address = f"http://{name}:{bound_port}"

    def ready() -> None:
        console().print(f"{address}/ serves {directory}; press Ctrl-C to stop", soft_wrap=True)
        sys.stdout.flush()
        if opened is not None:
            threading.Thread(target=webbrowser.open, args=(address + opened,), daemon=True).start()

    Server(make_app(directory, bound_host), listening, ready).serve_on()
