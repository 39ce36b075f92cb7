"""Ray backend of sweeps: an existing cluster schedules the cells, and restarts those whose node died.

A node that can access the sweep directory works in it. Any other node works in a temporary copy of the cell's files and
sends back changes, so that a lost node costs no more than the work since the last checkpoint.
"""

import logging
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hopplus.core.errors import InputError, require
from hopplus.core.files import UNFINISHED, append_text, make_directory, write_bytes
from hopplus.sweeps.directory import CELLS, LOGS, PLAN, Sweep, open_sweep
from hopplus.sweeps.plan import Cell
from hopplus.sweeps.workers import (
    POLL_SECONDS,
    Show,
    SweepStatus,
    end,
    initial_status,
    settle,
    start_cell,
    wait_until_free,
)
from hopplus.training.run import LOCK

EXTRA = "ray"
"""Extra of the package that installs Ray."""
SEND_SECONDS = 5.0
"""Interval at which a node sends back changes."""
NODES_LOST = 20
"""Largest number of times that a cell may lose its node or process."""
REACHED_WITHIN, ENDS_WITHIN = 5.0, 60.0
"""Time limits in seconds: for a connection, and for the end of cancelled tasks."""
Files = dict[str, bytes]
"""Contents of files by path in the sweep directory."""


def connect(address: str) -> None:
    """Joins a cluster. Raises InputError if Ray is not installed or no cluster answers."""
    ray = require("ray", EXTRA)
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isdigit() and "/" not in host):
        raise InputError(f"the address of a Ray cluster is HOST:PORT or auto, not {address!r}")
    start = "start one with `ray start --head`, and run the sweep on one of its nodes"
    if address != "auto":
        try:
            socket.create_connection((host, int(port)), REACHED_WITHIN).close()
        except OSError as error:
            raise InputError(f"no Ray cluster answers at {address} ({error}): {start}") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, ignore_reinit_error=True)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"no Ray cluster can be joined at {address} ({str(error).splitlines()[0]}): {start}") from None


class Store:
    """Actor on the node of the sweep that gives other nodes access to the sweep directory."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._started: list[str] = []

    def started(self) -> list[str]:
        """Returns the cells that nodes have started, in order."""
        return self._started

    def start(self, name: str) -> Files:
        """Records that a node starts a cell, and returns the cell's files."""
        self._started.append(name)
        return files_of(self._path, name)

    def take(self, name: str, changed: Files, names: list[str]) -> None:
        """Writes changed files of a cell, then removes deleted ones: never the last checkpoint first."""
        for inner in sorted(changed, key=_comes_last):
            make_directory((self._path / inner).parent)
            write_bytes(self._path / inner, changed[inner])
        for old in set(names_of(self._path, name)) - set(names):
            (self._path / old).unlink(missing_ok=True)


def _comes_last(name: str) -> tuple[bool, str]:
    """Sort key that puts results last: a cell with results counts as done."""
    return "/evaluation/" in name or "/judged/" in name, name


def names_of(path: Path, name: str) -> list[str]:
    """Returns a cell's files by path in the sweep directory."""
    inside = [file for file in (path / CELLS / name).rglob("*") if file.is_file()]
    finished = [file for file in inside if file.name != LOCK and not file.name.startswith(UNFINISHED)]
    return [file.relative_to(path).as_posix() for file in [*finished, path / LOGS / f"{name}.txt"] if file.exists()]


def files_of(path: Path, name: str, known: Mapping[str, tuple[int, int]] | None = None) -> Files:
    """Returns the contents of a cell's files, or only of those whose time or size differs from `known`."""
    files: Files = {}
    for inner in names_of(path, name):
        try:
            if known is None or _state(path / inner) != known.get(inner):
                files[inner] = (path / inner).read_bytes()
        except FileNotFoundError:
            continue  # an old checkpoint that has just been removed
    return files


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


class Mirror:
    """Copy of a cell on a node, with a record of what has been sent to the store."""

    def __init__(self, path: Path, name: str, described: bytes, files: Files) -> None:
        self.path, self._name = path, name
        for part in (CELLS, LOGS):
            make_directory(path / part)
        write_bytes(path / PLAN, described)
        for inner, data in files.items():
            make_directory((path / inner).parent)
            write_bytes(path / inner, data)
        self._known = self._states()

    def changes(self) -> tuple[Files, list[str]]:
        """Returns the files changed since the last call, and the names of all files."""
        states = self._states()
        changed = files_of(self.path, self._name, self._known)
        self._known = states
        return changed, list(states)

    def _states(self) -> dict[str, tuple[int, int]]:
        states = {}
        for inner in names_of(self.path, self._name):
            try:
                states[inner] = _state(self.path / inner)
            except FileNotFoundError:
                continue
        return states


