"""Throughput of a sweep: the same cells one by one, with every split of the cores, and with shared cores."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from hopplus.benchmarks.machine import load_average, machine
from hopplus.core.errors import InputError
from hopplus.sweeps.directory import Sweep, start_or_resume
from hopplus.sweeps.estimate import steps_per_second
from hopplus.sweeps.plan import SweepPlan, make_plan
from hopplus.sweeps.workers import Show, SweepStatus, own_cores, run_here
from hopplus.training.run import read_run

GAME = "msh-4x4-4h1s"
STEPS = {"ppo": 196_608, "hopplus": 49_152}
"""Environment steps of a cell by algorithm, in whole chunks; a cell takes some 15 to 25 seconds alone."""
CHUNK = 4
"""Iterations per log line of a cell; its speed needs two lines, of which the first includes compilation."""
CACHE = "JAX_COMPILATION_CACHE_DIR"


@dataclass(frozen=True)
class Way:
    """Assignment of cores to workers."""

    workers: int
    """Cells at a time."""
    cores: int
    """Cores and threads per cell."""


def splits(cores: int) -> tuple[Way, ...]:
    """Returns all ways to use each core once: from one cell at a time with all cores to one core per cell."""
    return tuple(Way(workers, cores // workers) for workers in range(1, cores + 1) if cores % workers == 0)


def ways(cores: int) -> tuple[Way, ...]:
    """Returns the splits, one by one first, and as many cells at a time as cores, which share all cores."""
    return (*splits(cores), *([Way(cores, cores)] if cores > 1 else []))


def plan_of(cells: int) -> SweepPlan:
    """Returns a sweep, half PPO and half HOP+.

    Every cell has another learning rate, which is a constant of its programs, so that cells share no cached programs.
    """
    if cells < 2 or cells % 2:
        raise InputError(
            f"bench sweep needs an even number of cells, half PPO and half HOP+, at least 2, not {cells}: --cells 16"
        )
    methods = {algorithm: {"algorithm": algorithm, "steps": steps} for algorithm, steps in STEPS.items()}
    description = {
        "common": {"game": GAME, "seeds": "0", "iterations_per_call": CHUNK},
        "values": {"method": methods},
        "grid": {"method": list(STEPS), "learning_rate": [(100 + number) / 100_000 for number in range(cells // 2)]},
    }
    return make_plan(description, "bench sweep")


def measure(cells: int, progress: Callable[[float], None] = lambda done: None) -> dict[str, Any]:
    """Runs a sweep once in every way, each with an empty compilation cache.

    Returns:
        `rows` (workers, cores of each, shared: whether cells share cores; seconds in all, cells_per_minute,
        cell_seconds: sum over cells, ratio_to_one_by_one: throughput relative to cells one by one with all cores,
        steps_per_second of a cell after its first chunk, by algorithm, seconds_by_cell), the `ratio` of a default
        sweep, the `best` split, the sweep (`cells`, `game`, `steps`), `cores`, load_at_start and machine.
    """
    plan, cores, load = plan_of(cells), len(own_cores()), load_average()
    rows: list[dict[str, Any]] = []
    chosen = ways(cores)
    for number, way in enumerate(chosen):

        def show(status: SweepStatus, before: int = number * cells) -> None:
            progress((before + len(status.done)) / (cells * len(chosen)))

        rows.append({**asdict(way), "shared": way.workers * way.cores > cores, **time_way(plan, way, show)})
    return {
        **compared(rows),
        "cells": cells,
        "game": GAME,
        "steps": STEPS,
        "cores": cores,
        "load_at_start": load,
        "machine": machine(),
    }


def compared(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns rows with ratios to the first one (one by one), the ratio of the default, and the best split."""
    one_by_one = sum(rows[0]["seconds_by_cell"].values())
    with_ratios = [
        {
            **row,
            "cells_per_minute": 60 * len(row["seconds_by_cell"]) / row["seconds"],
            "cell_seconds": sum(row["seconds_by_cell"].values()),
            "ratio_to_one_by_one": one_by_one / row["seconds"],
        }
        for row in rows
    ]
    split = [row for row in with_ratios if not row["shared"]]
    best = min(split, key=lambda row: row["seconds"])
    return {
        "rows": with_ratios,
        "ratio": next(row["ratio_to_one_by_one"] for row in split if row["cores"] == SweepPlan.cpus),
        "best": {"workers": best["workers"], "cores": best["cores"]},
    }


def time_way(plan: SweepPlan, way: Way, show: Show) -> dict[str, Any]:
    """Runs all cells of a plan in one way, in a temporary directory with its own compilation cache."""
    with tempfile.TemporaryDirectory() as directory, _cache_in(Path(directory) / "compiled"):
        started = time.perf_counter()
        with start_or_resume(Path(directory) / "sweep", replace(plan, cpus=way.cores), way.workers) as sweep:
            status = run_here(sweep, way.workers, 0, show)
            seconds = time.perf_counter() - started
            for name, error in status.failed.items():
                raise InputError(f"the cell {name} cannot be timed: {error}")
            return {"seconds": seconds, "steps_per_second": _speeds(sweep), "seconds_by_cell": status.seconds}


def _speeds(sweep: Sweep) -> dict[str, float]:
    """Returns the mean environment steps per second of a cell after its first chunk, by algorithm."""
    speeds: dict[str, list[float]] = {}
    for cell in sweep.plan.cells:
        lines = read_run(sweep.run_path(cell)).metrics()
        speeds.setdefault(cell.settings["algorithm"], []).append(steps_per_second(lines, len(cell.seeds)))
    return {algorithm: fmean(values) for algorithm, values in speeds.items()}


@contextlib.contextmanager
def _cache_in(directory: Path) -> Iterator[None]:
    """Sets the compilation cache of processes that are started meanwhile."""
    before = os.environ.get(CACHE)
    os.environ[CACHE] = str(directory)
    try:
        yield
    finally:
        if before is None:
            del os.environ[CACHE]
        else:
            os.environ[CACHE] = before
