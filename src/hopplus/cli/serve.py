"""`hopplus serve`"""

import logging
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import tyro

from hopplus.cli.output import Plugin, console, run_plugin
from hopplus.errors import InputError

PORT = 8477
HOST_HELP = "Where to listen. By default only this machine can see the page; 0.0.0.0 shows it to everybody near."


def serve(
    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="[DIR]")] = Path("runs"),
    host: Annotated[str, tyro.conf.arg(help=HOST_HELP)] = "127.0.0.1",
    port: int = PORT,
    browser: bool = True,
    plugin: Plugin = None,
) -> None:
    """Show all runs below a directory on a local web page, live while they train, and let people play against them.

    For example: hopplus serve, or hopplus serve demo --port 0. Nothing is changed in the directory, but for games that
    somebody chooses to record, in its games/.

    Args:
        directory: Where the runs are.
        port: 0 takes any that is free.
        browser: Open the page in a browser, if there is one.
    """
    run_plugin(plugin)
    if not directory.is_dir():
        raise InputError(f"there is no directory {directory}: hopplus serve DIR shows the runs below DIR")
    serve_page(directory, host, port, "/" if browser else None)


def serve_page(directory: Path, host: str, port: int, opened: str | None) -> None:
    """Serve until Ctrl-C, a page of it opened in a browser, if any."""
    from hopplus.server import Server, make_app, open_port

    logging.basicConfig(stream=sys.stderr, format="hopplus: %(message)s", level=logging.WARNING)
    listening = open_port(host, port)
    shown, number = listening.getsockname()[:2]
    name = f"[{shown}]" if ":" in shown else "127.0.0.1" if shown == "0.0.0.0" else shown
    address = f"http://{name}:{number}"

    def ready() -> None:
        console().print(f"{address}/ shows {directory}; Ctrl-C ends it", soft_wrap=True)
        sys.stdout.flush()
        if opened is not None:
            threading.Thread(target=webbrowser.open, args=(address + opened,), daemon=True).start()

    Server(make_app(directory, shown), listening, ready).serve_on()
