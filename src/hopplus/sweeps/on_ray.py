"""The same sweep on a Ray cluster that is there already: Ray places the cells, and runs those again whose node died.

A node that sees the sweep's directory works in it. Any other works in a directory of its own, which begins with what is
known of the cell, and sends back what changes; so that no more is lost with a node than since its last checkpoint.
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

from hopplus.errors import InputError, require
from hopplus.files import UNFINISHED, append_text, make_directory, write_bytes
from hopplus.sweeps.directory import CELLS, LOGS, PLAN, Sweep, open_sweep
from hopplus.sweeps.plan import Cell
from hopplus.sweeps.workers import (
    POLL_SECONDS,
    Show,
    Standing,
    end,
    first_standing,
    settle,
    start_cell,
    wait_until_free,
)
from hopplus.training.run import LOCK

EXTRA = "ray"
"""The extra of the package that installs Ray."""
SEND_SECONDS = 5.0
"""How often a node sends back what has changed."""
NODES_LOST = 20
"""How often a cell may lose the node or process that it runs on."""
REACHED_WITHIN, ENDS_WITHIN = 5.0, 60.0
"""Seconds."""
Files = dict[str, bytes]
"""What is in files, by their path in the sweep's directory."""


def connect(address: str) -> None:
    """Join a cluster; InputError where Ray is not installed, or nobody answers."""
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
    """The sweep's directory, beside whoever runs the sweep, as the nodes see it."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._begun: list[str] = []

    def begun(self) -> list[str]:
        """Cells that a node has begun with, in order."""
        return self._begun

    def begin(self, name: str) -> Files:
        """Note that a node begins with a cell; gives what is known of it."""
        self._begun.append(name)
        return files_of(self._path, name)

    def take(self, name: str, changed: Files, names: list[str]) -> None:
        """Write what has changed of a cell, then remove what is not there any more: never the last checkpoint first."""
        for inner in sorted(changed, key=_comes_last):
            make_directory((self._path / inner).parent)
            write_bytes(self._path / inner, changed[inner])
        for old in set(names_of(self._path, name)) - set(names):
            (self._path / old).unlink(missing_ok=True)


def _comes_last(name: str) -> tuple[bool, str]:
    """Results come after what they are results of: where they are, a cell counts as done."""
    return "/evaluation/" in name or "/judged/" in name, name


def names_of(path: Path, name: str) -> list[str]:
    """A cell's files, by their path in the sweep's directory."""
    inside = [file for file in (path / CELLS / name).rglob("*") if file.is_file()]
    own = [file for file in inside if file.name != LOCK and not file.name.startswith(UNFINISHED)]
    return [file.relative_to(path).as_posix() for file in [*own, path / LOGS / f"{name}.txt"] if file.exists()]


def files_of(path: Path, name: str, known: Mapping[str, tuple[int, int]] | None = None) -> Files:
    """What is in a cell's files, or in those that have changed since their times and sizes were known."""
    found: Files = {}
    for inner in names_of(path, name):
        try:
            if known is None or _state(path / inner) != known.get(inner):
                found[inner] = (path / inner).read_bytes()
        except FileNotFoundError:
            continue  # an old checkpoint that has just been removed
    return found


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


class Mirror:
    """A cell in a directory of a node's own, and what the store has been sent of it."""

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
        """What has changed since this was asked last, and the names of all files."""
        states = self._states()
        changed = files_of(self.path, self._name, self._known)
        self._known = states
        return changed, list(states)

    def _states(self) -> dict[str, tuple[int, int]]:
        found = {}
        for inner in names_of(self.path, self._name):
            try:
                found[inner] = _state(self.path / inner)
            except FileNotFoundError:
                continue
        return found


def work(path: str, described: bytes, name: str, identity: str, scratch: str | None, store: Any) -> int:
    """On a node: do what is left to do for a cell; its exit code."""
    ray = require("ray", EXTRA)
    files: Any = ray.get(store.begin.remote(name))
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
    """Whether the sweep's directory is seen under the same name on this node."""
    try:
        return open_sweep(path).identity == identity
    except InputError:
        return False


def _watch(process: subprocess.Popen[bytes], send: Callable[[], None]) -> int:
    """Wait for a cell's process, sending what changes; if it is cancelled, the training saves itself first."""
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
) -> Standing:
    """Run all cells that are not done on the cluster; as `run_here`, but that Ray decides when and where."""
    ray, strategies = require("ray", EXTRA), require("ray.util.scheduling_strategies", EXTRA)
    standing, path = first_standing(sweep), sweep.path.resolve()
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
        for name in standing.waiting:
            submit(name)
        while tasks:
            ended, _ = ray.wait(list(tasks), timeout=POLL_SECONDS)
            begun = ray.get(store.begun.remote())
            for name in begun[seen:]:
                _note_begun(sweep, standing, name, tries[name])
            seen = len(begun)
            for task in ended:
                cell = tasks.pop(task)
                settle(sweep, standing, cell, _code(sweep, cell, task), tries[cell.name] <= retries)
                if cell.name in standing.waiting:
                    submit(cell.name)
            show(standing)
            if should_stop():
                raise KeyboardInterrupt
    finally:
        for task in tasks:
            ray.cancel(task)
        if tasks:
            ray.wait(list(tasks), num_returns=len(tasks), timeout=ENDS_WITHIN)
    return standing


def _note_begun(sweep: Sweep, standing: Standing, name: str, attempt: int) -> None:
    """A node has begun with a cell, for the first time or after another was lost."""
    if name in standing.waiting:
        standing.waiting.remove(name)
    standing.running[name] = time.perf_counter()
    sweep.note(sweep.plan.cell(name), attempt=attempt, began=True)


def _code(sweep: Sweep, cell: Cell, task: Any) -> int:
    """How a task has ended; where Ray could not run it, the cell's log says why."""
    ray, exceptions = require("ray", EXTRA), require("ray.exceptions", EXTRA)
    try:
        return ray.get(task)
    except exceptions.RayError as error:
        append_text(sweep.log_path(cell), f"Ray could not run it: {str(error).strip().splitlines()[-1]}\n")
        return 1
