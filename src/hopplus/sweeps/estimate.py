"""How long a sweep takes: before it begins, from a short calibration; while it runs, from what has been done."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from hopplus.errors import InputError
from hopplus.sweeps.directory import Sweep, begin_or_go_on
from hopplus.sweeps.plan import Cell, Plan
from hopplus.sweeps.workers import POLL_SECONDS, Standing, start_at
from hopplus.training.logging import Line
from hopplus.training.run import METRICS, whole_lines

LINES = 4
"""So many iterations of a seed are timed, the first of them not."""


@dataclass(frozen=True)
class Speed:
    """How long a kind of cell takes."""

    start_seconds: float
    """Until its first iteration is done: starting and compiling."""
    steps_per_second: float
    """Environment steps of all its seeds after that."""


def kind(cell: Cell) -> tuple[str, str]:
    """What cells have in common that take about as long: recipe, with its preset, and game."""
    settings = cell.settings
    return f"{settings['recipe']} {settings.get('preset', '')}".strip(), str(settings.get("game", ""))


def seconds_left(sweep: Sweep, standing: Standing, workers: int) -> float | None:
    """How long the rest takes, judging from cells of the same kind, or else from all; None before anything is known."""
    now = time.perf_counter()
    fractions = {name: sweep.fraction(sweep.plan.cell(name)) for name in standing.running}
    known = dict(standing.seconds)
    for name, began in standing.running.items():
        if fractions[name] > 0:
            known[name] = (now - began) / fractions[name]
    if not known:
        return None
    left = {
        name: known.get(name, _alike(sweep.plan, known, name)) * (1 - fraction) for name, fraction in fractions.items()
    }
    waiting = sum(_alike(sweep.plan, known, name) for name in standing.waiting)
    return max([*left.values(), (sum(left.values()) + waiting) / workers])


def _alike(plan: Plan, known: Mapping[str, float], name: str) -> float:
    """The seconds of a cell that nothing is known of."""
    same = [seconds for other, seconds in known.items() if kind(plan.cell(other)) == kind(plan.cell(name))]
    return fmean(same or known.values())


def calibrate(
    plan: Plan, workers: int, directory: Path, advance: Callable[[int], None]
) -> dict[tuple[str, str], Speed]:
    """The speed of every kind of cell: one of each is run for a few iterations, in a directory that is thrown away, as
    many at a time as the sweep would run."""
    first = {kind(cell): cell for cell in reversed(plan.cells)}
    short = tuple(replace(cell, settings={**cell.settings, "chunk": 1}) for cell in first.values())
    found: dict[tuple[str, str], Speed] = {}
    with begin_or_go_on(directory / "calibration", replace(plan, cells=short, judges=()), 1) as sweep:
        for start in range(0, len(short), workers):
            group = short[start : start + workers]
            began = time.perf_counter()
            processes = [start_at(sweep, cell, place) for place, cell in enumerate(group)]
            try:
                for cell, process in zip(group, processes, strict=True):
                    found[kind(cell)] = _speed(sweep, cell, process, began)
                    advance(len(found))
            finally:
                for process in processes:
                    process.kill()
                    process.wait()
    return found


def _speed(sweep: Sweep, cell: Cell, process: subprocess.Popen[bytes], began: float) -> Speed:
    """Watch a cell until it has done a few iterations, or ended."""
    seeds, started = len(cell.seeds), None
    while True:
        ended = process.poll() is not None
        lines = whole_lines(sweep.run_path(cell) / METRICS)
        if lines and started is None:
            started = time.perf_counter() - began
        if ended and len(lines) <= seeds:
            raise InputError(f"the cell {cell.name} cannot be timed: {sweep.error(cell)}")
        if started is not None and (ended or len(lines) >= LINES * seeds):
            return Speed(started, steps_per_second(lines, seeds))
        time.sleep(POLL_SECONDS)


def steps_per_second(lines: Sequence[Line], seeds: int) -> float:
    """Environment steps of all seeds of a training, from the first line of its log on: compiling was before."""
    first, last = lines[0], lines[-1]
    return seeds * (last["steps"] - first["steps"]) / max(last["seconds"] - first["seconds"], 1e-9)


def estimated_seconds(cell: Cell, speeds: Mapping[tuple[str, str], Speed]) -> float:
    """How long a cell's training takes, without its judges."""
    speed = speeds[kind(cell)]
    return speed.start_seconds + len(cell.seeds) * cell.steps / speed.steps_per_second
