"""Duration estimates of a sweep: before the start by a short calibration, later from finished cells."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from hopplus.core.errors import InputError
from hopplus.sweeps.directory import Sweep, start_or_resume
from hopplus.sweeps.plan import Cell, SweepPlan
from hopplus.sweeps.workers import POLL_SECONDS, SweepStatus, start_at
from hopplus.training.logging import Line
from hopplus.training.run import METRICS, whole_lines

LINES = 4
"""Log lines per seed that a calibration waits for; the first is not timed."""


@dataclass(frozen=True)
class Speed:
    """Speed of a group of similar cells."""

    start_seconds: float
    """Time until the first iteration is done: start and compilation."""
    steps_per_second: float
    """Environment steps of all seeds after that."""


def cost_group(cell: Cell) -> tuple[str, str]:
    """Returns the algorithm with its preset, and the game: cells that share them take about the same time."""
    settings = cell.settings
    return f"{settings['algorithm']} {settings.get('preset', '')}".strip(), str(settings.get("game", ""))


def seconds_left(sweep: Sweep, status: SweepStatus, workers: int) -> float | None:
    """Returns the remaining time, estimated from similar cells, or else from all; None before any is known."""
    now = time.perf_counter()
    fractions = {name: sweep.fraction(sweep.plan.cell(name)) for name in status.running}
    known = dict(status.seconds)
    for name, began in status.running.items():
        if fractions[name] > 0:
            known[name] = (now - began) / fractions[name]
    if not known:
        return None
    left = {
        name: known.get(name, _from_similar(sweep.plan, known, name)) * (1 - fraction)
        for name, fraction in fractions.items()
    }
    waiting = sum(_from_similar(sweep.plan, known, name) for name in status.waiting)
    return max([*left.values(), (sum(left.values()) + waiting) / workers])


def _from_similar(plan: SweepPlan, known: Mapping[str, float], name: str) -> float:
    """Returns the estimated seconds of a cell from similar ones."""
    same = [seconds for other, seconds in known.items() if cost_group(plan.cell(other)) == cost_group(plan.cell(name))]
    return fmean(same or known.values())


def calibrate(
    plan: SweepPlan, workers: int, directory: Path, advance: Callable[[int], None]
) -> dict[tuple[str, str], Speed]:
    """Returns the speed of every group of similar cells.

    One cell of each group runs for a few iterations in a temporary directory, as many at a time as in the sweep.
    """
    first = {cost_group(cell): cell for cell in reversed(plan.cells)}
    short = tuple(replace(cell, settings={**cell.settings, "iterations_per_call": 1}) for cell in first.values())
    speeds: dict[tuple[str, str], Speed] = {}
    with start_or_resume(directory / "calibration", replace(plan, cells=short, judges=()), 1) as sweep:
        for start in range(0, len(short), workers):
            group = short[start : start + workers]
            began = time.perf_counter()
            processes = [start_at(sweep, cell, place) for place, cell in enumerate(group)]
            try:
                for cell, process in zip(group, processes, strict=True):
                    speeds[cost_group(cell)] = _speed(sweep, cell, process, began)
                    advance(len(speeds))
            finally:
                for process in processes:
                    process.kill()
                    process.wait()
    return speeds


def _speed(sweep: Sweep, cell: Cell, process: subprocess.Popen[bytes], began: float) -> Speed:
    """Waits until a cell has done a few iterations or ended, and returns its speed."""
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
    """Returns environment steps per second of all seeds, after the first log line, which includes compilation."""
    first, last = lines[0], lines[-1]
    return seeds * (last["steps"] - first["steps"]) / max(last["seconds"] - first["seconds"], 1e-9)


def estimated_seconds(cell: Cell, speeds: Mapping[tuple[str, str], Speed]) -> float:
    """Returns the estimated duration of a cell's training, without its judges."""
    speed = speeds[cost_group(cell)]
    return speed.start_seconds + len(cell.seeds) * cell.steps / speed.steps_per_second
