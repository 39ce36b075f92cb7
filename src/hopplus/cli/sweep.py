"""`hopplus sweep`"""

import contextlib
import inspect
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.table import Table

from hopplus.cli.long_work import polite_stop
from hopplus.cli.output import Json, console, progress_bar, show
from hopplus.errors import InputError
from hopplus.notation import as_word, duration

if TYPE_CHECKING:
    from hopplus.sweeps.directory import Sweep
    from hopplus.sweeps.plan import Plan
    from hopplus.sweeps.workers import Standing

FILE_HELP = "What is to be trained and how it is judged, as TOML."


def sweep(
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.toml", help=FILE_HELP)],
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None,
    on: Literal["local", "ray"] = "local",
    workers: int | None = None,
    retries: int = 1,
    address: str = "auto",
    scratch: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None,
    only: Annotated[str | None, tyro.conf.arg(metavar="NAME,NAME")] = None,
    dry_run: bool = False,
    json: Json = None,
) -> int:
    """Train and judge every cell of a grid of recipes, games, casts, seeds and settings; go on where it was broken off.

    For example: hopplus sweep adaptation.toml --dry-run, then hopplus sweep adaptation.toml, and
    hopplus tables runs/adaptation. Every cell is a run directory as hopplus train makes it.

    Args:
        out: The sweep's directory; by default runs/NAME of the file. One that holds this sweep goes on.
        on: This machine, or a Ray cluster that is there already (hopplus[ray]).
        workers: Cells that run at once on this machine; by default as many as its cores allow. On Ray, the cluster
            decides.
        retries: How often a cell that failed is tried again before it is reported and left.
        address: Of the Ray cluster, of which this machine is a node: HOST:PORT, or auto.
        scratch: Where Ray's nodes work, each in its own directory, sending back what changes; by default in the sweep's
            directory where they see it, else in a temporary one.
        only: Run these cells alone, by their names, or by what grids call their values; the others may follow later.
        dry_run: Only print the cells, and how long they would take, from a few iterations of every kind of cell.
    """
    from hopplus.sweeps.plan import narrowed, read_plan
    from hopplus.sweeps.workers import fitting_workers

    plan = read_plan(file)
    if workers is not None and workers < 1:
        raise InputError(f"there must be at least 1 worker, not {workers}")
    if retries < 0:
        raise InputError(f"retries must be at least 0, not {retries}")
    number = workers or fitting_workers(plan.cpus)
    words = [] if only is None else [word.strip() for word in only.split(",")]
    check_cells(narrowed(plan, words))
    if dry_run:
        _say_cells(plan, words, number, json)
        return 0
    from hopplus.sweeps.directory import begin_or_go_on

    if on == "ray":
        from hopplus.sweeps.on_ray import connect

        connect(address)
    path = out or Path("runs") / file.stem
    with begin_or_go_on(path, plan, number) as found:
        found = replace(found, plan=narrowed(found.plan, words))
        try:
            with polite_stop() as should_stop, _display(found, number) as display:
                standing = _runner(on, scratch, number, retries)(found, display, should_stop)
        except KeyboardInterrupt:
            again = f"hopplus sweep {as_word(file)}" + (f" --out {as_word(out)}" if out else "")
            again += f" --only {as_word(only)}" if only else ""
            print(f"hopplus: stopped; every training has saved itself; go on with: {again}", file=sys.stderr)
            return 130
        return _say_end(found, standing, json)


def _runner(on: str, scratch: str | None, workers: int, retries: int) -> Callable[..., "Standing"]:
    """What runs a sweep's cells."""
    if on == "ray":
        from hopplus.sweeps.on_ray import run_on_ray

        return lambda found, display, should_stop: run_on_ray(found, retries, display, should_stop, scratch)
    from hopplus.sweeps.workers import run_here

    return lambda found, display, should_stop: run_here(found, workers, retries, display, should_stop)


def check_cells(plan: "Plan") -> None:
    """InputError, before anything is run, for a cell that could not be trained or judged."""
    from hopplus.cli.main import COMMANDS, check_words
    from hopplus.cli.train import check

    for judge in plan.judges:
        parameters = inspect.signature(COMMANDS[judge.command]).parameters.values()
        check_words(f"the judge {judge.name!r}: {judge.command}", parameters, judge.words(Path("RUN"))[1:])
    for cell in plan.cells:
        try:
            check(cell.words()[1:])
        except InputError as error:
            raise InputError(f"the cell {cell.name}: {error}") from None
        except SystemExit:  # the parser has said which
            raise InputError(
                f"the cell {cell.name} has a setting with a value that hopplus train does not take"
            ) from None


