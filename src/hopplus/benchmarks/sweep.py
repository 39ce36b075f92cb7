"""How fast a sweep is: the same cells one by one, with every split of the cores, and with cores that all share."""

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
from hopplus.errors import InputError
from hopplus.sweeps.directory import Sweep, begin_or_go_on
from hopplus.sweeps.estimate import steps_per_second
from hopplus.sweeps.plan import Plan, make_plan
from hopplus.sweeps.workers import Show, Standing, own_cores, run_here
from hopplus.training.run import read_run

GAME = "msh-4x4-4h1s"
STEPS = {"ppo": 196_608, "hopplus": 49_152}
"""Environment steps of a cell by recipe, whole chunks: with them it takes some 15 to 25 seconds alone."""
CHUNK = 4
"""Iterations between two lines of a cell's log: its speed needs two, the first of which has the compiling in it."""
CACHE = "JAX_COMPILATION_CACHE_DIR"


@dataclass(frozen=True)
class Way:
    """So many cells at a time."""

    workers: int
    cores: int
    """That each of them may use, with as many threads."""


def splits(cores: int) -> tuple[Way, ...]:
    """Every way that uses each of so many cores once: from one cell at a time with all of them to one core a cell."""
    return tuple(Way(workers, cores // workers) for workers in range(1, cores + 1) if cores % workers == 0)


def ways(cores: int) -> tuple[Way, ...]:
    """The splits, one by one first, and as many cells at a time as cores, all of them with all cores."""
    return (*splits(cores), *([Way(cores, cores)] if cores > 1 else []))


def plan_of(cells: int) -> Plan:
    """A sweep of so many cells, half PPO and half HOP+. Each has a learning rate of its own, which is a constant of its
    programs: none can take another's from the cache."""
    if cells < 2 or cells % 2:
        raise InputError(
            f"bench sweep needs an even number of cells, half PPO and half HOP+, at least 2, not {cells}: --cells 16"
        )
    found = {
        "common": {"game": GAME, "seeds": "0", "chunk": CHUNK},
        "values": {"method": {recipe: {"recipe": recipe, "steps": steps} for recipe, steps in STEPS.items()}},
        "grid": {"method": list(STEPS), "learning_rate": [(100 + number) / 100_000 for number in range(cells // 2)]},
    }
    return make_plan(found, "bench sweep")


def measure(cells: int, progress: Callable[[float], None] = lambda done: None) -> dict[str, Any]:
    """Run a sweep of so many cells in every way, once, each from an empty compilation cache.

    Returns `rows` (workers, cores of each, shared: whether cells share cores; seconds from start to end,
    cells_per_minute, cell_seconds: the sum of the cells' own, ratio_to_one_by_one: the throughput over that of the
    cells one by one with all cores, steps_per_second of one cell after its first chunk, by recipe, seconds_by_cell),
    the `ratio` of a sweep by default, the `best` split, what was run (`cells`, `game`, `steps`), the `cores`, the load
    at the start and the machine.
    """
    plan, cores, load = plan_of(cells), len(own_cores()), load_average()
    rows: list[dict[str, Any]] = []
    chosen = ways(cores)
    for number, way in enumerate(chosen):

        def show(standing: Standing, before: int = number * cells) -> None:
            progress((before + len(standing.done)) / (cells * len(chosen)))

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
    """The rows, of which the first is one by one, each beside that; the ratio of the default; and the best split."""
    one_by_one = sum(rows[0]["seconds_by_cell"].values())
    told = [
        {
            **row,
            "cells_per_minute": 60 * len(row["seconds_by_cell"]) / row["seconds"],
            "cell_seconds": sum(row["seconds_by_cell"].values()),
            "ratio_to_one_by_one": one_by_one / row["seconds"],
        }
        for row in rows
    ]
    split = [row for row in told if not row["shared"]]
    best = min(split, key=lambda row: row["seconds"])
    return {
        "rows": told,
        "ratio": next(row["ratio_to_one_by_one"] for row in split if row["cores"] == Plan.cpus),
        "best": {"workers": best["workers"], "cores": best["cores"]},
    }


def time_way(plan: Plan, way: Way, show: Show) -> dict[str, Any]:
    """Run all cells of a plan in one way, in a directory that is thrown away, the compilation cache with it."""
    with tempfile.TemporaryDirectory() as directory, _cache_in(Path(directory) / "compiled"):
        started = time.perf_counter()
        with begin_or_go_on(Path(directory) / "sweep", replace(plan, cpus=way.cores), way.workers) as sweep:
            standing = run_here(sweep, way.workers, 0, show)
            seconds = time.perf_counter() - started
            for name, error in standing.failed.items():
                raise InputError(f"the cell {name} cannot be timed: {error}")
            return {"seconds": seconds, "steps_per_second": _speeds(sweep), "seconds_by_cell": standing.seconds}


def _speeds(sweep: Sweep) -> dict[str, float]:
    """Environment steps/s of a cell after its first chunk, by recipe."""
    found: dict[str, list[float]] = {}
    for cell in sweep.plan.cells:
        lines = read_run(sweep.run_path(cell)).metrics()
        found.setdefault(cell.settings["recipe"], []).append(steps_per_second(lines, len(cell.seeds)))
    return {recipe: fmean(speeds) for recipe, speeds in found.items()}


@contextlib.contextmanager
def _cache_in(directory: Path) -> Iterator[None]:
    """Have processes that are started meanwhile keep what they compile in a directory."""
    before = os.environ.get(CACHE)
    os.environ[CACHE] = str(directory)
    try:
        yield
    finally:
        if before is None:
            del os.environ[CACHE]
        else:
            os.environ[CACHE] = before
