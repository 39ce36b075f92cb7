"""A sweep's directory: its plan, its runs, and how it stands with each of them.

sweep.json (the plan, versions, commit), cells/NAME (an ordinary run directory each, with what its judges found in
judged/), logs/NAME.txt (what its commands said), attempts.jsonl (a line for every attempt at a cell), tables/. One
sweep at a time writes into it.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopplus.errors import InputError
from hopplus.files import append_text, make_directory, write_text
from hopplus.notation import file_name
from hopplus.sweeps.plan import Cell, Judge, Plan, from_description, split_seeds
from hopplus.training.run import CONFIG, EVALUATION, LOCK, METRICS, as_json, locked, provenance, read_run, whole_lines

PLAN, CELLS, LOGS, ATTEMPTS, JUDGED = "sweep.json", "cells", "logs", "attempts.jsonl", "judged"
TAIL = 20_000
"""So many bytes at the end of a file say how far a training is."""


@dataclass(frozen=True)
class Sweep:
    """A directory and the plan in it."""

    path: Path
    plan: Plan
    identity: str
    """When and where it was begun: a directory elsewhere with the same is the same one."""

    def run_path(self, cell: Cell) -> Path:
        return self.path / CELLS / cell.name

    def log_path(self, cell: Cell) -> Path:
        return self.path / LOGS / f"{cell.name}.txt"

    def judged_path(self, cell: Cell, judge: Judge) -> Path:
        return self.run_path(cell) / JUDGED / f"{file_name(judge.name, 80)}.json"

    def is_trained(self, cell: Cell) -> bool:
        """Whether its training has ended: it writes its final evaluation last."""
        return (self.run_path(cell) / EVALUATION / "final.json").is_file()

    def unjudged(self, cell: Cell) -> list[Judge]:
        """The judges of a cell that have not had their say."""
        return [judge for judge in self.judges(cell) if not self.judged_path(cell, judge).is_file()]

    def judges(self, cell: Cell) -> list[Judge]:
        """The judges of a cell."""
        return [judge for judge in self.plan.judges if judge.judges(cell)]

    def is_done(self, cell: Cell) -> bool:
        """Whether it is trained and judged."""
        return self.is_trained(cell) and not self.unjudged(cell)

    def commands(self, cell: Cell) -> list[list[str]]:
        """What is left to do for a cell, as commands after `hopplus`."""
        run, words = self.run_path(cell), []
        if not self.is_trained(cell):
            begun = (run / CONFIG).is_file()
            own = ["train", "--resume", str(run)] if begun else [*cell.words(), "--out", str(run)]
            plugin = ["--plugin", cell.settings["plugin"]] if begun and "plugin" in cell.settings else []
            words.append([*own, *plugin, "--no-report"])
        for judge in self.unjudged(cell):
            words.append([*judge.words(run), "--json", str(self.judged_path(cell, judge))])
        return words

    def fraction(self, cell: Cell) -> float:
        """How much of its training is done, from 0 to 1, as its log tells."""
        if self.is_trained(cell):
            return 1.0
        line = last_line(self.run_path(cell) / METRICS)
        return min(line.get("steps", 0) / cell.steps, 1.0)

    def note(self, cell: Cell, **said: Any) -> None:
        """Add a line about an attempt at a cell."""
        line = {"cell": cell.name, "at": time.strftime("%Y-%m-%dT%H:%M:%S"), **said}
        append_text(self.path / ATTEMPTS, as_json(line) + "\n")

    def attempts(self) -> list[dict[str, Any]]:
        """All lines about attempts; one that was cut off is not there."""
        return whole_lines(self.path / ATTEMPTS)

    def error(self, cell: Cell) -> str:
        """The last thing that a cell's commands said: why it failed."""
        with contextlib.suppress(OSError):
            text = self.log_path(cell).read_bytes()[-TAIL:].decode(errors="replace")
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            said = [line for line in lines if line.startswith("hopplus:")]
            return (said or lines or ["it said nothing"])[-1].removeprefix("hopplus: ")
        return "it said nothing"


def last_line(path: Path) -> dict[str, Any]:
    """The last whole line of a file of JSON lines; nothing where there is none."""
    with contextlib.suppress(OSError, ValueError, IndexError), path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(file.tell() - TAIL, 0))
        return json.loads(file.read().split(b"\n")[-2])
    return {}


def open_sweep(path: Path) -> Sweep:
    """The sweep that is in a directory; InputError where there is none."""
    try:
        found = json.loads((path / PLAN).read_text(encoding="utf-8"))
        return Sweep(path, from_description(found["plan"]), found["identity"])
    except FileNotFoundError:
        raise InputError(f"{path} is not a sweep: it has no {PLAN}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path / PLAN} does not describe a sweep: {error}") from None


@contextlib.contextmanager
def begin_or_go_on(path: Path, plan: Plan, workers: int) -> Iterator[Sweep]:
    """A sweep's directory, nobody else's as long as this lasts: a fresh one, or one that was begun with the same cells.

    Cells and judges may be added to a sweep that has begun; a cell that has been run must be what it was, and seeds
    stay in the runs that they were put in for the workers whom it was begun with.
    """
    begun = (path / PLAN).is_file()
    if path.is_dir() and not begun and any(file.name != LOCK for file in path.iterdir()):
        raise InputError(f"{path} is not empty, and not a sweep: choose another --out")
    make_directory(path)
    with locked(path, "another sweep is running in"):
        before = open_sweep(path) if begun else None
        plan = split_seeds(plan, before.plan.parts if before else -(-workers // len(plan.cells)))
        if before:
            _refuse_changes(before, plan)
        identity = before.identity if before else as_json(provenance())
        sweep = Sweep(path, plan, identity)
        write_text(path / ATTEMPTS, "".join(as_json(line) + "\n" for line in sweep.attempts()))
        described = {"identity": identity, "plan": plan.described()}
        write_text(path / PLAN, as_json(described, indent=2) + "\n")
        for part in (CELLS, LOGS):
            make_directory(path / part)
        yield sweep


def _refuse_changes(before: Sweep, plan: Plan) -> None:
    now = {cell.name: cell for cell in plan.cells}
    for cell in before.plan.cells:
        if not (before.run_path(cell) / CONFIG).is_file() or cell.name not in now:
            continue
        was, is_now = dict(cell.settings), dict(now[cell.name].settings)
        for key in sorted({*was, *is_now}):
            if was.get(key) != is_now.get(key):
                raise InputError(
                    f"the cell {cell.name} of {before.path} was run with {key} {was.get(key)!r}, and now it is"
                    f" {is_now.get(key)!r}: choose another --out, or give the cell another name"
                )


def figures(sweep: Sweep, cell: Cell) -> dict[str, Any]:
    """What is known of a cell that is done: its config, final evaluation, curve, and what its judges found."""
    run = read_run(sweep.run_path(cell))
    judged = {
        judge.name: json.loads(sweep.judged_path(cell, judge).read_text(encoding="utf-8"))
        for judge in sweep.judges(cell)
    }
    return {"config": run.config, "final": run.evaluations()["final"], "metrics": run.metrics(), "judged": judged}
