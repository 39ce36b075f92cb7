"""Shared output of the commands: JSON, tables, plugins, progress bars."""

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

from hopplus.core.errors import InputError
from hopplus.core.files import write_text

STANDARD_OUTPUT = "-"
PLUGINS_RUN: set[Path] = set()

JSON_HELP = "Write the same figures as JSON to the file F; alone, print them instead of the table."
PLUGIN_HELP = (
    "Python file to run first; it may register games, players, algorithms, planners, goal spaces and opponent models."
)
GAME_HELP = "Name of the game, optionally with settings: msh-8x8-4h1s:T=50:blocks=0."
GameName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="GAME", help=GAME_HELP)]
Runs = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
FitRun = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="Run directory of hopplus fit.")]
DATASET_HELP = "Another dataset of the same game instead of the one used for the fit; its held-out part is used."
OtherDataset = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET", help=DATASET_HELP)]
Json = Annotated[str | None, tyro.conf.arg(metavar="[F]", help=JSON_HELP)]
Plugin = Annotated[Path | None, tyro.conf.arg(metavar="FILE.py", help=PLUGIN_HELP)]


def console(stderr: bool = False) -> Console:
    """Console for tables and messages; 120 columns wide when standard output is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False, stderr=stderr)


def show(figures: Any, table: Table, json: str | None) -> None:
    """Print a table and write its figures as JSON if a file is given; print only the JSON if the file is `-`."""
    if json == STANDARD_OUTPUT:
        print(json_module.dumps(figures, indent=2))
        return
    console().print(table)
    if json is not None:
        write_text(json, json_module.dumps(figures, indent=2) + "\n")
        console().print(f"figures: {json}", soft_wrap=True)


def run_plugin(path: Path | None) -> None:
    """Run a plugin file, which may register games, players, algorithms and their parts, at most once per process."""
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
    """Context that shows a progress bar on standard error and yields a function that sets the progress.

    Until the first call, the bar says that programs are being compiled.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("compiling (first time only)", total=total)
        yield lambda done: progress.update(task, completed=done, description=description)
