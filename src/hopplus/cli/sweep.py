"""Command `hopplus sweep`."""

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

from hopplus.cli.output import Json, console, progress_bar, show
from hopplus.cli.training_options import graceful_stop
from hopplus.core.errors import InputError
from hopplus.core.formatting import duration, quote_path

if TYPE_CHECKING:
    from hopplus.sweeps.directory import Sweep
    from hopplus.sweeps.plan import SweepPlan
    from hopplus.sweeps.workers import SweepStatus

FILE_HELP = "TOML file with the grid of trainings and the evaluations of each."


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
    """Train and evaluate every cell of a grid of algorithms, games, casts, seeds and settings; resumes a stopped sweep.

    For example: hopplus sweep adaptation.toml --dry-run, then hopplus sweep adaptation.toml, and
    hopplus tables runs/adaptation. Every cell is a run directory, as hopplus train writes it.

    Args:
        out: Directory of the sweep; by default runs/NAME of the file. A directory that holds this sweep is resumed.
        on: local: this machine; ray: an existing Ray cluster (hopplus[ray]).
        workers: Parallel cells on this machine; by default as many as its cores allow. On Ray, the cluster decides.
        retries: Retries of a failed cell before it is reported.
        address: Address of the Ray cluster, of which this machine is a node: HOST:PORT, or auto.
        scratch: Working directory on Ray's nodes, which send back their changes; by default the sweep's directory if
            the nodes share it, otherwise a temporary one.
        only: Run only these cells, by name or by the name of a grid value; the others can run later.
        dry_run: Only print the cells and their estimated times, from a few iterations of every type of cell.
    """
    from hopplus.sweeps.directory import start_or_resume
    from hopplus.sweeps.plan import narrowed, read_plan
    from hopplus.sweeps.workers import fitting_workers

    plan = read_plan(file)
    if workers is not None and workers < 1:
        raise InputError(f"there must be at least 1 worker, not {workers}")
    if retries < 0:
        raise InputError(f"retries must be at least 0, not {retries}")
    number = workers or fitting_workers(plan.cpus)
    names = [] if only is None else [name.strip() for name in only.split(",")]
    check_cells(narrowed(plan, names))
    if dry_run:
        _print_cells(plan, names, number, json)
        return 0

    if on == "ray":
        from hopplus.sweeps.ray_backend import connect

        connect(address)
    path = out or Path("runs") / file.stem
    with start_or_resume(path, plan, number) as opened:
        running = replace(opened, plan=narrowed(opened.plan, names))
        try:
            with graceful_stop() as should_stop, _display(running, number) as display:
                status = _runner(on, scratch, number, retries)(running, display, should_stop)
        except KeyboardInterrupt:
            command = _resume_command(file, out, only)
            print(f"hopplus: stopped; every training is saved; resume with: {command}", file=sys.stderr)
            return 130
        return _print_results(running, status, json)


def _resume_command(file: Path, out: Path | None, only: str | None) -> str:
    """Command that resumes a stopped sweep."""
    command = f"hopplus sweep {quote_path(file)}" + (f" --out {quote_path(out)}" if out else "")
    return command + (f" --only {quote_path(only)}" if only else "")


def _runner(on: str, scratch: str | None, workers: int, retries: int) -> Callable[..., "SweepStatus"]:
    """Function that runs a sweep's cells on this machine or on Ray."""
    if on == "ray":
        from hopplus.sweeps.ray_backend import run_on_ray

        return lambda sweep, display, should_stop: run_on_ray(sweep, retries, display, should_stop, scratch)
    from hopplus.sweeps.workers import run_here

    return lambda sweep, display, should_stop: run_here(sweep, workers, retries, display, should_stop)


def check_cells(plan: "SweepPlan") -> None:
    """Raise InputError for a cell that could not be trained or evaluated, before any cell runs."""
    from hopplus.cli.main import COMMANDS, check_argv
    from hopplus.cli.train import check

    for judge in plan.judges:
        parameters = inspect.signature(COMMANDS[judge.command]).parameters.values()
        check_argv(f"the judge {judge.name!r}: {judge.command}", parameters, judge.argv(Path("RUN"))[1:])
    for cell in plan.cells:
        try:
            check(cell.argv()[1:])
        except InputError as error:
            raise InputError(f"the cell {cell.name}: {error}") from None
        except SystemExit:  # the parser has printed the setting
            raise InputError(
                f"the cell {cell.name} has a setting with a value that hopplus train does not accept"
            ) from None


