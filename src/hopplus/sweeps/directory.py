"""Sweep directory: the plan, the runs, and their progress.

sweep.json (plan, versions, commit), cells/NAME (ordinary run directories, with the results of judges in judged/),
logs/NAME.txt (output of commands), attempts.jsonl (one line per attempt at a cell), tables/. Only one sweep at a time
writes to it.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopplus.core.errors import InputError
from hopplus.core.files import append_text, check_format, make_directory, write_text
from hopplus.core.formatting import file_name
from hopplus.sweeps.plan import Cell, Judge, SweepPlan, from_description, split_seeds
from hopplus.training.run import CONFIG, EVALUATION, LOCK, METRICS, as_json, locked, provenance, read_run, whole_lines

FORMAT = 1
"""Format of a sweep directory, in its sweep.json."""
PLAN, CELLS, LOGS, ATTEMPTS, JUDGED = "sweep.json", "cells", "logs", "attempts.jsonl", "judged"
TAIL = 20_000
"""Bytes at the end of a file that are read for the progress of a training."""


NO_OUTPUT = "it printed nothing"


@dataclass(frozen=True)
class Sweep:
    """Sweep directory with its plan."""

    path: Path
    plan: SweepPlan
    identity: str
    """Time and place of the sweep's start; equal for the same directory seen from another machine."""

    def run_path(self, cell: Cell) -> Path:
        """Returns the run directory of a cell."""
        return self.path / CELLS / cell.name

    def log_path(self, cell: Cell) -> Path:
        """Returns the log file of a cell."""
        return self.path / LOGS / f"{cell.name}.txt"

    def judged_path(self, cell: Cell, judge: Judge) -> Path:
        """Returns the result file of a judge."""
        return self.run_path(cell) / JUDGED / f"{file_name(judge.name, 80)}.json"

    def is_trained(self, cell: Cell) -> bool:
        """Returns whether the training has ended: its final evaluation is written last."""
        return (self.run_path(cell) / EVALUATION / "final.json").is_file()

    def unjudged(self, cell: Cell) -> list[Judge]:
        """Returns the judges of a cell without a result."""
        return [judge for judge in self.judges(cell) if not self.judged_path(cell, judge).is_file()]

    def judges(self, cell: Cell) -> list[Judge]:
        """Returns the judges of a cell."""
        return [judge for judge in self.plan.judges if judge.judges(cell)]

    def is_done(self, cell: Cell) -> bool:
        """Returns whether a cell is trained and judged."""
        return self.is_trained(cell) and not self.unjudged(cell)

    def commands(self, cell: Cell) -> list[list[str]]:
        """Returns the remaining commands of a cell, as arguments of `hopplus`."""
        run, commands = self.run_path(cell), []
        if not self.is_trained(cell):
            is_resumed = (run / CONFIG).is_file()
            train = ["train", "--resume", str(run)] if is_resumed else [*cell.argv(), "--out", str(run)]
            plugin = ["--plugin", cell.settings["plugin"]] if is_resumed and "plugin" in cell.settings else []
            commands.append([*train, *plugin, "--no-report"])
        for judge in self.unjudged(cell):
            commands.append([*judge.argv(run), "--json", str(self.judged_path(cell, judge))])
        return commands

    def fraction(self, cell: Cell) -> float:
        """Returns the completed fraction of a training, from its log."""
        if self.is_trained(cell):
            return 1.0
        line = last_line(self.run_path(cell) / METRICS)
        return min(line.get("steps", 0) / cell.steps, 1.0)

    def note(self, cell: Cell, **entries: Any) -> None:
        """Adds a line about an attempt at a cell."""
        line = {"cell": cell.name, "at": time.strftime("%Y-%m-%dT%H:%M:%S"), **entries}
        append_text(self.path / ATTEMPTS, as_json(line) + "\n")

    def attempts(self) -> list[dict[str, Any]]:
        """Returns all complete lines about attempts."""
        return whole_lines(self.path / ATTEMPTS)

    def error(self, cell: Cell) -> str:
        """Returns the last message of a cell's commands: the reason of a failure."""
        with contextlib.suppress(OSError):
            text = self.log_path(cell).read_bytes()[-TAIL:].decode(errors="replace")
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            messages = [line for line in lines if line.startswith("hopplus:")]
            return (messages or lines or [NO_OUTPUT])[-1].removeprefix("hopplus: ")
        return NO_OUTPUT


def last_line(path: Path) -> dict[str, Any]:
    """Returns the last complete line of a file of JSON lines; empty if there is none."""
    with contextlib.suppress(OSError, ValueError, IndexError), path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(file.tell() - TAIL, 0))
        return json.loads(file.read().split(b"\n")[-2])
    return {}


def open_sweep(path: Path) -> Sweep:
    """Returns the sweep of a directory. Raises InputError if there is none."""
    try:
        saved = dict(json.loads((path / PLAN).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InputError(f"{path} is not a sweep: it has no {PLAN}") from None
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path / PLAN} does not describe a sweep: {error}") from None
    check_format(path / PLAN, saved.get("format"), FORMAT)
    try:
        return Sweep(path, from_description(saved["plan"]), saved["identity"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path / PLAN} does not describe a sweep: {error}") from None


@contextlib.contextmanager
def start_or_resume(path: Path, plan: SweepPlan, workers: int) -> Iterator[Sweep]:
    """Creates or resumes a sweep directory, and locks it.

    Cells and judges may be added to a sweep that has started. Cells that have been run must not change. The split of
    seeds into runs stays as it was for the number of workers at the start.
    """
    is_resumed = (path / PLAN).is_file()
    if path.is_dir() and not is_resumed and any(file.name != LOCK for file in path.iterdir()):
        raise InputError(f"{path} is not empty, and not a sweep: choose another --out")
    make_directory(path)
    with locked(path, "another sweep is running in"):
        before = open_sweep(path) if is_resumed else None
        plan = split_seeds(plan, before.plan.parts if before else -(-workers // len(plan.cells)))
        if before:
            _refuse_changes(before, plan)
        identity = before.identity if before else as_json(provenance())
        sweep = Sweep(path, plan, identity)
        described = {"format": FORMAT, "identity": identity, "plan": plan.described()}
        write_text(path / PLAN, as_json(described, indent=2) + "\n")
        write_text(path / ATTEMPTS, "".join(as_json(line) + "\n" for line in sweep.attempts()))
        for part in (CELLS, LOGS):
            make_directory(path / part)
        yield sweep


def _refuse_changes(before: Sweep, plan: SweepPlan) -> None:
    planned = {cell.name: cell for cell in plan.cells}
    for cell in before.plan.cells:
        if not (before.run_path(cell) / CONFIG).is_file() or cell.name not in planned:
            continue
        old, new = dict(cell.settings), dict(planned[cell.name].settings)
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                raise InputError(
                    f"the cell {cell.name} of {before.path} was run with {key} {old.get(key)!r}, and now it is"
                    f" {new.get(key)!r}: choose another --out, or give the cell another name"
                )


def figures(sweep: Sweep, cell: Cell) -> dict[str, Any]:
    """Returns the config, final evaluation, metrics and results of judges of a finished cell."""
    run = read_run(sweep.run_path(cell))
    judged = {
        judge.name: json.loads(sweep.judged_path(cell, judge).read_text(encoding="utf-8"))
        for judge in sweep.judges(cell)
    }
    return {"config": run.config, "final": run.evaluations()["final"], "metrics": run.metrics(), "judged": judged}
