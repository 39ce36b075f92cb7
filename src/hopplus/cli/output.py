"""What the commands have in common: figures as JSON, tables, users' files, progress."""

import contextlib
import importlib.util
import json as json_module
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from hopplus.errors import InputError
from hopplus.files import write_text

STANDARD_OUTPUT = "-"
PLUGINS_RUN: set[Path] = set()

JSON_HELP = "Write the same figures as JSON to the file F; alone, print them instead of the table."
PLUGIN_HELP = "A Python file of yours to run first: it may register games and players."
GAME_HELP = "The game by name, with settings if you like: msh-8x8-4h1s:T=50:blocks=0."
GameName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="GAME", help=GAME_HELP)]
Runs = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
FitRun = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="A fit: what hopplus fit wrote.")]
DATASET_HELP = "Another dataset of the same game than the one it was fitted to; its held-out part is used."
OtherDataset = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET", help=DATASET_HELP)]
Json = Annotated[str | None, tyro.conf.arg(metavar="[F]", help=JSON_HELP)]
Plugin = Annotated[Path | None, tyro.conf.arg(metavar="FILE.py", help=PLUGIN_HELP)]


def console(stderr: bool = False) -> Console:
    """Where tables and sentences go; wide enough for a table when the output is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False, stderr=stderr)


def show(figures: Any, table: Table, json: str | None) -> None:
    """Print the table, write the figures, or print the figures instead."""
    if json == STANDARD_OUTPUT:
        print(json_module.dumps(figures, indent=2))
        return
    console().print(table)
    if json is not None:
        write_text(json, json_module.dumps(figures, indent=2) + "\n")
        console().print(f"figures: {json}", soft_wrap=True)


def run_plugin(path: Path | None) -> None:
    """Run a user's file, which may register games and players; once in a process, however many commands it is given."""
    if path is None or path.resolve() in PLUGINS_RUN:
        return
    if not path.is_file():
        raise InputError(f"there is no plugin file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"the plugin {path} is not a Python file (its name must end in .py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    PLUGINS_RUN.add(path.resolve())


@contextlib.contextmanager
def progress_bar(description: str, total: int) -> Iterator[Any]:
    """A bar with the time left, on the screen only: gives a function to call with how much is done. Until its first
    call the bar says that programs are being compiled."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("compiling (first time only)", total=total)
        yield lambda done: progress.update(task, completed=done, description=description)