def _print_cells(plan: "SweepPlan", names: list[str], workers: int, json: str | None) -> None:
    """Print the cells of a sweep with their estimated times."""
    from hopplus.sweeps.estimate import calibrate, cost_group, estimated_seconds
    from hopplus.sweeps.plan import narrowed, split_seeds

    plan = narrowed(split_seeds(plan, -(-workers // len(plan.cells))), names)
    cell_types = {cost_group(cell) for cell in plan.cells}
    with tempfile.TemporaryDirectory() as directory, progress_bar("timing", len(cell_types)) as advance:
        speeds = calibrate(plan, workers, Path(directory), advance)
    table = Table("cell", "seeds", "steps", "steps/s", "about", title=f"{plan.title}: {len(plan.cells)} cells")
    rows: list[dict[str, Any]] = []
    for cell in plan.cells:
        speed, seconds = speeds[cost_group(cell)], estimated_seconds(cell, speeds)
        seeds = str(cell.settings.get("seeds", "0"))
        table.add_row(cell.name, seeds, f"{cell.steps:,}", f"{speed.steps_per_second:,.0f}", duration(seconds))
        rows.append({"cell": cell.name, "seeds": seeds, "steps": cell.steps, "seconds": seconds})
        rows[-1] |= {"steps_per_second": speed.steps_per_second, "command": "hopplus " + " ".join(cell.argv())}
    total = sum(row["seconds"] for row in rows) / workers
    judged = f", and {len(plan.judges)} judges per cell in addition" if plan.judges else ""
    table.caption = (
        f"about {duration(total)} of training with {workers} parallel cells{judged}; timed with a few iterations of"
        f" {len(cell_types)} types of cell"
    )
    show({"cells": rows, "workers": workers, "seconds": total}, table, json)


@contextlib.contextmanager
def _display(sweep: "Sweep", workers: int) -> Iterator[Callable[["SweepStatus"], None]]:
    """Context that yields a function to show the sweep's status on standard error.

    On a terminal: counts of cells, the time left and a line per running cell. Elsewhere: a line per finished cell.
    """
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    from hopplus.sweeps.estimate import seconds_left

    began, shown_at, printed = time.perf_counter(), [0.0], set[str]()
    screen = Console(stderr=True)
    with Live(console=screen, transient=True, refresh_per_second=2) as live:

        def print_ended(status: "SweepStatus") -> None:
            ended = {**dict.fromkeys(status.done, "done"), **dict.fromkeys(status.failed, "failed")}
            for name in [name for name in ended if name not in printed]:
                printed.add(name)
                print(f"{name}: {ended[name]} ({len(printed)} of {len(sweep.plan.cells)})", file=sys.stderr, flush=True)

        def display(status: "SweepStatus") -> None:
            if not screen.is_terminal:
                print_ended(status)
                return
            if time.perf_counter() - shown_at[0] < 1:
                return
            shown_at[0] = time.perf_counter()
            left = seconds_left(sweep, status, workers)
            text = f"{len(status.done)} done, {len(status.running)} running, {len(status.waiting)} waiting"
            text += f", {len(status.failed)} failed" if status.failed else ""
            text += f"; {duration(shown_at[0] - began)}, about {'?' if left is None else duration(left)} left"
            grid = Table.grid(padding=(0, 1))
            for name, since in status.running.items():
                share = sweep.fraction(sweep.plan.cell(name))
                stage = f"{share:4.0%}" if share < 1 else "evaluating"
                bar = ProgressBar(total=1, completed=share, width=24)
                grid.add_row(name, bar, stage, duration(shown_at[0] - since))
            live.update(Group(Text(f"{sweep.plan.title}: {text}"), grid))

        yield display


def _print_results(sweep: "Sweep", status: "SweepStatus", json: str | None) -> int:
    """Print the final state and return of every cell; returns the exit code, 1 if a cell failed."""
    table = Table("cell", "state", "return", "of ceiling", title=f"{sweep.plan.title}: {len(sweep.plan.cells)} cells")
    rows: list[dict[str, Any]] = []
    from hopplus.training.run import read_run

    for cell in sweep.plan.cells:
        if cell.name in status.failed:
            table.add_row(cell.name, f"failed: {status.failed[cell.name]}", "-", "-")
            rows.append({"cell": cell.name, "state": "failed", "error": status.failed[cell.name]})
            continue
        final = read_run(sweep.run_path(cell)).evaluations()["final"]
        shares = (f"{final['own_return']:.3f}", f"{100 * final['share_of_ceiling']:.1f}%")
        table.add_row(cell.name, "done", *shares)
        rows.append({"cell": cell.name, "state": "done", "own_return": final["own_return"]})
        rows[-1]["share_of_ceiling"] = final["share_of_ceiling"]
    show({"sweep": str(sweep.path), "cells": rows}, table, json)
    if json != "-":
        more = f"hopplus tables {quote_path(sweep.path)}"
        console().print(f"runs: {sweep.path / 'cells'}   tables: {more}", soft_wrap=True)
    for name, error in status.failed.items():
        log = sweep.log_path(sweep.plan.cell(name))
        print(f"hopplus: the cell {name} failed: {error} (its log: {log})", file=sys.stderr)
    return 1 if status.failed else 0