def work(path: str, described: bytes, name: str, identity: str, scratch: str | None, store: Any) -> int:
    """Runs the remaining commands of a cell on a node, and returns the exit code."""
    ray = require("ray", EXTRA)
    files: Any = ray.get(store.start.remote(name))
    if scratch is None and _is_here(Path(path), identity):
        sweep = open_sweep(Path(path))
        wait_until_free(sweep, sweep.plan.cell(name))
        return _watch(start_cell(sweep, sweep.plan.cell(name), sweep.plan.cpus), lambda: None)
    if scratch is not None:
        make_directory(Path(scratch))
    with tempfile.TemporaryDirectory(prefix="hopplus-", dir=scratch) as directory:
        mirror = Mirror(Path(directory), name, described, files)
        sweep = open_sweep(Path(directory))

        def send() -> None:
            ray.get(store.take.remote(name, *mirror.changes()))

        return _watch(start_cell(sweep, sweep.plan.cell(name), sweep.plan.cpus), send)


def _is_here(path: Path, identity: str) -> bool:
    """Returns whether the sweep directory has the same path on this node."""
    try:
        return open_sweep(path).identity == identity
    except InputError:
        return False


def _watch(process: subprocess.Popen[bytes], send: Callable[[], None]) -> int:
    """Waits for a cell's process, sending changes; a cancelled training saves a checkpoint first."""
    try:
        while True:
            try:
                return process.wait(SEND_SECONDS)
            except subprocess.TimeoutExpired:
                send()
    finally:
        end([process])
        send()


def run_on_ray(
    sweep: Sweep, retries: int, show: Show, should_stop: Callable[[], bool] = lambda: False, scratch: str | None = None
) -> SweepStatus:
    """Runs all cells that are not done on the cluster; like `run_here`, but scheduled by Ray."""
    ray, strategies = require("ray", EXTRA), require("ray.util.scheduling_strategies", EXTRA)
    status, path = initial_status(sweep), sweep.path.resolve()
    here: Any = strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    store: Any = ray.remote(num_cpus=0, scheduling_strategy=here)(Store).remote(str(path))
    needs = {"num_cpus": sweep.plan.cpus, "num_gpus": sweep.plan.gpus, "max_retries": NODES_LOST}
    remote: Any = ray.remote(**needs)(work)
    described = (path / PLAN).read_bytes()
    tasks: dict[Any, Cell] = {}
    tries: dict[str, int] = {}
    seen = 0

    def submit(name: str) -> None:
        tries[name] = tries.get(name, 0) + 1
        tasks[remote.remote(str(path), described, name, sweep.identity, scratch, store)] = sweep.plan.cell(name)

    try:
        for name in status.waiting:
            submit(name)
        while tasks:
            ended, _ = ray.wait(list(tasks), timeout=POLL_SECONDS)
            started = ray.get(store.started.remote())
            for name in started[seen:]:
                _note_started(sweep, status, name, tries[name])
            seen = len(started)
            for task in ended:
                cell = tasks.pop(task)
                settle(sweep, status, cell, _code(sweep, cell, task), tries[cell.name] <= retries)
                if cell.name in status.waiting:
                    submit(cell.name)
            show(status)
            if should_stop():
                raise KeyboardInterrupt
    finally:
        for task in tasks:
            ray.cancel(task)
        if tasks:
            ray.wait(list(tasks), num_returns=len(tasks), timeout=ENDS_WITHIN)
    return status


def _note_started(sweep: Sweep, status: SweepStatus, name: str, attempt: int) -> None:
    """Records that a node has started a cell, for the first time or after the loss of another node."""
    if name in status.waiting:
        status.waiting.remove(name)
    status.running[name] = time.perf_counter()
    sweep.note(sweep.plan.cell(name), attempt=attempt, began=True)


def _code(sweep: Sweep, cell: Cell, task: Any) -> int:
    """Returns the exit code of a task; if Ray could not run it, the reason goes to the cell's log."""
    ray, exceptions = require("ray", EXTRA), require("ray.exceptions", EXTRA)
    try:
        return ray.get(task)
    except exceptions.RayError as error:
        append_text(sweep.log_path(cell), f"Ray could not run it: {str(error).strip().splitlines()[-1]}\n")
        return 1