def _say_cells(plan: "Plan", words: list[str], workers: int, json: str | None) -> None:
    from hopplus.sweeps.estimate import calibrate, estimated_seconds, kind
    from hopplus.sweeps.plan import narrowed, split_seeds

    plan = narrowed(split_seeds(plan, -(-workers // len(plan.cells))), words)
    kinds = {kind(cell) for cell in plan.cells}
    with tempfile.TemporaryDirectory() as directory, progress_bar("timing", len(kinds)) as advance:
        speeds = calibrate(plan, workers, Path(directory), advance)
    table = Table("cell", "seeds", "steps", "steps/s", "about", title=f"{plan.title}: {len(plan.cells)} cells")
    rows: list[dict[str, Any]] = []
    for cell in plan.cells:
        speed, seconds = speeds[kind(cell)], estimated_seconds(cell, speeds)
        seeds = str(cell.settings.get("seeds", "0"))
        table.add_row(cell.name, seeds, f"{cell.steps:,}", f"{speed.steps_per_second:,.0f}", duration(seconds))
        rows.append({"cell": cell.name, "seeds": seeds, "steps": cell.steps, "seconds": seconds})
        rows[-1] |= {"steps_per_second": speed.steps_per_second, "command": "hopplus " + " ".join(cell.words())}
    total = sum(row["seconds"] for row in rows) / workers
    judged = f", and {len(plan.judges)} judges of every cell beside that" if plan.judges else ""
    table.caption = (
        f"about {duration(total)} of training with {workers} at a time{judged}; timed with a few iterations of"
        f" {len(kinds)} kinds of cell"
    )
    show({"cells": rows, "workers": workers, "seconds": total}, table, json)


@contextlib.contextmanager
def _display(found: "Sweep", workers: int) -> Iterator[Callable[["Standing"], None]]:
    """Cells done, running and failed, and the time left, on the screen only; a line for each that runs."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    from hopplus.sweeps.estimate import seconds_left

    began, looked, told = time.perf_counter(), [0.0], set[str]()
    screen = Console(stderr=True)
    with Live(console=screen, transient=True, refresh_per_second=2) as live:

        def tell(standing: "Standing") -> None:
            """A line for every cell that has ended, where there is no screen to draw on."""
            ended = {**dict.fromkeys(standing.done, "done"), **dict.fromkeys(standing.failed, "failed")}
            for name in [name for name in ended if name not in told]:
                told.add(name)
                print(f"{name}: {ended[name]} ({len(told)} of {len(found.plan.cells)})", file=sys.stderr, flush=True)

        def display(standing: "Standing") -> None:
            if not screen.is_terminal:
                tell(standing)
                return
            if time.perf_counter() - looked[0] < 1:
                return
            looked[0] = time.perf_counter()
            left = seconds_left(found, standing, workers)
            said = f"{len(standing.done)} done, {len(standing.running)} running, {len(standing.waiting)} waiting"
            said += f", {len(standing.failed)} failed" if standing.failed else ""
            said += f"; {duration(looked[0] - began)}, about {'?' if left is None else duration(left)} left"
            grid = Table.grid(padding=(0, 1))
            for name, since in standing.running.items():
                share = found.fraction(found.plan.cell(name))
                stage = f"{share:4.0%}" if share < 1 else "judging"
                bar = ProgressBar(total=1, completed=share, width=24)
                grid.add_row(name, bar, stage, duration(looked[0] - since))
            live.update(Group(Text(f"{found.plan.title}: {said}"), grid))

        yield display


def _say_end(found: "Sweep", standing: "Standing", json: str | None) -> int:
    table = Table("cell", "state", "return", "of ceiling", title=f"{found.plan.title}: {len(found.plan.cells)} cells")
    rows: list[dict[str, Any]] = []
    from hopplus.training.run import read_run

    for cell in found.plan.cells:
        if cell.name in standing.failed:
            table.add_row(cell.name, f"failed: {standing.failed[cell.name]}", "-", "-")
            rows.append({"cell": cell.name, "state": "failed", "error": standing.failed[cell.name]})
            continue
        final = read_run(found.run_path(cell)).evaluations()["final"]
        shares = (f"{final['own_return']:.3f}", f"{100 * final['share_of_ceiling']:.1f}%")
        table.add_row(cell.name, "done", *shares)
        rows.append({"cell": cell.name, "state": "done", "own_return": final["own_return"]})
        rows[-1]["share_of_ceiling"] = final["share_of_ceiling"]
    show({"sweep": str(found.path), "cells": rows}, table, json)
    if json != "-":
        more = f"hopplus tables {as_word(found.path)}"
        console().print(f"runs: {found.path / 'cells'}   tables: {more}", soft_wrap=True)
    for name, error in standing.failed.items():
        log = found.log_path(found.plan.cell(name))
        print(f"hopplus: the cell {name} failed: {error} (its log: {log})", file=sys.stderr)
    return 1 if standing.failed else 0
