"""Cells in processes of their own, several at a time, on this machine."""

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
"""How long a run may still be held by a process that is about to end."""
USERS_MISTAKE = 2
"""The exit code of a command that would fail again."""


@dataclass
class Standing:
    """How a sweep stands: names of cells."""

    waiting: list[str] = field(default_factory=list)
    running: dict[str, float] = field(default_factory=dict)
    """When each began, by `time.perf_counter`."""
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Why, in one sentence."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long those that have been done since the start have taken."""


Show = Callable[[Standing], None]


def own_cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def fitting_workers(cpus: int) -> int:
    """How many cells of so many cores run at once without getting in each other's way."""
    return max(len(own_cores()) // cpus, 1)


def cores_of(place: int, cpus: int) -> list[int]:
    """The cores of the worker in a place, its own as long as there are enough."""
    cores = own_cores()
    return [cores[(place * cpus + number) % len(cores)] for number in range(min(cpus, len(cores)))]


def start_cell(
    sweep: Sweep, cell: Cell, threads: int, cores: Sequence[int] = (), gpu: int | None = None
) -> subprocess.Popen[bytes]:
    """A process that does what is left to do for a cell, with so many threads, on the given cores if any; what it says
    goes to the cell's log."""
    environment = {**os.environ, "NPROC": str(threads), "OMP_NUM_THREADS": str(threads)}
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
    command = [sys.executable, "-m", "hopplus.cli.cell", str(sweep.path), cell.name, ",".join(map(str, cores))]
    with sweep.log_path(cell).open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )


def start_at(sweep: Sweep, cell: Cell, place: int) -> subprocess.Popen[bytes]:
    """A cell in the place of one of the workers of this machine."""
    cores = cores_of(place, sweep.plan.cpus)
    return start_cell(sweep, cell, len(cores), cores, place if sweep.plan.gpus else None)


def run_here(
    sweep: Sweep, workers: int, retries: int, show: Show, should_stop: Callable[[], bool] = lambda: False
) -> Standing:
    """Run all cells that are not done, so many at a time; what fails is tried again, then left, and the rest goes on.

    Ends early where `should_stop` says so: then every training saves itself first.
    """
    standing = first_standing(sweep)
    places: dict[str, tuple[int, subprocess.Popen[bytes]]] = {}
    tries: dict[str, int] = {}
    try:
        while standing.waiting or places:
            free = [place for place in range(workers) if place not in {place for place, _ in places.values()}]
            for place in free[: len(standing.waiting)]:
                cell = sweep.plan.cell(standing.waiting.pop(0))
                wait_until_free(sweep, cell)
                tries[cell.name] = tries.get(cell.name, 0) + 1
                sweep.note(cell, attempt=tries[cell.name], began=True)
                places[cell.name] = (place, start_at(sweep, cell, place))
                standing.running[cell.name] = time.perf_counter()
            for name, (_, process) in list(places.items()):
                code = process.poll()
                if code is None:
                    continue
                del places[name]
                settle(sweep, standing, sweep.plan.cell(name), code, tries[name] <= retries)
            show(standing)
            if should_stop():
                raise KeyboardInterrupt
            time.sleep(POLL_SECONDS)
    finally:
        end([process for _, process in places.values()])
    return standing


def first_standing(sweep: Sweep) -> Standing:
    """Returns the cells that are done and those that wait.

    A cell that ended after its sweep was killed has no line in the attempts yet: it gets one here.
    """
    done = [cell for cell in sweep.plan.cells if sweep.is_done(cell)]
    recorded = {line["cell"] for line in sweep.attempts() if line.get("code") == 0}
    for cell in done:
        if cell.name not in recorded:
            sweep.note(cell, code=0)
    names = [cell.name for cell in done]
    return Standing(waiting=[cell.name for cell in sweep.plan.cells if cell.name not in names], done=names)


def settle(sweep: Sweep, standing: Standing, cell: Cell, code: int, again: bool) -> None:
    """Note how an attempt at a cell has ended; one that failed waits again, if it may, or has failed."""
    now = time.perf_counter()
    seconds = now - standing.running.pop(cell.name, now)
    said: dict[str, Any] = {"seconds": round(seconds, 1), "code": code}
    if code == 0 and sweep.is_done(cell):
        standing.done.append(cell.name)
        standing.seconds[cell.name] = seconds
    else:
        said["error"] = sweep.error(cell) if code else "its command ended without a result"
        if again and code != USERS_MISTAKE:
            standing.waiting.append(cell.name)
        else:
            standing.failed[cell.name] = said["error"]
    sweep.note(cell, **said)


def wait_until_free(sweep: Sweep, cell: Cell) -> None:
    """Wait for a process of a sweep that was killed, which ends by itself, to let go of its run."""
    until = time.perf_counter() + LET_GO_SECONDS
    while is_locked(sweep.run_path(cell)) and time.perf_counter() < until:
        time.sleep(POLL_SECONDS)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask processes to end, which trainings do after they have saved themselves, and wait for them."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()
