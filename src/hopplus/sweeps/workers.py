"""Local backend of sweeps: each cell in its own process, several at a time."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hopplus.sweeps.directory import Sweep
from hopplus.sweeps.plan import Cell
from hopplus.training.run import is_locked

POLL_SECONDS = 0.2
LET_GO_SECONDS = 30.0
"""Longest wait for a run that is still locked by a process about to end."""
USERS_MISTAKE = 2
"""Exit code of a command that would fail again."""


@dataclass
class SweepStatus:
    """Progress of a sweep, by name of cell."""

    waiting: list[str] = field(default_factory=list)
    running: dict[str, float] = field(default_factory=dict)
    """Start times by `time.perf_counter`."""
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Reasons, in one sentence each."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Durations of the cells that were finished since the start."""


Show = Callable[[SweepStatus], None]
"""Shows the progress of a sweep."""


def own_cores() -> list[int]:
    """Returns the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def fitting_workers(cpus: int) -> int:
    """Returns how many cells of `cpus` cores fit on this machine at once."""
    return max(len(own_cores()) // cpus, 1)


def cores_of(place: int, cpus: int) -> list[int]:
    """Returns the cores of a worker; workers share cores only if there are too few."""
    cores = own_cores()
    return [cores[(place * cpus + number) % len(cores)] for number in range(min(cpus, len(cores)))]


def start_cell(
    sweep: Sweep, cell: Cell, threads: int, cores: Sequence[int] = (), gpu: int | None = None
) -> subprocess.Popen[bytes]:
    """Starts a process for the remaining commands of a cell.

    Args:
        sweep: The sweep.
        cell: The cell; output goes to its log.
        threads: Number of threads.
        cores: Cores to run on; empty for any.
        gpu: GPU to run on; None for any.
    """
    environment = {**os.environ, "NPROC": str(threads), "OMP_NUM_THREADS": str(threads)}
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
    command = [sys.executable, "-m", "hopplus.cli.sweep_cell", str(sweep.path), cell.name, ",".join(map(str, cores))]
    with sweep.log_path(cell).open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )


def start_at(sweep: Sweep, cell: Cell, place: int) -> subprocess.Popen[bytes]:
    """Starts a cell as one of the workers of this machine."""
    cores = cores_of(place, sweep.plan.cpus)
    return start_cell(sweep, cell, len(cores), cores, place if sweep.plan.gpus else None)


def run_here(
    sweep: Sweep, workers: int, retries: int, show: Show, should_stop: Callable[[], bool] = lambda: False
) -> SweepStatus:
    """Runs all cells that are not done.

    Args:
        sweep: The sweep.
        workers: Cells at a time.
        retries: Further attempts at a cell that fails; other cells continue.
        show: Called with the progress.
        should_stop: Stops the sweep early when true; trainings save a checkpoint first.
    """
    status = initial_status(sweep)
    places: dict[str, tuple[int, subprocess.Popen[bytes]]] = {}
    tries: dict[str, int] = {}
    try:
        while status.waiting or places:
            free = [place for place in range(workers) if place not in {place for place, _ in places.values()}]
            for place in free[: len(status.waiting)]:
                cell = sweep.plan.cell(status.waiting.pop(0))
                wait_until_free(sweep, cell)
                tries[cell.name] = tries.get(cell.name, 0) + 1
                sweep.note(cell, attempt=tries[cell.name], began=True)
                places[cell.name] = (place, start_at(sweep, cell, place))
                status.running[cell.name] = time.perf_counter()
            for name, (_, process) in list(places.items()):
                code = process.poll()
                if code is None:
                    continue
                del places[name]
                settle(sweep, status, sweep.plan.cell(name), code, tries[name] <= retries)
            show(status)
            if should_stop():
                raise KeyboardInterrupt
            time.sleep(POLL_SECONDS)
    finally:
        end([process for _, process in places.values()])
    return status


def initial_status(sweep: Sweep) -> SweepStatus:
    """Returns the cells that are done and those that wait.

    A cell that ended after its sweep was killed has no line among the attempts yet: it is added here.
    """
    done = [cell for cell in sweep.plan.cells if sweep.is_done(cell)]
    recorded = {line["cell"] for line in sweep.attempts() if line.get("code") == 0}
    for cell in done:
        if cell.name not in recorded:
            sweep.note(cell, code=0)
    names = [cell.name for cell in done]
    return SweepStatus(waiting=[cell.name for cell in sweep.plan.cells if cell.name not in names], done=names)


def settle(sweep: Sweep, status: SweepStatus, cell: Cell, code: int, again: bool) -> None:
    """Records the end of an attempt at a cell; a failed cell waits for another attempt if `again`."""
    now = time.perf_counter()
    seconds = now - status.running.pop(cell.name, now)
    entries: dict[str, Any] = {"seconds": round(seconds, 1), "code": code}
    if code == 0 and sweep.is_done(cell):
        status.done.append(cell.name)
        status.seconds[cell.name] = seconds
    else:
        entries["error"] = sweep.error(cell) if code else "its command ended without a result"
        if again and code != USERS_MISTAKE:
            status.waiting.append(cell.name)
        else:
            status.failed[cell.name] = entries["error"]
    sweep.note(cell, **entries)


def wait_until_free(sweep: Sweep, cell: Cell) -> None:
    """Waits until the process of a killed sweep, which ends by itself, has unlocked the run."""
    until = time.perf_counter() + LET_GO_SECONDS
    while is_locked(sweep.run_path(cell)) and time.perf_counter() < until:
        time.sleep(POLL_SECONDS)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Terminates processes and waits for them; trainings save a checkpoint first."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()
